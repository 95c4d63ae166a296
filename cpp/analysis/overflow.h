/*!
 * \file analysis/overflow.h
 * \brief Could a fused integer reduction overflow where the program as written does not?
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_OVERFLOW_H_
#define FUSE_EPILOGUE_ANALYSIS_OVERFLOW_H_

#include "analysis/algebra.h"

namespace fuse_epilogue {

/*!
 * \brief Whether the compiler could see an overflow after some steps that is not there before.
 *
 * LLVM is told that signed arithmetic of 32 bits and more never overflows, and that unsigned
 * arithmetic never leaves [0, 2^n). Values that are only known at run time wrap in practice, as the
 * machine does; what the compiler can see it uses. So that the fused reduction gives it nothing to
 * see:
 *  - unsigned sums: no subtraction. Then every partial sum is at most the final one, which fits.
 *  - signed sums, and products: no literal in the start value that is so large that combining it
 *    with a term may pass the end.
 */
class OverflowCheck {
 public:
  explicit OverflowCheck(const Reduction& reduction);

  /*! \brief Whether it could with one step more. If not, the step is taken. */
  bool MayOverflow(const PeelStep& step);

 private:
  DLDataType dtype_;
  MonoidId monoid_;
  bool subtracts_;
  // The size of all literals that are added up, or multiplied, in the start value.
  double literals_ = 0;
};

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_OVERFLOW_H_
