/*!
 * \file analysis/algebra.h
 * \brief What an epilogue f does with the finished element x, and what of it the reduction can do.
 *
 * f is peeled from the inside: the nodes next to x are taken off while each of them is absorbed,
 * f(x) = x (+) c, or distributed, h(x (+) y) = h(x) (+)' h(y). The reduction then starts from
 * F(init) and combines H(t), where F is all that was peeled and H its distributed part. What is
 * left of f is the tail, a function of the new x.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_ALGEBRA_H_
#define FUSE_EPILOGUE_ANALYSIS_ALGEBRA_H_

#include <string>

#include "analysis/peel_steps.h"

namespace fuse_epilogue {

/*! \brief What the caller allows. */
struct Options {
  /*! \brief Every float bit for bit: nothing of a float is peeled. */
  bool exact = false;
  /*! \brief Distribute also what costs work in every term. */
  bool distribute = false;
  /*! \brief Let tails work on the row of the innermost spatial loop instead of on an element: a
   *         compiler vectorizes them there, where nobody has scheduled the loops. */
  bool rows = false;
};

/*! \brief A sentence about an expression. Printing one takes longer than proving much about it, and
 *         most sentences nobody asks for. */
class Reason {
 public:
  Reason() = default;
  Reason(const char* text) : text_(text) {}             // NOLINT(runtime/explicit)
  Reason(std::string text) : text_(std::move(text)) {}  // NOLINT(runtime/explicit)
  /*! \brief A sentence that begins with an expression. */
  explicit Reason(const ir::Expr& subject) : subject_(subject) {}

  Reason operator+(const std::string& more) const {
    Reason longer = *this;
    longer.text_ += more;
    return longer;
  }
  bool empty() const { return text_.empty(); }
  std::string Text() const { return subject_.defined() ? ir::Print(subject_) + text_ : text_; }

 private:
  ir::Expr subject_;
  std::string text_;
};

struct Peeled {
  PeelSteps steps;
  /*! \brief What is left of f: a function of the hole, or the hole itself. */
  ir::Expr rest;
  /*! \brief Why the rest is not peeled; empty if nothing is left. */
  Reason reason;
};

/*!
 * \brief Peel f, an expression in \p hole and the reduction's axes.
 * \param epilogue The block that f is from.
 * \throws Refusal where a 16-bit floating accumulator would have to absorb.
 */
Peeled Peel(const ir::Expr& f, const ir::Var& hole, const Reduction& reduction,
            const Options& options, const Epilogue& epilogue);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_ALGEBRA_H_
