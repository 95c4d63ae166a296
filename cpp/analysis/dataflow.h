/*!
 * \file analysis/dataflow.h
 * \brief Which reductions a block's values come from, through elementwise blocks.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_DATAFLOW_H_
#define FUSE_EPILOGUE_ANALYSIS_DATAFLOW_H_

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "analysis/refusal.h"
#include "analysis/scope.h"

namespace fuse_epilogue {

/*! \brief An elementwise block that stores every element of a buffer. */
struct Between {
  const Site* site;
  ir::Var output;
  ffi::Array<ir::Expr> indices;
  ir::Expr value;
};

/*! \brief The blocks of a scope by what they read of each other. */
class Dataflow {
 public:
  explicit Dataflow(const Scope& scope);

  /*! \brief The reductions whose results \p site reads, directly or through blocks that are not
   *         reductions, in program order. */
  const std::vector<const Site*>& ReductionsBefore(const Site& site) const {
    return before_.at(&site);
  }

  /*! \brief Whether a reduction reads the result of \p source, and never at an index made of its
   *         reduction axes. If that cannot be seen, \p why says so. */
  bool ReadsByRows(const Site& reduction, const Site& source, std::optional<Refusal>* why) const;

  /*! \brief The block as an elementwise one, the only writer of all of its output. */
  std::optional<Between> Elementwise(const Site& site) const;

  using IsWanted = std::function<bool(const Site&)>;
  /*! \brief What becomes of a load; nothing: it may be inlined. */
  using Reader = std::function<std::optional<ir::Expr>(const ir::TensorLoad&)>;

  /*!
   * \brief Inline the blocks through which \p expr reads the results of the wanted reductions.
   * \throws Refusal if one of them is not elementwise.
   */
  ir::Expr Inline(const ir::Expr& expr, const IsWanted& wanted, const Reader& reader) const;

  /*! \brief Inline every elementwise block whose inputs are written once, before it. */
  ir::Expr Expand(const ir::Expr& expr) const;

 private:
  const Scope& scope_;
  std::unordered_map<const Site*, std::vector<const Site*>> before_;
  std::unordered_map<ir::VarKey, std::vector<const Site*>> writers_;
};

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_DATAFLOW_H_
