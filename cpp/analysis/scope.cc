#include "analysis/scope.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

class ScopeBuilder : public StmtExprVisitor {
 public:
  explicit ScopeBuilder(Scope* scope) : scope_(scope), sites_(&scope->sites) {}
  // The accesses of blocks that are in both scopes are moved out of the old one.
  ScopeBuilder(Scope* scope, std::vector<Site>* before) : ScopeBuilder(scope) {
    for (Site& site : *before) {
      if (site.is_block()) known_[site.realize.get()] = &site;
      if (site.init.defined()) known_inits_[site.init.get()] = &site;
    }
  }

 protected:
  using StmtExprVisitor::VisitExpr_;
  using StmtExprVisitor::VisitStmt_;

  // ---- Where things stand ----
  void VisitStmt_(const For& op) override {
    scope_->local_vars.insert(op.loop_var().get());
    (*this)(op.min());
    (*this)(op.extent());
    Below(op, 0, op.body());
  }

  void VisitStmt_(const SeqStmt& op) override {
    size_t child = 0;
    for (const Stmt& stmt : op.seq()) Below(op, child++, stmt);
  }

  void VisitStmt_(const SBlockRealize& op) override {
    if (site_ == nullptr) {
      Site* site = OpenSite(op);
      auto known = known_.find(op.get());
      if (known != known_.end()) {
        Site& same = *known->second;
        known_inits_.erase(same.init.get());
        site->accesses = std::move(same.accesses);
        site->init = same.init;
        site->num_init_accesses = same.num_init_accesses;
        site->may_end = same.may_end;
        site_ = nullptr;
        return;
      }
      (*this)(op.iter_values());
      (*this)(op.predicate());
      (*this)(op.block());
      site_ = nullptr;
    } else {
      VisitChildren(op);
    }
  }

  void VisitStmt_(const SBlock& op) override {
    for (const MatchBufferRegion& match : op.match_buffers()) {
      Record(match.source().source(), Use::kOpaque);
    }
    VisitInit(op);
    // What the block declares counts too: an external call may access it out of sight.
    for (const TensorRegion& region : op.reads()) Record(region.source(), Use::kRead);
    for (const TensorRegion& region : op.writes()) Record(region.source(), Use::kWrite);
    (*this)(op.body());
  }

  // Whatever is neither a loop, nor a sequence, nor a block may run conditionally or repeatedly.
  void VisitStmt_(const IfThenElse& op) override { NotPlain(op); }
  void VisitStmt_(const DeclBuffer& op) override { NotPlain(op); }
  void VisitOther(const Node& op) override {
    NodeKind kind = op.kind();
    bool jump =
        kind == NodeKind::kBreak || kind == NodeKind::kContinue || kind == NodeKind::kReturn;
    if (jump) scope_->has_jump = true;
    if (kind == NodeKind::kAssertStmt) MayEnd();
    if (auto bind = As<Bind>(op)) scope_->local_vars.insert(bind->var().get());
    if (auto statement = As<AllocBuffer>(op)) scope_->allocated.insert(statement->buffer().get());
    if (!VisitKnownInit(op)) NotPlain(op);
  }

  // ---- What they touch ----
  void VisitStmt_(const BufferStore& op) override {
    (*this)(op.value());
    (*this)(op.indices());
    Record(op.buffer(), Use::kWrite);
  }
  void VisitExpr_(const TensorLoad& op) override {
    Record(op.source(), Use::kRead);
    (*this)(op.indices());
  }
  void VisitExpr_(const Call& op) override {
    auto callee = As<Op>(op.op());
    for (const char* jump : kJumps) {
      if (callee && callee->name() == jump) scope_->has_jump = true;
    }
    for (const char* foreign : kForeignCalls) {
      if (callee && callee->name() == foreign) MayEnd();
    }
    if (callee && callee->name() == kAddressOf) {
      for (const ffi::Any& arg : op.args()) {
        if (auto load = As<TensorLoad>(arg)) Record(load->source(), Use::kOpaque);
      }
    }
    NotPlain(op);
  }
  void VisitExpr_(const Var& op) override {
    // A buffer that is named outside a load or a store is used through its address.
    if (ExprBase(op).ty().kind() == NodeKind::kBufferType) Record(op, Use::kOpaque);
  }

 private:
  void Below(const Stmt& stmt, size_t child, const Stmt& body) {
    if (site_ != nullptr) {
      (*this)(body);
      return;
    }
    path_.push_back(Step{stmt, child});
    (*this)(body);
    path_.pop_back();
  }

