/*!
 * \file ir/tools.h
 * \brief Small helpers on expressions and buffers, made of TVM's own functions.
 */
#ifndef FUSE_EPILOGUE_IR_TOOLS_H_
#define FUSE_EPILOGUE_IR_TOOLS_H_

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/vocabulary.h"

namespace fuse_epilogue {
namespace ir {

/*! \brief Identity of a variable or buffer (a buffer is a variable of buffer type). */
using VarKey = const ffi::Object*;
using VarSet = std::unordered_set<VarKey>;
/*! \brief A simultaneous substitution of variables (buffers included). */
using Substitution = std::unordered_map<VarKey, Expr>;

DLDataType DTypeOf(const Expr& expr);
BufferType BufferTypeOf(const Var& buffer);
std::string ScopeOf(const Var& buffer);
std::string DTypeStr(DLDataType dtype);
bool IsBool(DLDataType dtype);
/*! \brief Signed or unsigned, but not bool. */
bool IsInteger(DLDataType dtype);
bool IsFloat(DLDataType dtype);
bool SameType(DLDataType a, DLDataType b);
/*! \brief Whether both are signed integers and \p a has more bits. */
bool IsWider(const Expr& a, const Expr& b);

/*! \brief The two operands of an arithmetic, min/max, logical or bit-wise node. */
std::optional<std::pair<Expr, Expr>> Operands(const Expr& node);

/*! \brief The conditions whose conjunction \p condition is. */
std::vector<Expr> Conjuncts(const Expr& condition);

/*! \brief Same expression, variables compared by identity. */
bool DeepEqual(const Expr& a, const Expr& b);
bool DeepEqual(const ffi::Array<Expr>& a, const ffi::Array<Expr>& b);

/*! \brief Whether an operation like \p part occurs in \p expr, variables compared by identity. */
bool Occurs(const Expr& part, const Expr& expr);

/*! \brief Whether \p expr is the literal \p value. */
bool IsConst(const Expr& expr, int64_t value);

/*! \brief The value of a literal, or nothing. */
std::optional<double> LiteralOf(const Expr& expr);

/*! \brief Variables that occur in \p node, buffers included. */
VarSet VarsIn(ffi::AnyView node);
bool UsesAny(ffi::AnyView node, const VarSet& vars);
/*! \brief The same, where the part \p free of the expression is known to use none of them. */
bool UsesAny(const Expr& expr, const VarSet& vars, const Expr& free);

/*! \brief Whether there is a load or a call in \p expr: its value is not one of its variables
 * alone. */
bool ReadsMemory(const Expr& expr);

/*! \brief \p node with every variable of \p map replaced. */
Expr Substitute(const Expr& node, const Substitution& map);
ffi::Array<Expr> Substitute(const ffi::Array<Expr>& nodes, const Substitution& map);
SBlock Substitute(const SBlock& node, const Substitution& map);
Stmt Substitute(const Stmt& node, const Substitution& map);

/*! \brief \p node with \p part, which is looked for by identity, replaced. */
Expr ReplacePart(const Expr& node, const Expr& part, const Expr& by);

/*! \brief a + b, a - b with TVM's constant folding (0 + x is x; 0 - x stays). */
Expr MakeAdd(const Expr& a, const Expr& b);
Expr MakeSub(const Expr& a, const Expr& b);
Expr MakeMul(const Expr& a, const Expr& b);
Expr MakeDiv(const Expr& a, const Expr& b);
Expr MakeEqual(const Expr& a, const Expr& b);
Expr MakeSelect(const Expr& condition, const Expr& yes, const Expr& no);
/*! \brief The operator called \p op of \p argument, of the same type. */
Expr MakeCall(const char* op, const Expr& argument);
/*!
 * \brief The integer \p value with its bits taken for the other sign, and back: the same number,
 * but through calls, which TVM neither simplifies nor moves. (The operand of the calls is `x ^ 0`,
 * since TVM prints no C for the bits of a literal, which \p value may become.)
 */
Expr MakeOpaque(const Expr& value);
/*! \brief The number that MakeOpaque was given to make \p expr; nothing if it was not. */
std::optional<Expr> OpaqueOperand(const Expr& expr);
/*! \brief A fresh variable of the type of \p like. */
Var MakeVar(const std::string& name, const Expr& like);
Expr MakeLoad(const Var& buffer, const ffi::Array<Expr>& indices);
/*! \brief 0 in the type of \p like. */
Expr MakeZero(const Expr& like);
/*! \brief 1 in the type of \p like. */
Expr MakeOne(const Expr& like);
/*! \brief The integer \p value in the type of \p like. */
Expr MakeInt(int64_t value, const Expr& like);
/*! \brief The float \p value in the type of \p like. */
Expr MakeFloat(double value, const Expr& like);
/*! \brief \p value in the type of \p like; a literal becomes a literal. */
Expr MakeCast(const Expr& value, const Expr& like);

/*! \brief \p node as TVMScript prints it. */
std::string Print(const ffi::ObjectRef& node);

}  // namespace ir
}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_IR_TOOLS_H_
