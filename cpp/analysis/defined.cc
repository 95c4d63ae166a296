#include "analysis/defined.h"

#include <utility>

#include "analysis/comparison.h"
#include "analysis/interval.h"
#include "ir/calls.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// Functions of numbers that have a result for every argument, if only a NaN.
constexpr const char* kTotalFunctions[] = {
    "tirx.acos",  "tirx.acosh", "tirx.asin",  "tirx.asinh",     "tirx.atan",        "tirx.atan2",
    "tirx.atanh", "tirx.ceil",  "prim.ceil",  "tirx.copysign",  "tirx.cos",         "tirx.cosh",
    "tirx.erf",   "tirx.exp",   "tirx.exp10", "tirx.exp2",      "tirx.fabs",        "tirx.floor",
    "tirx.fmod",  "tirx.hypot", "tirx.isnan", "tirx.ldexp",     "tirx.log",         "tirx.log10",
    "tirx.log1p", "tirx.log2",  "prim.log2",  "tirx.nearbyint", "tirx.nextafter",   "tirx.popcount",
    "tirx.pow",   "tirx.round", "tirx.rsqrt", "tirx.sigmoid",   "tirx.sin",         "tirx.sinh",
    "tirx.sqrt",  "tirx.tan",   "tirx.tanh",  "tirx.trunc",     "tirx.reinterpret", "prim.likely",
};

bool IsTotal(const std::string& callee) {
  for (const char* name : kTotalFunctions) {
    if (callee == name) return true;
  }
  return false;
}

using Pair = std::pair<Expr, Expr>;

std::optional<Pair> Divided(const Expr& expr) {
  switch (expr.kind()) {
#define CASE(T)        \
  case NodeKind::k##T: \
    return Pair(T(expr).a(), T(expr).b());
    CASE(Div)
    CASE(Mod)
    CASE(FloorDiv)
    CASE(FloorMod)
#undef CASE
    default:
      return std::nullopt;
  }
}

std::optional<Pair> Shifted(const Expr& expr) {
  if (auto left = As<LShift>(expr)) return Pair(left->a(), left->b());
  if (auto right = As<RShift>(expr)) return Pair(right->a(), right->b());
  return std::nullopt;
}

/*! \brief What counts as undefined: all of it, or what ends a program on the machine. */
enum class Undefined { kAnything, kFaults };

/*! \brief Walks through an expression, with the range of each integer in it. */
class DefinednessProof {
 public:
  DefinednessProof(const std::vector<Axis>& axes, const std::vector<Expr>& assumptions,
                   Undefined looks_for)
      : looks_for_(looks_for) {
    for (const Axis& axis : axes) {
      prover_.Bind(axis);
      BindAxis(axis);
      sizes_.insert(axis.var.get());
      for (const Expr& bound : {axis.min, axis.extent}) {
        for (VarKey var : VarsIn(bound)) sizes_.insert(var);
      }
    }
    for (const Expr& assumption : assumptions) Assume(assumption, true);
  }

  // The range of the expression; nothing for a float. Sets `partial` where it is not defined.
  std::optional<Interval> Visit(const Expr& expr) {
    if (partial) return std::nullopt;
    if (auto value = OpaqueOperand(expr)) return Visit(*value);
    std::optional<Interval> range = Compute(expr);
    if (partial || !range) return range;
    for (const Fact& fact : facts_) {
      if (fact.subject.kind() == expr.kind() && DeepEqual(fact.subject, expr)) {
        range = Intersect(*range, fact.range);
      }
    }
    return range;
  }

  std::optional<Partial> partial;

 private:
  /*! \brief What a condition says about an integer. */
  struct Fact {
    Expr subject;
    Interval range;
  };

