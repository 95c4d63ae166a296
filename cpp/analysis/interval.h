/*!
 * \file analysis/interval.h
 * \brief Ranges of integers, wide enough for those of every type.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_INTERVAL_H_
#define FUSE_EPILOGUE_ANALYSIS_INTERVAL_H_

#include <optional>

#include "ir/tools.h"

namespace fuse_epilogue {

/*! \brief An integer that holds the sum and, but for those of 64 bits without a sign, the product
 *         of two numbers of any type. */
using WideInt = __int128;

/*! \brief All integers from \p low to \p high, except 0 where that is known; none if \p low is the
 *         greater one, which is what contradicting conditions leave. */
struct Interval {
  WideInt low;
  WideInt high;
  bool nonzero = false;

  bool Empty() const { return low > high; }
  bool HasZero() const { return low <= 0 && 0 <= high && !nonzero; }
  bool Within(const Interval& other) const {
    return Empty() || (other.low <= low && high <= other.high);
  }
};

/*! \brief The numbers of an integer or boolean type; nothing for any other type. */
std::optional<Interval> RangeOfType(DLDataType dtype);

/*! \brief The integers that are in both. */
Interval Intersect(const Interval& a, const Interval& b);
/*! \brief The integers from the least to the greatest of both. */
Interval Unite(const Interval& a, const Interval& b);

/*!
 * \brief The results of an operation on numbers of two ranges, before they are cut to a type.
 * \param node kAdd, kSub, kMul, kMax, kMin, a division or remainder (by numbers other than 0), a
 *        right shift by an amount that is not negative, or an and of bits.
 * \return Nothing where there is no rule, or where the results are beyond every type.
 */
std::optional<Interval> Combine(ir::NodeKind node, const Interval& a, const Interval& b);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_INTERVAL_H_
