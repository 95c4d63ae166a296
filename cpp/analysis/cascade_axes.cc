#include "analysis/cascade_axes.h"

#include <algorithm>
#include <string>

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

Axis Renamed(const Axis& axis, Substitution* axes) {
  Axis fresh{MakeVar(axis.var.name(), axis.var), axis.min, axis.extent};
  (*axes)[axis.var.get()] = fresh.var;
  return fresh;
}

void AxisMatcher::Throw(Code code, const std::string& what) const {
  throw Refusal(code, stage_.block(), "block " + Quoted(stage_.block()) + " " + what);
}

void AxisMatcher::CheckType(const Axis& own, const Var& of_cascade) const {
  if (SameType(DTypeOf(own.var), DTypeOf(of_cascade))) return;
  Refuse(Code::kIndexType, stage_.block(),
         "block " + Quoted(stage_.block()) + " has axis " + Quoted(own.var) + " in another type");
}

void AxisMatcher::MatchResult(const CascadeStage& earlier, const TensorLoad& load) {
  if (!earlier.own_axes.empty()) {
    Throw(Code::kCascadeRow, "reads " + Print(load) + ", of which a row has several elements");
  }
  for (size_t d = 0; d < earlier.indices.size(); ++d) {
    MatchRow(load, earlier.indices[d], load.indices()[d]);
  }
}

void AxisMatcher::MatchRow(const TensorLoad& load, const Expr& row, const Expr& index) {
  auto is_row = [&](const Axis& axis) { return axis.var.same_as(row); };
  auto axis = std::find_if(cascade_.rows.begin(), cascade_.rows.end(), is_row);
  if (axis == cascade_.rows.end()) {
    bool unit = false;
    for (const auto* axes : {&stage_.reduction.spatial, &stage_.reduction.reduce}) {
      for (const Axis& own : *axes) unit |= own.var.same_as(index) && IsConst(own.extent, 1);
    }
    if (unit || prover_.Equal(row, index)) return;
  }
  for (const Axis& own : stage_.reduction.spatial) {
    if (axis == cascade_.rows.end() || !own.var.same_as(index)) continue;
    auto& known = row_of_[own.var.get()];
    if (known.defined() && !known.same_as(axis->var)) break;
    if (!prover_.Equal(own.extent, axis->extent)) {
      Throw(Code::kCascadeDomain, "has other rows than " + Print(load) + ": " + Print(own.extent) +
                                      " instead of " + Print(axis->extent));
    }
    known = axis->var;
    return;
  }
  Throw(Code::kCascadeRow, "reads " + Print(load) + ", which is not the result of its own row");
}

void AxisMatcher::MatchRows() {
  VarSet used;
  for (const Axis& own : stage_.reduction.spatial) {
    auto row = row_of_.find(own.var.get());
    if (row == row_of_.end()) {
      if (IsConst(own.extent, 1)) {
        stage_.axes[own.var.get()] = MakeInt(0, own.var);
      } else {
        stage_.own_axes.push_back(Renamed(own, &stage_.axes));
      }
      continue;
    }
    CheckType(own, row->second);
    if (!used.insert(row->second.get()).second) {
      Throw(Code::kCascadeRow, "reads an earlier result along a diagonal");
    }
    stage_.axes[own.var.get()] = row->second;
  }
  for (const Axis& row : cascade_.rows) {
    if (used.count(row.var.get())) continue;
    Throw(Code::kCascadeRow, "reads an earlier result at one row only");
  }
}

void AxisMatcher::MatchKeys() {
  std::vector<Axis> mine = stage_.reduction.reduce;
  if (mine.size() != cascade_.keys.size()) {
    Throw(Code::kCascadeDomain, "reduces over another number of axes");
  }
  std::vector<bool> used(mine.size(), false);
  for (size_t i = 0; i < mine.size(); ++i) {
    size_t found = mine.size();
    for (size_t n = 0; n < mine.size() && found == mine.size(); ++n) {
      size_t k = (i + n) % mine.size();
      if (!used[k] && prover_.Equal(mine[i].extent, cascade_.keys[k].extent)) found = k;
    }
    if (found == mine.size()) {
      Throw(Code::kCascadeDomain, "reduces over " + Print(mine[i].extent) +
                                      " keys, not over those of block " +
                                      Quoted(cascade_.stages[0].block()));
    }
    CheckType(mine[i], cascade_.keys[found].var);
    used[found] = true;
    stage_.axes[mine[i].var.get()] = cascade_.keys[found].var;
  }
}

}  // namespace fuse_epilogue
