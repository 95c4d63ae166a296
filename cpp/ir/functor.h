/*!
 * \file ir/functor.h
 * \brief StmtExprVisitor and StmtExprMutator over TVM's IR, in the override style TVM users know.
 *
 * Override `VisitStmt_(const For&)`, `VisitExpr_(const TensorLoad&)` ..., and call the base class'
 * method to descend. The default descent is TVM's own: each of its nodes brings native visit and
 * mutate hooks (tvm/ffi/extra/structural_*.h), so no traversal order is written down here.
 * Exceptions thrown by an override arrive at the caller of the traversal as they were thrown.
 */
#ifndef FUSE_EPILOGUE_IR_FUNCTOR_H_
#define FUSE_EPILOGUE_IR_FUNCTOR_H_

#include <tvm/ffi/extra/structural_mutate.h>
#include <tvm/ffi/extra/structural_visit.h>

#include <exception>
#include <memory>

#include "ir/vocabulary.h"

namespace fuse_epilogue {
namespace ir {

#define FUSE_EPILOGUE_STMTS(X) \
  X(BufferStore) X(SeqStmt) X(For) X(IfThenElse) X(DeclBuffer) X(SBlock) X(SBlockRealize)
#define FUSE_EPILOGUE_EXPRS(X) X(Var) X(Call) X(TensorLoad) X(TensorRegion)

/*! \brief Visits statements and expressions without changing them. */
class StmtExprVisitor {
 public:
  StmtExprVisitor();
  virtual ~StmtExprVisitor();
  StmtExprVisitor(const StmtExprVisitor&) = delete;
  StmtExprVisitor& operator=(const StmtExprVisitor&) = delete;

  /*! \brief Visit \p node (a statement, an expression, or an array of them). */
  void operator()(ffi::AnyView node);

 protected:
#define DECLARE(T) \
  virtual void VisitStmt_(const T& op) { VisitChildren(op); }
  FUSE_EPILOGUE_STMTS(DECLARE)
#undef DECLARE
#define DECLARE(T) \
  virtual void VisitExpr_(const T& op) { VisitChildren(op); }
  FUSE_EPILOGUE_EXPRS(DECLARE)
#undef DECLARE

  /*! \brief Visit a node of any other type. */
  virtual void VisitOther(const Node& op) { VisitChildren(op); }

  /*! \brief Visit whatever is below \p op, through TVM's own hook for its type. */
  void VisitChildren(ffi::AnyView op);

 private:
  class Engine;
  void Dispatch(ffi::AnyView node);

  ffi::ObjectPtr<Engine> engine_;
  std::exception_ptr thrown_;
};

/*! \brief Rebuilds statements and expressions; what no override touches is shared, not copied. */
class StmtExprMutator {
 public:
  StmtExprMutator();
  virtual ~StmtExprMutator();
  StmtExprMutator(const StmtExprMutator&) = delete;
  StmtExprMutator& operator=(const StmtExprMutator&) = delete;

  /*! \brief \p node rewritten. */
  ffi::Any operator()(ffi::AnyView node);

  /*! \brief \p node rewritten, as a \p T. */
  template <typename T>
  T Rewrite(const T& node) {
    return (*this)(node).template cast<T>();
  }

 protected:
#define DECLARE(T) \
  virtual Stmt VisitStmt_(const T& op) { return MutateChildren(op).cast<Stmt>(); }
  FUSE_EPILOGUE_STMTS(DECLARE)
#undef DECLARE
#define DECLARE(T) \
  virtual Expr VisitExpr_(const T& op) { return MutateChildren(op).cast<Expr>(); }
  FUSE_EPILOGUE_EXPRS(DECLARE)
#undef DECLARE

  /*! \brief Rewrite a node of any other type. */
  virtual ffi::Any VisitOther(const Node& op) { return MutateChildren(op); }

  /*! \brief \p op with whatever is below it rewritten, through TVM's own hook for its type. */
  ffi::Any MutateChildren(ffi::AnyView op);

 private:
  class Engine;
  ffi::Any Dispatch(ffi::AnyView node);

  ffi::ObjectPtr<Engine> engine_;
  std::exception_ptr thrown_;
};

}  // namespace ir
}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_IR_FUNCTOR_H_
