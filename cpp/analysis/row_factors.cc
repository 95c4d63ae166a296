#include "analysis/row_factors.h"

#include <string>

#include "analysis/special_factors.h"
#include "ir/calls.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool IsExponential(const Expr& expr) {
  auto call = As<Call>(expr);
  if (!call) return false;
  std::string name = CalleeOf(*call);
  return name == "tirx.exp" || name == "tirx.exp2";
}

// Functions that round, as a cast does.
bool Rounds(const Call& call) {
  std::string name = CalleeOf(call);
  for (const char* rounding :
       {"tirx.round", "tirx.floor", "tirx.ceil", "prim.ceil", "tirx.trunc", "tirx.nearbyint"}) {
    if (name == rounding) return true;
  }
  return false;
}

class Splitter {
 public:
  Splitter(const Cascade& cascade, const CascadeStage& stage)
      : cascade_(cascade), stage_(stage), keys_(cascade.KeyVars()), results_(cascade.ValueVars()) {}

  SplitTerm Run() {
    SplitTerm split = Visit(stage_.term);
    split.also = also_;
    return split;
  }

 private:
  SplitTerm Visit(const Expr& node) {
    if (!Depends(node)) return Split({}, node);
    if (!UsesAny(node, keys_)) {
      return Split({Factor(FactorKind::kOfRow, node)}, std::nullopt);
    }
    switch (node.kind()) {
      case NodeKind::kMul:
        return VisitMul(Mul(node));
      case NodeKind::kDiv:
        return VisitDiv(Div(node));
      case NodeKind::kAdd:
      case NodeKind::kSub:
        return VisitSum(node);
      case NodeKind::kCast:
        return VisitCast(Cast(node));
      case NodeKind::kEqual:
      case NodeKind::kGreaterEqual:
      case NodeKind::kLessEqual:
        Throw(Code::kCascadeCondition, node);
      default:
        break;
    }
    if (auto choice = ChoiceOf(node)) return VisitChoice(node, *choice);
    if (IsExponential(node)) return VisitExponential(Call(node));
    if (auto call = As<Call>(node); call && Rounds(*call)) Throw(Code::kCascadeCast, node);
    if (auto squared = SquaredDeviationIn(cascade_, node)) return SplitOff(*squared);
    Throw(Code::kCascadeTerm, node);
  }

  RowFactor Factor(FactorKind kind, const Expr& node) const {
    RowFactor factor;
    factor.kind = kind;
    factor.node = node;
    factor.conditions = known_;
    return factor;
  }
  static SplitTerm Split(const std::vector<RowFactor>& factors, const std::optional<Expr>& kept) {
    SplitTerm split;
    split.factors = factors;
    split.kept = kept;
    return split;
  }

  // A factor that nothing else is in the term with; the keys it reads stay in it.
  SplitTerm SplitOff(RowFactor factor) const {
    factor.conditions = known_;
    return Split({factor}, factor.node);
  }

  bool Depends(const Expr& node) const { return UsesAny(node, results_); }

  [[noreturn]] void Throw(Code code, const Expr& node) const {
    SBlock block = stage_.block();
    throw Refusal(
        code, block,
        "block " + Quoted(block) + " combines terms that read an earlier result in " + Print(node));
  }

  SplitTerm VisitMul(const Mul& node) {
    if (auto squared = SquaredDeviationIn(cascade_, node)) return SplitOff(*squared);
    SplitTerm a = Visit(node.a()), b = Visit(node.b());
    a.factors.insert(a.factors.end(), b.factors.begin(), b.factors.end());
    if (a.kept && b.kept) {
      bool same = a.kept->same_as(node.a()) && b.kept->same_as(node.b());
      a.kept = same ? Expr(node) : MakeMul(*a.kept, *b.kept);
    } else if (b.kept) {
      a.kept = b.kept;
    }
    return a;
  }

  SplitTerm VisitDiv(const Div& node) {
    if (!IsFloat(DTypeOf(node))) Throw(Code::kCascadeTerm, node);
    if (UsesAny(node.b(), keys_) && Depends(node.b())) Throw(Code::kCascadeTerm, node);
    SplitTerm split = Visit(node.a());
    if (Depends(node.b())) {
      RowFactor factor = Factor(FactorKind::kOfRow, node.b());
      factor.divides = true;
      factor.argument = node.a();
      split.factors.push_back(factor);
    } else if (split.kept && split.kept->same_as(node.a())) {
      split.kept = node;
    } else {
      Expr numerator = split.kept ? *split.kept : MakeOne(node);
      split.kept = MakeDiv(numerator, node.b());
    }
    return split;
  }

