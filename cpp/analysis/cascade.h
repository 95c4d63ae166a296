/*!
 * \file analysis/cascade.h
 * \brief Reductions that read each other's results by rows, and what makes one loop of them.
 *
 * A cascade has rows i, keys k and stages. Stage a reduces r_a(i, j) = init (+) t_a(i, k, j) over
 * k, where j are axes of its own and t_a may read the results r_b(i) of earlier stages. In one loop
 * over blocks of keys a stage holds a state, and reads what the earlier stages are so far:
 *
 *     for each block of keys:  state <- correction(state, r before, r now) (+) step(r now)
 *     after the loop:          result <- tail(state, r)
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_CASCADE_H_
#define FUSE_EPILOGUE_ANALYSIS_CASCADE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/pattern.h"
#include "analysis/refusal.h"

namespace fuse_epilogue {

/*! \brief What a stage is of its block: all of it, or one of the results of a block that reduces
 *         several at once: the key of the chosen element, or its value. */
enum class Part { kAll, kIndex, kValue };

/*! \brief How a stage gets along with results that are not final. */
enum class Rule { kHead, kDefer, kRoll, kMix, kBasis, kSelect };
const char* RuleName(Rule rule);

/*! \brief One reduction of a cascade. Expressions are in rows, keys, the stage's own axes and the
 *         variables `value`, `previous`, `accumulated`, `finished`. */
struct CascadeStage {
  /*! \brief Of a part: with the accumulator of that part. */
  Reduction reduction;
  Part part = Part::kAll;
  /*! \brief Of the first part: the number of parts, which are stages of their own, and the
   *         statement that updates them. */
  size_t parts = 1;
  ir::Stmt update;
  /*! \brief The axes of the program's block in rows, keys and own axes. */
  ir::Substitution axes;
  std::vector<Axis> own_axes;
  /*! \brief The element of the accumulator. */
  ffi::Array<ir::Expr> indices;
  /*! \brief What the program starts from, and what it combines with that. */
  ir::Expr init;
  ir::Expr term;
  /*! \brief Whether the accumulator is the first operand of the combiner. */
  bool accumulator_first = true;

  /*! \brief Stand for the result of this stage, and for the one before a block of keys. */
  ir::Var value;
  ir::Var previous;
  /*! \brief Stand for the state before a block of keys, and at the end. */
  ir::Var accumulated;
  ir::Var finished;

  Rule rule = Rule::kHead;
  ir::Expr state_init;
  ir::Expr step;
  ir::Expr correction;
  std::optional<ir::Expr> tail;
  /*! \brief For the certificate: the factors of the term that are rolled and deferred, and the
   *         quotient of the rolled one. */
  std::optional<ir::Expr> rolled;
  std::optional<ir::Expr> deferred;
  std::optional<ir::Expr> quotient;
  std::vector<size_t> carriers;
  std::vector<std::string> guards;

  ir::SBlock block() const { return reduction.site->block(); }
  bool IsOneOfSeveral() const { return part != Part::kAll; }
  /*! \brief How results are combined, for messages. */
  const char* combiner() const { return part == Part::kIndex ? "index" : reduction.monoid->name; }
  bool Is(MonoidId id) const { return part != Part::kIndex && reduction.monoid->id == id; }
};

struct Cascade {
  /*! \brief Fresh variables that start at 0. */
  std::vector<Axis> rows;
  std::vector<Axis> keys;
  /*! \brief Which of the keys is blocked, and by how many. */
  size_t shared = 0;
  int64_t factor = 0;
  /*! \brief The number of parts that the blocks are divided into, each with a state of its own. */
  int64_t parts = 1;
  /*! \brief Stand for the number of keys before a block of them, and with it, in its part. */
  ir::Var count;
  ir::Var total;
  std::vector<CascadeStage> stages;
  /*! \brief Blocks between stages that have no reader any more, and those that run after the loop.
   */
  std::vector<const Site*> gone;
  std::vector<const Site*> after;
  /*! \brief Why a reduction that reads a stage's result is not one of them. */
  std::optional<Refusal> stopped;

  /*! \brief An expression of the keys with what elementwise blocks compute put in the place of each
   *         load of it, where that is the same. */
  std::function<ir::Expr(const ir::Expr&)> expand;

  /*! \brief The variables of the keys, and of results that are not final in the loop. */
  ir::VarSet KeyVars() const;
  ir::VarSet ValueVars() const;
};

/*! \brief What the caller asks for and allows. */
struct CascadeOptions {
  bool exact = false;
  /*! \brief Keys in a block; 0: a default. */
  int64_t factor = 0;
  /*! \brief Parts of the keys, each with a state of its own. */
  int64_t parts = 1;
  /*! \brief The loop variable of the blocked reduction loop; nothing: the outermost one. */
  std::optional<ir::Var> loop;
  /*! \brief Variables that are extents of parameters, and therefore not negative. */
  std::vector<ir::Var> sizes;
};

/*!
 * \brief Find the cascade that \p block is part of, and how its reductions share a loop.
 * \param block A reduction, or a block between two of them.
 * \throws Refusal if there is none.
 */
Cascade FindCascade(const Scope& scope, const ir::SBlock& block, const CascadeOptions& options);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_CASCADE_H_
