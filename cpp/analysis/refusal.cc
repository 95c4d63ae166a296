#include "analysis/refusal.h"

#include <tvm/ffi/error.h>

#include <bitset>
#include <cstring>

#include "analysis/monoid.h"

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
// What a sentence has in the place of the list of monoids.
constexpr const char* kMonoidNames = "{monoids}";
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
std::string CodeMeaning(Code code) {
  std::string meaning = kRows[static_cast<int>(code)].meaning;
  size_t place = meaning.find(kMonoidNames);
  if (place == std::string::npos) return meaning;
  return meaning.replace(place, std::strlen(kMonoidNames), MonoidNames());
}

std::vector<std::pair<std::string, std::string>> AllCodes() {
  std::vector<std::pair<std::string, std::string>> all;
  for (size_t i = 0; i < kNumCodes; ++i) {
    all.emplace_back(kRows[i].text, CodeMeaning(static_cast<Code>(i)));
  }
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
