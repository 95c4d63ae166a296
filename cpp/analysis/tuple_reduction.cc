#include "analysis/tuple_reduction.h"

#include <utility>

#include "analysis/monoid.h"
#include "ir/calls.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The two sides of a comparison, the one that is larger where it holds first.
std::optional<std::pair<Expr, Expr>> LargerOf(const Expr& condition) {
  if (auto c = As<Greater>(condition)) return std::make_pair(c->a(), c->b());
  if (auto c = As<GreaterEqual>(condition)) return std::make_pair(c->a(), c->b());
  if (auto c = As<Less>(condition)) return std::make_pair(c->b(), c->a());
  if (auto c = As<LessEqual>(condition)) return std::make_pair(c->b(), c->a());
  return std::nullopt;
}

}  // namespace

std::vector<PartUpdate> PartsOf(const SBlock& block) {
  auto body = As<SeqStmt>(block.body());
  auto init = ObjectIn(block.init()) ? As<SeqStmt>(block.init()) : std::nullopt;
  if (!body || !init) return {};
  Substitution bound;
  std::vector<PartUpdate> parts;
  for (const Stmt& stmt : body->seq()) {
    if (auto bind = As<Bind>(stmt)) {
      bound[bind->var().get()] = Substitute(bind->value(), bound);
      continue;
    }
    auto store = As<BufferStore>(stmt);
    auto start = parts.size() < init->seq().size() ? As<BufferStore>(init->seq()[parts.size()])
                                                   : std::nullopt;
    if (!store || !start || !store->buffer().same_as(start->buffer())) return {};
    if (!DeepEqual(store->indices(), start->indices())) return {};
    parts.push_back(PartUpdate{*start, *store, Substitute(store->value(), bound)});
  }
  return parts.size() == init->seq().size() ? parts : std::vector<PartUpdate>();
}

std::optional<Expr> ReadPart(const Expr& value, const Expr& old, CascadeStage* stage) {
  const std::vector<Axis>& keys = stage->reduction.reduce;
  if (auto choice = ChoiceOf(value)) {
    bool keeps = DeepEqual(choice->yes, old);
    Expr other = keeps ? choice->no : choice->yes;
    if (!keeps && !DeepEqual(choice->no, old)) return std::nullopt;
    if (keys.size() == 1 && other.same_as(keys[0].var)) {
      stage->part = Part::kIndex;
      return other;
    }
    auto larger = LargerOf(choice->condition);
    if (!larger) return std::nullopt;
    auto [high, low] = *larger;
    bool old_high = DeepEqual(high, old) && DeepEqual(low, other);
    bool old_low = DeepEqual(low, old) && DeepEqual(high, other);
    if (!old_high && !old_low) return std::nullopt;
    stage->part = Part::kValue;
    stage->reduction.monoid = &MonoidOf(old_high == keeps ? MonoidId::kMax : MonoidId::kMin);
    return other;
  }
  if (value.kind() != NodeKind::kMax && value.kind() != NodeKind::kMin) return std::nullopt;
  auto [a, b] = *Operands(value);
  if (!DeepEqual(a, old) && !DeepEqual(b, old)) return std::nullopt;
  stage->part = Part::kValue;
  stage->reduction.monoid = MonoidOf(value);
  return DeepEqual(a, old) ? b : a;
}

}  // namespace fuse_epilogue
