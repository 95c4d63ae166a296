#include "schedule/shared_loops.h"

#include <map>
#include <vector>

#include "analysis/scope.h"
#include "ir/functor.h"
#include "schedule/diagnostics.h"
#include "schedule/state.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool Covers(const For& loop, const Site& site) {
  for (const For& around : site.Loops()) {
    if (around.same_as(loop)) return true;
  }
  return false;
}

// The blocks that touch each buffer of a function, in program order, and which of them stand in one
// loop.
class LifeFinder : public StmtExprVisitor {
 public:
  explicit LifeFinder(const For& loop) : loop_(loop) {}

  struct Life {
    Var buffer;
    // The first block that stores to it what, or where, depends on the iteration of the loop.
    std::optional<SBlock> writer;
    // A block after that one that reads it.
    std::optional<SBlock> reader;
    bool outside = false;
  };
  std::vector<Life> lives;

 protected:
  using StmtExprVisitor::VisitExpr_;
  using StmtExprVisitor::VisitStmt_;

  void VisitStmt_(const For& op) override {
    (*this)(op.min());
    (*this)(op.extent());
    bool itself = op.same_as(loop_);
    if (itself || UsesAny(op.min(), lanes_) || UsesAny(op.extent(), lanes_)) {
      lanes_.insert(op.loop_var().get());
    }
    inside_ = inside_ || itself;
    (*this)(op.body());
    inside_ = inside_ && !itself;
  }

  void VisitStmt_(const SBlockRealize& op) override {
    size_t i = 0;
    auto values = op.iter_values();
    for (const IterVar& iter : op.block().iter_vars()) {
      if (UsesAny(values[i++], lanes_)) lanes_.insert(iter.var().get());
    }
    (*this)(values);
    (*this)(op.predicate());
    (*this)(op.block());
  }

  void VisitStmt_(const SBlock& op) override {
    std::optional<SBlock> around = block_;
    block_ = op;
    for (const Var& buffer : op.alloc_buffers()) {
      index_[buffer.get()] = lives.size();
      lives.push_back(Life{buffer, std::nullopt, std::nullopt});
    }
    for (const MatchBufferRegion& match : op.match_buffers()) Read(match.source().source().get());
    if (auto init = ObjectIn(op.init())) (*this)(*init);
    (*this)(op.body());
    block_ = around;
  }

  void VisitStmt_(const BufferStore& op) override {
    (*this)(op.value());
    (*this)(op.indices());
    Life* life = LifeOf(op.buffer().get());
    if (life == nullptr || life->writer) return;
    if (UsesAny(op.value(), lanes_) || UsesAny(op.indices(), lanes_)) life->writer = block_;
  }
  void VisitExpr_(const TensorLoad& op) override {
    Read(op.source().get());
    (*this)(op.indices());
  }
  // A buffer that is named outside a load or a store is used through its address.
  void VisitExpr_(const Var& op) override { Read(op.get()); }

 private:
  Life* LifeOf(VarKey buffer) {
    auto it = index_.find(buffer);
    if (it == index_.end()) return nullptr;
    Life* life = &lives[it->second];
    life->outside = life->outside || !inside_;
    return life;
  }

  void Read(VarKey buffer) {
    Life* life = LifeOf(buffer);
    if (life != nullptr && life->writer && !life->reader && !life->writer->same_as(*block_)) {
      life->reader = block_;
    }
  }

  For loop_;
  bool inside_ = false;
  std::optional<SBlock> block_;
  // The loop's variable, and the variables that depend on it.
  VarSet lanes_;
  std::map<VarKey, size_t> index_;
};

// A loop as a random variable names it, in its scope; nothing where TVM refuses that.
struct Located {
  For loop;
  SBlock scope;
  SBlock root;
};

std::optional<Located> LoopOf(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv) {
  auto rv = ObjectIn(loop_rv);
  if (!rv) return std::nullopt;
  StmtSRef sref = SRefOf(schedule, *rv);
  auto loop = As<For>(StmtOf(sref));
  if (!loop) return std::nullopt;
  return Located{*loop, SBlock(StmtOf(ScopeOf(sref))), SBlock(StmtOf(RootOf(sref)))};
}

