#include "analysis/prover.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {
// tvm.sym.IterMapLevel
constexpr int kBijective = 0;

ffi::ObjectRef MakeRange(const Expr& min, const Expr& extent) {
  return CallGlobal(Fn::Range, min, extent, nullptr).cast<ffi::ObjectRef>();
}
}  // namespace

Prover::Prover() : analyzer_(CallGlobal(Fn::Analyzer).cast<ffi::ObjectRef>()) {}

void Prover::Bind(const Axis& axis) {
  CallGlobal(Fn::AnalyzerBind, analyzer_, axis.var, MakeRange(axis.min, axis.extent), true);
}

Expr Prover::Simplify(const Expr& expr) const {
  return CallGlobal(Fn::AnalyzerSimplify, analyzer_, expr, 2).cast<Expr>();
}

bool Prover::Equal(const Expr& a, const Expr& b) const {
  return a.same_as(b) || CallGlobal(Fn::AnalyzerCanProveEqual, analyzer_, a, b).cast<bool>();
}

bool Prover::True(const Expr& condition) const {
  // Strength 1 (kSymbolicBound) lets the analyzer ask z3 where its own rules do not suffice.
  return IsConst(condition, 1) ||
         CallGlobal(Fn::AnalyzerCanProve, analyzer_, condition, 0).cast<bool>() ||
         CallGlobal(Fn::AnalyzerCanProve, analyzer_, condition, 1).cast<bool>();
}

bool Prover::LessEqual(const Expr& a, const Expr& b) const {
  return True(CallGlobal(Fn::GreaterEqual, b, a, nullptr).cast<Expr>());
}

bool Prover::InRange(const Expr& value, const Expr& min, const Expr& extent) const {
  return LessEqual(min, value) &&
         True(CallGlobal(Fn::Less, value, MakeAdd(min, extent), nullptr).cast<Expr>());
}

std::optional<InjectiveMap> InjectiveMap::Detect(const ffi::Array<Expr>& indices,
                                                 const std::vector<Axis>& axes,
                                                 const ffi::Any& predicate) {
  InjectiveMap map;
  map.axes_ = axes;
  if (indices.size() == 0) {
    // TVM answers an empty map with an empty result, its sign of failure: a map to the only
    // element of a 0-dimensional buffer is injective on a single point.
    for (const Axis& axis : axes) {
      if (!IsConst(axis.extent, 1)) return std::nullopt;
    }
    return map;
  }
  // TVM inverts maps of axes that start at 0 only: shift the others, var = min + var.
  Substitution shift;
  ffi::Map<ffi::ObjectRef, ffi::ObjectRef> domain;
  for (const Axis& axis : axes) {
    domain.Set(axis.var, MakeRange(MakeInt(0, axis.var), axis.extent));
    if (!IsConst(axis.min, 0)) shift[axis.var.get()] = MakeAdd(axis.var, axis.min);
  }
  ffi::Any condition = predicate;
  if (auto expr = predicate.as<Expr>()) condition = Substitute(*expr, shift);
  auto result = CallGlobal(Fn::DetectIterMap, Substitute(indices, shift), domain, condition,
                           kBijective, false, nullptr)
                    .cast<IterMapResult>();
  if (result.indices().size() != indices.size()) return std::nullopt;
  map.indices_ = result.indices();
  return map;
}

bool InjectiveMap::Covers(size_t i, const Expr& min, const Expr& extent,
                          const Prover& prover) const {
  const IterSumExpr& index = indices_[i];
  auto args = index.args();
  if (args.size() == 0)
    return IsConst(prover.Simplify(extent), 1) && prover.Equal(index.base(), min);
  if (args.size() != 1 || !prover.Equal(args[0].extent(), extent)) return false;
  if (IsConst(args[0].scale(), 1)) return prover.Equal(index.base(), min);
  // Reversed: base - 0, base - 1, ..., base - (extent - 1).
  return IsConst(args[0].scale(), -1) &&
         prover.Equal(MakeAdd(index.base(), MakeInt(1, min)), MakeAdd(min, extent));
}

bool InjectiveMap::IsDigits(size_t i) const {
  for (IterSplitExpr split : indices_[i].args()) {
    while (true) {
      if (!IsConst(split.scale(), 1)) return false;
      Expr source = split.source().source();
      if (source.kind() == NodeKind::kVar) break;
      auto sum = As<IterSumExpr>(source);
      if (!sum || sum->args().size() != 1 || !IsConst(sum->base(), 0)) return false;
      split = sum->args()[0];
    }
  }
  return true;
}

std::optional<ffi::Array<Expr>> InjectiveMap::Inverse(const ffi::Array<Expr>& values) const {
  ffi::Map<ffi::ObjectRef, Expr> inverse;
  if (indices_.size() > 0) try {
      inverse = CallGlobal(Fn::InverseAffineIterMap, indices_, values)
                    .cast<ffi::Map<ffi::ObjectRef, Expr>>();
    } catch (const ffi::Error&) {
      return std::nullopt;  // a stride other than 1, for example
    }
  ffi::Array<Expr> axes;
  for (const Axis& axis : axes_) {
    auto it = inverse.find(axis.var);
    // An axis the map does not mention has a single value.
    axes.push_back(it == inverse.end() ? axis.min : MakeAdd((*it).second, axis.min));
  }
  return axes;
}

}  // namespace fuse_epilogue
