#include "analysis/overflow.h"

#include <algorithm>
#include <cmath>

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

double Magnitude(const Expr& literal, double otherwise) {
  auto imm = As<IntImm>(literal);
  return imm ? std::fabs(static_cast<double>(imm->value())) : otherwise;
}

// The size of all literals that are added up, or multiplied, in a start value.
double SumOfLiterals(const Expr& value) {
  if (value.kind() == NodeKind::kAdd || value.kind() == NodeKind::kSub) {
    auto [a, b] = *Operands(value);
    return SumOfLiterals(a) + SumOfLiterals(b);
  }
  return Magnitude(value, 0);
}

double ProductOfLiterals(const Expr& value) {
  if (auto product = As<Mul>(value)) {
    return ProductOfLiterals(product->a()) * ProductOfLiterals(product->b());
  }
  return Magnitude(value, 1);
}

// All literals of the accumulator's type in the terms of a sum, in the arms of conditions too, but
// not in indices: what one step may add is at most what they and the data are.
class LiteralFinder : public StmtExprVisitor {
 public:
  explicit LiteralFinder(DLDataType dtype) : dtype_(dtype) {}
  double sum = 0;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad&) override {}
  void VisitOther(const Node& op) override {
    if (op.kind() == NodeKind::kIntImm && SameType(DTypeOf(Expr(op)), dtype_)) {
      sum += Magnitude(Expr(op), 0);
    }
    VisitChildren(op);
  }

 private:
  DLDataType dtype_;
};

// How often a reduction combines a term, as far as that is a number.
double StepsOf(const Reduction& reduction) {
  double steps = 1;
  for (const Axis& axis : reduction.reduce) steps *= std::max(1.0, Magnitude(axis.extent, 1));
  return steps;
}

}  // namespace

OverflowCheck::OverflowCheck(const Reduction& reduction)
    : dtype_(BufferTypeOf(reduction.accumulator).dtype().dtype()),
      monoid_(reduction.monoid->id),
      subtracts_(reduction.subtracts) {
  if (monoid_ == MonoidId::kProduct) literals_ = ProductOfLiterals(reduction.init);
  if (monoid_ == MonoidId::kSum) {
    LiteralFinder in_terms(dtype_);
    in_terms(reduction.update);
    literals_ = SumOfLiterals(reduction.init) + in_terms.sum * StepsOf(reduction);
  }
}

bool OverflowCheck::MayOverflow(const PeelStep& step) {
  if (!IsInteger(dtype_) || dtype_.bits < 32) return false;
  const double limit = std::ldexp(1.0, dtype_.bits - 2);
  if (monoid_ == MonoidId::kProduct) {
    literals_ *= ProductOfLiterals(*step.operand);
    return literals_ >= limit;
  }
  if (monoid_ != MonoidId::kSum) return false;
  literals_ += SumOfLiterals(*step.operand);
  subtracts_ = subtracts_ || step.node == NodeKind::kSub;
  return dtype_.code == kDLUInt ? subtracts_ : literals_ >= limit;
}

}  // namespace fuse_epilogue
