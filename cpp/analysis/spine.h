/*!
 * \file analysis/spine.h
 * \brief What an expression does with a hole in it, node by node from the inside.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_SPINE_H_
#define FUSE_EPILOGUE_ANALYSIS_SPINE_H_

#include <optional>
#include <vector>

#include "analysis/monoid.h"
#include "ir/functor.h"

namespace fuse_epilogue {

/*!
 * \brief The nodes between the holes of f and its root.
 *
 * All holes climb together, a node at a time, while the nodes above them are equal: each node is
 * looked at once, however many are taken off.
 */
class Spine : private ir::StmtExprVisitor {
 public:
  Spine(const ir::Expr& f, const ir::Var& hole);

  /*! \brief Whether all nodes have been taken off. */
  bool IsEmpty() const { return f_.same_as(hole_) || (!at_.empty() && at_[0] == kNone); }
  /*! \brief Whether the present node is all that is left. */
  bool IsAtRoot() const { return at_[0] == 0; }

  /*! \brief The one node in which every hole is, if there is one and the hole is in it once; what
   *         has been taken off is the hole in it. */
  std::optional<ir::Expr> Node() const;

  /*!
   * \brief Climb to the combination of the hole with something else in which every hole is, if
   *        there is one.
   * \return The combination, with the hole for what has been taken off.
   */
  std::optional<ir::Expr> ClimbToCombination(const Monoid& monoid);

  /*! \brief Whether one of the present nodes is evaluated whenever f is. */
  bool IsAlwaysEvaluated();

  /*! \brief Take the present node off. */
  void TakeOff();

  /*! \brief f with the hole in the place of all that was taken off. */
  ir::Expr Rest() const;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const ir::Var& op) override;
  void VisitExpr_(const ir::Call& op) override { VisitOther(op); }
  void VisitExpr_(const ir::TensorLoad& op) override { VisitOther(op); }
  void VisitOther(const ir::Node& op) override;

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Position {
    ir::Expr node;
    size_t parent;
    size_t holes;
  };

  // What is below the node of a hole; the hole itself at first.
  ir::Expr Below(size_t i) const {
    return below_.empty() ? ir::Expr(hole_) : nodes_[below_[i]].node;
  }
  size_t HolesBelow(size_t i) const { return below_.empty() ? 1 : nodes_[below_[i]].holes; }
  bool EqualBesides(const ir::Expr& node, size_t i, const ir::Expr& first) const;
  std::optional<size_t> CombinationAbove(size_t i, const Monoid& monoid) const;
  ir::Expr WithHole(const ir::Expr& node) const;
  void FindGuarded();

  ir::Expr f_;
  ir::Var hole_;
  // All nodes of f, outer ones first, and those that the visitor is in.
  std::vector<Position> nodes_;
  std::vector<size_t> stack_;
  // For each hole, the node above it and the one that was last taken off.
  std::vector<size_t> at_;
  std::vector<size_t> below_;
  std::vector<bool> guarded_;
};

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_SPINE_H_
