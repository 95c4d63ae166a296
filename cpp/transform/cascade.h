/*!
 * \file transform/cascade.h
 * \brief The rewriting of a cascade. Everything it relies on has been proved before it is called.
 */
#ifndef FUSE_EPILOGUE_TRANSFORM_CASCADE_H_
#define FUSE_EPILOGUE_TRANSFORM_CASCADE_H_

#include <utility>
#include <vector>

#include "analysis/cascade.h"
#include "analysis/cascade_order.h"

namespace fuse_epilogue {

/*! \brief The scope after a cascade was fused. */
struct FusedCascade {
  ir::SBlock scope_root;
  ir::SBlock block;
  /*! \brief Where each stage keeps its state, or the states of all parts merged. */
  std::vector<ir::Var> states;
  /*! \brief The states of each part, the part first; empty if there are no parts. */
  std::vector<ir::Var> part_states;
  std::vector<ir::Var> removed;
  /*! \brief What blocks have become. */
  std::vector<std::pair<ir::SBlock, ir::SBlock>> blocks;
};

/*!
 * \brief Make one loop of the reductions of a cascade.
 *
 *     for i, k: m[i] = max(m[i], x[i, k])              for i, b:
 *     for i, k: e[i, k] = exp(x[i, k] - m[i])            with block:   (init: m[i] = lowest, s[i] =
 * 0) for i, k: s[i] += e[i, k]                    ->      m_next = max(m[i], x[i, b * F + k]) over
 * k s_next = s[i] * exp(m[i] - m_next)
 *                                                                   + exp(x - m_next) over k
 *                                                          m[i] = m_next; s[i] = s_next
 *
 * The block is a reduction block of TVM with several outputs: TVM decomposes, splits and tiles it
 * as such, and refuses what is wrong for reductions that cannot be reordered (rfactor, threads).
 * What is deferred follows it as blocks of the reductions' names.
 *
 * With parts, the block has one more spatial axis, and reductions over the parts follow it, each of
 * which corrects the states of the parts to the carriers that are merged before:
 *
 *     for i, p: m[i] = max(m[i], m_part[p, i])
 *     for i, p: s[i] += s_part[p, i] * exp(m_part[p, i] - m[i])
 */
FusedCascade FuseCascade(const Scope& scope, const Cascade& cascade, const CascadeOrder& order);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_TRANSFORM_CASCADE_H_
