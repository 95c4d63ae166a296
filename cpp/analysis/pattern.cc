#include "analysis/pattern.h"

#include "analysis/refusal.h"
#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

class LoadFinder : public StmtExprVisitor {
 public:
  explicit LoadFinder(VarKey buffer) : buffer_(buffer) {}
  std::vector<TensorLoad> loads;
  /*! \brief Loads of the buffer inside the index of another load. */
  size_t in_indices = 0;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const TensorLoad& op) override {
    if (op.source().get() == buffer_) {
      loads.push_back(op);
      in_indices += depth_ > 0;
    }
    ++depth_;
    (*this)(op.indices());
    --depth_;
  }

 private:
  VarKey buffer_;
  int depth_ = 0;
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

// Whether `value` is `acc + t` for the load of `acc`: the number of accumulator loads that are
// added, anywhere in a tree of additions and on the left of subtractions.
size_t AddedLoads(const Expr& value, VarKey accumulator, const ffi::Array<Expr>& indices) {
  if (auto add = As<Add>(value)) {
    return AddedLoads(add->a(), accumulator, indices) + AddedLoads(add->b(), accumulator, indices);
  }
  if (auto sub = As<Sub>(value)) return AddedLoads(sub->a(), accumulator, indices);
  auto load = As<TensorLoad>(value);
  return load && load->source().get() == accumulator && DeepEqual(load->indices(), indices);
}

// Whether a subtraction stands between the root of the value and the accumulator.
bool HasSubtraction(const Expr& value, VarKey accumulator) {
  if (value.kind() == NodeKind::kSub) return true;
  auto add = As<Add>(value);
  if (!add) return false;
  const Expr side = UsesAny(add->a(), {accumulator}) ? add->a() : add->b();
  return HasSubtraction(side, accumulator);
}

bool IsFloat(DLDataType dtype) {
  return dtype.code == kDLFloat || dtype.code == kDLBfloat || dtype.code > kDLBfloat;
}

void CheckAccumulatorType(const Reduction& reduction, const SBlock& block) {
  DLDataType dtype = BufferTypeOf(reduction.accumulator).dtype().dtype();
  bool integer = dtype.code == kDLInt || dtype.code == kDLUInt;
  bool wide_float = dtype.code == kDLFloat && dtype.bits >= 32;
  if ((integer && dtype.bits > 1) || wide_float) return;
  throw Refusal(Code::kAccumulatorType, block,
                "block " + Quoted(block) + " accumulates in " + DTypeStr(dtype) +
                    (IsFloat(dtype) ? "" : ", which is not a number"));
}

}  // namespace

bool LooksLikeReduction(const SBlock& block) {
  if (ObjectIn(block.init())) return true;
  for (const IterVar& iter : block.iter_vars()) {
    if (iter.iter_type() != kDataPar) return true;
  }
  return false;
}

std::optional<Var> StoredBuffer(const SBlock& block) {
  if (auto store = UpdateStore(block)) return store->buffer();
  if (block.writes().size() == 1) return As<Var>(block.writes()[0].source());
  return std::nullopt;
}

