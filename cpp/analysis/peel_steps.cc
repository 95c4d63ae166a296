#include "analysis/peel_steps.h"

#include "analysis/distributions.h"
#include "analysis/folding.h"
#include "analysis/refusal.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The product of two floating literals, if their type holds it. Rounded to 0, to a denormal or to
// infinity, it would be something else than what it stands for: (x * 1e-30) * 1e-30 is not x * 0.
std::optional<Expr> FoldFactors(const Expr& a, const Expr& b) {
  auto x = As<FloatImm>(a), y = As<FloatImm>(b);
  if (!x || !y || !IsNormal(x->value() * y->value(), DTypeOf(a))) return std::nullopt;
  return CallGlobal(Fn::Mul, a, b, nullptr).cast<Expr>();
}

// A literal factor of a literal or of a product with a literal is folded: no work in the term.
std::optional<Expr> Folded(const PeelStep& step, const Expr& term) {
  bool scales_sum = step.node == NodeKind::kMul && step.after->id == MonoidId::kSum;
  if (!scales_sum || !As<FloatImm>(*step.operand)) return std::nullopt;
  if (As<FloatImm>(term)) return FoldFactors(term, *step.operand);
  auto product = As<Mul>(term);
  if (!product) return std::nullopt;
  for (bool first : {true, false}) {
    Expr literal = first ? product->a() : product->b();
    if (!As<FloatImm>(literal)) continue;
    auto scale = FoldFactors(literal, *step.operand);
    if (!scale) return std::nullopt;
    return first ? MakeMul(*scale, product->b()) : MakeMul(product->a(), *scale);
  }
  return std::nullopt;
}

// Two literals of a type that wraps around: TVM's own folding rejects what leaves the type's range.
std::optional<Expr> FoldWrapping(NodeKind node, const Expr& a, const Expr& b) {
  auto x = As<IntImm>(a), y = As<IntImm>(b);
  DLDataType dtype = DTypeOf(a);
  if (!x || !y || !IsInteger(dtype) || dtype.bits > 32) return std::nullopt;
  int64_t value = 0;
  switch (node) {
    case NodeKind::kAdd:
      value = x->value() + y->value();
      break;
    case NodeKind::kSub:
      value = x->value() - y->value();
      break;
    case NodeKind::kMul:
      if (dtype.bits == 32) return std::nullopt;  // known not to overflow
      value = x->value() * y->value();
      break;
    default:
      return std::nullopt;
  }
  uint64_t mask = (uint64_t{1} << dtype.bits) - 1;
  uint64_t wrapped = static_cast<uint64_t>(value) & mask;
  bool negative = dtype.code == kDLInt && (wrapped >> (dtype.bits - 1)) != 0;
  return MakeInt(static_cast<int64_t>(negative ? wrapped | ~mask : wrapped), a);
}

// In `acc or t` the accumulator guards t, and (x and c) would keep it false where x was true: there
// c has to guard the term.
Expr ApplyToTerm(const PeelStep& step, const Expr& term) {
  if (auto folded = Folded(step, term)) return *folded;
  bool guards = step.node == NodeKind::kAnd || step.node == NodeKind::kOr;
  if (guards && step.operand && !IsSwitchedOff(Decision::kOperandGuardsTerm)) {
    return CallGlobal(step.make, *step.operand, term, nullptr).cast<Expr>();
  }
  return ApplyStep(step, term);
}

// Visits the terms of an update: all leaves but the accumulator.
template <typename Visit>
void ForEachTerm(const Expr& update, const Monoid& monoid, const VarSet& around,
                 const Visit& visit) {
  auto both = Split(update, monoid);
  if (!both || !around.count(update.get())) return;
  for (const Expr& side : {both->x, both->y}) {
    if (!around.count(side.get())) {
      visit(side);
    } else {
      ForEachTerm(side, monoid, around, visit);
    }
  }
}

// \p around: the nodes with the accumulator inside.
Expr MapTerms(const Expr& update, const VarSet& around, const PeelStep& step) {
  auto both = Split(update, *step.before);
  if (!both) return update;  // the load of the accumulator
  bool left = around.count(both->x.get()) > 0;
  Expr side = MapTerms(left ? both->x : both->y, around, step);
  const Expr& term = left ? both->y : both->x;
  // The combination stays one even with a term that TVM would fold away.
  bool subtracts = update.kind() == NodeKind::kSub;
  if (Negates(step)) {
    Fn make = subtracts ? Fn::AddNode : Fn::SubNode;
    return CallGlobal(make, side, term, nullptr).cast<Expr>();
  }
  Expr mapped = ApplyToTerm(step, term);
  bool same = subtracts || step.after == step.before;
  auto combine = same ? both->of : step.after->make_node;
  return left ? combine(side, mapped) : combine(mapped, side);
}

}  // namespace

bool Negates(const PeelStep& step) {
  return step.node == NodeKind::kSub && !step.x_first && step.after->id == MonoidId::kSum;
}

Expr ApplyStep(const PeelStep& step, const Expr& x) {
  if (!step.operand) return CallGlobal(step.make, x, nullptr).cast<Expr>();
  const Expr& a = step.x_first ? x : *step.operand;
  const Expr& b = step.x_first ? *step.operand : x;
  if (auto folded = FoldWrapping(step.node, a, b)) return *folded;
  if (step.absorbs && step.node != NodeKind::kSub) return Combine(*step.after, a, b);
  return CallGlobal(step.make, a, b, nullptr).cast<Expr>();
}

bool FoldsIntoTerms(const PeelStep& step, const Expr& update, const Reduction& reduction) {
  bool folds = step.operand.has_value();
  ForEachTerm(update, *step.before, NodesAround(update, reduction.accumulator),
              [&](const Expr& term) { folds = folds && Folded(step, term); });
  return folds;
}

bool FoldsWithAny(const PeelStep& step, const Expr& start, const Expr& update,
                  const Reduction& reduction) {
  Var x = MakeVar("x", start);
  if (FoldsTogether(ApplyStep(step, x), x, start, reduction.spatial)) return true;
  if (step.absorbs) return false;
  std::vector<Axis> axes = reduction.spatial;
  axes.insert(axes.end(), reduction.reduce.begin(), reduction.reduce.end());
  Expr made = ApplyToTerm(step, x);
  bool folds = false;
  ForEachTerm(update, *step.before, NodesAround(update, reduction.accumulator),
              [&](const Expr& term) { folds = folds || FoldsTogether(made, x, term, axes); });
  return folds;
}

Expr ApplyAll(const PeelSteps& steps, Expr x) {
  for (const PeelStep& step : steps) x = ApplyStep(step, x);
  return x;
}

Expr ApplyDistributed(const PeelSteps& steps, Expr x) {
  bool negative = false;
  for (const PeelStep& step : steps) {
    if (step.absorbs) continue;
    if (Negates(step)) {
      negative = !negative;
    } else {
      x = ApplyStep(step, x);
    }
  }
  return negative ? MakeSub(MakeZero(x), x) : x;
}

Expr MapTerms(const Expr& update, const Reduction& reduction, const PeelSteps& steps) {
  Expr mapped = update;
  for (const PeelStep& step : steps) {
    if (step.absorbs) continue;
    mapped = MapTerms(mapped, NodesAround(mapped, reduction.accumulator), step);
  }
  return mapped;
}

}  // namespace fuse_epilogue
