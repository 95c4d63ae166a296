#include "analysis/pattern.h"

#include <algorithm>
#include <utility>

#include "analysis/refusal.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

class LoadFinder : public StmtExprVisitor {
 public:
  explicit LoadFinder(VarKey buffer) : buffer_(buffer) {}
  std::vector<TensorLoad> loads;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad& op) override {
    if (op.source().get() == buffer_) loads.push_back(op);
    (*this)(op.indices());
  }

 private:
  VarKey buffer_;
};

Axis AxisOf(const IterVar& iter) { return Axis{iter.var(), iter.dom().min(), iter.dom().extent()}; }

// The update store; a condition around it (a predicated accumulate) is part of the term.
std::optional<BufferStore> UpdateStore(const SBlock& block) {
  Stmt body = block.body();
  while (auto branch = As<IfThenElse>(body)) {
    if (ObjectIn(branch->else_case())) return std::nullopt;
    body = branch->then_case();
  }
  return As<BufferStore>(body);
}

bool IsTupleReduction(const SBlock& block) {
  auto seq = As<SeqStmt>(block.body());
  if (!seq) return false;
  size_t stores = 0;
  for (const Stmt& stmt : seq->seq()) stores += stmt.kind() == NodeKind::kBufferStore;
  return stores > 1;
}

// The number of loads of the element among the leaves of a tree of the combiner. More than one if
// the buffer is read anywhere else, on the right of a subtraction for example, which negates it.
size_t CombinedLoads(const Expr& value, const Monoid& monoid, const Var& buffer,
                     const ffi::Array<Expr>& indices) {
  if (auto both = Split(value, monoid)) {
    size_t right = CombinedLoads(both->y, monoid, buffer, indices);
    if (value.kind() == NodeKind::kSub && right > 0) return 2;
    return CombinedLoads(both->x, monoid, buffer, indices) + right;
  }
  auto load = As<TensorLoad>(value);
  if (load && load->source().same_as(buffer) && DeepEqual(load->indices(), indices)) return 1;
  return LoadsOf(value, buffer).empty() ? 0 : 2;
}

// Whether a subtraction stands between the root of the value and the accumulator.
bool HasSubtraction(const Expr& value, const VarSet& around) {
  if (value.kind() == NodeKind::kSub) return true;
  auto add = As<Add>(value);
  if (!add) return false;
  return HasSubtraction(around.count(add->a().get()) ? add->a() : add->b(), around);
}

// Booleans are combined by logic, numbers by arithmetic.
void CheckAccumulatorType(const Reduction& reduction, const SBlock& block) {
  DLDataType dtype = BufferTypeOf(reduction.accumulator).dtype().dtype();
  bool vector = dtype.lanes != 1;
  bool fits = !vector && (reduction.monoid->types & TypesOf(dtype));
  if (fits) return;
  Refusal refusal(
      Code::kReductionForm, block,
      "block " + Quoted(block) + " is a " + reduction.monoid->name + " over " + DTypeStr(dtype));
  if (vector) throw refusal;  // the expressions of vectors cannot even be built
  Refuse(refusal.code, block, refusal.reason);
}

}  // namespace

std::vector<TensorLoad> LoadsOf(ffi::AnyView node, const Var& buffer) {
  LoadFinder finder(buffer.get());
  finder(node);
  return std::move(finder.loads);
}

VarSet NodesAround(const Expr& value, const Var& buffer) {
  class Finder : public StmtExprVisitor {
   public:
    explicit Finder(const Var& buffer) : buffer_(buffer) {}
    VarSet around;

   protected:
    using StmtExprVisitor::VisitExpr_;
    void VisitExpr_(const Var& op) override { found_ = found_ || op.same_as(buffer_); }
    void VisitExpr_(const Call& op) override { VisitOther(op); }
    void VisitExpr_(const TensorLoad& op) override { VisitOther(op); }
    void VisitOther(const Node& op) override {
      bool before = std::exchange(found_, false);
      VisitChildren(op);
      if (found_) around.insert(op.get());
      found_ = found_ || before;
    }

   private:
    Var buffer_;
    bool found_ = false;
  };
  Finder finder(buffer);
  finder(value);
  return std::move(finder.around);
}

bool IsCombination(const Expr& value, const Monoid& monoid, const Var& buffer,
                   const ffi::Array<Expr>& indices) {
  return CombinedLoads(value, monoid, buffer, indices) == 1;
}

bool LooksLikeReduction(const SBlock& block) {
  if (ObjectIn(block.init())) return true;
  for (const IterVar& iter : block.iter_vars()) {
    if (iter.iter_type() != kDataPar) return true;
  }
  return false;
}

bool InitUses(const Reduction& reduction, const Var& buffer) {
  const Site& site = *reduction.site;
  if (!site.init.same_as(reduction.init)) return UsesAny(reduction.init, {buffer.get()});
  auto end = site.accesses.begin() + site.num_init_accesses;
  return std::any_of(site.accesses.begin(), end,
                     [&](const Access& access) { return access.buffer == buffer.get(); });
}

