#include "analysis/library.h"

#include <string>
#include <unordered_set>

#include "ir/functor.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// What TVM's LLVM backend leaves to the C library, by itself or within what it makes of it (a tanh
// and a sigmoid are made of exp). Roots, absolute values and roundings are instructions.
const std::unordered_set<std::string> kLibrary = {
    "tirx.exp",       "tirx.exp2",    "tirx.exp10", "tirx.log",
    "prim.log2",      "tirx.log1p",   "tirx.log10", "tirx.erf",
    "tirx.tanh",      "tirx.sigmoid", "tirx.sin",   "tirx.cos",
    "tirx.tan",       "tirx.sinh",    "tirx.cosh",  "tirx.asin",
    "tirx.acos",      "tirx.atan",    "tirx.asinh", "tirx.acosh",
    "tirx.atanh",     "tirx.atan2",   "tirx.pow",   "tirx.hypot",
    "tirx.nextafter", "tirx.ldexp",   "tirx.fmod",  "tirx.call_pure_extern"};

class Finder : public StmtExprVisitor {
 public:
  bool found = false;

 protected:
  using StmtExprVisitor::VisitExpr_;
  void VisitExpr_(const Call& op) override {
    auto callee = As<Op>(op.op());
    found = found || (callee && kLibrary.count(callee->name()) > 0);
    VisitChildren(op);
  }
};

}  // namespace

bool CallsLibrary(const Expr& expr) {
  Finder finder;
  finder(expr);
  return finder.found;
}

}  // namespace fuse_epilogue
