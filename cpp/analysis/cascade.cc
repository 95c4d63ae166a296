#include "analysis/cascade.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "analysis/cascade_laws.h"
#include "analysis/cascade_parts.h"
#include "analysis/cascade_stage.h"
#include "analysis/dataflow.h"
#include "analysis/hazards.h"
#include "analysis/region.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

constexpr int64_t kDefaultFactor = 64;
// So that no index of 32 bits overflows: the keys of one block of each part.
constexpr int64_t kLargestFactor = int64_t{1} << 30;

class Finder {
 public:
  Finder(const Scope& scope, const SBlock& block, const CascadeOptions& options)
      : scope_(scope), flow_(scope), block_(block), options_(options) {}

  Cascade Find() {
    const Site* named = scope_.Find(block_);
    if (named == nullptr) {
      throw Refusal(Code::kStructure, block_,
                    "block " + Quoted(block_) + " is not directly in the root block");
    }
    const Site& wanted = LooksLikeReduction(block_) ? *named : NearestReduction(*named);
    std::optional<Refusal> first;
    while (true) {
      const Site& head = HeadOf(wanted);
      try {
        return FindFrom(head, wanted);
      } catch (const Refusal& refusal) {
        if (!first) first = refusal;
        if (first->code != Code::kCascadeDomain || &head == &wanted) throw *first;
        // A sum over other keys, such as scores of a single key, is an input of the rows.
        inputs_.insert(&head);
      }
    }
  }

 private:
  Cascade FindFrom(const Site& head, const Site& wanted) {
    cascade_ = Cascade();
    ReadHead(head);
    std::optional<Refusal> of_wanted;
    for (const Site& site : scope_.sites) {
      if (site.position <= head.position || !site.is_block()) continue;
      if (!LooksLikeReduction(site.block()) || !ReadsStage(site)) continue;
      try {
        AddStage(site);
      } catch (const Refusal& refusal) {
        bool unrelated = refusal.code == Code::kNoCascade && &site != &wanted;
        if (!unrelated && !cascade_.stopped) cascade_.stopped = refusal;
        if (&site == &wanted) of_wanted = refusal;
      }
    }
    if (of_wanted && of_wanted->code == Code::kNoCascade && cascade_.stopped) {
      throw *cascade_.stopped;
    }
    if (of_wanted) throw *of_wanted;
    if (cascade_.stages.size() == num_heads_) {
      if (cascade_.stopped) throw *cascade_.stopped;
      if (why_) throw *why_;
      throw Refusal(Code::kNoCascade, block_,
                    "no reduction reads the result of block " + Quoted(head.block()) + " by rows");
    }
    Block();
    if (cascade_.parts > 1) DivideIntoParts(options_, &cascade_);
    SortBetween();
    cascade_.expand = nullptr;
    return std::move(cascade_);
  }

  const Site& NearestReduction(const Site& site) {
    const Site* nearest = nullptr;
    for (const Site* source : flow_.ReductionsBefore(site)) nearest = source;
    if (nearest == nullptr) {
      throw Refusal(Code::kNoCascade, block_,
                    "block " + Quoted(block_) +
                        " neither is a reduction nor reads a reduction's "
                        "result");
    }
    return *nearest;
  }

  // The first reduction whose result this one reads by rows, through any number of others.
  const Site& HeadOf(const Site& site) {
    for (const Site* source : flow_.ReductionsBefore(site)) {
      if (inputs_.count(source)) continue;
      if (flow_.ReadsByRows(site, *source, &why_)) return HeadOf(*source);
    }
    return site;
  }

  void ReadHead(const Site& head) {
    std::vector<CascadeStage> stages =
        ReadHeadStages(head, options_, &cascade_.rows, &cascade_.keys);
    cascade_.count = MakeVar("count", cascade_.keys[0].var);
    cascade_.total = MakeVar("total", cascade_.keys[0].var);
    cascade_.expand = [this](const Expr& expr) { return flow_.Expand(expr); };
    for (const CascadeStage& stage : stages) {
      CheckOnlyWriter(scope_, stage.reduction.accumulator, head);
    }
    cascade_.stages = std::move(stages);
    num_heads_ = cascade_.stages.size();
  }

  bool ReadsStage(const Site& site) {
    for (const Site* source : flow_.ReductionsBefore(site)) {
      for (const CascadeStage& stage : cascade_.stages) {
        if (stage.reduction.site == source) return true;
      }
    }
    return false;
  }

