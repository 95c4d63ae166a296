#include "analysis/views.h"

#include <unordered_map>

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

/*! \brief The matched regions of a block, and of those in it. */
class Views : public StmtExprVisitor {
 public:
  void Add(const SBlock& block) {
    for (const MatchBufferRegion& match : block.match_buffers()) {
      source_[match.buffer().get()] = match.source().source().get();
    }
  }
  bool IsEmpty() const { return source_.empty(); }
  VarKey MemoryOf(VarKey name) const {
    for (auto it = source_.find(name); it != source_.end(); it = source_.find(name)) {
      name = it->second;
    }
    return name;
  }

 protected:
  using StmtExprVisitor::VisitStmt_;
  void VisitStmt_(const SBlock& op) override {
    Add(op);
    (*this)(op.body());
  }

 private:
  std::unordered_map<VarKey, VarKey> source_;
};

}  // namespace

bool HasTwoNames(const SBlock& root, const Scope& scope, const VarSet& used) {
  Views views;
  views.Add(scope.root);
  // Of the blocks inside one scope each knows its own views; a scope in another one knows them all.
  if (!root.same_as(scope.root)) views(root);
  if (views.IsEmpty()) return false;
  std::unordered_map<VarKey, VarSet> names;
  VarSet written;
  for (const Site& site : scope.sites) {
    for (const Access& access : site.accesses) {
      VarKey memory = views.MemoryOf(access.buffer);
      names[memory].insert(access.buffer);
      if (access.use != Use::kRead) written.insert(memory);
    }
  }
  for (VarKey memory : written) {
    const VarSet& known = names[memory];
    if (known.size() < 2) continue;
    for (VarKey name : known) {
      if (used.count(name)) return true;
    }
  }
  return false;
}

}  // namespace fuse_epilogue
