/*!
 * \file analysis/monoid.h
 * \brief The commutative monoids a reduction may run over: what their combiners look like.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_MONOID_H_
#define FUSE_EPILOGUE_ANALYSIS_MONOID_H_

#include <functional>
#include <optional>
#include <string>

#include "ir/tools.h"

namespace fuse_epilogue {

enum class MonoidId {
#define MONOID(Id, ...) k##Id,
#include "analysis/monoid.def"
};

/*! \brief Kinds of types, for sets of them. */
enum Types : unsigned { kFloats = 1, kNarrow = 2, kSigned = 4, kUnsigned = 8, kBools = 16 };
constexpr unsigned kIntegers = kNarrow | kSigned | kUnsigned;  // kNarrow: 8 and 16 bits, which wrap

/*! \brief The kind of \p dtype, 0 if there is none for it. */
unsigned TypesOf(DLDataType dtype);

/*! \brief An expression x (+) y, of one node or of several. */
struct Combination {
  ir::Expr x, y;
  /*! \brief The same of other operands, spelled as it was; nothing is folded. */
  std::function<ir::Expr(const ir::Expr&, const ir::Expr&)> of;
};

/*! \brief A row of monoid.def. */
struct Monoid {
  MonoidId id;
  /*! \brief How it is called in messages and certificates. */
  const char* name;
  /*! \brief What it is for. */
  unsigned types;
  /*! \brief Whether the order of the operands changes a float's result by more than the choice
   *         between equal values: sums and products round. */
  bool rounds;
  /*! \brief Whether two infinities of the same sign may combine to NaN. */
  bool clashes;
  /*! \brief How many nodes may be above an operand in a combination. */
  int height;
  /*! \brief The operands, if an expression is a combination. */
  std::optional<Combination> (*match)(const ir::Expr& value);
  /*! \brief x (+) y, with TVM's constant folding, and without, where a combination has to stay
   *         one. */
  ir::Expr (*make)(const ir::Expr& x, const ir::Expr& y);
  ir::Expr (*make_node)(const ir::Expr& x, const ir::Expr& y);
  bool (*is_identity)(const ir::Expr& literal);
};

/*! \brief The monoid whose combination \p value is (acc - t is a sum), or nullptr. */
const Monoid* MonoidOf(const ir::Expr& value);
const Monoid& MonoidOf(MonoidId id);

/*! \brief The names of all of them, for a message. */
std::string MonoidNames();

/*! \brief The operands of a combination; of a sum, those of a difference, too. */
std::optional<Combination> Split(const ir::Expr& value, const Monoid& monoid);

/*! \brief a (+) b with TVM's constant folding; an operand that is the identity disappears. */
ir::Expr Combine(const Monoid& monoid, const ir::Expr& a, const ir::Expr& b);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_MONOID_H_
