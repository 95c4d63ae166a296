#include "ir/unify.h"

#include <vector>

namespace fuse_epilogue {
namespace ir {
namespace {

// A pattern and what it has to be.
using Equation = std::pair<Expr, Expr>;

bool IsCommutative(NodeKind kind) {
  return kind == NodeKind::kAdd || kind == NodeKind::kMul || kind == NodeKind::kMax ||
         kind == NodeKind::kMin;
}

class Unifier {
 public:
  explicit Unifier(const VarSet& holes) : holes_(holes) {}

  // Solves all equations, the last one first; where there is a choice, both ways are tried.
  std::optional<Substitution> Solve(std::vector<Equation> open, Substitution found) const {
    while (!open.empty()) {
      auto [pattern, value] = open.back();
      open.pop_back();
      if (holes_.count(pattern.get())) {
        if (!SameType(DTypeOf(pattern), DTypeOf(value))) return std::nullopt;
        auto [at, is_new] = found.emplace(pattern.get(), value);
        if (!is_new && !DeepEqual(at->second, value)) return std::nullopt;
        continue;
      }
      if (pattern.kind() != value.kind()) return std::nullopt;
      if (auto parts = Operands(pattern)) {
        auto [a, b] = *Operands(value);
        if (IsCommutative(pattern.kind())) {
          std::vector<Equation> in_order = open;
          in_order.emplace_back(parts->second, b);
          in_order.emplace_back(parts->first, a);
          if (auto solved = Solve(std::move(in_order), found)) return solved;
          std::swap(a, b);
        }
        open.emplace_back(parts->second, b);
        open.emplace_back(parts->first, a);
      } else if (auto call = As<Call>(pattern)) {
        Call other(value);
        if (!call->op().same_as(other.op()) || call->args().size() != other.args().size()) {
          return std::nullopt;
        }
        for (size_t i = call->args().size(); i-- > 0;) {
          open.emplace_back(call->args()[i].cast<Expr>(), other.args()[i].cast<Expr>());
        }
      } else if (auto literal = As<FloatImm>(pattern)) {
        if (literal->value() != FloatImm(value).value()) return std::nullopt;
      } else {
        return std::nullopt;
      }
    }
    return found;
  }

 private:
  const VarSet& holes_;
};

}  // namespace

std::optional<Substitution> Unify(const Expr& pattern, const Expr& value, const VarSet& holes) {
  return Unifier(holes).Solve({{pattern, value}}, {});
}

}  // namespace ir
}  // namespace fuse_epilogue
