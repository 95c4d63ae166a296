#include "schedule/candidates.h"

#include <string>
#include <unordered_map>

#include "analysis/refusal.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool IsReadOutside(const Scope& scope, const SBlock& root, const Var& buffer) {
  if (root.same_as(scope.root)) return false;
  // The reduction itself reads its accumulator: any further statement is another reader.
  size_t readers = 0;
  for (const Site& site : Scope(root).sites) readers += site.Touches(buffer.get(), Use::kRead);
  return readers > 1;
}

}  // namespace

const Site& SiteIn(const Scope& scope, const SBlock& block) {
  if (const Site* site = scope.Find(block)) return *site;
  if (block.same_as(scope.root)) {
    throw Refusal(Code::kWrongPair, block,
                  "block " + Quoted(block) + " is the scope of the other block");
  }
  throw Refusal(Code::kStructure, block,
                "block " + Quoted(block) + " is not directly in block " + Quoted(scope.root));
}

std::vector<SBlock> ReductionsReadBy(const Scope& scope, const Site& consumer) {
  std::vector<SBlock> direct, through_tails;
  for (auto it = scope.sites.rbegin(); it != scope.sites.rend(); ++it) {
    if (!it->is_block() || &*it == &consumer || !LooksLikeReduction(it->block())) continue;
    bool reads = false;
    for (const TensorRegion& region : it->block().writes()) {
      reads = reads || consumer.Touches(region.source().get(), Use::kRead);
    }
    if (reads) {
      direct.push_back(it->block());
      continue;
    }
    try {
      for (const Tail& tail : FindRegion(scope, *it).tails) {
        if (!consumer.Touches(tail.output.get(), Use::kRead)) continue;
        through_tails.push_back(it->block());
        break;
      }
    } catch (const Refusal&) {
      // Not a reduction that has tails.
    }
  }
  return direct.empty() ? through_tails : direct;
}

std::vector<const Site*> Candidates(const Scope& scope, const Region& region) {
  std::vector<const Site*> before, after;
  const Site& reduction = *region.reduction.site;
  std::unordered_map<VarKey, size_t> produced;
  for (size_t i = 0; i < region.produced.size(); ++i) {
    produced.emplace(region.produced[i].buffer.get(), i);
  }
  for (const Site& site : scope.sites) {
    if (&site == &reduction || !site.is_block()) continue;
    // The first in the order of the region, wherever it is read.
    const Site* writer = nullptr;
    size_t first = region.produced.size();
    for (const Access& access : site.accesses) {
      auto read = access.use == Use::kRead ? produced.find(access.buffer) : produced.end();
      if (read == produced.end() || read->second >= first) continue;
      size_t i = read->second;
      const Site& by = i == 0 ? reduction : *region.tails[i - 1].site;
      if (&site == &by || (i > 0 && site.position < by.position)) continue;
      first = i;
      writer = &by;
    }
    if (writer) (site.position < writer->position ? before : after).push_back(&site);
  }
  return after.empty() ? before : after;
}

void RefuseWithoutCandidates(const Scope& scope, const SBlock& root, const Region& region) {
  const Reduction& reduction = region.reduction;
  SBlock block = reduction.site->block();
  std::string result = "the result " + Quoted(reduction.accumulator) + " of block " + Quoted(block);
  if (!ReadersOf(scope, *reduction.site, reduction.accumulator).empty()) {
    throw Refusal(Code::kConsumerForm, block,
                  result + " is read by a statement outside of any block");
  }
  if (IsReadOutside(scope, root, reduction.accumulator)) {
    throw Refusal(Code::kStructure, block,
                  result + " is read outside of block " + Quoted(scope.root));
  }
  throw Refusal(Code::kNoConsumer, block,
                "nothing in its scope reads " + Quoted(reduction.accumulator) +
                    ", the result of block " + Quoted(block));
}

}  // namespace fuse_epilogue
