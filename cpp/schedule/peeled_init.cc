#include "schedule/peeled_init.h"

#include <algorithm>
#include <cmath>

#include "analysis/refusal.h"
#include "analysis/scope.h"
#include "ir/tools.h"
#include "transform/blocks.h"
#include "transform/regions.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

std::optional<Expr> IdentityOf(const Reduction& reduction) {
  const Expr& like = reduction.update;
  DLDataType dtype = DTypeOf(like);
  auto number = [&](int64_t value) -> Expr {
    if (IsFloat(dtype)) return MakeFloat(static_cast<double>(value), like);
    return MakeInt(value, like);
  };
  switch (reduction.monoid->id) {
    case MonoidId::kSum:
      return number(0);
    case MonoidId::kProduct:
      return number(1);
    case MonoidId::kMax:
      return CallGlobal(Fn::MinValue, dtype, nullptr).cast<Expr>();
    case MonoidId::kMin:
      return CallGlobal(Fn::MaxValue, dtype, nullptr).cast<Expr>();
    default:
      return std::nullopt;
  }
}

// TVM's identity of a max or min of floats is the lowest or highest finite value, which is none for
// an infinity: it changes nothing if the reduction starts from a finite value, or beyond one.
bool StartsAtFinite(const Expr& init, const Monoid& monoid) {
  if (auto literal = As<FloatImm>(init)) return std::isfinite(literal->value());
  auto combination = monoid.match(init);
  if (!combination) return false;
  return StartsAtFinite(combination->x, monoid) || StartsAtFinite(combination->y, monoid);
}

bool MayStartFrom(const Reduction& reduction) {
  MonoidId id = reduction.monoid->id;
  bool extreme = id == MonoidId::kMax || id == MonoidId::kMin;
  if (!extreme || !IsFloat(DTypeOf(reduction.update))) return true;
  return StartsAtFinite(reduction.init, *reduction.monoid);
}

const Site* OnlyBlockIn(const Scope& scope, const Stmt& loop) {
  const Site* found = nullptr;
  for (const Site& site : scope.sites) {
    std::vector<For> loops = site.Loops();
    if (!std::any_of(loops.begin(), loops.end(), [&](const For& f) { return f.same_as(loop); })) {
      continue;
    }
    if (found != nullptr || !site.is_block()) return nullptr;
    found = &site;
  }
  return found;
}

}  // namespace

std::optional<PeeledInit> FindPeeledInit(const ffi::ObjectRef& schedule, const ffi::Any& loop_rv) {
  auto rv = ObjectIn(loop_rv);
  if (!rv) return std::nullopt;
  StmtSRef sref = SRefOf(schedule, *rv);
  StmtSRef scope_sref = ScopeOf(sref);
  if (!scope_sref.defined()) return std::nullopt;
  auto scope = std::make_shared<const Scope>(SBlock(StmtOf(scope_sref)));
  const Site* site = OnlyBlockIn(*scope, StmtOf(sref));
  if (site == nullptr || !LooksLikeReduction(site->block())) return std::nullopt;
  try {
    Reduction reduction = MatchReduction(*site);
    auto identity = IdentityOf(reduction);
    if (!identity || DeepEqual(reduction.init, *identity)) return std::nullopt;
    if (!As<BufferStore>(site->block().body()) || !MayStartFrom(reduction)) return std::nullopt;
    return PeeledInit{scope_sref, scope, reduction, *identity};
  } catch (const Refusal&) {
    return std::nullopt;
  }
}

SBlock WithInit(const SBlock& block, const Expr& value) {
  BufferStore store(block.body());
  Stmt init = MakeStore(store.buffer(), value, store.indices());
  SBlock changed = WithParts(block, block.reads(), block.writes(), init, block.body());
  auto [reads, writes] = RegionsOf(changed);
  return WithParts(changed, reads, writes, init, block.body());
}

}  // namespace fuse_epilogue
