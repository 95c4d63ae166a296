#include "schedule/search.h"

#include <tvm/ffi/error.h>

#include <string>
#include <vector>

#include "ir/functor.h"
#include "ir/tools.h"
#include "schedule/init_reads.h"
#include "schedule/state.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// A reduction to decompose, by name: the schedule changes with each of them.
struct Decomposable {
  ffi::String block;
  // Which of its loops is the outermost one that reduces.
  size_t loop;
  bool threads;
};

class ReductionFinder : public StmtExprVisitor {
 public:
  std::vector<Decomposable> found;

 protected:
  using StmtExprVisitor::VisitStmt_;
  void VisitStmt_(const For& op) override {
    loops_.push_back(op);
    (*this)(op.body());
    loops_.pop_back();
  }

  void VisitStmt_(const SBlockRealize& op) override {
    if (InitReadsAny(op.block())) Add(op);
    std::vector<For> around;  // the loops of a block end at the block that it stands in
    loops_.swap(around);
    (*this)(op.block().body());
    loops_.swap(around);
  }

 private:
  void Add(const SBlockRealize& op) {
    VarSet reducing;
    auto values = op.iter_values();
    size_t axis = 0;
    for (const IterVar& iter : op.block().iter_vars()) {
      VarSet vars = VarsIn(values[axis++]);
      if (iter.iter_type() == kCommReduce) reducing.insert(vars.begin(), vars.end());
    }
    size_t first = loops_.size();
    bool threads = false;
    for (size_t i = loops_.size(); i-- > 0;) {
      if (!reducing.count(loops_[i].loop_var().get())) continue;
      first = i;
      threads = threads || loops_[i].kind() == kThread;
    }
    // Without a loop that reduces there is nothing to take the init out of.
    if (first < loops_.size()) found.push_back({op.block().name_hint(), first, threads});
  }

  std::vector<For> loops_;
};

}  // namespace

bool DecomposeInitReads(const ffi::ObjectRef& schedule) {
  auto functions =
      StateOf(schedule).mod().functions().cast<ffi::Map<ffi::ObjectRef, ffi::ObjectRef>>();
  for (const auto& [name, function] : functions) {
    auto func = As<PrimFunc>(function);
    if (!func) continue;
    ReductionFinder finder;
    finder(func->body());
    for (const Decomposable& reduction : finder.found) {
      if (reduction.threads) return false;
      auto block = CallGlobal(Fn::GetSBlock, schedule, reduction.block, GlobalVar(name).name_hint())
                       .cast<ffi::ObjectRef>();
      auto loop = CallGlobal(Fn::GetLoops, schedule, block)
                      .cast<ffi::Array<ffi::ObjectRef>>()[reduction.loop];
      try {
        DecomposeReduction(schedule, block, loop, [&] {
          return CallGlobal(Fn::DecomposeReduction, schedule, block, loop).cast<ffi::ObjectRef>();
        });
      } catch (const ffi::Error& error) {
        if (error.kind() != "ScheduleError") throw;
        return false;
      }
    }
  }
  return true;
}

}  // namespace fuse_epilogue
