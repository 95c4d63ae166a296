#include "analysis/element_map.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>

#include "analysis/refusal.h"
#include "analysis/strides.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// Whether two boxes have the same number of points. Extents in both are cancelled first, and the
// rest is multiplied here: TVM would fold constants in the type of an index and let them overflow.
bool SameNumberOfPoints(const std::vector<Axis>& a, std::vector<Axis> b, const Prover& prover) {
  std::vector<Expr> rest_a, rest_b;
  for (const Axis& axis : a) {
    auto same = std::find_if(b.begin(), b.end(), [&](const Axis& other) {
      return prover.Equal(axis.extent, other.extent);
    });
    if (same != b.end()) {
      b.erase(same);
    } else {
      rest_a.push_back(axis.extent);
    }
  }
  for (const Axis& axis : b) rest_b.push_back(axis.extent);
  if (rest_a.empty() && rest_b.empty()) return true;

  int64_t constant_a = 1, constant_b = 1;
  auto symbols = [](const std::vector<Expr>& extents, int64_t* constant) -> std::optional<Expr> {
    std::optional<Expr> product;
    for (const Expr& extent : extents) {
      if (auto imm = As<IntImm>(extent)) {
        if (__builtin_mul_overflow(*constant, imm->value(), constant)) *constant = -1;
        if (*constant < 0) return std::nullopt;
      } else {
        product = product ? MakeMul(*product, extent) : extent;
      }
    }
    return product;
  };
  auto product_a = symbols(rest_a, &constant_a);
  auto product_b = symbols(rest_b, &constant_b);
  if (constant_a < 0 || constant_b < 0) return false;
  if (!product_a && !product_b) return constant_a == constant_b;
  // A symbol stands for itself here: n * 4 is compared as one expression with m * 4 or (n * 4).
  auto with_constant = [](const std::optional<Expr>& product, int64_t constant, const Expr& like) {
    Expr factor = MakeInt(constant, like);
    return product ? MakeMul(*product, factor) : factor;
  };
  const Expr& like = product_a ? *product_a : *product_b;
  constexpr int64_t kFitsAnyIndex = 1 << 30;
  if (constant_a > kFitsAnyIndex || constant_b > kFitsAnyIndex) return false;
  return prover.Equal(with_constant(product_a, constant_a, like),
                      with_constant(product_b, constant_b, like));
}

class IndexSimplifier : public StmtExprMutator {
 public:
  explicit IndexSimplifier(const Prover& prover) : prover_(prover) {}

 protected:
  using StmtExprMutator::VisitExpr_;
  Expr VisitExpr_(const TensorLoad& op) override {
    ffi::Array<Expr> indices;
    for (const Expr& index : op.indices()) {
      Expr rewritten = Rewrite(index);
      // An index made of data is left alone: the simplifier believes that int32 cannot overflow.
      indices.push_back(ReadsMemory(rewritten) ? rewritten : prover_.Simplify(rewritten));
    }
    return CallGlobal(Fn::BufferLoad, op.source(), indices, nullptr).cast<Expr>();
  }

 private:
  const Prover& prover_;
};

// One load of something produced inside the epilogue, and the element that it must be.
struct ProducedLoad {
  TensorLoad load;
  ffi::Array<Expr> indices;
};

// Collects the loads of several buffers at once, those of each in the order in which they occur.
class ProducedLoadFinder : public StmtExprVisitor {
 public:
  explicit ProducedLoadFinder(const std::vector<Produced>& produced)
      : produced_(produced), loads_(produced.size()) {
    for (size_t i = 0; i < produced.size(); ++i) index_.emplace(produced[i].buffer.get(), i);
  }

  // Those of the first buffer first.
  std::vector<ProducedLoad> Found() const {
    std::vector<ProducedLoad> found;
    for (size_t i : read_) {
      for (const TensorLoad& load : loads_[i]) found.push_back({load, produced_[i].indices});
    }
    return found;
  }

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad& op) override {
    auto at = index_.find(op.source().get());
    if (at != index_.end()) {
      loads_[at->second].push_back(op);
      read_.insert(at->second);
    }
    (*this)(op.indices());
  }

 private:
  const std::vector<Produced>& produced_;
  std::unordered_map<VarKey, size_t> index_;
  std::vector<std::vector<TensorLoad>> loads_;
  std::set<size_t> read_;
};