  void AddStage(const Site& site) {
    for (const Site* source : flow_.ReductionsBefore(site)) {
      bool is_stage = false, depends = ReadsStage(*source);
      for (const CascadeStage& stage : cascade_.stages) {
        is_stage = is_stage || stage.reduction.site == source;
      }
      if (is_stage || !depends) continue;
      throw Refusal(Code::kNoCascade, site.block(),
                    "block " + Quoted(site.block()) + " reads the result of block " +
                        Quoted(source->block()) + ", which is computed after the cascade");
    }
    CascadeStage stage = ReadStage(site, options_, flow_, cascade_);
    CheckOnlyWriter(scope_, stage.reduction.accumulator, site);
    ApplyLaws(cascade_, options_, &stage);
    cascade_.stages.push_back(std::move(stage));
  }

  // Which axis is blocked, by how many keys, and in how many parts.
  void Block() {
    if (options_.loop) FindLoop();
    int64_t factor = options_.factor, parts = options_.parts;
    if (factor < 0 || factor > kLargestFactor) {
      ThrowLoop("the factor is " + std::to_string(factor));
    }
    if (parts < 1 || parts > kLargestFactor) {
      ThrowLoop("the number of parts is " + std::to_string(parts));
    }
    auto extent = As<IntImm>(cascade_.keys[cascade_.shared].extent);
    int64_t most = extent ? extent->value() : kLargestFactor;
    if (factor == 0) {
      factor = kDefaultFactor;
      most = std::min(most, (most + parts - 1) / parts);
    }
    cascade_.factor = std::min(factor, most);
    cascade_.parts = parts;
    if (cascade_.factor > kLargestFactor / parts) {
      ThrowLoop(std::to_string(parts) + " parts have blocks of " + std::to_string(cascade_.factor) +
                " keys");
    }
  }

  void FindLoop() {
    for (const CascadeStage& stage : cascade_.stages) {
      auto values = stage.reduction.site->realize.iter_values();
      size_t i = 0;
      for (const IterVar& iter : stage.block().iter_vars()) {
        Expr value = values[i++];
        if (iter.iter_type() != kCommReduce || !value.same_as(*options_.loop)) continue;
        Expr key = stage.axes.at(iter.var().get());
        for (size_t k = 0; k < cascade_.keys.size(); ++k) {
          if (cascade_.keys[k].var.same_as(key)) cascade_.shared = k;
        }
        return;
      }
    }
    ThrowLoop("loop " + Quoted(*options_.loop) + " is not the loop of one of its reduction axes");
  }

  [[noreturn]] void ThrowLoop(const std::string& what) {
    throw Refusal(Code::kCascadeLoop, block_, "block " + Quoted(block_) + ": " + what);
  }

  // Elementwise blocks whose every reader is a reduction of the cascade, or another such block.
  void SortBetween() {
    std::set<const Site*> stages;
    for (const CascadeStage& stage : cascade_.stages) stages.insert(stage.reduction.site);
    std::set<const Site*> gone;
    for (auto it = scope_.sites.rbegin(); it != scope_.sites.rend(); ++it) {
      if (!it->is_block() || stages.count(&*it) || !ReadsStage(*it)) continue;
      auto between = flow_.Elementwise(*it);
      bool inlined = between && Owns(scope_.root, between->output);
      bool read = false;
      for (const Site& reader : scope_.sites) {
        if (!inlined || &reader == &*it || !reader.Touches(between->output.get(), Use::kRead)) {
          continue;
        }
        read = true;
        inlined = stages.count(&reader) > 0 || gone.count(&reader) > 0;
      }
      if (inlined && read) gone.insert(&*it);
    }
    for (const Site& site : scope_.sites) {
      if (gone.count(&site)) {
        cascade_.gone.push_back(&site);
      } else if (site.is_block() && !stages.count(&site) && ReadsStage(site)) {
        cascade_.after.push_back(&site);
      }
    }
  }

  const Scope& scope_;
  Dataflow flow_;
  SBlock block_;
  const CascadeOptions& options_;
  Cascade cascade_;
  size_t num_heads_ = 1;
  // Reductions that are not part of the cascade, although their results are read by rows.
  std::set<const Site*> inputs_;
  // Why a reduction is not known to read another one by rows.
  std::optional<Refusal> why_;
};

}  // namespace

const char* RuleName(Rule rule) {
  switch (rule) {
    case Rule::kHead:
      return "head";
    case Rule::kDefer:
      return "defer";
    case Rule::kRoll:
      return "roll";
    case Rule::kMix:
      return "mix";
    case Rule::kBasis:
      return "basis";
    case Rule::kSelect:
      return "select";
  }
  return "";
}

VarSet Cascade::KeyVars() const {
  VarSet vars;
  for (const Axis& key : keys) vars.insert(key.var.get());
  return vars;
}

VarSet Cascade::ValueVars() const {
  VarSet vars;
  for (const CascadeStage& stage : stages) vars.insert(stage.value.get());
  return vars;
}

Cascade FindCascade(const Scope& scope, const SBlock& block, const CascadeOptions& options) {
  return Finder(scope, block, options).Find();
}

}  // namespace fuse_epilogue
