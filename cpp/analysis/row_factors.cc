#include "analysis/row_factors.h"

#include <string>

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

std::string CalleeOf(const Call& call) {
  auto op = As<Op>(call.op());
  return op ? std::string(op->name()) : "";
}

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

std::optional<double> LiteralOf(const Expr& expr) {
  if (auto imm = As<FloatImm>(expr)) return imm->value();
  if (auto imm = As<IntImm>(expr)) return static_cast<double>(imm->value());
  return std::nullopt;
}

class Resolver : public StmtExprMutator {
 public:
  explicit Resolver(const std::vector<Known>& known) : known_(known) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const Call& op) override {
    auto made = Made(op);
    return made ? *made : StmtExprMutator::VisitExpr_(op);
  }
  ffi::Any VisitOther(const Node& op) override {
    if (op.kind() == NodeKind::kSelect) {
      if (auto made = Made(Expr(op))) return *made;
    }
    return MutateChildren(op);
  }

 private:
  std::optional<Expr> Made(const Expr& expr) {
    auto choice = ChoiceOf(expr);
    if (!choice) return std::nullopt;
    for (const auto& [condition, holds] : known_) {
      if (DeepEqual(condition, choice->condition)) return Rewrite(holds ? choice->yes : choice->no);
    }
    return std::nullopt;
  }

  const std::vector<Known>& known_;
};