  void BindAxis(const Axis& axis) {
    auto type = RangeOfType(DTypeOf(axis.var));
    if (!type) return;
    Interval start = Visit(axis.min).value_or(*type);
    Interval extent = Visit(axis.extent).value_or(*type);
    facts_.push_back({axis.var, Interval{start.low, start.high + extent.high - 1}});
    partial.reset();  // the program evaluates the domains of its blocks itself
  }

  // A load, a division or a call; nothing known comes out of it.
  std::optional<Interval> Fault(const Expr& operation, std::string why) {
    partial = Partial{operation, std::move(why)};
    return std::nullopt;
  }

  // What has no defined value, but does not end the program: any number may come out of it.
  std::optional<Interval> Fail(const Expr& operation, std::string why) {
    if (looks_for_ == Undefined::kFaults) return RangeOfType(DTypeOf(operation));
    return Fault(operation, std::move(why));
  }

  // A result of an operation cut to its type: numbers of 32 bits and more do not wrap around.
  std::optional<Interval> Cut(const Expr& expr, const std::optional<Interval>& result) {
    DLDataType dtype = DTypeOf(expr);
    auto type = RangeOfType(dtype);
    if (!type) return std::nullopt;
    if (result && result->Within(*type)) return result;
    wraps_ = true;
    if (dtype.bits < 32) return type;
    return Fail(expr, "it may overflow " + DTypeStr(dtype));
  }

  std::optional<Interval> Compute(const Expr& expr) {
    auto type = RangeOfType(DTypeOf(expr));
    if (auto imm = As<IntImm>(expr)) return Interval{imm->value(), imm->value()};
    if (As<FloatImm>(expr)) return std::nullopt;
    if (As<Var>(expr)) return type;
    if (auto choice = ChoiceOf(expr)) return VisitChoice(*choice);
    if (auto load = As<TensorLoad>(expr)) return VisitLoad(*load);
    if (auto call = As<Call>(expr)) return VisitCall(*call);
    if (auto let = As<Let>(expr)) return VisitLet(*let);
    if (auto cast = As<Cast>(expr)) return VisitCast(*cast);
    if (auto operands = Divided(expr)) return VisitDivision(expr, *operands);
    if (auto operands = Shifted(expr)) return VisitShift(expr, *operands);
    if (auto operands = Comparands(expr)) {
      Visit(operands->first);
      Visit(operands->second);
      return type;
    }
    if (auto inverted = As<Not>(expr)) {
      Visit(inverted->a());
      return type;
    }
    if (auto complement = As<BitwiseNot>(expr)) {
      Visit(complement->a());
      return type;
    }
    if (auto operands = Operands(expr)) {
      auto a = Visit(operands->first), b = Visit(operands->second);
      bool bits = expr.kind() == NodeKind::kBitwiseAnd || expr.kind() == NodeKind::kBitwiseOr ||
                  expr.kind() == NodeKind::kBitwiseXor;
      bool logic = expr.kind() == NodeKind::kAnd || expr.kind() == NodeKind::kOr;
      if (partial || !a || !b || logic) return type;
      auto result = Combine(expr.kind(), *a, *b);
      return bits && !result ? type : Cut(expr, result);
    }
    return Fault(expr, "nothing is known about such an operation");
  }

  std::optional<Interval> VisitChoice(const Choice& choice) {
    Visit(choice.condition);
    size_t facts = facts_.size(), conditions = conditions_.size();
    auto forget = [&] {
      facts_.resize(facts);
      conditions_.resize(conditions);
    };
    Assume(choice.condition, true);
    auto yes = Visit(choice.yes);
    forget();
    Assume(choice.condition, false);
    auto no = Visit(choice.no);
    forget();
    if (!yes || !no) return std::nullopt;
    return Unite(*yes, *no);
  }

  std::optional<Interval> VisitLoad(const TensorLoad& load) {
    auto buffer = As<Var>(load.source());
    if (!buffer) return Fault(load, "its memory is not known");
    auto shape = BufferTypeOf(*buffer).shape();
    auto indices = load.indices();
    for (size_t i = 0; i < indices.size(); ++i) {
      if (!IsInBounds(indices[i], shape[i])) {
        if (!partial) Fault(load, "its element may be out of bounds");
        return std::nullopt;
      }
    }
    return RangeOfType(DTypeOf(load));
  }

