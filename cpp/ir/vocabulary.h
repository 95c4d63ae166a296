/*!
 * \file ir/vocabulary.h
 * \brief TVM's IR seen from outside: one class per node type, one accessor per reflected field.
 *
 * TVM ships no compiler headers. Its nodes are reached through tvm-ffi's reflection: a class here
 * is a reference to a node of the type key named in vocabulary.def, an accessor reads the reflected
 * field of that name. No field layout is mirrored, so nothing here depends on how TVM's own
 * headers are arranged; what it does depend on is checked once, when the library is loaded.
 */
#ifndef FUSE_EPILOGUE_IR_VOCABULARY_H_
#define FUSE_EPILOGUE_IR_VOCABULARY_H_

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/string.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace fuse_epilogue {
namespace ffi = tvm::ffi;

namespace ir {

/*! \brief The node types of vocabulary.def; kUnknown is any other type. */
enum class NodeKind : int16_t {
  kUnknown = 0,
#define NODE(Class, Base, Key) k##Class,
#include "ir/vocabulary.def"
};

/*! \brief The fields of vocabulary.def, numbered over all nodes. */
enum class FieldId : int16_t {
#define FIELD(Class, Type, name) k##Class##_##name,
#include "ir/vocabulary.def"
  kCount,
};

/*! \brief Kind of a node, from its runtime type index. */
NodeKind KindOf(int32_t type_index);

/*! \brief Value of a reflected field of \p object. */
ffi::Any ReadField(const ffi::Object* object, FieldId field);

/*! \brief A reference to any object of TVM. */
class Node : public ffi::ObjectRef {
 public:
  using ffi::ObjectRef::ObjectRef;
  Node() = default;
  explicit Node(const ffi::ObjectRef& other) : ffi::ObjectRef(other) {}

  NodeKind kind() const { return defined() ? KindOf(type_index()) : NodeKind::kUnknown; }

 protected:
  template <typename T>
  T Get(FieldId field) const {
    if constexpr (std::is_same_v<T, ffi::Any>) {
      return ReadField(get(), field);
    } else {
      return ReadField(get(), field).cast<T>();
    }
  }
};

/*! \brief Any statement. */
class Stmt : public Node {
 public:
  using Node::Node;
};

/*! \brief Any expression. */
class Expr : public Node {
 public:
  using Node::Node;
};

#define NODE(Class, Base, Key)                            \
  class Class : public Base {                             \
   public:                                                \
    static constexpr NodeKind kKind = NodeKind::k##Class; \
    using Base::Base;                                     \
    Class() = default;                                    \
    explicit Class(const ffi::ObjectRef& o) : Base(o) {}
#define FIELD(Class, Type, name) \
  Type name() const { return Get<Type>(FieldId::k##Class##_##name); }
#define END_NODE(Class) \
  }                     \
  ;
#include "ir/vocabulary.def"

/*! \brief The registered functions of vocabulary.def, by our name for them. */
enum class Fn : int16_t {
#define FUNCTION(Name, Key) Name,
#include "ir/vocabulary.def"
  kCount,
};

/*! \brief The global function \p fn. */
const ffi::Function& Global(Fn fn);

/*! \brief Call a global function. */
template <typename... Args>
ffi::Any CallGlobal(Fn fn, Args&&... args) {
  return Global(fn)(std::forward<Args>(args)...);
}

/*! \brief The object in \p any, or nothing if it is None or a plain value. */
inline std::optional<ffi::ObjectRef> ObjectIn(ffi::AnyView any) {
  // A reference may be null, so None converts to one: that is not an object.
  auto ref = any.as<ffi::ObjectRef>();
  if (ref && ref->defined()) return *ref;
  return std::nullopt;
}

/*! \brief \p ref as a \p T, or nothing if it is a node of another type. */
template <typename T>
std::optional<T> As(const ffi::ObjectRef& ref) {
  if (ref.defined() && KindOf(ref.type_index()) == T::kKind) return T(ref);
  return std::nullopt;
}

/*! \brief \p any as a \p T, or nothing if it is None, a plain value or a node of another type. */
template <typename T>
std::optional<T> As(const ffi::Any& any) {
  if (auto ref = ObjectIn(any)) return As<T>(*ref);
  return std::nullopt;
}

/*! \brief The constants of TVM's enumerations that are read here. */
enum LoopKind : int64_t { kSerial = 0, kParallel = 1, kVectorized = 2, kUnrolled = 3, kThread = 4 };
enum IterType : int64_t { kDataPar = 0, kCommReduce = 2 };

/*! \brief The operator whose argument is a load that stands for an address. */
inline constexpr const char* kAddressOf = "tirx.address_of";
/*! \brief The operators that choose between two values, of which they evaluate one; that say which
 *         way a condition goes; that take a condition for true. */
inline constexpr const char* kIfThenElse = "prim.if_then_else";
inline constexpr const char* kLikely = "prim.likely";
inline constexpr const char* kAssume = "tirx.assume";
/*! \brief Functions of numbers that a combination is made of. */
inline constexpr const char* kExp = "tirx.exp";
inline constexpr const char* kLog = "tirx.log";
inline constexpr const char* kLog1p = "tirx.log1p";
inline constexpr const char* kFabs = "tirx.fabs";
/*! \brief The annotation of sch.storage_align. */
inline constexpr const char* kBufferDimAlign = "buffer_dim_align";
/*! \brief The operator that takes the bits of a number for another type. */
inline constexpr const char* kReinterpret = "tirx.reinterpret";
/*! \brief The operators that leave a loop or a function early. */
inline constexpr const char* kJumps[] = {"tirx.break_loop", "tirx.continue_loop",
                                         "tirx.thread_return"};
/*! \brief The operators that call what TVM does not know, which may end the program or raise. */
inline constexpr const char* kForeignCalls[] = {"tirx.call_extern",     "tirx.call_pure_extern",
                                                "tirx.call_packed",     "tirx.call_cpacked",
                                                "tirx.tvm_call_packed", "tirx.tvm_call_cpacked"};
/*! \brief The operator attribute that tells the side effects of a call, and its values up to which
 *         a call may be moved: annotations and pure functions. */
inline constexpr const char* kCallEffectKind = "TCallEffectKind";
inline constexpr int64_t kPureCall = 1;
/*! \brief The instruction kinds that are taken over. */
inline constexpr const char* kFuseInstruction = "FuseReductionEpilogue";
inline constexpr const char* kDecomposeInstruction = "DecomposeReduction";
inline constexpr const char* kBindInstruction = "Bind";
inline constexpr const char* kTensorizeInstruction = "Tensorize";

/*!
 * \brief Resolve the vocabulary against the TVM that is loaded.
 * \return What is missing, one entry each ("type tirx.For", "field tirx.For.step",
 *         "function tirx.For"); empty if everything is there.
 */
std::vector<std::string> ResolveVocabulary();

/*! \brief A field of \p type that the vocabulary calls \p name. */
struct RenamedField {
  std::string type, name, in_tvm;
};
std::vector<RenamedField> RenamedFields();

/*! \brief Entries of \p names that the running TVM lacks; each is written as above. */
std::vector<std::string> MissingFrom(const std::vector<std::string>& names);

}  // namespace ir
}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_IR_VOCABULARY_H_
