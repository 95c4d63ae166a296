#include "ir/functor.h"

#include <utility>

namespace fuse_epilogue {
namespace ir {
namespace {

// TVM's hooks must not throw: an exception is kept by the functor, and this error travels instead.
ffi::Error Interrupted() { return ffi::Error("InternalError", "traversal interrupted", ""); }

// The node as an ObjectRef, or an undefined one for plain values.
ffi::ObjectRef RefOf(ffi::AnyView node) { return ObjectIn(node).value_or(ffi::ObjectRef()); }

[[noreturn]] void Rethrow(std::exception_ptr* kept, ffi::Error error) {
  if (*kept) std::rethrow_exception(std::exchange(*kept, nullptr));
  throw error;
}

}  // namespace

// ---- Visitor -----------------------------------------------------------------------------------

class StmtExprVisitor::Engine : public ffi::StructuralVisitorObj {
 public:
  explicit Engine(StmtExprVisitor* owner) : StructuralVisitorObj(VTable()), owner_(owner) {}

 private:
  static const ffi::StructuralVisitorVTable* VTable() {
    static const ffi::StructuralVisitorVTable vtable{&Engine::Visit};
    return &vtable;
  }

  static TVMFFIAny Visit(StructuralVisitorObj* self, ffi::AnyView node) noexcept {
    StmtExprVisitor* owner = static_cast<Engine*>(self)->owner_;
    using Result = ffi::Expected<ffi::Optional<ffi::VisitInterrupt>>;
    try {
      owner->Dispatch(node);
      return ffi::details::ExpectedUnsafe::MoveToTVMFFIAny(Result(std::nullopt));
    } catch (...) {
      owner->thrown_ = std::current_exception();
      return ffi::details::ExpectedUnsafe::MoveToTVMFFIAny(Result(ffi::Unexpected(Interrupted())));
    }
  }

  StmtExprVisitor* owner_;
};

StmtExprVisitor::StmtExprVisitor() : engine_(ffi::make_object<Engine>(this)) {}
StmtExprVisitor::~StmtExprVisitor() = default;

void StmtExprVisitor::operator()(ffi::AnyView node) { Dispatch(node); }

void StmtExprVisitor::VisitChildren(ffi::AnyView op) {
  auto result = engine_->DefaultVisitExpected(op);
  if (result.is_err()) Rethrow(&thrown_, std::move(result).error());
}

void StmtExprVisitor::Dispatch(ffi::AnyView node) {
  ffi::ObjectRef ref = RefOf(node);
  if (!ref.defined()) return;
  switch (KindOf(ref.type_index())) {
#define CASE(T)         \
  case NodeKind::k##T:  \
    VisitStmt_(T(ref)); \
    return;
    FUSE_EPILOGUE_STMTS(CASE)
#undef CASE
#define CASE(T)         \
  case NodeKind::k##T:  \
    VisitExpr_(T(ref)); \
    return;
    FUSE_EPILOGUE_EXPRS(CASE)
#undef CASE
    default:
      VisitOther(Node(ref));
  }
}

// ---- Mutator -----------------------------------------------------------------------------------

class StmtExprMutator::Engine : public ffi::StructuralMapEngineBase {
 public:
  explicit Engine(StmtExprMutator* owner) : StructuralMapEngineBase(VTable()), owner_(owner) {}

 private:
  static const ffi::StructuralMutatorVTable* VTable() {
    // Both entries copy on write: the IR belongs to the schedule, it is never edited in place.
    static const ffi::StructuralMutatorVTable vtable{&Engine::Mutate, &Engine::Mutate,
                                                     &Engine::DispatchVarRemapGet,
                                                     &Engine::DispatchVarRemapSet};
    return &vtable;
  }

  static TVMFFIAny Mutate(ffi::StructuralMutatorObj* self, ffi::AnyView node) noexcept {
    StmtExprMutator* owner = static_cast<Engine*>(self)->owner_;
    try {
      ffi::Any result = owner->Dispatch(node);
      if (result.same_as(node)) return ffi::Unchanged().CopyToTVMFFIAny();
      return ffi::details::AnyUnsafe::MoveAnyToTVMFFIAny(std::move(result));
    } catch (...) {
      owner->thrown_ = std::current_exception();
      return ffi::details::ExpectedUnsafe::MoveToTVMFFIAny(
          ffi::Expected<ffi::Any>(ffi::Unexpected(Interrupted())));
    }
  }

  StmtExprMutator* owner_;
};

StmtExprMutator::StmtExprMutator() : engine_(ffi::make_object<Engine>(this)) {}
StmtExprMutator::~StmtExprMutator() = default;

ffi::Any StmtExprMutator::operator()(ffi::AnyView node) { return Dispatch(node); }

ffi::Any StmtExprMutator::MutateChildren(ffi::AnyView op) {
  auto result = engine_->DefaultMutateExpected(op);
  if (result.is_err()) Rethrow(&thrown_, std::move(result).error());
  return std::move(result).value().ValueOrUnchanged(op);
}

ffi::Any StmtExprMutator::Dispatch(ffi::AnyView node) {
  ffi::ObjectRef ref = RefOf(node);
  if (!ref.defined()) return ffi::Any(node);
  switch (KindOf(ref.type_index())) {
#define CASE(T)        \
  case NodeKind::k##T: \
    return VisitStmt_(T(ref));
    FUSE_EPILOGUE_STMTS(CASE)
#undef CASE
#define CASE(T)        \
  case NodeKind::k##T: \
    return VisitExpr_(T(ref));
    FUSE_EPILOGUE_EXPRS(CASE)
#undef CASE
    default:
      return VisitOther(Node(ref));
  }
}

}  // namespace ir
}  // namespace fuse_epilogue
