#include "analysis/assumptions.h"

#include "ir/calls.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

std::vector<Expr> AssumptionsBefore(const Site& site) {
  std::vector<Expr> assumptions;
  for (const Step& step : site.path) {
    auto sequence = As<SeqStmt>(step.stmt);
    if (!sequence) continue;
    size_t child = 0;
    for (const Stmt& stmt : sequence->seq()) {
      if (child++ == step.child) break;
      auto statement = As<Evaluate>(stmt);
      auto call = statement ? As<Call>(statement->value()) : std::nullopt;
      if (!call || CalleeOf(*call) != kAssume) continue;
      Expr condition = ArgumentsOf(*call)[0];
      if (!ReadsMemory(condition)) assumptions.push_back(condition);
    }
  }
  return assumptions;
}

}  // namespace fuse_epilogue