std::vector<ProducedLoad> ProducedLoads(const std::vector<Produced>& produced,
                                        const Epilogue& epilogue) {
  SBlock block = epilogue.site->block();
  ProducedLoadFinder in_indices(produced);
  in_indices(epilogue.out_indices);
  if (!in_indices.Found().empty()) {
    Refuse(Code::kConsumerForm, block,
           "block " + Quoted(block) + " chooses the element it stores by a value of " +
               Quoted(Var(in_indices.Found()[0].load.source())),
           {block.body()});
  }
  ProducedLoadFinder in_value(produced);
  in_value(epilogue.value);
  std::vector<ProducedLoad> found = in_value.Found();
  if (found.empty()) {
    throw Refusal(Code::kOpaqueAccess, block,
                  "block " + Quoted(block) + " declares reads of " + Quoted(produced[0].buffer) +
                      " that are not in its value");
  }
  return found;
}

bool IsInRangeOf(const Expr& like, const Expr& value, const Prover& prover) {
  const int64_t half = int64_t{1} << (DTypeOf(like).bits - 1);
  return prover.InRange(value, MakeInt(-half, value), MakeInt(2 * half, value));
}

// An index before it was converted to other integer types, which has not changed its value.
Expr BeforeCasts(Expr index, const Prover& prover) {
  while (auto cast = As<Cast>(index)) {
    Expr value = cast->value();
    bool narrows = IsWider(value, index) && IsInRangeOf(index, value, prover);
    if (!narrows && !IsWider(index, value)) break;
    index = value;
  }
  return index;
}

// Whether the type of \p like holds all values of an index. Numbers are needed for a narrower one.
bool Holds(const Expr& like, const Expr& index, const Reduction& reduction, const Prover& prover) {
  if (SameType(DTypeOf(like), DTypeOf(index)) || IsWider(like, index)) return true;
  if (!IsWider(index, like)) return false;
  VarSet vars = VarsIn(index);
  for (const Axis& axis : reduction.spatial) {
    vars.erase(axis.var.get());
    if (!As<IntImm>(axis.min) || !As<IntImm>(axis.extent)) return false;
  }
  return vars.empty() && IsInRangeOf(like, index, prover);
}

// Indices in the one type of the axes, if it holds them: before anything is computed with them, so
// that nothing is computed in another type than in the epilogue.
ffi::Array<Expr> InTypeOf(const std::vector<Axis>& axes, const ffi::Array<Expr>& indices,
                          const Reduction& reduction, const Prover& prover) {
  ffi::Array<Expr> converted;
  for (const Expr& index : indices) {
    Expr value = BeforeCasts(index, prover);
    bool converts = !axes.empty() && Holds(axes[0].var, value, reduction, prover);
    for (const Axis& axis : axes) {
      converts = converts && SameType(DTypeOf(axis.var), DTypeOf(axes[0].var));
    }
    converted.push_back(converts ? MakeCast(value, axes[0].var) : index);
  }
  return converted;
}

}  // namespace

Expr AxisMap::Apply(const Expr& expr) const {
  return IndexSimplifier(prover_).Rewrite(Substitute(expr, axes_));
}

ffi::Array<Expr> AxisMap::Apply(const ffi::Array<Expr>& indices) const {
  ffi::Array<Expr> applied;
  for (const Expr& index : Substitute(indices, axes_)) applied.push_back(prover_.Simplify(index));
  return applied;
}