Reduction MatchReduction(const Site& site, const Expr& proved_init) {
  SBlock block = site.block();
  std::string name = "block " + Quoted(block);
  Reduction reduction{&site, Var(), {}, Expr(), Expr(), nullptr, false, {}, {}, proved_init};
  for (const IterVar& iter : block.iter_vars()) {
    if (iter.iter_type() == kDataPar) {
      reduction.spatial.push_back(AxisOf(iter));
    } else if (iter.iter_type() == kCommReduce) {
      reduction.reduce.push_back(AxisOf(iter));
    } else {
      Refuse(Code::kReductionForm, block,
             name + " has an axis that is neither spatial nor a reduction");
    }
  }
  if (!ObjectIn(block.init())) {
    throw Refusal(Code::kNoInit, block, name + " accumulates without a T.init");
  }
  if (IsTupleReduction(block)) {
    throw Refusal(Code::kTupleReduction, block, name + " stores to several buffers");
  }
  auto update = UpdateStore(block);
  auto init = As<BufferStore>(block.init());
  if (!update || !init) {
    throw Refusal(Code::kReductionForm, block, name + " is not an init and an update");
  }
  if (!init->buffer().same_as(update->buffer()) || !DeepEqual(init->indices(), update->indices())) {
    Refuse(Code::kReductionForm, block,
           name + " is not an init and an update of one and the same element");
  }
  reduction.accumulator = update->buffer();
  reduction.indices = update->indices();
  reduction.init = init->value();
  reduction.update = update->value();

  for (const MatchBufferRegion& match : block.match_buffers()) {
    if (!match.buffer().same_as(reduction.accumulator)) continue;
    Refuse(Code::kOpaqueAccess, block,
           name + " accumulates in " + Quoted(reduction.accumulator) + ", a matched region of " +
               "'" + Print(match.source().source()) + "'");
  }

  // The body: acc = acc (+) t for a known (+), and acc read nowhere else.
  reduction.monoid = MonoidOf(update->value());
  if (reduction.monoid == nullptr) {
    throw Refusal(Code::kReductionForm, block,
                  name + " does not combine the accumulator with a term: its value is " +
                      Print(update->value()),
                  {*update});
  }
  if (LoadsOf(block.body(), reduction.accumulator).size() !=
          LoadsOf(update->value(), reduction.accumulator).size() ||
      !IsCombination(update->value(), *reduction.monoid, reduction.accumulator,
                     reduction.indices)) {
    Refuse(Code::kReductionForm, block,
           name + " does not combine a term with the element it stores", {*update});
  }
  reduction.subtracts =
      HasSubtraction(update->value(), NodesAround(update->value(), reduction.accumulator));
  VarSet reduce_vars;
  for (const Axis& axis : reduction.reduce) reduce_vars.insert(axis.var.get());
  if (UsesAny(reduction.indices, reduce_vars) ||
      UsesAny(reduction.init, reduce_vars, proved_init)) {
    Refuse(Code::kReductionForm, block,
           name + " stores to, or starts from, an element that depends on a reduction axis");
  }
  CheckAccumulatorType(reduction, block);
  return reduction;
}

Epilogue MatchEpilogue(const Scope& scope, const Site& site, const Reduction& reduction) {
  SBlock block = site.block();
  std::string name = "block " + Quoted(block);
  Epilogue epilogue{&site, Var(), {}, Expr(), {}};
  auto store = As<BufferStore>(block.body());
  bool spatial = !ObjectIn(block.init());
  for (const IterVar& iter : block.iter_vars()) {
    spatial = spatial && iter.iter_type() == kDataPar;
    epilogue.axes.push_back(AxisOf(iter));
  }
  if (block.match_buffers().size() != 0) {
    Refuse(Code::kOpaqueAccess, block, name + " uses a matched region of a buffer");
  }
  // Else it reads what a tail stores.
  bool direct = site.Touches(reduction.accumulator.get(), Use::kRead);
  std::string reads = name + " reads " +
                      (direct ? "the result of " : "what a tail makes of the result of ") +
                      Quoted(reduction.site->block());
  if (HasNestedBlock(block)) {
    throw Refusal(Code::kStructure, block, reads + " in a block inside it, which is another scope");
  }
  std::string form = reads + " but is not a spatial block with a single store";
  if (!store) throw Refusal(Code::kConsumerForm, block, form);
  if (!spatial || block.alloc_buffers().size() != 0) Refuse(Code::kConsumerForm, block, form);
  DLDataType dtype = BufferTypeOf(store->buffer()).dtype().dtype();
  if (dtype.lanes != 1) {
    throw Refusal(Code::kConsumerForm, block,
                  name + " stores elements of " + DTypeStr(dtype) + ", which are vectors",
                  {*store});
  }
  epilogue.output = store->buffer();
  epilogue.out_indices = store->indices();
  epilogue.value = store->value();

  for (VarKey var : VarsIn(block.body())) {
    if (scope.local_vars.count(var)) {
      Refuse(Code::kStructure, block,
             name + " uses " + Quoted(Var(ffi::GetRef<ffi::ObjectRef>(var))) +
                 ", which is bound at the block's place",
             {*store});
    }
  }

  return epilogue;
}

}  // namespace fuse_epilogue
