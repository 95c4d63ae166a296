#include "ir/tools.h"

#include <tvm/ffi/dtype.h>

#include "ir/functor.h"

namespace fuse_epilogue {
namespace ir {
namespace {

class VarCollector : public StmtExprVisitor {
 public:
  VarSet vars;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Var& op) override { vars.insert(op.get()); }
};

// Leaves out a part of the expression.
class VarFinder : public StmtExprVisitor {
 public:
  VarFinder(const VarSet& vars, const Expr& free) : vars_(vars), free_(free) {}
  bool found = false;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Var& op) override { found = found || vars_.count(op.get()) > 0; }
  void VisitOther(const Node& op) override {
    if (!op.same_as(free_)) VisitChildren(op);
  }

 private:
  const VarSet& vars_;
  Expr free_;
};

class MemoryFinder : public StmtExprVisitor {
 public:
  bool found = false;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad&) override { found = true; }
  void VisitExpr_(const Call&) override { found = true; }
};

class PartFinder : public StmtExprVisitor {
 public:
  explicit PartFinder(const Expr& part) : part_(part) {}
  bool found = false;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Call& op) override { Visit(op); }
  void VisitOther(const Node& op) override { Visit(op); }

 private:
  void Visit(const Node& op) {
    found = found || (op.kind() == part_.kind() && DeepEqual(Expr(op), part_));
    if (!found) VisitChildren(op);
  }

  const Expr& part_;
};

class Substituter : public StmtExprMutator {
 public:
  explicit Substituter(const Substitution& map) : map_(map) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const Var& op) override {
    auto it = map_.find(op.get());
    return it == map_.end() ? Expr(op) : it->second;
  }

 private:
  const Substitution& map_;
};

class PartReplacer : public StmtExprMutator {
 public:
  PartReplacer(const Expr& part, const Expr& by) : part_(part), by_(by) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const Var& op) override {
    return op.same_as(part_) ? by_ : StmtExprMutator::VisitExpr_(op);
  }
  Expr VisitExpr_(const Call& op) override {
    return op.same_as(part_) ? by_ : StmtExprMutator::VisitExpr_(op);
  }
  Expr VisitExpr_(const TensorLoad& op) override {
    return op.same_as(part_) ? by_ : StmtExprMutator::VisitExpr_(op);
  }
  ffi::Any VisitOther(const Node& op) override {
    return op.same_as(part_) ? ffi::Any(by_) : MutateChildren(op);
  }

 private:
  Expr part_, by_;
};

}  // namespace

DLDataType DTypeOf(const Expr& expr) {
  if (auto prim = As<PrimType>(ExprBase(expr).ty())) return prim->dtype();
  return DLDataType{kDLOpaqueHandle, 0, 0};
}

BufferType BufferTypeOf(const Var& buffer) { return BufferType(ExprBase(buffer).ty()); }
std::string ScopeOf(const Var& buffer) { return BufferTypeOf(buffer).storage_scope(); }
std::string DTypeStr(DLDataType dtype) { return ffi::DLDataTypeToString(dtype); }

bool IsBool(DLDataType dtype) {
  return dtype.code == kDLBool || (dtype.code == kDLUInt && dtype.bits == 1);
}
bool IsInteger(DLDataType dtype) {
  return (dtype.code == kDLInt || dtype.code == kDLUInt) && dtype.bits > 1;
}
bool IsFloat(DLDataType dtype) {
  // Behind bfloat16 come bool, which is not a float, and the 8-bit and smaller floats, which are.
  return dtype.code == kDLFloat || dtype.code == kDLBfloat || dtype.code > kDLBool;
}
bool SameType(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

bool IsWider(const Expr& a, const Expr& b) {
  DLDataType wide = DTypeOf(a), narrow = DTypeOf(b);
  return wide.code == kDLInt && narrow.code == kDLInt && wide.bits > narrow.bits;
}

std::optional<std::pair<Expr, Expr>> Operands(const Expr& node) {
  switch (node.kind()) {
#define CASE(T)        \
  case NodeKind::k##T: \
    return std::make_pair(T(node).a(), T(node).b());
    CASE(Add)
    CASE(Sub)
    CASE(Mul)
    CASE(Div)
    CASE(Max)
    CASE(Min)
    CASE(And)
    CASE(Or)
    CASE(BitwiseAnd)
    CASE(BitwiseOr)
    CASE(BitwiseXor)
#undef CASE
    default:
      return std::nullopt;
  }
}

std::vector<Expr> Conjuncts(const Expr& condition) {
  auto both = As<And>(condition);
  if (!both) return {condition};
  std::vector<Expr> parts = Conjuncts(both->a());
  for (const Expr& part : Conjuncts(both->b())) parts.push_back(part);
  return parts;
}

bool DeepEqual(const Expr& a, const Expr& b) {
  return a.same_as(b) || CallGlobal(Fn::DeepEqual, a, b).cast<bool>();
}

bool DeepEqual(const ffi::Array<Expr>& a, const ffi::Array<Expr>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!DeepEqual(a[i], b[i])) return false;
  }
  return true;
}