std::optional<int64_t> Literal(const ffi::Any& value) {
  if (auto imm = As<IntImm>(value)) return imm->value();
  return value.as<int64_t>();
}

}  // namespace

void CheckLanes(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv) {
  auto at = LoopOf(schedule, loop_rv);
  if (!at || IsConst(at->loop.extent(), 1) || IsSwitchedOff(Code::kVectorLanes)) return;
  LifeFinder finder(at->loop);
  finder(at->root);
  for (const LifeFinder::Life& life : finder.lives) {
    if (life.outside || !life.reader) continue;
    throw MakeScheduleError(
        schedule, "vectorize",
        Refusal(Code::kVectorLanes, *life.writer,
                "buffer " + Quoted(life.buffer) + " is used in the loop " +
                    Quoted(at->loop.loop_var()) + " only, where block " + Quoted(*life.writer) +
                    " writes it and block " + Quoted(*life.reader) + " reads it",
                {at->loop}));
  }
}

void CheckPadding(const ffi::ObjectRef& schedule, const ffi::Any& block_rv,
                  const ffi::Any& padding) {
  auto rv = ObjectIn(block_rv);
  auto multiples = padding.as<ffi::Array<ffi::Any>>();
  if (!rv || !multiples || IsSwitchedOff(Code::kNotAlone)) return;
  StmtSRef sref = SRefOf(schedule, *rv);
  auto block = As<SBlock>(StmtOf(sref));
  StmtSRef scope_sref = ScopeOf(sref);
  if (!block || !scope_sref.defined()) return;
  Scope scope{SBlock(StmtOf(scope_sref))};
  const Site* itself = scope.Find(*block);
  if (itself == nullptr || multiples->size() != block->iter_vars().size()) return;
  for (size_t i = 0; i < multiples->size(); ++i) {
    auto extent = Literal(block->iter_vars()[i].dom().extent());
    auto multiple = Literal((*multiples)[i]);
    if (!extent || !multiple || *multiple <= 0 || *extent % *multiple == 0) continue;
    for (const For& loop : itself->Loops()) {
      VarSet var{loop.loop_var().get()};
      if (!UsesAny(itself->realize.iter_values()[i], var)) continue;
      for (const Site& other : scope.sites) {
        if (&other == itself || !other.is_block() || !Covers(loop, other)) continue;
        if (!UsesAny(other.realize.iter_values(), var)) continue;
        throw MakeScheduleError(
            schedule, "pad-einsum",
            Refusal(Code::kNotAlone, *block,
                    "block " + Quoted(other.block()) + " is in the loop " +
                        Quoted(loop.loop_var()) + " of block " + Quoted(*block) +
                        ", which would grow from " + std::to_string(*extent) + " iterations to a " +
                        "multiple of " + std::to_string(*multiple),
                    {loop}));
      }
    }
  }
}

void CheckAlone(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv) {
  auto at = LoopOf(schedule, loop_rv);
  if (!at || IsSwitchedOff(Code::kNotAlone)) return;
  Scope scope(at->scope);
  const Site* itself = nullptr;
  for (const Site& site : scope.sites) {
    if (!site.is_block() || !Covers(at->loop, site)) continue;
    if (itself != nullptr) return;  // for TVM to refuse
    itself = &site;
  }
  if (itself == nullptr) return;
  for (const Site& other : scope.sites) {
    if (&other == itself || !other.is_block()) continue;
    bool beside = true;
    for (const For& loop : other.Loops()) beside = beside && Covers(loop, *itself);
    if (!beside) continue;
    throw MakeScheduleError(
        schedule, "rfactor",
        Refusal(Code::kNotAlone, itself->block(),
                "block " + Quoted(other.block()) + " has no loop of its own beside block " +
                    Quoted(itself->block())));
  }
}

}  // namespace fuse_epilogue
