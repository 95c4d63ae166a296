/*!
 * \file analysis/law_checks.h
 * \brief The conditions under which the laws of cascades hold.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_LAW_CHECKS_H_
#define FUSE_EPILOGUE_ANALYSIS_LAW_CHECKS_H_

#include <string>

#include "analysis/row_factors.h"

namespace fuse_epilogue {

/*! \brief A stage that reads earlier ones, and the checks that several laws make. */
class LawChecks {
 public:
  LawChecks(const Cascade& cascade, const CascadeOptions& options, CascadeStage* stage)
      : cascade_(cascade), options_(options), stage_(*stage), block_(stage->block()) {}

 protected:
  [[noreturn]] void Throw(Code code, const std::string& what) const;
  /*! \brief Throw, if the check of this code is not switched off. */
  void Check(Code code, const std::string& what) const;

  const CascadeStage& CarrierOf(const RowFactor& factor) const;
  void AddCarrier(size_t carrier);

  /*!
   * \brief Check what the carrier of \p factor starts from.
   *
   * A start of NaN, or of the infinity that never changes, would make a NaN of the first
   * correction. The other infinity needs guards, and that of a row which never leaves it the
   * program's own answer is known. Where keys are compared with the result, there is no correction.
   *
   * \return Whether guards are needed.
   */
  bool CheckStart(const RowFactor& factor, const SplitTerm& split) const;
  void CheckKnownStart(const CascadeStage& carrier) const;
  /*! \brief Check that a rolled factor only shrinks the sum, and is in range at every partial
   *         result. */
  void CheckFactor(const RowFactor& factor) const;
  /*! \brief Check that what is compared with a result, or is its distance, is what the result is
   *         taken over, with the same roundings. */
  void CheckSame(const RowFactor& factor) const;
  /*! \brief Check that no result keeps terms in range as a factor that is deferred twice. */
  void CheckPowers(const std::vector<const RowFactor*>& deferred,
                   const std::vector<const RowFactor*>& rolled) const;
  /*! \brief Check that a deferred factor may be computed for every row. */
  void CheckDefinedAlone(const RowFactor& factor) const;
  /*! \brief Check that what is compared with a result guards nothing that may be undefined. */
  void CheckDefinedThroughout(const RowFactor& factor) const;

  const Cascade& cascade_;
  const CascadeOptions& options_;
  CascadeStage& stage_;
  ir::SBlock block_;

 private:
  std::string NameOf(const CascadeStage& carrier) const;
  void CheckDominated(const RowFactor& factor, const LinearForm& form, double scale) const;
  void CheckSameSum(const RowFactor& factor, const LinearForm& taken) const;
  void CheckScales(const RowFactor& factor, const ir::Expr& expr) const;
  void CheckSeesEveryNaN(const RowFactor& factor) const;
  void RefuseRange(const RowFactor& factor) const;
};

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_LAW_CHECKS_H_
