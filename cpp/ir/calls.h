/*!
 * \file ir/calls.h
 * \brief Calls of TVM's operators, and choices, of which one kind is such a call.
 */
#ifndef FUSE_EPILOGUE_IR_CALLS_H_
#define FUSE_EPILOGUE_IR_CALLS_H_

#include <optional>
#include <string>
#include <vector>

#include "ir/vocabulary.h"

namespace fuse_epilogue {
namespace ir {

/*! \brief The name of the operator that is called, or an empty string. */
std::string CalleeOf(const Call& call);

/*! \brief The arguments that are expressions. */
std::vector<Expr> ArgumentsOf(const Call& call);

/*! \brief `condition ? yes : no`, as a Select or an if_then_else. */
struct Choice {
  Expr condition;
  Expr yes;
  Expr no;
};
std::optional<Choice> ChoiceOf(const Expr& expr);

}  // namespace ir
}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_IR_CALLS_H_
