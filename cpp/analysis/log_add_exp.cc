#include "analysis/log_add_exp.h"

#include <vector>

#include "ir/unify.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

Expr MakeBinary(Fn fn, const Expr& a, const Expr& b) {
  return CallGlobal(fn, a, b, nullptr).cast<Expr>();
}

// Every spelling with x and y, the one that is made first.
std::vector<Expr> Spellings(const Expr& x, const Expr& y) {
  Expr larger = MakeBinary(Fn::MaxNode, x, y);
  Expr distance = MakeCall(kFabs, MakeBinary(Fn::SubNode, x, y));
  Expr one = MakeFloat(1, x);
  std::vector<Expr> spellings;
  for (const Expr& exponent : {MakeBinary(Fn::MulNode, distance, MakeFloat(-1, x)),
                               MakeBinary(Fn::SubNode, MakeFloat(0, x), distance),
                               MakeBinary(Fn::SubNode, MakeBinary(Fn::MinNode, x, y), larger)}) {
    Expr part = MakeCall(kExp, exponent);
    for (const Expr& log :
         {MakeCall(kLog1p, part), MakeCall(kLog, MakeBinary(Fn::AddNode, one, part))}) {
      spellings.push_back(MakeBinary(Fn::AddNode, larger, log));
    }
  }
  spellings.push_back(
      MakeCall(kLog, MakeBinary(Fn::AddNode, MakeCall(kExp, x), MakeCall(kExp, y))));
  return spellings;
}

// Whether it may be one of them, which is asked of every sum.
bool MayBe(const Expr& value) {
  if (!IsFloat(DTypeOf(value))) return false;
  if (auto sum = As<Add>(value)) {
    return sum->a().kind() == NodeKind::kMax || sum->b().kind() == NodeKind::kMax;
  }
  auto call = As<Call>(value);
  auto op = call ? As<Op>(call->op()) : std::nullopt;
  return op && op->name() == kLog;
}

}  // namespace

std::optional<Combination> MatchLogAddExp(const Expr& value) {
  if (!MayBe(value)) return std::nullopt;
  Var x = MakeVar("x", value), y = MakeVar("y", value);
  for (const Expr& spelling : Spellings(x, y)) {
    auto found = Unify(spelling, value, {x.get(), y.get()});
    if (!found) continue;
    auto of = [spelling, x, y](const Expr& a, const Expr& b) {
      return Substitute(spelling, {{x.get(), a}, {y.get(), b}});
    };
    return Combination{found->at(x.get()), found->at(y.get()), of};
  }
  return std::nullopt;
}

Expr MakeLogAddExp(const Expr& x, const Expr& y) { return Spellings(x, y).front(); }

}  // namespace fuse_epilogue