  bool IsInBounds(const Expr& index, const Expr& extent) {
    auto bound = As<IntImm>(extent);
    auto range = Visit(index);
    if (range && bound && range->Within(Interval{0, bound->value() - 1})) return true;
    // Of axes and sizes alone TVM's analyzer knows more. It takes them for whole numbers.
    if (!IsPlainIndex(index, extent)) return false;
    partial.reset();
    Expr from = CallGlobal(Fn::GreaterEqual, index, MakeInt(0, index), nullptr).cast<Expr>();
    Expr to = CallGlobal(Fn::Less, index, extent, nullptr).cast<Expr>();
    return Follows(from) && Follows(to);
  }

  // Whether an index is made of axes, sizes and literals, by operations that have a result at every
  // point, and is in its buffer if the whole number is: sums and products that overflow wrap back.
  bool IsPlainIndex(const Expr& index, const Expr& extent) {
    if (As<IntImm>(index)) return true;
    if (As<Var>(index)) return sizes_.count(index.get()) > 0 || UsesAny(extent, {index.get()});
    if (auto cast = As<Cast>(index)) {
      DLDataType to = DTypeOf(index), from = DTypeOf(cast->value());
      bool widens = to.code == kDLInt && from.code == kDLInt && to.bits >= from.bits;
      return widens && IsPlainOperand(cast->value(), extent);
    }
    if (auto operands = Divided(index)) {
      auto divisor = As<IntImm>(operands->second);
      return divisor && divisor->value() > 0 && IsPlainOperand(operands->first, extent);
    }
    switch (index.kind()) {
      case NodeKind::kAdd:
      case NodeKind::kSub:
      case NodeKind::kMul: {
        auto [a, b] = *ir::Operands(index);
        return IsPlainIndex(a, extent) && IsPlainIndex(b, extent);
      }
      case NodeKind::kMax:
      case NodeKind::kMin: {
        auto [a, b] = *ir::Operands(index);
        return IsPlainOperand(a, extent) && IsPlainOperand(b, extent);
      }
      default:
        return false;
    }
  }

  // A part of an index that is divided, compared or converted: what it wraps around to would be
  // another number there.
  bool IsPlainOperand(const Expr& part, const Expr& extent) {
    if (!IsPlainIndex(part, extent)) return false;
    auto before = partial;
    partial.reset();
    wraps_ = false;
    Visit(part);
    partial = before;
    return !wraps_;
  }

  // Whether a condition holds wherever all of those hold that lead here.
  bool Follows(Expr condition) const {
    for (const Expr& known : conditions_) {
      Expr contrary = CallGlobal(Fn::Not, known, nullptr).cast<Expr>();
      condition = CallGlobal(Fn::Or, contrary, condition, nullptr).cast<Expr>();
    }
    return prover_.True(condition);
  }

  std::optional<Interval> VisitCall(const Call& call) {
    std::string callee = CalleeOf(call);
    if (!IsTotal(callee)) return Fault(call, "the call need not have a result");
    for (const Expr& argument : ArgumentsOf(call)) Visit(argument);
    return RangeOfType(DTypeOf(call));
  }

  std::optional<Interval> VisitLet(const Let& let) {
    auto value = Visit(let.value());
    if (partial) return std::nullopt;
    if (value) facts_.push_back({let.var(), *value});
    return Visit(let.body());
  }

  std::optional<Interval> VisitCast(const Cast& cast) {
    auto from = Visit(cast.value());
    auto to = RangeOfType(DTypeOf(cast));
    if (partial || !to) return std::nullopt;
    if (IsBool(DTypeOf(cast))) return to;
    if (!from)
      return Fail(cast, "the number may be out of the range of " + DTypeStr(DTypeOf(cast)));
    return from->Within(*to) ? from : to;
  }

