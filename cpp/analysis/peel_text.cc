#include "analysis/peel_text.h"

#include <optional>
#include <vector>

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// The terms of c with their signs, in the order in which they are added.
struct Term {
  Expr value;
  bool negative;
};

std::string SumText(const PeelSteps& steps) {
  std::vector<Term> terms;
  for (const PeelStep& step : steps) {
    if (step.absorbs) {
      Term term{*step.operand, step.node == NodeKind::kSub};
      terms.insert(step.x_first ? terms.end() : terms.begin(), term);
    } else {
      for (Term& term : terms) {
        if (Negates(step)) {
          term.negative = !term.negative;
        } else {
          term.value = ApplyStep(step, term.value);
        }
      }
      if (Negates(step)) terms.insert(terms.begin(), Term{*step.operand, false});
    }
  }
  std::string text;
  for (const Term& term : terms) {
    std::string value = Print(term.value);
    bool sum = term.value.kind() == NodeKind::kAdd || term.value.kind() == NodeKind::kSub;
    if (term.negative && sum) value = "(" + value + ")";
    if (text.empty()) {
      text = (term.negative ? "-" : "") + value;
    } else {
      text += (term.negative ? " - " : " + ") + value;
    }
  }
  return text;
}

}  // namespace

std::string AbsorbedText(const PeelSteps& steps) {
  if (steps.empty()) return "";
  if (steps.back().after->id == MonoidId::kSum) return SumText(steps);
  std::optional<Expr> c;
  for (const PeelStep& step : steps) {
    if (step.absorbs) {
      c = c ? ApplyStep(step, *c) : *step.operand;
    } else if (c) {
      c = ApplyStep(step, *c);
    }
  }
  return c ? Print(*c) : "";
}

std::string DistributedText(const PeelSteps& steps, const Var& hole) {
  Expr h = ApplyDistributed(steps, hole);
  if (h.same_as(hole)) return "";
  auto negated = As<Sub>(h);
  if (negated && IsConst(negated->a(), 0)) return "-" + Print(negated->b());
  return Print(h);
}

}  // namespace fuse_epilogue
