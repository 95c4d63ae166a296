#include "analysis/prover.h"

#include <numeric>

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {
// tvm.sym.IterMapLevel
constexpr int kBijective = 0;

ffi::ObjectRef MakeRange(const Expr& min, const Expr& extent) {
  return CallGlobal(Fn::Range, min, extent, nullptr).cast<ffi::ObjectRef>();
}

// Which axis each index is, if each is another one, and axes with several values are all among
// them.
std::optional<std::vector<size_t>> NamedAxes(const ffi::Array<Expr>& indices,
                                             const std::vector<Axis>& axes) {
  std::vector<size_t> named;
  std::vector<bool> used(axes.size(), false);
  for (const Expr& index : indices) {
    size_t a = 0;
    if (index.kind() == NodeKind::kIntImm) {
      named.push_back(axes.size());
      continue;
    }
    while (a < axes.size() && (used[a] || !axes[a].var.same_as(index))) ++a;
    if (a == axes.size()) return std::nullopt;
    used[a] = true;
    named.push_back(a);
  }
  for (size_t a = 0; a < axes.size(); ++a) {
    if (!used[a] && !IsConst(axes[a].extent, 1)) return std::nullopt;
  }
  return named;
}

// TVM inverts maps without a stride only. base + stride * u == value has the solution u ==
// (value - base) // stride, if it has one: that it does is for the caller to prove.
std::pair<IterSumExpr, Expr> WithoutStride(const IterSumExpr& index, const Expr& value) {
  int64_t stride = 0;
  for (const IterSplitExpr& split : index.args()) {
    auto scale = As<IntImm>(split.scale());
    if (!scale) return {index, value};
    stride = std::gcd(stride, scale->value());
  }
  if (stride <= 1) return {index, value};
  ffi::Array<IterSplitExpr> args;
  for (const IterSplitExpr& split : index.args()) {
    int64_t scale = IntImm(split.scale()).value() / stride;
    args.push_back(CallGlobal(Fn::IterSplitExpr, split.source(), split.lower_factor(),
                              split.extent(), MakeInt(scale, split.scale()))
                       .cast<IterSplitExpr>());
  }
  Expr difference = MakeSub(value, index.base());
  Expr dense =
      CallGlobal(Fn::FloorDiv, difference, MakeInt(stride, difference), nullptr).cast<Expr>();
  auto sum = CallGlobal(Fn::IterSumExpr, args, MakeInt(0, index.base())).cast<IterSumExpr>();
  return {sum, dense};
}

// Replaces an axis that is always converted, T.Cast("int64", v), by an axis of the other type:
// TVM's detection does not look through casts. The values are the same, if that type holds them
// all.
class ConvertedAxes : public StmtExprMutator {
 public:
  explicit ConvertedAxes(const std::vector<Axis>& given) : axes(given) {}
  std::vector<Axis> axes;

 protected:
  ffi::Any VisitOther(const Node& op) override {
    auto cast = As<Cast>(op);
    if (!cast) return MutateChildren(op);
    for (Axis& axis : axes) {
      auto given = given_.find(axis.var.get());
      if (given != given_.end() && given->second.same_as(cast->value())) return axis.var;
      if (!axis.var.same_as(cast->value())) continue;
      auto min = As<IntImm>(axis.min), extent = As<IntImm>(axis.extent);
      if (!min || !extent || !Holds(*cast, min->value(), extent->value())) break;
      Var var = MakeVar(axis.var.name(), *cast);
      given_.emplace(var.get(), axis.var);
      axis = Axis{var, MakeInt(min->value(), var), MakeInt(extent->value(), var)};
      return var;
    }
    return MutateChildren(op);
  }

 private:
  // Whether a signed type holds [min, min + extent).
  static bool Holds(const Expr& like, int64_t min, int64_t extent) {
    DLDataType dtype = DTypeOf(like);
    if (dtype.code != kDLInt || dtype.bits > 64) return false;
    const int64_t highest = static_cast<int64_t>(~uint64_t{0} >> (65 - dtype.bits));
    return -highest - 1 <= min && extent <= highest && min <= highest - extent;
  }

  std::unordered_map<VarKey, Var> given_;
};
}  // namespace

Prover::Prover() = default;

Prover::Prover(const std::vector<Axis>& axes) : known_(axes) {}

// The analyzer folds literals, and fails where they divide by zero or leave their type: then
// nothing is known, and of later questions it would get some wrong.
template <typename Question, typename Answer>
Answer Prover::Ask(const Question& question, Answer unknown) const {
  try {
    return question();
  } catch (const ffi::Error&) {
    analyzer_ = ffi::ObjectRef();
    num_bound_ = 0;
    return unknown;
  }
}

