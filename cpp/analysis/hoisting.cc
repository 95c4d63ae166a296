#include "analysis/hoisting.h"

#include <utility>

#include "analysis/defined.h"
#include "analysis/guarded.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool IsIntegerDivision(const Expr& expr) {
  switch (expr.kind()) {
    case NodeKind::kDiv:
    case NodeKind::kMod:
    case NodeKind::kFloorDiv:
    case NodeKind::kFloorMod:
      return IsInteger(DTypeOf(expr));
    default:
      return false;
  }
}

std::pair<Expr, Expr> OperandsOf(const Expr& division) {
  switch (division.kind()) {
    case NodeKind::kMod:
      return {Mod(division).a(), Mod(division).b()};
    case NodeKind::kFloorDiv:
      return {FloorDiv(division).a(), FloorDiv(division).b()};
    case NodeKind::kFloorMod:
      return {FloorMod(division).a(), FloorMod(division).b()};
    default:
      return {Div(division).a(), Div(division).b()};
  }
}

// The divisions of integers without memory, and the sizes of the buffers.
class DivisionFinder : public StmtExprVisitor {
 public:
  std::vector<Expr> divisions;
  std::vector<Expr> sizes;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad& op) override {
    if (auto buffer = As<Var>(op.source())) {
      for (const Expr& extent : BufferTypeOf(*buffer).shape()) {
        if (As<Var>(extent)) sizes.push_back(extent);
      }
    }
    (*this)(op.indices());
  }
  void VisitOther(const Node& op) override {
    if (IsIntegerDivision(Expr(op)) && !ReadsMemory(Expr(op))) divisions.push_back(Expr(op));
    VisitChildren(op);
  }
};

// Whether TVM, which simplifies first, takes two divisions for one operation.
bool IsRepeated(const Expr& a, const Expr& b, const Prover& prover) {
  auto remainder = [](const Expr& expr) {
    return expr.kind() == NodeKind::kMod || expr.kind() == NodeKind::kFloorMod;
  };
  if (remainder(a) != remainder(b) || !SameType(DTypeOf(a), DTypeOf(b))) return false;
  auto [x, divisor] = OperandsOf(a);
  auto [y, other] = OperandsOf(b);
  return prover.Equal(divisor, other) && prover.Equal(x, y);
}

size_t Count(const std::vector<Expr>& divisions, const Expr& division, const Prover& prover) {
  size_t count = 0;
  for (const Expr& one : divisions) count += IsRepeated(one, division, prover);
  return count;
}

}  // namespace

std::optional<Expr> FindHoisted(const Expr& expr, const std::vector<Expr>& others, size_t parts,
                                bool copied, const std::vector<Axis>& axes,
                                const std::vector<Expr>& assumptions) {
  DivisionFinder here, elsewhere;
  here(expr);
  if (here.divisions.empty()) return std::nullopt;
  for (const Expr& other : others) elsewhere(other);
  Prover prover;
  for (const Axis& axis : axes) prover.Bind(axis);
  std::vector<Expr> known = assumptions;
  for (const Expr& size : here.sizes) {
    known.push_back(CallGlobal(Fn::GreaterEqual, size, MakeInt(1, size), nullptr).cast<Expr>());
  }
  for (const Expr& division : here.divisions) {
    bool repeated = copied || Count(elsewhere.divisions, division, prover) > 0 ||
                    (parts > 1 && Count(here.divisions, division, prover) > 1);
    if (!repeated || IsAlwaysEvaluated(division, expr)) continue;
    if (FindFault(division, axes, known)) return division;
  }
  return std::nullopt;
}

}  // namespace fuse_epilogue