  // Both terms must have the same factors; a difference from a result is one itself.
  SplitTerm VisitSum(const Expr& node) {
    if (auto difference = DifferenceIn(cascade_, node)) return SplitOff(*difference);
    auto [x, y] = *Operands(node);
    if (!Depends(x) || !Depends(y)) Throw(Code::kCascadeTerm, node);
    SplitTerm a = Visit(x), b = Visit(y);
    if (!SameFactors(a.factors, b.factors)) Throw(Code::kCascadeTerm, node);
    Expr left = a.kept ? *a.kept : MakeOne(node), right = b.kept ? *b.kept : MakeOne(node);
    // Every factor that is left in what is kept is in both; either stands for the two.
    a.kept = node.kind() == NodeKind::kAdd ? MakeAdd(left, right) : MakeSub(left, right);
    for (const RowFactor& factor : b.factors) {
      if (factor.kind == FactorKind::kExponential) also_.push_back(factor);
    }
    return a;
  }

  SplitTerm VisitCast(const Cast& node) {
    // A truth value as a number.
    if (auto compared = EqualityIn(cascade_, node.value())) {
      compared->node = node;
      return SplitOff(*compared);
    }
    if (IsBool(DTypeOf(node.value()))) Throw(Code::kCascadeCondition, node);
    Throw(Code::kCascadeCast, node);
  }

  SplitTerm VisitChoice(const Expr& node, const Choice& choice) {
    if (Depends(choice.condition)) {
      auto compared = EqualityIn(cascade_, choice.condition);
      if (!compared || Depends(choice.yes) || !IsConst(choice.no, 0)) {
        Throw(Code::kCascadeCondition, choice.condition);
      }
      compared->node = node;
      return SplitOff(*compared);
    }
    SplitTerm yes = VisitUnder(choice.condition, true, choice.yes);
    SplitTerm no = VisitUnder(choice.condition, false, choice.no);
    SplitTerm both;
    if (IsConst(choice.no, 0)) {
      both.factors = yes.factors;
    } else if (IsConst(choice.yes, 0)) {
      both.factors = no.factors;
    } else {
      if (!SameFactors(yes.factors, no.factors)) Throw(Code::kCascadeTerm, node);
      both.factors = yes.factors;
      for (const RowFactor& factor : no.factors) {
        if (factor.kind == FactorKind::kExponential) also_.push_back(factor);
      }
    }
    Expr x = yes.kept ? *yes.kept : MakeOne(node), y = no.kept ? *no.kept : MakeOne(node);
    bool same = x.same_as(choice.yes) && y.same_as(choice.no);
    Fn make = node.kind() == NodeKind::kSelect ? Fn::Select : Fn::IfThenElse;
    both.kept = same ? node : CallGlobal(make, choice.condition, x, y, nullptr).cast<Expr>();
    return both;
  }

  SplitTerm VisitUnder(const Expr& condition, bool holds, const Expr& value) {
    known_.emplace_back(condition, holds);
    SplitTerm split = Visit(value);
    known_.pop_back();
    return split;
  }

  SplitTerm VisitExponential(const Call& node) {
    RowFactor factor = Factor(FactorKind::kExponential, node);
    factor.argument = node.args()[0].cast<Expr>();
    auto form = LinearFormOf(cascade_, factor.argument);
    if (!form) {
      CheckNoCast(factor.argument);
      Throw(Code::kCascadeTerm, node);
    }
    if (form->results.size() != 1) Throw(Code::kCascadeTerm, node);
    factor.form = *form;
    factor.carrier = form->results[0].first;
    return Split({factor}, node);
  }

  // Why an argument is no sum: for a cast around a result there is a better reason.
  void CheckNoCast(const Expr& expr) const {
    class Finder : public StmtExprVisitor {
     public:
      explicit Finder(const VarSet& results) : results_(results) {}
      std::optional<Expr> found;

     protected:
      using StmtExprVisitor::VisitExpr_;
      void VisitExpr_(const Call& op) override {
        if (Rounds(op) && UsesAny(op, results_)) found = op;
        VisitChildren(op);
      }
      void VisitOther(const Node& op) override {
        if (op.kind() == NodeKind::kCast && UsesAny(op, results_)) found = Expr(op);
        VisitChildren(op);
      }

     private:
      const VarSet& results_;
    };
    Finder finder(results_);
    finder(expr);
    if (finder.found) Throw(Code::kCascadeCast, *finder.found);
  }

  static bool SameFactors(const std::vector<RowFactor>& a, const std::vector<RowFactor>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].kind != b[i].kind || a[i].divides != b[i].divides) return false;
      if (a[i].kind == FactorKind::kOfRow) {
        if (!DeepEqual(a[i].node, b[i].node)) return false;
      } else if (a[i].kind == FactorKind::kExponential) {
        bool same_function = As<Call>(a[i].node)->op().same_as(As<Call>(b[i].node)->op());
        if (!same_function || a[i].form.results != b[i].form.results) return false;
      } else {
        return false;
      }
    }
    return true;
  }

  const Cascade& cascade_;
  const CascadeStage& stage_;
  VarSet keys_;
  VarSet results_;
  std::vector<Known> known_;
  // Factors of the other operand of a sum, or of the other value of a choice: they have the same
  // quotient, and must be in range themselves.
  std::vector<RowFactor> also_;
};

}  // namespace

SplitTerm SplitIntoFactors(const Cascade& cascade, const CascadeStage& stage) {
  return Splitter(cascade, stage).Run();
}

}  // namespace fuse_epilogue
