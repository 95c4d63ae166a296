/*!
 * \file analysis/spellings.h
 * \brief Combiners of several nodes: every way to write each, and how to tell quickly that an
 *        expression is none of them.
 */
#ifndef FUSE_EPILOGUE_ANALYSIS_SPELLINGS_H_
#define FUSE_EPILOGUE_ANALYSIS_SPELLINGS_H_

#include <vector>

#include "ir/calls.h"
#include "ir/tools.h"

namespace fuse_epilogue {
namespace spellings {

inline ir::Expr Binary(ir::Fn fn, const ir::Expr& a, const ir::Expr& b) {
  return ir::CallGlobal(fn, a, b, nullptr).cast<ir::Expr>();
}

/*! \brief log(exp(x) + exp(y)), as it is spelled so that nothing overflows, and as it is not. */
struct LogAddExp {
  /*! \brief Every spelling with x and y, the one that is made first. Nothing is folded. */
  static std::vector<ir::Expr> Of(const ir::Expr& x, const ir::Expr& y) {
    using namespace ir;  // NOLINT(build/namespaces)
    Expr larger = Binary(Fn::MaxNode, x, y);
    Expr distance = MakeCall(kFabs, Binary(Fn::SubNode, x, y));
    Expr one = MakeFloat(1, x);
    std::vector<Expr> spellings;
    for (const Expr& exponent : {Binary(Fn::MulNode, distance, MakeFloat(-1, x)),
                                 Binary(Fn::SubNode, MakeFloat(0, x), distance),
                                 Binary(Fn::SubNode, Binary(Fn::MinNode, x, y), larger)}) {
      Expr part = MakeCall(kExp, exponent);
      for (const Expr& log :
           {MakeCall(kLog1p, part), MakeCall(kLog, Binary(Fn::AddNode, one, part))}) {
        spellings.push_back(Binary(Fn::AddNode, larger, log));
      }
    }
    spellings.push_back(MakeCall(kLog, Binary(Fn::AddNode, MakeCall(kExp, x), MakeCall(kExp, y))));
    return spellings;
  }

  /*! \brief Whether \p value may be one of them, which is asked of every sum. */
  static bool MayBe(const ir::Expr& value) {
    using namespace ir;  // NOLINT(build/namespaces)
    if (!IsFloat(DTypeOf(value))) return false;
    if (auto sum = As<Add>(value)) {
      return sum->a().kind() == NodeKind::kMax || sum->b().kind() == NodeKind::kMax;
    }
    auto call = As<Call>(value);
    return call && CalleeOf(*call) == kLog;
  }
};

}  // namespace spellings
}  // namespace fuse_epilogue

#endif  // FUSE_EPILOGUE_ANALYSIS_SPELLINGS_H_
