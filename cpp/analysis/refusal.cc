#include "analysis/refusal.h"

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

std::string Refusal::Message() const { return reason + ". " + CodeMeaning(code); }

std::string Quoted(const ir::SBlock& block) { return "'" + std::string(block.name_hint()) + "'"; }
std::string Quoted(const ir::Var& buffer) { return "'" + std::string(buffer.name()) + "'"; }

}  // namespace fuse_epilogue
