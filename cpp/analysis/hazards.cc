#include "analysis/hazards.h"

#include "analysis/assumptions.h"
#include "analysis/defined.h"
#include "analysis/refusal.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

std::string NameOf(const Site& site) {
  return site.is_block() ? "block " + Quoted(site.block()) : "a statement outside any block";
}

std::vector<ffi::ObjectRef> MarkOf(const Site& site) {
  if (site.is_block()) return {site.block()};
  return site.path.empty() ? std::vector<ffi::ObjectRef>{}
                           : std::vector<ffi::ObjectRef>{site.path.back().stmt};
}

class ShiftedLoad : public StmtExprVisitor {
 public:
  explicit ShiftedLoad(const Epilogue& epilogue) : epilogue_(epilogue) {}
  std::optional<TensorLoad> found;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad& op) override {
    if (op.source().same_as(epilogue_.output) && !DeepEqual(op.indices(), epilogue_.out_indices)) {
      found = op;
    }
    (*this)(op.indices());
  }

 private:
  const Epilogue& epilogue_;
};

// Where a statement stands with respect to the two blocks.
enum class Stage { kElsewhere, kReductionNest, kBetween, kEpilogueNest };

Stage StageOf(const Site& site, const Site& producer, const Site& consumer) {
  size_t shared = CommonSteps(producer, consumer);
  if (CommonSteps(site, producer) > shared) return Stage::kReductionNest;
  if (CommonSteps(site, consumer) > shared) return Stage::kEpilogueNest;
  // Neither: between them only if it stands in the same sequence.
  if (CommonSteps(site, producer) < shared || site.path.size() <= shared) return Stage::kElsewhere;
  size_t child = site.path[shared].child;
  bool between = producer.path[shared].child < child && child < consumer.path[shared].child;
  return between ? Stage::kBetween : Stage::kElsewhere;
}

// What a block reads besides what is produced for it.
VarSet InputsOf(const Site& site, const std::vector<Produced>& produced) {
  VarSet inputs;
  for (const Access& access : site.accesses) {
    if (access.use == Use::kRead) inputs.insert(access.buffer);
  }
  for (const Produced& one : produced) inputs.erase(one.buffer.get());
  return inputs;
}

// Whether a loop that is not around the reduction repeats a block.
bool IsRepeated(const Site& site, const Site& producer) {
  VarSet used = VarsIn(site.realize.iter_values());
  for (size_t i = CommonSteps(site, producer); i < site.path.size(); ++i) {
    auto loop = As<For>(site.path[i].stmt);
    if (loop && !IsConst(loop->extent(), 1) && !used.count(loop->loop_var().get())) return true;
  }
  return false;
}

// TVM gives the output of the last block that reads a buffer the memory of that buffer. If the
// block is repeated, the second time it would read what it has written.
void CheckNotReadInRepeated(const Scope& scope, const Site& producer, const Site& consumer) {
  VarSet kept;
  for (const Var& buffer : scope.root.alloc_buffers()) {
    if (consumer.Touches(buffer.get(), Use::kRead)) kept.insert(buffer.get());
  }
  for (const Site& site : scope.sites) {
    bool between = producer.position < site.position && site.position < consumer.position;
    if (!between || !site.is_block() || !site.ReadsAny(kept)) continue;
    if (!IsRepeated(site, producer)) continue;
    Refuse(Code::kConsumerDomain, site.block(),
           "a loop repeats block " + Quoted(site.block()) + ", which reads what block " +
               Quoted(consumer.block()) + " reads after it: TVM might let it write there");
  }
}

// Where the program ends between the two blocks, the epilogue is not evaluated.
void CheckReached(const Scope& scope, const Site& producer, const Epilogue& epilogue) {
  const Site& consumer = *epilogue.site;
  for (const Site& site : scope.sites) {
    if (!site.may_end || &site == &producer || &site == &consumer) continue;
    if (StageOf(site, producer, consumer) == Stage::kElsewhere) continue;
    // What is assumed later is known only if the program has not ended before.
    auto fault = FindFault(epilogue.value, epilogue.axes, AssumptionsBefore(producer));
    if (!fault) return;
    SBlock block = consumer.block();
    Refuse(Code::kStructure, block,
           NameOf(site) + " may end the program before block " + Quoted(block) + " computes " +
               Print(fault->operation) + ", and " + fault->why,
           {fault->operation});
  }
}

}  // namespace

void CheckStructure(const Scope& scope, const Site& producer, const Site& consumer) {
  SBlock block = consumer.block();
  if (consumer.position < producer.position) {
    Refuse(Code::kOrder, block,
           "block " + Quoted(block) + " comes before block " + Quoted(producer.block()));
  }
  for (const Site* site : {&producer, &consumer}) {
    if (scope.has_jump) {
      Refuse(Code::kStructure, site->block(),
             "a break, continue or return in the scope of block " + Quoted(site->block()) +
                 " may skip one of the two blocks");
    }
    if (!site->plain) {
      Refuse(Code::kStructure, site->block(),
             "block " + Quoted(site->block()) + " is under a statement that is not a loop");
    }
  }
  size_t shared = CommonSteps(producer, consumer);
  bool in_sequence = shared < producer.path.size() && shared < consumer.path.size() &&
                     producer.path[shared].stmt.same_as(consumer.path[shared].stmt);
  if (!in_sequence) {
    throw Refusal(Code::kStructure, block,
                  "blocks " + Quoted(producer.block()) + " and " + Quoted(block) +
                      " are not in one sequence");
  }
}

