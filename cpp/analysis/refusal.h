/*!
 * \file analysis/refusal.h
 * \brief Why a fusion is refused: a stable code, the block, a sentence, what to mark in the TIR.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_REFUSAL_H_
#define FUSE_EPILOGUE_ANALYSIS_REFUSAL_H_

#include <string>
#include <utility>
#include <vector>

#include "ir/vocabulary.h"

namespace fuse_epilogue {

/*! \brief The reasons of refusal.def. */
enum class Code {
#define REFUSAL(Name, Text, Meaning) k##Name,
#include "analysis/refusal.def"
};

/*! \brief The stable text of a code, and its general explanation. */
const char* CodeText(Code code);
std::string CodeMeaning(Code code);
/*! \brief All codes with their explanations, in the order of the table. */
std::vector<std::pair<std::string, std::string>> AllCodes();

/*! \brief Thrown by every check; nothing has been changed when it is. */
struct Refusal {
  Refusal(Code code, const ir::SBlock& block, std::string reason,
          std::vector<ffi::ObjectRef> marks = {});

  Code code;
  /*! \brief The block the reason is about. */
  ir::SBlock block;
  /*! \brief What failed here, as the beginning of a sentence that CodeMeaning completes. */
  std::string reason;
  /*! \brief Statements or expressions to underline; the block itself if empty. */
  std::vector<ffi::ObjectRef> marks;

  /*! \brief The whole message: reason, then what it means and the way out. */
  std::string Message() const;
};

/*!
 * \brief Throw a Refusal, unless a test has switched off the checks of this code: then the caller
 *        goes on as if the check had passed.
 */
void Refuse(Code code, const ir::SBlock& block, std::string reason,
            std::vector<ffi::ObjectRef> marks = {});

bool IsSwitchedOff(Code code);

/*! \brief The decisions of decision.def: they choose between two ways of fusing. */
enum class Decision {
#define DECISION(Name, Text) k##Name,
#include "analysis/decision.def"
};

/*! \brief The names of all decisions. */
std::vector<std::string> AllDecisions();

/*! \brief Whether a test has switched off \p decision: then the caller goes the other way. */
bool IsSwitchedOff(Decision decision);

/*!
 * \brief Switch off the checks of the given codes and the given decisions, and no others. For tests
 *        that show what a check is there for; programs come out wrong without it.
 * \throws ffi::Error (ValueError) for a code, or a decision, that there is not.
 */
void SwitchOffChecks(const std::vector<std::string>& names);

/*! \brief The name of a block, quoted for a message. */
std::string Quoted(const ir::SBlock& block);
std::string Quoted(const ir::Var& buffer);

}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_REFUSAL_H_
