#include "analysis/hoisting.h"

#include "analysis/defined.h"
#include "analysis/refusal.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// That the sizes of loaded buffers are at least 1.
class SizeFinder : public StmtExprVisitor {
 public:
  std::vector<Expr> known;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad& op) override {
    if (auto buffer = As<Var>(op.source())) {
      for (const Expr& extent : BufferTypeOf(*buffer).shape()) {
        if (!As<Var>(extent)) continue;
        known.push_back(
            CallGlobal(Fn::GreaterEqual, extent, MakeInt(1, extent), nullptr).cast<Expr>());
      }
    }
    (*this)(op.indices());
  }
};

class DivisionPinner : public StmtExprMutator {
 public:
  explicit DivisionPinner(const std::vector<Expr>& known) : known_(known) {}

 protected:
  ffi::Any VisitOther(const Node& op) override {
    ffi::Any rewritten = MutateChildren(op);
    switch (op.kind()) {
      case NodeKind::kDiv:
        return Pinned(Div(rewritten.cast<Expr>()), Fn::DivNode);
      case NodeKind::kMod:
        return Pinned(Mod(rewritten.cast<Expr>()), Fn::ModNode);
      case NodeKind::kFloorDiv:
        return Pinned(FloorDiv(rewritten.cast<Expr>()), Fn::FloorDivNode);
      case NodeKind::kFloorMod:
        return Pinned(FloorMod(rewritten.cast<Expr>()), Fn::FloorModNode);
      default:
        return rewritten;
    }
  }

 private:
  // The axes may have any values: outside of their domain a predicate may guard the block.
  template <typename Division>
  Expr Pinned(const Division& division, Fn make) const {
    bool moves = IsInteger(DTypeOf(division)) && !ReadsMemory(division);
    if (!moves || !FindFault(division, {}, known_)) return division;
    return CallGlobal(make, division.a(), MakeOpaque(division.b()), nullptr).template cast<Expr>();
  }

  const std::vector<Expr>& known_;
};

template <typename T>
T Pinned(const T& node, const std::vector<Node>& others, const std::vector<Expr>& assumptions) {
  if (IsSwitchedOff(Decision::kPinnedDivision)) return node;
  SizeFinder sizes;
  sizes(node);
  for (const Node& other : others) sizes(other);
  std::vector<Expr> known = assumptions;
  known.insert(known.end(), sizes.known.begin(), sizes.known.end());
  return DivisionPinner(known).Rewrite(node);
}

}  // namespace

Expr PinDivisions(const Expr& expr, const std::vector<Node>& others,
                  const std::vector<Expr>& assumptions) {
  return Pinned(expr, others, assumptions);
}
Stmt PinDivisions(const Stmt& stmt, const std::vector<Node>& others,
                  const std::vector<Expr>& assumptions) {
  return Pinned(stmt, others, assumptions);
}

}  // namespace fuse_epilogue
