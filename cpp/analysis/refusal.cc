#include "analysis/refusal.h"

#include <tvm/ffi/error.h>

#include <bitset>

namespace fuse_epilogue {
namespace {
struct Row {
  const char* text;
  const char* meaning;
};
constexpr Row kRows[] = {
#define REFUSAL(Name, Text, Meaning) {Text, Meaning},
#include "analysis/refusal.def"
};
constexpr size_t kNumCodes = sizeof(kRows) / sizeof(kRows[0]);
constexpr const char* kDecisions[] = {
#define DECISION(Name, Text) Text,
#include "analysis/decision.def"
};
constexpr size_t kNumDecisions = sizeof(kDecisions) / sizeof(kDecisions[0]);
// The codes, then the decisions.
using Switches = std::bitset<kNumCodes + kNumDecisions>;
Switches switched_off;
}  // namespace

const char* CodeText(Code code) { return kRows[static_cast<int>(code)].text; }
const char* CodeMeaning(Code code) { return kRows[static_cast<int>(code)].meaning; }

std::vector<std::pair<std::string, std::string>> AllCodes() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Row& row : kRows) all.emplace_back(row.text, row.meaning);
  return all;
}

Refusal::Refusal(Code code, const ir::SBlock& block, std::string reason,
                 std::vector<ffi::ObjectRef> marks)
    : code(code), block(block), reason(std::move(reason)), marks(std::move(marks)) {
  if (this->marks.empty()) this->marks.push_back(block);
}

std::vector<std::string> AllDecisions() {
  return std::vector<std::string>(kDecisions, kDecisions + kNumDecisions);
}

bool IsSwitchedOff(Code code) { return switched_off[static_cast<size_t>(code)]; }
bool IsSwitchedOff(Decision decision) {
  return switched_off[kNumCodes + static_cast<size_t>(decision)];
}

void Refuse(Code code, const ir::SBlock& block, std::string reason,
            std::vector<ffi::ObjectRef> marks) {
  if (IsSwitchedOff(code)) return;
  throw Refusal(code, block, std::move(reason), std::move(marks));
}

void SwitchOffChecks(const std::vector<std::string>& names) {
  Switches off;
  for (const std::string& name : names) {
    size_t i = 0;
    while (i < off.size() && name != (i < kNumCodes ? kRows[i].text : kDecisions[i - kNumCodes])) {
      ++i;
    }
    if (i == off.size()) TVM_FFI_THROW(ValueError) << "there is no refusal '" << name << "'";
    off.set(i);
  }
  switched_off = off;
}

std::string Refusal::Message() const { return reason + ". " + CodeMeaning(code); }

std::string Quoted(const ir::SBlock& block) { return "'" + std::string(block.name_hint()) + "'"; }
std::string Quoted(const ir::Var& buffer) { return "'" + std::string(buffer.name()) + "'"; }

}  // namespace fuse_epilogue