void CheckNotPipelined(const Site& reduction, size_t steps, const SBlock& epilogue) {
  for (size_t i = 0; i < steps; ++i) {
    auto loop = As<For>(reduction.path[i].stmt);
    auto annotations =
        loop ? loop->annotations().as<ffi::Map<ffi::String, ffi::Any>>() : std::nullopt;
    if (!annotations) continue;
    for (const auto& entry : *annotations) {
      if (std::string(entry.first).rfind("software_pipeline", 0) != 0) continue;
      Refuse(Code::kStructure, epilogue,
             "loop " + Quoted(loop->loop_var()) + " around block " + Quoted(reduction.block()) +
                 " is software-pipelined",
             {*loop});
    }
  }
}

void CheckNoPointer(const Scope& scope, const Var& buffer, const Site& writer) {
  if (scope.allocated.count(buffer.get()) > 0) {
    Refuse(Code::kOpaqueAccess, writer.block(),
           "buffer " + Quoted(buffer) + " of block " + Quoted(writer.block()) +
               " is allocated by a statement (T.alloc_buffer), not by a block "
               "(T.sblock_alloc_buffer), so that no schedule moves it");
  }
  for (const Site& site : scope.sites) {
    if (site.Touches(buffer.get(), Use::kOpaque)) {
      Refuse(Code::kOpaqueAccess, site.is_block() ? site.block() : writer.block(),
             NameOf(site) + " uses buffer " + Quoted(buffer) +
                 " through its address or as a matched region",
             MarkOf(site));
    }
  }
}

void CheckOnlyWriter(const Scope& scope, const Var& buffer, const Site& writer) {
  for (const Site& site : scope.sites) {
    if (&site != &writer && site.Touches(buffer.get(), Use::kWrite)) {
      Refuse(Code::kOtherWriter, site.is_block() ? site.block() : writer.block(),
             NameOf(site) + " writes " + Quoted(buffer) + ", the result of block " +
                 Quoted(writer.block()),
             MarkOf(site));
    }
  }
}

void CheckHazards(const Scope& scope, const Reduction& reduction,
                  const std::vector<Produced>& produced, const Epilogue& epilogue,
                  const RegionCover& region_cover) {
  const Site& producer = *reduction.site;
  const Site& consumer = *epilogue.site;
  SBlock block = consumer.block();
  VarKey output = epilogue.output.get();
  VarSet inputs = InputsOf(consumer, produced);

  CheckReached(scope, producer, epilogue);
  CheckNotReadInRepeated(scope, producer, consumer);
  if (producer.Touches(output, Use::kRead)) {
    Refuse(Code::kOutputAliasesInput, producer.block(),
           "block " + Quoted(producer.block()) + " reads " + Quoted(epilogue.output) +
               ", which block " + Quoted(block) + " writes");
  }
  ShiftedLoad shifted(epilogue);
  shifted(epilogue.value);
  if (shifted.found) {
    Refuse(Code::kOutputAliasesInput, block,
           "block " + Quoted(block) + " reads " + Print(*shifted.found) +
               ", another element of its output",
           {*shifted.found});
  }
  for (const MatchBufferRegion& match : scope.root.match_buffers()) {
    VarKey view = match.buffer().get();
    if (view == output || inputs.count(view)) {
      Refuse(Code::kOpaqueAccess, block,
             "buffer " + Quoted(match.buffer()) + " of block " + Quoted(block) +
                 " is a matched region of " + Print(match.source().source()));
    }
  }

  for (const Site& site : scope.sites) {
    for (const Access& access : site.accesses) {
      bool is_output = access.buffer == output;
      bool is_input = inputs.count(access.buffer) > 0;
      if (!is_output && !is_input) continue;
      std::string buffer(Var(ffi::GetRef<ffi::ObjectRef>(access.buffer)).name());
      if (access.use == Use::kOpaque) {
        Refuse(Code::kOpaqueAccess, block,
               NameOf(site) + " uses buffer '" + buffer + "' through its address", MarkOf(site));
      }
      if (&site == &producer || &site == &consumer) continue;
      if (is_output && access.use == Use::kWrite) {
        Refuse(Code::kOutputWriters, block,
               NameOf(site) + " writes '" + buffer + "', the output of block " + Quoted(block) +
                   ", too",
               MarkOf(site));
      }
      Stage stage = StageOf(site, producer, consumer);
      if (stage == Stage::kElsewhere) continue;
      if (is_input && access.use == Use::kWrite) {
        Refuse(Code::kBiasWrittenBetween, block,
               NameOf(site) + " writes '" + buffer + "', which block " + Quoted(block) + " reads",
               MarkOf(site));
      }
      if (is_output) {
        bool later = stage == Stage::kEpilogueNest && site.is_block() &&
                     site.position > consumer.position && region_cover(site.block());
        if (!later) {
          Refuse(Code::kOutputUsedBetween, block,
                 NameOf(site) + " reads '" + buffer + "', the output of block " + Quoted(block),
                 MarkOf(site));
        }
      }
    }
  }
}

bool ReadsTheSame(const Scope& scope, const Reduction& reduction,
                  const std::vector<Produced>& produced, const Site& tail, const Site& last) {
  VarSet inputs = InputsOf(tail, produced);
  for (const MatchBufferRegion& match : scope.root.match_buffers()) {
    if (inputs.count(match.buffer().get())) return false;
  }
  for (const Site& site : scope.sites) {
    bool in_between = &site != &tail && StageOf(site, *reduction.site, last) != Stage::kElsewhere;
    for (const Access& access : site.accesses) {
      if (!inputs.count(access.buffer)) continue;
      if (access.use == Use::kOpaque || (access.use == Use::kWrite && in_between)) return false;
    }
  }
  return true;
}

}  // namespace fuse_epilogue
