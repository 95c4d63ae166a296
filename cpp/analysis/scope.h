/*!
 * \file analysis/scope.h
 * \brief What happens in a scope, in program order: blocks, the loops around them, their accesses.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_SCOPE_H_
#define FUSE_EPILOGUE_ANALYSIS_SCOPE_H_

#include <vector>

#include "ir/tools.h"

namespace fuse_epilogue {

/*! \brief How a statement touches a buffer; kOpaque is a pointer, an alias or a matched region. */
enum class Use { kRead, kWrite, kOpaque };

struct Access {
  ir::VarKey buffer;
  Use use;
};

/*! \brief One step down from the scope: a loop, or the \p child-th statement of a sequence. */
struct Step {
  ir::Stmt stmt;
  size_t child;

  bool operator==(const Step& other) const {
    return stmt.same_as(other.stmt) && child == other.child;
  }
};

/*! \brief A block of the scope, or a statement outside any block, with where it stands. */
struct Site {
  /*! \brief Undefined for a statement outside any block. */
  ir::SBlockRealize realize;
  std::vector<Step> path;
  /*! \brief Whether only loops and sequences lead here. */
  bool plain = true;
  std::vector<Access> accesses;
  /*! \brief The value that the block's init stores, or undefined; the first accesses are its. */
  ir::Expr init;
  size_t num_init_accesses = 0;
  /*! \brief Whether the program may end there: an assertion, or a call of foreign code. */
  bool may_end = false;

  /*! \brief Position in program order. */
  size_t position = 0;

  ir::SBlock block() const { return realize.block(); }
  bool is_block() const { return realize.defined(); }
  /*! \brief The loops of the path, outermost first, skipping the first \p skip steps. */
  std::vector<ir::For> Loops(size_t skip = 0) const;
  bool Touches(ir::VarKey buffer, Use use) const;
  bool ReadsAny(const ir::VarSet& buffers) const;
};

/*! \brief The blocks and statements directly in \p root, in program order. */
class Scope {
 public:
  explicit Scope(const ir::SBlock& root);
  /*!
   * \brief The scope after a change. What is known about blocks that have not changed is taken over
   *        from \p before, so that only new ones are looked into.
   */
  Scope(const ir::SBlock& root, Scope&& before);

  const ir::SBlock root;
  std::vector<Site> sites;
  /*! \brief Loop variables and bound variables of the scope: valid at their place only. */
  ir::VarSet local_vars;
  /*! \brief Buffers that a statement allocates, instead of a block: T.alloc_buffer. */
  ir::VarSet allocated;
  /*! \brief Whether a break, continue or return may leave a loop of the scope early. */
  bool has_jump = false;

  /*! \brief The site of \p block, or nullptr if it is not directly in this scope. */
  const Site* Find(const ir::SBlock& block) const;
};

/*! \brief Whether there is another block, and so another scope, inside \p block. */
bool HasNestedBlock(const ir::SBlock& block);

/*! \brief Number of steps that lead to both sites. */
size_t CommonSteps(const Site& a, const Site& b);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_SCOPE_H_