bool IsConst(const Expr& expr, int64_t value) {
  if (auto imm = As<IntImm>(expr)) return imm->value() == value;
  if (auto imm = As<FloatImm>(expr)) return imm->value() == static_cast<double>(value);
  return false;
}

std::optional<double> LiteralOf(const Expr& expr) {
  if (auto imm = As<FloatImm>(expr)) return imm->value();
  if (auto imm = As<IntImm>(expr)) return static_cast<double>(imm->value());
  return std::nullopt;
}

VarSet VarsIn(ffi::AnyView node) {
  VarCollector collector;
  collector(node);
  return std::move(collector.vars);
}

bool UsesAny(ffi::AnyView node, const VarSet& vars) {
  for (VarKey var : VarsIn(node)) {
    if (vars.count(var)) return true;
  }
  return false;
}

bool UsesAny(const Expr& expr, const VarSet& vars, const Expr& free) {
  VarFinder finder(vars, free);
  finder(expr);
  return finder.found;
}

bool ReadsMemory(const Expr& expr) {
  MemoryFinder finder;
  finder(expr);
  return finder.found;
}

bool Occurs(const Expr& part, const Expr& expr) {
  PartFinder finder(part);
  finder(expr);
  return finder.found;
}

Expr Substitute(const Expr& node, const Substitution& map) {
  return map.empty() ? node : Substituter(map).Rewrite(node);
}
ffi::Array<Expr> Substitute(const ffi::Array<Expr>& nodes, const Substitution& map) {
  return map.empty() ? nodes : Substituter(map).Rewrite(nodes);
}
SBlock Substitute(const SBlock& node, const Substitution& map) {
  return map.empty() ? node : Substituter(map).Rewrite(node);
}
Stmt Substitute(const Stmt& node, const Substitution& map) {
  return map.empty() ? node : Substituter(map).Rewrite(node);
}

Expr ReplacePart(const Expr& node, const Expr& part, const Expr& by) {
  return PartReplacer(part, by).Rewrite(node);
}

Expr MakeAdd(const Expr& a, const Expr& b) {
  return CallGlobal(Fn::Add, a, b, nullptr).cast<Expr>();
}
Expr MakeSub(const Expr& a, const Expr& b) {
  return CallGlobal(Fn::Sub, a, b, nullptr).cast<Expr>();
}
Expr MakeMul(const Expr& a, const Expr& b) {
  return CallGlobal(Fn::Mul, a, b, nullptr).cast<Expr>();
}
Expr MakeDiv(const Expr& a, const Expr& b) {
  return CallGlobal(Fn::Div, a, b, nullptr).cast<Expr>();
}
Expr MakeEqual(const Expr& a, const Expr& b) {
  return CallGlobal(Fn::Equal, a, b, nullptr).cast<Expr>();
}
Expr MakeSelect(const Expr& condition, const Expr& yes, const Expr& no) {
  return CallGlobal(Fn::Select, condition, yes, no, nullptr).cast<Expr>();
}
namespace {

Expr MakeCallOf(const char* op, const Expr& argument, const Expr& like) {
  ffi::Array<ffi::Any> args{argument}, type_args;
  return CallGlobal(Fn::Call, ExprBase(like).ty(), CallGlobal(Fn::GetOp, op), args, nullptr,
                    type_args, nullptr)
      .cast<Expr>();
}

// What the bits are reinterpreted of, if this is such a call.
std::optional<Expr> ReinterpretedIn(const Expr& expr) {
  auto call = As<Call>(expr);
  auto op = call ? As<Op>(call->op()) : std::nullopt;
  if (!op || op->name() != kReinterpret) return std::nullopt;
  auto argument = ObjectIn(call->args()[0]);
  return argument ? std::optional<Expr>(Expr(*argument)) : std::nullopt;
}

}  // namespace

