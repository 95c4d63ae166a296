#include "analysis/spine.h"

#include <algorithm>
#include <utility>

#include "analysis/guarded.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// Puts the hole in the place of some nodes, which are known by their identity.
class NodeReplacer : public StmtExprMutator {
 public:
  NodeReplacer(VarSet nodes, const Var& hole) : nodes_(std::move(nodes)), hole_(hole) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const Call& op) override { return VisitOther(op).cast<Expr>(); }
  Expr VisitExpr_(const TensorLoad& op) override { return VisitOther(op).cast<Expr>(); }
  ffi::Any VisitOther(const Node& op) override {
    return nodes_.count(op.get()) ? ffi::Any(hole_) : MutateChildren(op);
  }

 private:
  VarSet nodes_;
  Var hole_;
};

// Whether a node decides whether a part of it is evaluated.
bool Decides(const Expr& node, const Expr& part) {
  if (node.kind() == NodeKind::kAnd || node.kind() == NodeKind::kOr) {
    return !Operands(node)->first.same_as(part);
  }
  bool chooses = node.kind() == NodeKind::kCall || node.kind() == NodeKind::kSelect;
  return chooses && !IsAlwaysEvaluated(part, node);
}

}  // namespace

Spine::Spine(const Expr& f, const Var& hole) : f_(f), hole_(hole) {
  (*this)(f);
  // Whatever is inside of a node has been found after it.
  for (size_t i = nodes_.size(); i-- > 1;) nodes_[nodes_[i].parent].holes += nodes_[i].holes;
}

std::optional<Expr> Spine::Node() const {
  if (at_.empty()) return std::nullopt;
  const Expr& first = nodes_[at_[0]].node;
  for (size_t i = 0; i < at_.size(); ++i) {
    const Position& here = nodes_[at_[i]];
    if (here.holes != HolesBelow(i)) return std::nullopt;
    if (!here.node.same_as(first) && !EqualBesides(here.node, i, first)) return std::nullopt;
  }
  if (below_.empty()) return first;
  return NodeReplacer({nodes_[below_[0]].node.get()}, hole_).Rewrite(first);
}

std::optional<Expr> Spine::ClimbToCombination(const Monoid& monoid) {
  std::vector<size_t> above;
  std::optional<Expr> first;
  for (size_t i = 0; i < at_.size(); ++i) {
    auto at = CombinationAbove(i, monoid);
    if (!at) return std::nullopt;
    above.push_back(*at);
    if (i > 0 && *at == above[i - 1]) continue;
    Expr here = WithHole(nodes_[*at].node);
    if (first && !DeepEqual(*first, here)) return std::nullopt;
    first = here;
  }
  at_ = above;
  return first;
}

bool Spine::IsAlwaysEvaluated() {
  if (guarded_.empty()) FindGuarded();
  return std::any_of(at_.begin(), at_.end(), [&](size_t at) { return !guarded_[at]; });
}

void Spine::TakeOff() {
  below_ = at_;
  for (size_t& at : at_) at = nodes_[at].parent;
}

Expr Spine::Rest() const {
  if (IsEmpty()) return hole_;
  return WithHole(f_);
}

void Spine::VisitExpr_(const Var& op) {
  if (!op.same_as(hole_) || stack_.empty()) return;
  at_.push_back(stack_.back());
  ++nodes_[stack_.back()].holes;
}

void Spine::VisitOther(const ir::Node& op) {
  // The arguments of a call, or the indices of a load: the hole is directly in the call.
  if (op.type_index() == TVMFFITypeIndex::kTVMFFIArray) return VisitChildren(op);
  size_t parent = stack_.empty() ? kNone : stack_.back();
  stack_.push_back(nodes_.size());
  nodes_.push_back({Expr(op), parent, 0});
  VisitChildren(op);
  stack_.pop_back();
}

// Whether the node above the i-th hole is the one above the first, but for what is below.
bool Spine::EqualBesides(const Expr& node, size_t i, const Expr& first) const {
  auto one = Operands(node), other = Operands(first);
  if (node.kind() != first.kind() || !one || !other) return false;
  bool left = one->first.same_as(Below(i));
  if (left != other->first.same_as(Below(0))) return false;
  return left ? DeepEqual(one->second, other->second) : DeepEqual(one->first, other->first);
}

// The combination in which the i-th hole is one operand and no hole is in the other.
std::optional<size_t> Spine::CombinationAbove(size_t i, const Monoid& monoid) const {
  size_t at = at_[i];
  for (int level = 0; level < monoid.height && at != kNone; ++level, at = nodes_[at].parent) {
    auto both = monoid.match(nodes_[at].node);
    if (!both) continue;
    bool first = DeepEqual(both->x, Below(i));
    if (!first && !DeepEqual(both->y, Below(i))) continue;
    if (!UsesAny(first ? both->y : both->x, {hole_.get()})) return at;
  }
  return std::nullopt;
}

// A node with the hole in the place of all that was taken off.
Expr Spine::WithHole(const Expr& node) const {
  if (below_.empty()) return node;
  VarSet taken;
  for (size_t at : below_) taken.insert(nodes_[at].node.get());
  return NodeReplacer(std::move(taken), hole_).Rewrite(node);
}

void Spine::FindGuarded() {
  guarded_.assign(nodes_.size(), false);
  for (size_t i = 1; i < nodes_.size(); ++i) {
    if (nodes_[i].holes == 0) continue;
    size_t parent = nodes_[i].parent;
    guarded_[i] = guarded_[parent] || Decides(nodes_[parent].node, nodes_[i].node);
  }
}

}  // namespace fuse_epilogue
