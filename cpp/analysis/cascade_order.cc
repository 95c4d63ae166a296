#include "analysis/cascade_order.h"

#include <algorithm>
#include <set>
#include <string>

#include "analysis/strides.h"
#include "analysis/views.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

enum class Part { kStage, kGone, kBefore, kAfter };

// A statement of the sequence.
struct Child {
  Part part = Part::kBefore;
  VarSet reads, writes;
  std::string name = "a statement";
  bool may_end = false;
};

bool Meet(const VarSet& a, const VarSet& b) {
  return std::any_of(a.begin(), a.end(), [&](VarKey key) { return b.count(key) > 0; });
}

class Order {
 public:
  Order(const Scope& scope, const Cascade& cascade) : scope_(scope), cascade_(cascade) {}

  CascadeOrder Sort() {
    CheckPlaces();
    ReadChildren();
    Divide();
    CheckMoves();
    CascadeOrder order;
    ffi::Array<Stmt> all = SeqStmt(scope_.root.body()).seq();
    for (size_t i = 0; i < all.size(); ++i) {
      Part part = children_[i].part;
      if (i < first_ || (i <= last_ && part == Part::kBefore)) order.before.push_back(all[i]);
      if (i > last_ || part == Part::kAfter) order.after.push_back(all[i]);
    }
    return order;
  }

 private:
  [[noreturn]] void Throw(Code code, const SBlock& block, const std::string& what) const {
    throw Refusal(code, block, "block " + Quoted(block) + " " + what);
  }

  // Alone in its loops, which are a statement of the root block's sequence.
  bool IsAlone(const Site& site) const {
    if (site.path.empty() || !site.path[0].stmt.same_as(scope_.root.body())) return false;
    if (scope_.root.body().kind() != NodeKind::kSeqStmt || !site.plain) return false;
    return std::all_of(site.path.begin() + 1, site.path.end(),
                       [](const Step& step) { return step.stmt.kind() == NodeKind::kFor; });
  }

  void CheckPlaces() const {
    if (scope_.has_jump) {
      Throw(Code::kStructure, cascade_.stages[0].block(),
            "is in a function with a break, continue or return");
    }
    for (const CascadeStage& stage : cascade_.stages) {
      if (IsAlone(*stage.reduction.site)) continue;
      Throw(Code::kCascadeLoops, stage.block(), "is not alone in a nest of loops");
    }
  }

  void ReadChildren() {
    children_.resize(SeqStmt(scope_.root.body()).seq().size());
    first_ = children_.size();
    for (const Site& site : scope_.sites) {
      if (site.path.empty()) continue;
      size_t i = site.path[0].child;
      Child& child = children_[i];
      if (site.is_block()) child.name = "block " + Quoted(site.block());
      child.may_end = child.may_end || site.may_end;
      for (const Access& access : site.accesses) {
        if (access.use != Use::kWrite) child.reads.insert(access.buffer);
        if (access.use != Use::kRead) child.writes.insert(access.buffer);
        if (access.use == Use::kOpaque) opaque_.insert(access.buffer);
      }
    }
    for (const CascadeStage& stage : cascade_.stages) {
      size_t i = stage.reduction.site->path[0].child;
      Child& child = children_[i];
      child.part = Part::kStage;
      first_ = std::min(first_, i);
      last_ = std::max(last_, i);
      // What it reads after the fusion, through what is inlined.
      child.reads = ReadsOf(stage);
      CheckNoPointer(stage, child);
      CheckPlacesDiffer(stage.block(), stage.reduction.accumulator);
    }
    for (const Site* site : cascade_.gone) {
      if (IsAlone(*site)) children_[site->path[0].child].part = Part::kGone;
    }
  }

  VarSet ReadsOf(const CascadeStage& stage) const {
    VarSet reads;
    std::vector<Expr> parts{stage.term, stage.init, stage.step, stage.correction};
    if (stage.tail) parts.push_back(*stage.tail);
    for (const Expr& part : parts) reads.merge(VarsIn(part));
    return reads;
  }

  void CheckNoPointer(const CascadeStage& stage, const Child& child) const {
    for (const VarSet* used : {&child.reads, &child.writes}) {
      if (!Meet(*used, opaque_) && !HasTwoNames(scope_.root, scope_, *used)) continue;
      Refuse(Code::kOpaqueAccess, stage.block(),
             "a buffer of block " + Quoted(stage.block()) +
                 " is used through its address, or as a matched region");
    }
    for (const CascadeStage& other : cascade_.stages) {
      if (child.reads.count(other.reduction.accumulator.get()) == 0) continue;
      Throw(Code::kCascadeOrder, stage.block(),
            "reads " + Quoted(other.reduction.accumulator) + ", which the cascade computes");
    }
  }

  // What reads something of the cascade runs after it.
  void Divide() {
    VarSet made;
    for (size_t i = first_; i <= last_; ++i) {
      Child& child = children_[i];
      if (child.part == Part::kBefore && Meet(child.reads, made)) child.part = Part::kAfter;
      if (child.part != Part::kBefore) made.insert(child.writes.begin(), child.writes.end());
    }
  }

  void CheckMoves() const {
    for (size_t i = first_; i <= last_; ++i) {
      for (size_t later = i + 1; later <= last_; ++later) {
        const Child &a = children_[i], &b = children_[later];
        bool swaps = (a.part != Part::kBefore && b.part == Part::kBefore) ||
                     (a.part == Part::kAfter && b.part == Part::kStage);
        if (swaps) CheckSwap(a, b);
      }
      if (children_[i].may_end) {
        Throw(Code::kStructure, cascade_.stages[0].block(),
              "would be computed after " + children_[i].name + ", which may end the program");
      }
    }
  }

  void CheckSwap(const Child& a, const Child& b) const {
    if (!Meet(a.writes, b.writes) && !Meet(a.writes, b.reads) && !Meet(a.reads, b.writes)) return;
    SBlock block = cascade_.stages[0].block();
    Refuse(
        Code::kCascadeOrder, block,
        "in the cascade of block " + Quoted(block) + ", " + b.name + " would run before " + a.name);
  }

  const Scope& scope_;
  const Cascade& cascade_;
  std::vector<Child> children_;
  VarSet opaque_;
  size_t first_ = 0, last_ = 0;
};

}  // namespace

CascadeOrder CheckCascadeOrder(const Scope& scope, const Cascade& cascade) {
  return Order(scope, cascade).Sort();
}

}  // namespace fuse_epilogue