Expr MakeCall(const char* op, const Expr& argument) { return MakeCallOf(op, argument, argument); }

Expr MakeOpaque(const Expr& value) {
  DLDataType other = DTypeOf(value);
  other.code = other.code == kDLInt ? kDLUInt : kDLInt;
  Expr number = CallGlobal(Fn::BitwiseXorNode, value, MakeInt(0, value), nullptr).cast<Expr>();
  Expr like = CallGlobal(Fn::IntImm, other, 0, nullptr).cast<Expr>();
  return MakeCallOf(kReinterpret, MakeCallOf(kReinterpret, number, like), value);
}
std::optional<Expr> OpaqueOperand(const Expr& expr) {
  auto bits = ReinterpretedIn(expr);
  auto value = bits ? ReinterpretedIn(*bits) : std::nullopt;
  if (!value || !SameType(DTypeOf(*value), DTypeOf(expr)) || !IsInteger(DTypeOf(*bits))) {
    return std::nullopt;
  }
  auto number = As<BitwiseXor>(*value);
  auto zero = number ? As<IntImm>(number->b()) : std::nullopt;
  return zero && zero->value() == 0 ? number->a() : *value;
}
Var MakeVar(const std::string& name, const Expr& like) {
  return CallGlobal(Fn::Var, name, ExprBase(like).ty(), nullptr).cast<Var>();
}
Expr MakeLoad(const Var& buffer, const ffi::Array<Expr>& indices) {
  return CallGlobal(Fn::BufferLoad, buffer, indices, nullptr).cast<Expr>();
}
Expr MakeZero(const Expr& like) {
  if (!IsFloat(DTypeOf(like))) return MakeInt(0, like);
  return MakeFloat(0, like);
}
Expr MakeFloat(double value, const Expr& like) {
  return CallGlobal(Fn::FloatImm, DTypeOf(like), value, nullptr).cast<Expr>();
}
Expr MakeOne(const Expr& like) {
  return IsFloat(DTypeOf(like)) ? MakeFloat(1, like) : MakeInt(1, like);
}
Expr MakeInt(int64_t value, const Expr& like) {
  return CallGlobal(Fn::IntImm, DTypeOf(like), value, nullptr).cast<Expr>();
}

Expr MakeCast(const Expr& value, const Expr& like) {
  if (SameType(DTypeOf(value), DTypeOf(like))) return value;
  if (auto imm = As<IntImm>(value)) return MakeInt(imm->value(), like);
  return CallGlobal(Fn::Cast, DTypeOf(like), value, nullptr).cast<Expr>();
}

std::string Print(const ffi::ObjectRef& node) {
  ffi::Map<ffi::String, ffi::Any> empty;
  std::string text =
      CallGlobal(Fn::Script, node, CallGlobal(Fn::PrinterConfig, empty)).cast<ffi::String>();
  // Free variables may be declared on lines of their own first; the node is the last line.
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t line = text.rfind('\n');
  if (line != std::string::npos) text = text.substr(line + 1);
  // In a message the type of an index only distracts: T.int64(0) is 0.
  const std::string wrapper = "T.int64(";
  for (size_t at = 0; (at = text.find(wrapper, at)) != std::string::npos;) {
    size_t number = at + wrapper.size();
    size_t end = text.find_first_not_of("-0123456789", number);
    if (end == std::string::npos || text[end] != ')') {
      at = number;
    } else {
      text = text.substr(0, at) + text.substr(number, end - number) + text.substr(end + 1);
    }
  }
  return text;
}

}  // namespace ir
}  // namespace fuse_epilogue
