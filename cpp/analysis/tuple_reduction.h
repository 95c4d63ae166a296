/*!
 * \file analysis/tuple_reduction.h
 * \brief Blocks that reduce several values at once, like an argmax.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_TUPLE_REDUCTION_H_
#define FUSE_EPILOGUE_ANALYSIS_TUPLE_REDUCTION_H_

#include <optional>
#include <vector>

#include "analysis/cascade.h"

namespace fuse_epilogue {

/*! \brief One of the values: what it starts from and becomes. */
struct PartUpdate {
  ir::BufferStore init;
  ir::BufferStore store;
  ir::Expr value;
};

/*! \brief The values of \p block, or none if it is not such a block. */
std::vector<PartUpdate> PartsOf(const ir::SBlock& block);

/*!
 * \brief The term of one part: the key itself, or what is compared.
 * \param value What the part becomes, if it was \p old before.
 * \param stage The part, whose kind and monoid are set.
 * \return Nothing if \p value is neither the chosen key nor its value.
 */
std::optional<ir::Expr> ReadPart(const ir::Expr& value, const ir::Expr& old, CascadeStage* stage);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_TUPLE_REDUCTION_H_
