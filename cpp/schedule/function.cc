#include "schedule/function.h"

#include "analysis/pattern.h"
#include "schedule/fuser.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// Collects the reductions of the root block, and notices what only schedules make.
class Finder {
 public:
  FunctionReductions found;
  bool has_blocks = false;

  void Visit(const Stmt& stmt, bool in_block) {
    switch (stmt.kind()) {
      case NodeKind::kFor: {
        For loop(stmt);
        if (loop.kind() != kSerial) found.reason = "scheduled";
        return Visit(loop.body(), in_block);
      }
      case NodeKind::kSeqStmt:
        for (const Stmt& each : SeqStmt(stmt).seq()) Visit(each, in_block);
        return;
      case NodeKind::kIfThenElse: {
        IfThenElse branch(stmt);
        Visit(branch.then_case(), in_block);
        if (auto other = ObjectIn(branch.else_case())) Visit(Stmt(*other), in_block);
        return;
      }
      case NodeKind::kSBlockRealize: {
        has_blocks = true;
        SBlock block = SBlockRealize(stmt).block();
        if (in_block) found.reason = "scheduled";
        if (LooksLikeReduction(block)) found.blocks.push_back(block);
        return Visit(block.body(), true);
      }
      default:
        return;
    }
  }
};

// -1 if the size is not a number.
int64_t BytesOf(const Var& buffer) {
  BufferType type = BufferTypeOf(buffer);
  DLDataType dtype = type.dtype().dtype();
  int64_t bytes = (dtype.bits * dtype.lanes + 7) / 8;
  for (const Expr& extent : type.shape()) {
    auto value = As<IntImm>(extent);
    if (!value) return -1;
    bytes *= value->value();
  }
  return bytes;
}

}  // namespace

FunctionReductions ReductionsOf(const PrimFunc& func) {
  Finder finder;
  auto root = As<SBlockRealize>(func.body());
  if (root && root->block().iter_vars().empty()) finder.Visit(root->block().body(), false);
  if (!finder.has_blocks) finder.found.reason = "opaque";
  if (!finder.found.reason.empty()) finder.found.blocks = {};
  return finder.found;
}

FusedFunction FuseInFunction(const PrimFunc& func, const SBlock& reduction,
                             const Options& options) {
  FunctionGround ground(func);
  try {
    FusionReport report = RunFusion(&ground, reduction, std::nullopt, options);
    return {ground.Func(), report};
  } catch (const Refusal& refusal) {
    FusionReport report;
    report.options = options;
    report.stopped = refusal;
    return {func, report};
  }
}

int64_t BytesSaved(const FusionReport& report) {
  int64_t saved = 0;
  for (const Var& buffer : report.removed) {
    int64_t bytes = BytesOf(buffer);
    if (bytes < 0) return -1;
    saved += bytes;
  }
  for (const auto& [buffer, rounds] : report.shrunk) {
    int64_t bytes = BytesOf(buffer);
    if (bytes < 0 || rounds == 0) return -1;
    saved += bytes - bytes / rounds;
  }
  return saved;
}

}  // namespace fuse_epilogue