  // The value of the init first: of a block that has nothing before it, what is recorded is its.
  void VisitInit(const SBlock& op) {
    auto init = ObjectIn(op.init());
    if (!init) return;
    auto store = As<BufferStore>(*init);
    if (store && site_->accesses.empty()) {
      (*this)(store->value());
      site_->init = store->value();
      site_->num_init_accesses = site_->accesses.size();
    }
    if (store && site_->init.same_as(store->value())) {
      (*this)(store->indices());
      Record(store->buffer(), Use::kWrite);
    } else {
      (*this)(*init);
    }
  }

  // An absorbed operand leaves the init before it as a part of the new one.
  bool VisitKnownInit(const Node& op) {
    auto known = known_inits_.find(op.get());
    if (site_ == nullptr || known == known_inits_.end()) return false;
    const Site& before = *known->second;
    for (size_t i = 0; i < before.num_init_accesses; ++i) {
      Record(before.accesses[i].buffer, before.accesses[i].use);
    }
    if (before.may_end) MayEnd();
    return true;
  }

  void NotPlain(const Node& op) {
    ++not_plain_;
    VisitChildren(op);
    --not_plain_;
  }

  Site* OpenSite(const SBlockRealize& realize) {
    Site site;
    site.realize = realize;
    site.path = path_;
    site.plain = not_plain_ == 0;
    site.position = sites_->size();
    sites_->push_back(std::move(site));
    site_ = &sites_->back();
    for (VarSet& buffers : recorded_) buffers.clear();
    return site_;
  }

  void Record(const Expr& buffer, Use use) { Record(buffer.get(), use); }
  void Record(VarKey buffer, Use use) {
    if (site_ != nullptr) {
      bool is_new = recorded_[static_cast<size_t>(use)].insert(buffer).second;
      if (is_new) site_->accesses.push_back({buffer, use});
      return;
    }
    // A statement outside any block: a site of its own, closed at once.
    OpenSite(SBlockRealize())->accesses.push_back({buffer, use});
    site_ = nullptr;
  }

  void MayEnd() {
    if (site_ != nullptr) {
      site_->may_end = true;
      return;
    }
    OpenSite(SBlockRealize())->may_end = true;
    site_ = nullptr;
  }

  Scope* scope_;
  std::vector<Site>* sites_;
  std::vector<Step> path_;
  Site* site_ = nullptr;
  // What is recorded of the present site: many loads of one buffer are one access.
  std::array<VarSet, 3> recorded_;
  std::unordered_map<VarKey, Site*> known_;
  std::unordered_map<VarKey, Site*> known_inits_;
  int not_plain_ = 0;
};

}  // namespace

std::vector<For> Site::Loops(size_t skip) const {
  std::vector<For> loops;
  for (size_t i = skip; i < path.size(); ++i) {
    if (auto loop = As<For>(path[i].stmt)) loops.push_back(*loop);
  }
  return loops;
}

bool Site::Touches(VarKey buffer, Use use) const {
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access& access) {
    return access.buffer == buffer && access.use == use;
  });
}

bool Site::ReadsAny(const VarSet& buffers) const {
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access& access) {
    return access.use == Use::kRead && buffers.count(access.buffer) > 0;
  });
}

Scope::Scope(const SBlock& root) : root(root) {
  ScopeBuilder build(this);
  build(root.body());
}

Scope::Scope(const SBlock& root, Scope&& before)
    : root(root),
      local_vars(std::move(before.local_vars)),
      allocated(std::move(before.allocated)),
      has_jump(before.has_jump) {
  sites.reserve(before.sites.size());
  ScopeBuilder build(this, &before.sites);
  build(root.body());
}

const Site* Scope::Find(const SBlock& block) const {
  for (const Site& site : sites) {
    if (site.is_block() && site.block().same_as(block)) return &site;
  }
  return nullptr;
}

bool HasNestedBlock(const SBlock& block) {
  class Finder : public StmtExprVisitor {
   public:
    bool found = false;

   protected:
    using StmtExprVisitor::VisitStmt_;
    void VisitStmt_(const SBlockRealize&) override { found = true; }
  };
  Finder finder;
  finder(block.body());
  return finder.found;
}

size_t CommonSteps(const Site& a, const Site& b) {
  size_t n = 0;
  while (n < a.path.size() && n < b.path.size() && a.path[n] == b.path[n]) ++n;
  return n;
}

}  // namespace fuse_epilogue