AxisMap MatchElements(const Reduction& reduction, const std::vector<Produced>& produced,
                      const Epilogue& epilogue) {
  SBlock producer = reduction.site->block();
  SBlock consumer = epilogue.site->block();
  ffi::Any always = true;
  CheckPlacesDiffer(producer, reduction.accumulator);
  CheckPlacesDiffer(consumer, epilogue.output);
  if (!InjectiveMap::IsInjective(reduction.indices, reduction.spatial)) {
    Refuse(Code::kReductionDomain, producer,
           "two points of block " + Quoted(producer) + " may store to the same element of " +
               Quoted(reduction.accumulator));
  }
  if (!InjectiveMap::IsInjective(epilogue.out_indices, epilogue.axes)) {
    Refuse(Code::kOutputWrite, consumer,
           "two points of block " + Quoted(consumer) + " may store to the same element of " +
               Quoted(epilogue.output));
  }
  std::vector<ProducedLoad> loads = ProducedLoads(produced, epilogue);
  const TensorLoad& first = loads[0].load;
  // An axis of one value is that value: TVM calls a map with a multiple of it not invertible.
  Substitution single;
  std::vector<Axis> several;
  for (const Axis& axis : epilogue.axes) {
    if (IsConst(axis.extent, 1)) {
      single[axis.var.get()] = axis.min;
    } else {
      several.push_back(axis);
    }
  }
  Prover consumed(epilogue.axes);
  ffi::Array<Expr> pattern;
  for (const Expr& index : Substitute(first.indices(), single)) {
    pattern.push_back(BeforeCasts(index, consumed));
  }
  bool from_memory = std::any_of(pattern.begin(), pattern.end(), ReadsMemory);
  Prover prover(reduction.spatial);
  std::optional<InjectiveMap> read;
  if (!from_memory) read = InjectiveMap::Detect(pattern, several, always);
  auto inverse =
      read ? read->Inverse(InTypeOf(several, loads[0].indices, reduction, prover)) : std::nullopt;
  if (!inverse) {
    std::string why =
        from_memory ? ", whose element depends on data" : ", which cannot be inverted";
    for (const Axis& axis : epilogue.axes) {
      bool repeats = !IsConst(axis.extent, 1) && !UsesAny(first.indices(), {axis.var.get()});
      if (!repeats || from_memory) continue;
      why = " again for every " + Quoted(axis.var) +
            "; if a reduction of the same rows follows, as in a softmax or a norm, "
            "sch.fuse_cascaded_reductions fuses both";
    }
    throw Refusal(Code::kIndexMap, consumer,
                  "block " + Quoted(consumer) + " reads " + Print(first) + why, {first});
  }

  // For writing the indices down: not knowing that a unit axis is always 0 keeps it by its name.
  std::vector<Axis> long_axes;
  for (const Axis& axis : reduction.spatial) {
    if (!IsConst(axis.extent, 1)) long_axes.push_back(axis);
  }
  Prover named(long_axes);
  Substitution axes;
  auto refuse_slice = [&] {
    Refuse(Code::kDomain, consumer,
           "it is not proved that what block " + Quoted(consumer) + " reads as " + Print(first) +
               " is what block " + Quoted(producer) + " computes",
           {first});
  };
  size_t next = 0;
  for (const Axis& axis : epilogue.axes) {
    bool is_single = single.count(axis.var.get()) > 0;
    Expr value = is_single ? axis.min : named.Simplify((*inverse)[next++]);
    if (auto imm = As<IntImm>(value)) value = MakeInt(imm->value(), axis.var);
    if (!SameType(DTypeOf(value), DTypeOf(axis.var))) {
      Refuse(Code::kIndexType, consumer,
             "axis " + Quoted(axis.var) + " of block " + Quoted(consumer) + " is " +
                 DTypeStr(DTypeOf(axis.var)) + " and block " + Quoted(producer) + " uses " +
                 DTypeStr(DTypeOf(value)) + " for " + Print(value));
    }
    if (!prover.InRange(value, axis.min, axis.extent)) refuse_slice();
    axes[axis.var.get()] = value;
  }
  for (const ProducedLoad& one : loads) {
    for (size_t i = 0; i < one.indices.size(); ++i) {
      Expr read = BeforeCasts(Substitute(one.load.indices()[i], axes), prover);
      Expr finished = BeforeCasts(one.indices[i], prover);
      bool holds = Holds(read, finished, reduction, prover);
      if (holds && prover.Equal(read, MakeCast(finished, read))) continue;
      if (one.load.same_as(first)) {
        refuse_slice();
      } else {
        Refuse(Code::kIndexMap, consumer,
               "block " + Quoted(consumer) + " reads " + Print(first) + " and " + Print(one.load) +
                   ", which are not finished together",
               {one.load});
      }
    }
  }
  if (!SameNumberOfPoints(reduction.spatial, epilogue.axes, prover)) refuse_slice();
  return AxisMap(std::move(axes), named);
}

}  // namespace fuse_epilogue
