/*!
 * \file schedule/instruction.h
 * \brief The trace instructions: what happens when a recorded call is replayed or printed.
 *
 * TVM registers instruction kinds at load time only, so the kind of its own primitive of the same
 * name is taken over: its functors are replaced. They are C++, because MetaSchedule replays traces
 * from several threads, where a functor in Python would need the interpreter's lock. A rewriting
 * (rewriting.h) is a step of TVM's kind Tensorize; of that one, the replay takes the lock for as
 * long as Python writes the function.
 */
#ifndef FUSE_EPILOGUE_SCHEDULE_INSTRUCTION_H_
#define FUSE_EPILOGUE_SCHEDULE_INSTRUCTION_H_

#include <string>
#include <vector>

namespace fuse_epilogue {

/*! \brief What is not as expected in TVM's instruction kinds; empty if they can be taken over. */
std::vector<std::string> CheckInstructionKinds();

/*!
 * \brief Take over FuseReductionEpilogue (ours instead of TVM's), and put the checks and repairs of
 *        init_reads.h around DecomposeReduction and the guarded kinds. Tensorize also carries out
 *        rewritings. Call only after CheckInstructionKinds.
 */
void InstallInstructionKinds();

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_SCHEDULE_INSTRUCTION_H_
