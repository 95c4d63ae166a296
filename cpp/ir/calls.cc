#include "ir/calls.h"

namespace fuse_epilogue {
namespace ir {

std::string CalleeOf(const Call& call) {
  auto op = As<Op>(call.op());
  return op ? std::string(op->name()) : std::string();
}

std::vector<Expr> ArgumentsOf(const Call& call) {
  std::vector<Expr> arguments;
  for (const ffi::Any& argument : call.args()) {
    if (auto object = ObjectIn(argument)) arguments.push_back(Expr(*object));
  }
  return arguments;
}

std::optional<Choice> ChoiceOf(const Expr& expr) {
  if (auto select = As<Select>(expr)) {
    return Choice{select->condition(), select->true_value(), select->false_value()};
  }
  auto call = As<Call>(expr);
  if (!call || CalleeOf(*call) != kIfThenElse) return std::nullopt;
  std::vector<Expr> arguments = ArgumentsOf(*call);
  if (arguments.size() != 3) return std::nullopt;
  return Choice{arguments[0], arguments[1], arguments[2]};
}

}  // namespace ir
}  // namespace fuse_epilogue