const ffi::ObjectRef& Prover::Analyzer() const {
  if (!analyzer_.defined()) analyzer_ = CallGlobal(Fn::Analyzer).cast<ffi::ObjectRef>();
  for (; num_bound_ < known_.size(); ++num_bound_) {
    const Axis& axis = known_[num_bound_];
    CallGlobal(Fn::AnalyzerBind, analyzer_, axis.var, MakeRange(axis.min, axis.extent), true);
  }
  return analyzer_;
}

void Prover::Bind(const Axis& axis) { known_.push_back(axis); }

Expr Prover::Simplify(const Expr& expr) const {
  if (expr.kind() == NodeKind::kIntImm) return expr;
  if (expr.kind() == NodeKind::kVar) {
    // The analyzer replaces only a variable that has a single value.
    bool single = false;
    for (const Axis& axis : known_) {
      single = single || (axis.var.same_as(expr) && IsConst(axis.extent, 1));
    }
    if (!single) return expr;
  }
  return Ask([&] { return CallGlobal(Fn::AnalyzerSimplify, Analyzer(), expr, 2).cast<Expr>(); },
             expr);
}

bool Prover::Folds(const Expr& expr) const {
  return Ask([&] {
    CallGlobal(Fn::AnalyzerSimplify, Analyzer(), expr, 2);
    return true;
  });
}

bool Prover::Equal(const Expr& a, const Expr& b) const {
  auto x = As<IntImm>(a), y = As<IntImm>(b);
  if (x && y) return x->value() == y->value();
  return a.same_as(b) ||
         Ask([&] { return CallGlobal(Fn::AnalyzerCanProveEqual, Analyzer(), a, b).cast<bool>(); });
}

bool Prover::True(const Expr& condition) const {
  // Strength 1 (kSymbolicBound) lets the analyzer ask z3 where its own rules do not suffice.
  auto proves = [&](int64_t strength) {
    return Ask([&] {
      return CallGlobal(Fn::AnalyzerCanProve, Analyzer(), condition, strength).cast<bool>();
    });
  };
  return IsConst(condition, 1) || proves(0) || proves(1);
}

bool Prover::LessEqual(const Expr& a, const Expr& b) const {
  return True(CallGlobal(Fn::GreaterEqual, b, a, nullptr).cast<Expr>());
}

bool Prover::InRange(const Expr& value, const Expr& min, const Expr& extent) const {
  for (const Axis& axis : known_) {
    if (axis.var.same_as(value) && Equal(axis.min, min) && Equal(axis.extent, extent)) return true;
  }
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
  auto given = predicate.as<Expr>();
  if (!given || IsConst(*given, 1)) map.named_ = NamedAxes(indices, axes);
  map.given_ = indices;
  if (map.named_) return map;
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

bool InjectiveMap::IsInjective(const ffi::Array<Expr>& indices, const std::vector<Axis>& axes) {
  ConvertedAxes converted(axes);
  ffi::Array<Expr> rewritten = converted.Rewrite(indices);
  ffi::Any always = true;
  // One that occurs in its own type as well would be taken for a constant there.
  for (size_t i = 0; i < axes.size(); ++i) {
    bool replaced = !axes[i].var.same_as(converted.axes[i].var);
    if (replaced && UsesAny(rewritten, {axes[i].var.get()})) return false;
  }
  return Detect(rewritten, converted.axes, always).has_value();
}

bool InjectiveMap::Covers(size_t i, const Expr& min, const Expr& extent,
                          const Prover& prover) const {
  if (named_) {
    if ((*named_)[i] == axes_.size()) return IsConst(extent, 1) && prover.Equal(given_[i], min);
    const Axis& axis = axes_[(*named_)[i]];
    return prover.Equal(axis.min, min) && prover.Equal(axis.extent, extent);
  }
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
  if (named_) return true;
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
  if (named_) {
    ffi::Array<Expr> axes;
    for (const Axis& axis : axes_) axes.push_back(axis.min);
    for (size_t i = 0; i < named_->size(); ++i) {
      if ((*named_)[i] < axes_.size()) axes.Set((*named_)[i], values[i]);
    }
    return axes;
  }
  ffi::Map<ffi::ObjectRef, Expr> inverse;
  ffi::Array<IterSumExpr> indices;
  ffi::Array<Expr> dense;
  for (size_t i = 0; i < indices_.size(); ++i) {
    auto [index, value] = WithoutStride(indices_[i], values[i]);
    indices.push_back(index);
    dense.push_back(value);
  }
  if (indices.size() > 0) try {
      inverse = CallGlobal(Fn::InverseAffineIterMap, indices, dense)
                    .cast<ffi::Map<ffi::ObjectRef, Expr>>();
    } catch (const ffi::Error&) {
      return std::nullopt;
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