class Splitter {
 public:
  Splitter(const Cascade& cascade, const CascadeStage& stage)
      : cascade_(cascade), stage_(stage), keys_(cascade.KeyVars()), results_(cascade.ValueVars()) {}

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
    if (auto squared = DeviationIn(node)) return *squared;
    Throw(Code::kCascadeTerm, node);
  }

 private:
  RowFactor Factor(FactorKind kind, const Expr& node, size_t carrier = 0) const {
    RowFactor factor;
    factor.kind = kind;
    factor.node = node;
    factor.carrier = carrier;
    factor.conditions = known_;
    return factor;
  }
  static SplitTerm Split(const std::vector<RowFactor>& factors, const std::optional<Expr>& kept) {
    SplitTerm split;
    split.factors = factors;
    split.kept = kept;
    return split;
  }

  bool Depends(const Expr& node) const { return UsesAny(node, results_); }

  [[noreturn]] void Throw(Code code, const Expr& node) const {
    SBlock block = stage_.block();
    throw Refusal(
        code, block,
        "block " + Quoted(block) + " combines terms that read an earlier result in " + Print(node));
  }

  SplitTerm VisitMul(const Mul& node) {
    if (auto squared = DeviationIn(node)) return *squared;
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
      Expr numerator = split.kept ? *split.kept : One(node);
      split.kept = MakeDiv(numerator, node.b());
    }
    return split;
  }

  // Both terms must have the same factors; a difference from a result is one itself.
  SplitTerm VisitSum(const Expr& node) {
    if (auto difference = DifferenceIn(node)) return *difference;
    auto [x, y] = *Operands(node);
    if (!Depends(x) || !Depends(y)) Throw(Code::kCascadeTerm, node);
    SplitTerm a = Visit(x), b = Visit(y);
    if (!SameFactors(a.factors, b.factors)) Throw(Code::kCascadeTerm, node);
    Expr left = a.kept ? *a.kept : One(node), right = b.kept ? *b.kept : One(node);
    // Every factor that is left in what is kept is in both; either stands for the two.
    a.kept = node.kind() == NodeKind::kAdd ? MakeAdd(left, right) : MakeSub(left, right);
    for (const RowFactor& factor : b.factors) {
      if (factor.kind == FactorKind::kExponential) also_.push_back(factor);
    }
    return a;
  }

  SplitTerm VisitCast(const Cast& node) {
    // A truth value as a number.
    if (auto compared = EqualityIn(node.value())) {
      compared->node = node;
      return Split({*compared}, node);
    }
    if (IsBool(DTypeOf(node.value()))) Throw(Code::kCascadeCondition, node);
    Throw(Code::kCascadeCast, node);
  }

  SplitTerm VisitChoice(const Expr& node, const Choice& choice) {
    if (Depends(choice.condition)) {
      auto compared = EqualityIn(choice.condition);
      if (!compared || Depends(choice.yes) || !IsConst(choice.no, 0)) {
        Throw(Code::kCascadeCondition, choice.condition);
      }
      compared->node = node;
      return Split({*compared}, node);
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
    Expr x = yes.kept ? *yes.kept : One(node), y = no.kept ? *no.kept : One(node);
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

  // x == r for a result r; where x <= r, x >= r says the same.
  std::optional<RowFactor> EqualityIn(const Expr& condition) const {
    if (condition.kind() != NodeKind::kEqual && condition.kind() != NodeKind::kGreaterEqual &&
        condition.kind() != NodeKind::kLessEqual) {
      return std::nullopt;
    }
    auto [a, b] = Sides(condition);
    for (size_t i = 0; i < cascade_.stages.size(); ++i) {
      const CascadeStage& carrier = cascade_.stages[i];
      bool left = a.same_as(carrier.value), right = b.same_as(carrier.value);
      if (left == right || Depends(left ? b : a)) continue;
      bool is_max = carrier.Is(MonoidId::kMax), is_min = carrier.Is(MonoidId::kMin);
      // x >= max, max <= x; x <= min, min >= x.
      bool at_least = condition.kind() == NodeKind::kGreaterEqual;
      bool fits = condition.kind() == NodeKind::kEqual
                      ? is_max || is_min || carrier.part == Part::kIndex
                      : (is_max && right == at_least) || (is_min && left == at_least);
      if (!fits) return std::nullopt;
      RowFactor factor = Factor(FactorKind::kEquality, condition, i);
      factor.argument = left ? b : a;
      return factor;
    }
    return std::nullopt;
  }

  static std::pair<Expr, Expr> Sides(const Expr& condition) {
    if (auto equal = As<Equal>(condition)) return {equal->a(), equal->b()};
    if (auto greater = As<GreaterEqual>(condition)) return {greater->a(), greater->b()};
    LessEqual less(condition);
    return {less.a(), less.b()};
  }

  // x - r, r - x, for the extreme r: all of one sign, so that nothing cancels.
  std::optional<SplitTerm> DifferenceIn(const Expr& node) const {
    auto sub = As<Sub>(node);
    if (!sub) return std::nullopt;
    for (size_t i = 0; i < cascade_.stages.size(); ++i) {
      const CascadeStage& carrier = cascade_.stages[i];
      bool right = sub->b().same_as(carrier.value);
      if (!right && !sub->a().same_as(carrier.value)) continue;
      if (!carrier.Is(MonoidId::kMax) && !carrier.Is(MonoidId::kMin)) continue;
      RowFactor factor = Factor(FactorKind::kDifference, node, i);
      factor.argument = right ? sub->a() : sub->b();
      return Split({factor}, node);
    }
    return std::nullopt;
  }

  // d * d or pow(d, 2) with d = x - r / N, for a sum r.
  std::optional<SplitTerm> DeviationIn(const Expr& node) const {
    std::optional<Expr> base;
    if (auto mul = As<Mul>(node); mul && DeepEqual(mul->a(), mul->b())) base = mul->a();
    if (auto call = As<Call>(node); call && CalleeOf(*call) == "tirx.pow") {
      if (IsConst(call->args()[1].cast<Expr>(), 2)) base = call->args()[0].cast<Expr>();
    }
    auto sub = base ? As<Sub>(*base) : std::nullopt;
    if (!sub || Depends(sub->a()) == Depends(sub->b())) return std::nullopt;
    bool mean_right = Depends(sub->b());
    Expr mean = mean_right ? sub->b() : sub->a();
    for (size_t i = 0; i < cascade_.stages.size(); ++i) {
      if (!IsMean(mean, cascade_.stages[i])) continue;
      RowFactor factor = Factor(FactorKind::kSquaredDeviation, node, i);
      factor.argument = mean_right ? sub->a() : sub->b();
      factor.mean = mean;
      return Split({factor}, node);
    }
    return std::nullopt;
  }

  // r / N, or r * (1 / N) with 1 / N as the type rounds it; N is the number of keys.
  bool IsMean(const Expr& mean, const CascadeStage& carrier) const {
    if (!carrier.Is(MonoidId::kSum)) return false;
    if (auto div = As<Div>(mean))
      return div->a().same_as(carrier.value) && IsNumberOfKeys(div->b());
    auto mul = As<Mul>(mean);
    if (!mul) return false;
    bool first = mul->a().same_as(carrier.value);
    if (!first && !mul->b().same_as(carrier.value)) return false;
    auto factor = As<FloatImm>(first ? mul->b() : mul->a());
    auto keys = NumberOfKeys();
    if (!factor || !keys) return false;
    double exact = 1.0 / static_cast<double>(*keys);
    bool is_single = DTypeOf(*factor).bits == 32;
    return is_single ? static_cast<float>(factor->value()) == static_cast<float>(exact)
                     : factor->value() == exact;
  }

  std::optional<int64_t> NumberOfKeys() const {
    int64_t product = 1;
    for (const Axis& key : cascade_.keys) {
      auto extent = As<IntImm>(key.extent);
      if (!extent || __builtin_mul_overflow(product, extent->value(), &product)) {
        return std::nullopt;
      }
    }
    return product;
  }

  bool IsNumberOfKeys(const Expr& expr) const {
    if (auto literal = LiteralOf(expr)) {
      auto keys = NumberOfKeys();
      return keys && *literal == static_cast<double>(*keys);
    }
    auto cast = As<Cast>(expr);
    return cast && cascade_.keys.size() == 1 && DeepEqual(cast->value(), cascade_.keys[0].extent);
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

  static Expr One(const Expr& like) {
    if (!IsFloat(DTypeOf(like))) return MakeInt(1, like);
    return MakeFloat(1, like);
  }

  const Cascade& cascade_;
  const CascadeStage& stage_;
  VarSet keys_;
  VarSet results_;
  std::vector<Known> known_;

 public:
  // Factors of the other operand of a sum, or of the other value of a choice: they have the same
  // quotient, and must be in range themselves.
  std::vector<RowFactor> also_;
};

bool AddForm(const Cascade& cascade, const VarSet& results, const Expr& expr, double scale,
             LinearForm* form) {
  for (size_t i = 0; i < cascade.stages.size(); ++i) {
    if (!expr.same_as(cascade.stages[i].value)) continue;
    for (auto& [index, coefficient] : form->results) {
      if (index != i) continue;
      coefficient += scale;
      return true;
    }
    form->results.emplace_back(i, scale);
    return true;
  }
  if (auto add = As<Add>(expr)) {
    return AddForm(cascade, results, add->a(), scale, form) &&
           AddForm(cascade, results, add->b(), scale, form);
  }
  if (auto sub = As<Sub>(expr)) {
    return AddForm(cascade, results, sub->a(), scale, form) &&
           AddForm(cascade, results, sub->b(), -scale, form);
  }
  if (auto mul = As<Mul>(expr)) {
    auto a = LiteralOf(mul->a()), b = LiteralOf(mul->b());
    if (b) return AddForm(cascade, results, mul->a(), scale * *b, form);
    if (a) return AddForm(cascade, results, mul->b(), scale * *a, form);
  }
  if (auto div = As<Div>(expr); div && IsFloat(DTypeOf(expr))) {
    auto b = LiteralOf(div->b());
    if (b && *b != 0) return AddForm(cascade, results, div->a(), scale / *b, form);
  }
  if (UsesAny(expr, results)) return false;
  form->terms.emplace_back(scale, expr);
  return true;
}

}  // namespace

std::optional<Choice> ChoiceOf(const Expr& expr) {
  if (auto select = As<Select>(expr)) {
    return Choice{select->condition(), select->true_value(), select->false_value()};
  }
  auto call = As<Call>(expr);
  if (!call || CalleeOf(*call) != kIfThenElse) return std::nullopt;
  ffi::Array<ffi::Any> args = call->args();
  return Choice{args[0].cast<Expr>(), args[1].cast<Expr>(), args[2].cast<Expr>()};
}

Expr Resolve(const Expr& expr, const std::vector<Known>& known) {
  return known.empty() ? expr : Resolver(known).Rewrite(expr);
}

std::optional<LinearForm> LinearFormOf(const Cascade& cascade, const Expr& expr) {
  LinearForm form;
  if (!AddForm(cascade, cascade.ValueVars(), expr, 1, &form)) return std::nullopt;
  return form;
}

SplitTerm SplitIntoFactors(const Cascade& cascade, const CascadeStage& stage) {
  Splitter splitter(cascade, stage);
  SplitTerm split = splitter.Visit(stage.term);
  split.also = splitter.also_;
  return split;
}

}  // namespace fuse_epilogue
