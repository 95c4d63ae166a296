/*!
 * \file ir/unify.h
 * \brief Patterns: expressions with variables that stand for any expression.
 */
#ifndef FUSE_EPILOGUE_IR_UNIFY_H_
#define FUSE_EPILOGUE_IR_UNIFY_H_

#include "ir/tools.h"

namespace fuse_epilogue {
namespace ir {

/*!
 * \brief What the \p holes of \p pattern stand for in \p value, if that is an instance of it.
 *
 * The operands of sums, products, maxima and minima may be in any order; a hole that is there
 * several times stands for the same expression, of its own type. Patterns are made of arithmetic,
 * calls and floating literals.
 */
std::optional<Substitution> Unify(const Expr& pattern, const Expr& value, const VarSet& holes);

}  // namespace ir
}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_IR_UNIFY_H_
