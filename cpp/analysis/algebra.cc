#include "analysis/algebra.h"

#include "analysis/assumptions.h"
#include "analysis/defined.h"
#include "analysis/distributions.h"
#include "analysis/overflow.h"
#include "analysis/refusal.h"
#include "analysis/spine.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The variables that are bound inside an expression: out of it they mean nothing.
VarSet BoundIn(const Expr& f) {
  class Finder : public StmtExprVisitor {
   public:
    VarSet bound;

   protected:
    void VisitOther(const Node& op) override {
      if (auto let = As<Let>(op)) bound.insert(let->var().get());
      VisitChildren(op);
    }
  };
  Finder finder;
  finder(f);
  return finder.bound;
}

class Peeler {
 public:
  Peeler(const Var& hole, const Reduction& reduction, const Options& options,
         const Epilogue& epilogue)
      : hole_(hole),
        reduction_(reduction),
        options_(options),
        output_(epilogue.output),
        dtype_(BufferTypeOf(reduction.accumulator).dtype().dtype()),
        monoid_(reduction.monoid),
        mapped_(reduction.update),
        overflow_(reduction) {}

  Peeled Run(const Expr& f) {
    Spine spine(f, hole_);
    f_ = f;
    while (!spine.IsEmpty()) {
      std::optional<Expr> node;
      if (monoid_->height > 1) node = spine.ClimbToCombination(*monoid_);
      if (!node) node = spine.Node();
      if (!node) {
        reason_ = "it uses the finished value in several ways";
        break;
      }
      if (spine.IsAtRoot()) root_ = *node;
      always_evaluated_ = spine.IsAlwaysEvaluated();
      auto step = StepFor(*node);
      if (!step || !Allowed(*step, *node)) break;
      monoid_ = step->after;
      steps_.push_back(*step);
      spine.TakeOff();
    }
    return Peeled{steps_, spine.Rest(), spine.IsEmpty() ? Reason() : reason_};
  }

 private:
  // A node in a reason: "it" if it is all that is left.
  Reason Name(const Expr& node) const { return node.same_as(root_) ? Reason("it") : Reason(node); }

  // The step that takes a node off, if the algebra has one.
  std::optional<PeelStep> StepFor(const Expr& node) {
    std::optional<Expr> operand;
    bool x_first = true;
    auto beside = [&](const Expr& x, const Expr& y) {
      x_first = x.same_as(hole_);
      operand = x_first ? y : x;
    };
    if (auto both = monoid_->match(node)) {
      beside(both->x, both->y);
      return PeelStep{true, node.kind(), Fn::kCount, operand, x_first, monoid_, monoid_};
    }
    if (auto operands = Operands(node)) beside(operands->first, operands->second);
    if (monoid_->id == MonoidId::kSum && node.kind() == NodeKind::kSub && x_first) {
      return PeelStep{true, node.kind(), Fn::Sub, operand, x_first, monoid_, monoid_};
    }
    reason_ = Name(node) + " does not distribute over a " + monoid_->name;
    for (const Distribution& row : Distributions()) {
      bool side = row.x == kEither || (row.x == kUnary && !operand) ||
                  (operand && row.x == (x_first ? kLeft : kRight));
      if (row.node != node.kind() || row.from != monoid_->id || !side) continue;
      if (!Fits(row.operand, operand)) {
        if (row.operand == kFinite) {
          reason_ = Name(node) + " would make NaN of the terms where its operand is an infinity";
        }
        continue;
      }
      if (!Scales(row.node, operand)) {
        reason_ = Name(node) + " scales by what " + DTypeStr(dtype_) + " does not hold";
        continue;
      }
      if (!(row.types & TypesOf(dtype_))) {
        reason_ = Name(node) + " could overflow " + DTypeStr(dtype_) + " in a term";
        continue;
      }
      if (row.cost == kWork && IsTooNarrow()) {
        reason_ = Name(node) + " would be rounded to " + DTypeStr(dtype_) + " in every term";
        return std::nullopt;
      }
      PeelStep step{false, row.node, row.make, operand, x_first, monoid_, &MonoidOf(row.to)};
      if (row.cost == kWork && !options_.distribute && !FoldsAway(step)) {
        reason_ = Name(node) + " would cost work in every term (distribute=True allows that)";
        return std::nullopt;
      }
      return step;
    }
    return std::nullopt;
  }

  // The update with the steps so far applied to its terms.
  const Expr& Mapped() {
    PeelSteps more(steps_.begin() + num_mapped_, steps_.end());
    mapped_ = MapTerms(mapped_, reduction_, more);
    num_mapped_ = steps_.size();
    return mapped_;
  }

  bool FoldsAway(const PeelStep& step) { return FoldsIntoTerms(step, Mapped(), reduction_); }

