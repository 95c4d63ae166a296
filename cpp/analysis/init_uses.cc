#include "analysis/init_uses.h"

#include <unordered_map>

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool IsBuffer(const Expr& expr) { return ExprBase(expr).ty().kind() == NodeKind::kBufferType; }

class InitReadCollector : public StmtExprVisitor {
 public:
  VarSet Collect(const SBlock& block) {
    if (auto init = ObjectIn(block.init())) Inside(block, *init);
    return reads_;
  }

 protected:
  using StmtExprVisitor::VisitExpr_;
  using StmtExprVisitor::VisitStmt_;

  // ---- What is read ----
  void VisitStmt_(const BufferStore& op) override {
    (*this)(op.value());
    (*this)(op.indices());
  }
  void VisitExpr_(const TensorLoad& op) override {
    Read(op.source());
    (*this)(op.indices());
  }
  void VisitExpr_(const Call& op) override {
    auto callee = As<Op>(op.op());
    bool takes_address = callee && callee->name() == kAddressOf;
    for (const ffi::Any& arg : op.args()) {
      auto load = As<TensorLoad>(arg);
      if (load && takes_address) {
        (*this)(load->source());  // no load: the buffer is named by itself
        (*this)(load->indices());
      } else if (auto object = ObjectIn(arg)) {
        (*this)(*object);
      }
    }
  }
  // A buffer that is named outside a load or a store is used through its address.
  void VisitExpr_(const Var& op) override {
    if (IsBuffer(op) && !IsOnlyWritten(op)) Read(op);
  }

  // ---- Which buffer is meant ----
  void VisitStmt_(const DeclBuffer& op) override {
    auto data = ObjectIn(op.data());
    if (!data) return;
    for (VarKey var : VarsIn(*data)) {
      if (IsBuffer(Expr(ffi::GetRef<ffi::ObjectRef>(var)))) Alias(op.buffer(), var);
    }
  }

  void VisitOther(const Node& op) override {
    if (auto allocation = As<AllocBuffer>(op)) {
      local_.insert(allocation->buffer().get());
    } else {
      VisitChildren(op);
    }
  }

  void VisitStmt_(const SBlock& op) override {
    for (const Var& buffer : op.alloc_buffers()) local_.insert(buffer.get());
    for (const TensorRegion& region : op.reads()) Read(region.source());
    if (auto init = ObjectIn(op.init())) Inside(op, *init);
    Inside(op, op.body());
  }

 private:
  // Visit a part of a block, which declares what the part does to buffers used by address.
  void Inside(const SBlock& block, const ffi::ObjectRef& part) {
    for (const MatchBufferRegion& match : block.match_buffers()) {
      Alias(match.buffer(), match.source().source().get());
      (*this)(match.source().region());
    }
    VarSet only_written;
    for (const TensorRegion& region : block.writes()) only_written.insert(Root(region.source()));
    for (const TensorRegion& region : block.reads()) only_written.erase(Root(region.source()));
    only_written_.swap(only_written);
    (*this)(part);
    only_written_.swap(only_written);
  }

  void Alias(const Var& buffer, VarKey of) {
    auto it = aliases_.find(of);
    aliases_[buffer.get()] = it == aliases_.end() ? of : it->second;
  }
  VarKey Root(const Expr& buffer) const {
    auto it = aliases_.find(buffer.get());
    return it == aliases_.end() ? buffer.get() : it->second;
  }
  bool IsOnlyWritten(const Var& buffer) const { return only_written_.count(Root(buffer)) > 0; }
  void Read(const Expr& buffer) {
    if (!local_.count(Root(buffer))) reads_.insert(Root(buffer));
  }

  // By the innermost block around the statement at hand.
  VarSet only_written_;
  VarSet local_;
  std::unordered_map<VarKey, VarKey> aliases_;
  VarSet reads_;
};

}  // namespace

VarSet BuffersReadByInit(const SBlock& block) { return InitReadCollector().Collect(block); }

}  // namespace fuse_epilogue
