#include "ir/vocabulary.h"

#include <tvm/ffi/reflection/accessor.h>

#include <cstring>

namespace fuse_epilogue {
namespace ir {
namespace {

struct NodeEntry {
  const char* key;
};

// Index 0 is kUnknown, so that a NodeKind indexes the table directly.
constexpr NodeEntry kNodes[] = {
    {nullptr},
#define NODE(Class, Base, Key) {Key},
#include "ir/vocabulary.def"
};
constexpr int kNumNodes = sizeof(kNodes) / sizeof(kNodes[0]);

// A field names its class; the key is found through the class' kind.
struct FieldEntry {
  NodeKind kind;
  const char* name;
  const char* in_tvm;
};
constexpr FieldEntry kFields[] = {
#define FIELD(Class, Type, name) {NodeKind::k##Class, #name, #name},
#define RENAMED(Class, Type, name, other) {NodeKind::k##Class, #name, #other},
#include "ir/vocabulary.def"
};
constexpr int kNumFields = static_cast<int>(FieldId::kCount);

constexpr const char* kFunctions[] = {
#define FUNCTION(Name, Key) Key,
#include "ir/vocabulary.def"
};
constexpr int kNumFunctions = static_cast<int>(Fn::kCount);

const TVMFFITypeInfo* FindType(const std::string& key) {
  TVMFFIByteArray bytes{key.data(), key.size()};
  int32_t index = 0;
  if (TVMFFITypeKeyToIndex(&bytes, &index) == 0) return TVMFFIGetTypeInfo(index);
  // The failed look-up left an error behind: take it, or the next caller would meet it.
  TVMFFIObjectHandle raised = nullptr;
  TVMFFIErrorMoveFromRaised(&raised);
  if (raised != nullptr) TVMFFIObjectDecRef(raised);
  return nullptr;
}

const TVMFFIFieldInfo* FindField(const TVMFFITypeInfo* type, const std::string& name) {
  for (int32_t i = 0; type != nullptr && i < type->num_fields; ++i) {
    const TVMFFIByteArray& have = type->fields[i].name;
    if (name == std::string(have.data, have.size)) return &type->fields[i];
  }
  return nullptr;
}

// Filled by ResolveVocabulary and never freed: the functions must outlive every static destructor.
struct Resolved {
  std::vector<NodeKind> kind_of_index;
  const TVMFFIFieldInfo* fields[kNumFields] = {};
  ffi::Function functions[kNumFunctions];
};
Resolved* resolved = new Resolved();

}  // namespace

NodeKind KindOf(int32_t type_index) {
  const auto& table = resolved->kind_of_index;
  return static_cast<size_t>(type_index) < table.size() ? table[type_index] : NodeKind::kUnknown;
}

ffi::Any ReadField(const ffi::Object* object, FieldId field) {
  return ffi::reflection::FieldGetter(resolved->fields[static_cast<int>(field)])(object);
}

const ffi::Function& Global(Fn fn) { return resolved->functions[static_cast<int>(fn)]; }

std::vector<std::string> ResolveVocabulary() {
  std::vector<std::string> missing;
  for (int i = 1; i < kNumNodes; ++i) {
    const TVMFFITypeInfo* type = FindType(kNodes[i].key);
    if (type == nullptr) {
      missing.push_back(std::string("type ") + kNodes[i].key);
      continue;
    }
    auto& table = resolved->kind_of_index;
    if (static_cast<size_t>(type->type_index) >= table.size()) {
      table.resize(type->type_index + 1, NodeKind::kUnknown);
    }
    table[type->type_index] = static_cast<NodeKind>(i);
  }
  for (int i = 0; i < kNumFields; ++i) {
    const char* key = kNodes[static_cast<int>(kFields[i].kind)].key;
    const TVMFFITypeInfo* type = FindType(key);
    if (type == nullptr) continue;  // already reported
    resolved->fields[i] = FindField(type, kFields[i].in_tvm);
    if (resolved->fields[i] == nullptr) {
      missing.push_back(std::string("field ") + key + "." + kFields[i].in_tvm);
    }
  }
  for (int i = 0; i < kNumFunctions; ++i) {
    if (auto function = ffi::Function::GetGlobal(kFunctions[i])) {
      resolved->functions[i] = *function;
    } else {
      missing.push_back(std::string("function ") + kFunctions[i]);
    }
  }
  return missing;
}

std::vector<RenamedField> RenamedFields() {
  std::vector<RenamedField> renamed;
  for (const FieldEntry& field : kFields) {
    if (std::strcmp(field.name, field.in_tvm) == 0) continue;
    renamed.push_back({kNodes[static_cast<int>(field.kind)].key, field.name, field.in_tvm});
  }
  return renamed;
}

std::vector<std::string> MissingFrom(const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& entry : names) {
    size_t space = entry.find(' ');
    std::string what = entry.substr(0, space);
    std::string name = space == std::string::npos ? "" : entry.substr(space + 1);
    bool found = false;
    if (what == "type") {
      found = FindType(name) != nullptr;
    } else if (what == "field") {
      size_t dot = name.rfind('.');
      found = dot != std::string::npos &&
              FindField(FindType(name.substr(0, dot)), name.substr(dot + 1)) != nullptr;
    } else if (what == "function") {
      found = ffi::Function::GetGlobal(name).has_value();
    }
    if (!found) missing.push_back(entry);
  }
  return missing;
}

}  // namespace ir
}  // namespace fuse_epilogue
