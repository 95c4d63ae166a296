#include "schedule/function.h"

#include "analysis/library.h"
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

// The product, or -1 if a factor is not a number.
int64_t ProductOf(const std::vector<Expr>& factors) {
  int64_t product = 1;
  for (const Expr& factor : factors) {
    auto value = As<IntImm>(factor);
    if (!value) return -1;
    product *= value->value();
  }
  return product;
}

int64_t ElementsOf(const Var& buffer) {
  ffi::Array<Expr> shape = BufferTypeOf(buffer).shape();
  return ProductOf({shape.begin(), shape.end()});
}

int64_t TermsOf(const SBlock& reduction) {
  std::vector<Expr> extents;
  for (const IterVar& iter : reduction.iter_vars()) {
    if (iter.iter_type() == kCommReduce) extents.push_back(iter.dom().extent());
  }
  return ProductOf(extents);
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

Balance BalanceOf(const FusionReport& report, const SBlock& reduction) {
  Balance balance;
  auto saves = [&](const Var& buffer, int64_t rounds) {
    int64_t elements = ElementsOf(buffer);
    if (elements < 0 || rounds == 0) {
      balance.bytes = balance.elements = -1;
    } else if (balance.bytes >= 0) {
      DLDataType dtype = BufferTypeOf(buffer).dtype().dtype();
      int64_t saved = rounds < 0 ? elements : elements - elements / rounds;
      balance.elements += saved;
      balance.bytes += saved * ((dtype.bits * dtype.lanes + 7) / 8);
    }
  };
  for (const Var& buffer : report.removed) saves(buffer, -1);
  for (const auto& [buffer, rounds] : report.shrunk) saves(buffer, rounds);
  if (report.rounds > 0) balance.rounds = report.rounds;
  balance.terms = TermsOf(reduction);
  for (const TailRecord& tail : report.tails) balance.calls |= CallsLibrary(tail.value);
  return balance;
}

}  // namespace fuse_epilogue