  std::optional<Interval> VisitDivision(const Expr& expr, const Pair& operands) {
    auto a = Visit(operands.first), b = Visit(operands.second);
    auto type = RangeOfType(DTypeOf(expr));
    if (partial || !a || !b || !type) return std::nullopt;  // a float has a quotient, if only a NaN
    if (b->HasZero()) return Fault(expr, "its divisor may be 0");
    bool is_signed = type->low < 0;
    if (is_signed && a->low == type->low && b->low <= -1 && -1 <= b->high) {
      return Fault(expr, "its quotient may overflow " + DTypeStr(DTypeOf(expr)));
    }
    return Combine(expr.kind(), *a, *b);
  }

  std::optional<Interval> VisitShift(const Expr& expr, const Pair& operands) {
    auto a = Visit(operands.first), b = Visit(operands.second);
    auto type = RangeOfType(DTypeOf(expr));
    if (partial || !a || !b || !type) return std::nullopt;
    if (!b->Within(Interval{0, DTypeOf(expr).bits - 1})) {
      return Fail(expr, "it may shift by more than the width of " + DTypeStr(DTypeOf(expr)));
    }
    return expr.kind() == NodeKind::kRShift ? Combine(expr.kind(), *a, *b) : type;
  }

  // Take a condition, or its contrary, for true.
  void Assume(const Expr& condition, bool holds) {
    if (auto inverted = As<Not>(condition)) return Assume(inverted->a(), !holds);
    auto call = As<Call>(condition);
    if (call && CalleeOf(*call) == kLikely) return Assume(ArgumentsOf(*call)[0], holds);
    bool both = holds ? condition.kind() == NodeKind::kAnd : condition.kind() == NodeKind::kOr;
    if (both) {
      auto operands = Operands(condition);
      Assume(operands->first, holds);
      Assume(operands->second, holds);
      return;
    }
    if (!ReadsMemory(condition)) {
      Expr contrary = CallGlobal(Fn::Not, condition, nullptr).cast<Expr>();
      conditions_.push_back(holds ? condition : contrary);
    }
    auto operands = Comparands(condition);
    if (!operands) return;
    NodeKind comparison = holds ? condition.kind() : Opposite(condition.kind());
    Learn(operands->first, comparison, operands->second);
    Learn(operands->second, Mirrored(comparison), operands->first);
  }

  void Learn(const Expr& subject, NodeKind comparison, const Expr& other) {
    if (!RangeOfType(DTypeOf(subject)) || As<IntImm>(subject)) return;
    auto before = partial;
    auto bound = Visit(other);
    // Where the condition itself is not defined, that is found where it is evaluated.
    bool known = bound.has_value() && !partial;
    partial = before;
    if (known) facts_.push_back({subject, Satisfying(comparison, *bound)});
  }

  Undefined looks_for_;
  // Whether the result of an operation may be cut to its type.
  bool wraps_ = false;
  Prover prover_;
  // The axes, and what their ranges are made of.
  VarSet sizes_;
  std::vector<Fact> facts_;
  // Those without memory, for TVM's analyzer.
  std::vector<Expr> conditions_;
};

}  // namespace

std::optional<Partial> FindPartial(const Expr& expr, const std::vector<Axis>& axes,
                                   const std::vector<Expr>& assumptions) {
  DefinednessProof proof(axes, assumptions, Undefined::kAnything);
  proof.Visit(expr);
  return proof.partial;
}

std::optional<Partial> FindFault(const Expr& expr, const std::vector<Axis>& axes,
                                 const std::vector<Expr>& assumptions) {
  DefinednessProof proof(axes, assumptions, Undefined::kFaults);
  proof.Visit(expr);
  return proof.partial;
}

}  // namespace fuse_epilogue