  // Logic and integers are exact, except where TVM takes the floats that are compared for numbers,
  // or narrow integers for such that do not wrap around.
  bool IsFolded(const PeelStep& step) {
    return !IsFloat(dtype_) && !IsSwitchedOff(Decision::kFoldedStep) &&
           FoldsWithAny(step, ApplyAll(steps_, reduction_.init), Mapped(), reduction_);
  }

  // Whether the step combines two values from which the reduction starts, of which each may be an
  // infinity: with finite terms, they would have been combined one after the other.
  bool MayClash(const PeelStep& step) const {
    if (!step.absorbs || !step.after->clashes) return false;
    auto start = As<FloatImm>(ApplyAll(steps_, reduction_.init));
    return !start && !IsSwitchedOff(Decision::kInfiniteStart);
  }

  // A float that a bias, or a rounding of every term, would harm.
  bool IsTooNarrow() const {
    return monoid_->rounds && IsFloat(dtype_) && dtype_.bits < 32 && !options_.exact;
  }

  bool UsesBound(const Expr& operand) {
    if (!bound_) bound_ = BoundIn(f_);
    return !bound_->empty() && UsesAny(operand, *bound_);
  }

  bool Allowed(const PeelStep& step, const Expr& node) {
    if (step.operand && UsesBound(*step.operand)) {
      reason_ = Name(node) + " uses a variable that is bound inside the expression";
      return false;
    }
    if (IsFloat(dtype_)) {
      if (options_.exact) {
        reason_ = "numerics=\"exact\" keeps floats bit for bit";
        return false;
      }
      if (IsTooNarrow()) {
        if (!step.absorbs) {
          reason_ = Name(node) + " would be rounded to " + DTypeStr(dtype_) + " in every term";
          return false;
        }
        if (!IsSwitchedOff(Decision::kNarrowAccumulator)) {
          reason_ = Name(node) + " would let a large bias swallow the small terms of a " +
                    DTypeStr(dtype_) + " " + monoid_->name;
          return false;
        }
      }
    }
    if (!IsDefined(step, node)) return false;
    if (IsFolded(step)) {
      reason_ =
          Name(node) +
          " would be simplified by TVM as if no float were a NaN and no integer wrapped around";
      return false;
    }
    if (MayClash(step)) {
      reason_ = Name(node) + " would make NaN of a start value that is an infinity as well";
      return false;
    }
    // A term would read the output while the reduction accumulates in it.
    if (!step.absorbs && !Negates(step) && step.operand &&
        !LoadsOf(*step.operand, output_).empty() && !IsSwitchedOff(Decision::kOutputInATerm)) {
      reason_ = Name(node) + " uses " + Quoted(output_) + ", which would be overwritten";
      return false;
    }
    if (overflow_.MayOverflow(step)) {
      reason_ = Name(node) + " could overflow " + DTypeStr(dtype_) +
                " on the way, which TVM compiles as if it never happened";
      return false;
    }
    return true;
  }

  // Whether the step may be taken for every element, also for those where a condition has kept its
  // operand, or the operation itself, from being evaluated. (The operand of `x and operand` is
  // under the condition x.)
  bool IsDefined(const PeelStep& step, const Expr& node) {
    if (IsSwitchedOff(Decision::kUndefinedOperand)) return true;
    bool is_logic = node.kind() == NodeKind::kAnd || node.kind() == NodeKind::kOr;
    std::optional<Partial> partial;
    if (step.operand && (!always_evaluated_ || (is_logic && step.x_first))) {
      partial = FindPartial(*step.operand, reduction_.spatial, AssumptionsBefore(*reduction_.site));
    }
    bool computes = node.kind() == NodeKind::kAdd || node.kind() == NodeKind::kSub ||
                    node.kind() == NodeKind::kMul;
    bool wide = IsInteger(dtype_) && dtype_.bits >= 32;
    if (!partial && computes && wide && !always_evaluated_) {
      partial = Partial{node, "it may overflow " + DTypeStr(dtype_)};
    }
    if (!partial) return true;
    reason_ = Reason(partial->operation) + " is computed only under a condition, without which " +
              partial->why;
    return false;
  }

  Var hole_;
  const Reduction& reduction_;
  const Options& options_;
  Var output_;
  DLDataType dtype_;
  const Monoid* monoid_;
  PeelSteps steps_;
  // The update with the first steps applied to its terms, and how many of them.
  Expr mapped_;
  size_t num_mapped_ = 0;
  OverflowCheck overflow_;
  // The last node, once it is reached.
  Expr root_;
  Expr f_;
  std::optional<VarSet> bound_;
  bool always_evaluated_ = true;
  Reason reason_;
};

}  // namespace

Peeled Peel(const Expr& f, const Var& hole, const Reduction& reduction, const Options& options,
            const Epilogue& epilogue) {
  return Peeler(hole, reduction, options, epilogue).Run(f);
}

}  // namespace fuse_epilogue
