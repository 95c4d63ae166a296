/*!
 * \file schedule/ground.h
 * \brief What a fusion works on: the scope of a schedule's block, or a function of its own.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_GROUND_H_
#define FUSE_EPILOGUE_SCHEDULE_GROUND_H_

#include <memory>

#include "schedule/state.h"

namespace fuse_epilogue {

/*! \brief A scope that can be looked at and replaced. */
class Ground {
 public:
  virtual ~Ground() = default;
  /*! \brief The block whose blocks are fused; undefined if there is none. */
  virtual ir::SBlock Scope() const = 0;
  /*! \brief The root block of the function. */
  virtual ir::SBlock Root() const = 0;
  /*! \brief tvm's region_cover flag of a block. */
  virtual bool RegionCovered(const ir::SBlock& block) = 0;
  /*!
   * \brief Take \p scope for the scope from now on.
   * \param reuse Pairs of a block of the present scope and what it becomes.
   */
  virtual void Replace(const ir::SBlock& scope, const BlockReuse& reuse) = 0;
  /*! \brief The same, to try things out on. */
  virtual std::unique_ptr<Ground> Copy() = 0;
  /*! \brief Whether the caller holds it too, so that nothing may fail once it has changed. */
  virtual bool IsShared() const = 0;
  /*! \brief Let the caller see what has been replaced. Until then only this object has it. */
  virtual void Commit() = 0;
};

/*! \brief The scope of \p block in a schedule, whose random variables stay valid. */
std::unique_ptr<Ground> GroundOf(const ir::ScheduleState& state, const ir::StmtSRef& block);

/*!
 * \brief The root block of a function that has no schedule.
 *
 * A ScheduleState costs more than all proofs together: TVM brings its flags up to date after every
 * step. Without one, only a proof that needs a flag makes a state, and drops it.
 */
class FunctionGround : public Ground {
 public:
  /*! \param func Its body is the realize of its root block. */
  explicit FunctionGround(const ir::PrimFunc& func);
  /*! \brief The function with the root block as it is now. */
  ir::PrimFunc Func() const;

  ir::SBlock Scope() const override { return root_; }
  ir::SBlock Root() const override { return root_; }
  bool RegionCovered(const ir::SBlock& block) override;
  void Replace(const ir::SBlock& scope, const BlockReuse& reuse) override;
  std::unique_ptr<Ground> Copy() override;
  bool IsShared() const override { return false; }
  void Commit() override {}

 private:
  ir::PrimFunc func_;
  ir::SBlock root_;
};

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_GROUND_H_