Reduction MatchReduction(const Site& site) {
  SBlock block = site.block();
  std::string name = "block " + Quoted(block);
  Reduction reduction{&site, Var(), {}, Expr(), false, {}, {}};
  for (const IterVar& iter : block.iter_vars()) {
    if (iter.iter_type() == kDataPar) {
      reduction.spatial.push_back(AxisOf(iter));
    } else if (iter.iter_type() == kCommReduce) {
      reduction.reduce.push_back(AxisOf(iter));
    } else {
      throw Refusal(Code::kReductionForm, block,
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
  if (!update || !init || !init->buffer().same_as(update->buffer()) ||
      !DeepEqual(init->indices(), update->indices())) {
    throw Refusal(Code::kReductionForm, block,
                  name + " is not an init and an update of one and the same element");
  }
  reduction.accumulator = update->buffer();
  reduction.indices = update->indices();
  reduction.init = init->value();
  if (UsesAny(reduction.init, {reduction.accumulator.get()})) {
    throw Refusal(Code::kReductionForm, block,
                  "the init of " + name + " reads the buffer that it starts", {*init});
  }

  // The body: acc = acc (+) t for a known (+), and acc read nowhere else.
  const Monoid* monoid = MonoidOf(update->value());
  VarKey acc = reduction.accumulator.get();
  LoadFinder all(acc);
  all(block.body());
  if (monoid == nullptr) {
    throw Refusal(Code::kReductionForm, block,
                  name + " does not combine the accumulator with a term: its value is " +
                      Print(update->value()),
                  {*update});
  }
  if (!monoid->absorbs) {
    throw Refusal(Code::kMonoid, block, name + " is a " + std::string(monoid->name) + " reduction",
                  {*update});
  }
  if (all.loads.size() != 1 || AddedLoads(update->value(), acc, reduction.indices) != 1) {
    throw Refusal(Code::kReductionForm, block,
                  name + " does not add a term to the element it stores", {*update});
  }
  reduction.subtracts = HasSubtraction(update->value(), acc);
  VarSet reduce_vars;
  for (const Axis& axis : reduction.reduce) reduce_vars.insert(axis.var.get());
  if (UsesAny(reduction.indices, reduce_vars) || UsesAny(reduction.init, reduce_vars)) {
    throw Refusal(Code::kReductionForm, block,
                  name + " stores to, or starts from, an element that depends on a reduction axis");
  }
  CheckAccumulatorType(reduction, block);
  return reduction;
}

Epilogue MatchEpilogue(const Scope& scope, const Site& site, const Reduction& reduction) {
  SBlock block = site.block();
  std::string name = "block " + Quoted(block);
  Epilogue epilogue{&site, Var(), {}, Expr(), TensorLoad(), {}};
  auto store = As<BufferStore>(block.body());
  bool spatial = !ObjectIn(block.init());
  for (const IterVar& iter : block.iter_vars()) {
    spatial = spatial && iter.iter_type() == kDataPar;
    epilogue.axes.push_back(AxisOf(iter));
  }
  if (block.match_buffers().size() != 0) {
    throw Refusal(Code::kOpaqueAccess, block, name + " uses a matched region of a buffer");
  }
  if (HasNestedBlock(block)) {
    throw Refusal(Code::kStructure, block,
                  name + " reads the result of " + Quoted(reduction.site->block()) +
                      " in a block inside it, which is another scope");
  }
  if (!store || !spatial || block.alloc_buffers().size() != 0) {
    throw Refusal(Code::kConsumerForm, block,
                  name + " reads the result of " + Quoted(reduction.site->block()) +
                      " but is not a spatial block with a single store");
  }
  epilogue.output = store->buffer();
  epilogue.out_indices = store->indices();
  epilogue.value = store->value();

  for (VarKey var : VarsIn(block.body())) {
    if (scope.local_vars.count(var)) {
      throw Refusal(Code::kStructure, block,
                    name + " uses " + Quoted(Var(ffi::GetRef<ffi::ObjectRef>(var))) +
                        ", which is bound where the block stands",
                    {*store});
    }
  }

  LoadFinder loads(reduction.accumulator.get());
  loads(epilogue.out_indices);
  if (!loads.loads.empty()) {
    throw Refusal(Code::kTail, block, name + " uses the sum as an index", {*store});
  }
  loads(epilogue.value);
  if (loads.loads.size() != 1) {
    throw Refusal(Code::kMultipleUse, block,
                  name + " reads " + Quoted(reduction.accumulator) + " " +
                      std::to_string(loads.loads.size()) + " times",
                  {*store});
  }
  if (loads.in_indices > 0) {
    throw Refusal(Code::kTail, block, name + " uses the sum as an index", {*store});
  }
  epilogue.read = loads.loads[0];
  return epilogue;
}

}  // namespace fuse_epilogue
