#include "analysis/linear_form.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

bool AddForm(const Cascade& cascade, const VarSet& results, const Expr& expr, double scale,
             LinearForm* form) {
  for (size_t i = 0; i < cascade.stages.size(); ++i) {
    if (!expr.same_as(cascade.stages[i].value)) continue;
    for (auto& [index, coefficient] : form->results) {
      if (index != i) continue;
      coefficient += scale;
      return true;
    }
    form->results.emplace_back(i, scale);
    return true;
  }
  if (auto add = As<Add>(expr)) {
    return AddForm(cascade, results, add->a(), scale, form) &&
           AddForm(cascade, results, add->b(), scale, form);
  }
  if (auto sub = As<Sub>(expr)) {
    return AddForm(cascade, results, sub->a(), scale, form) &&
           AddForm(cascade, results, sub->b(), -scale, form);
  }
  if (auto mul = As<Mul>(expr)) {
    auto a = LiteralOf(mul->a()), b = LiteralOf(mul->b());
    if (b) return AddForm(cascade, results, mul->a(), scale * *b, form);
    if (a) return AddForm(cascade, results, mul->b(), scale * *a, form);
  }
  if (auto div = As<Div>(expr); div && IsFloat(DTypeOf(expr))) {
    auto b = LiteralOf(div->b());
    if (b && *b != 0) return AddForm(cascade, results, div->a(), scale / *b, form);
  }
  if (UsesAny(expr, results)) return false;
  form->terms.emplace_back(scale, expr);
  return true;
}

}  // namespace

std::optional<LinearForm> LinearFormOf(const Cascade& cascade, const Expr& expr) {
  LinearForm form;
  if (!AddForm(cascade, cascade.ValueVars(), expr, 1, &form)) return std::nullopt;
  return form;
}

bool IsMultiple(const LinearForm& a, double scale, const LinearForm& b) {
  if (a.terms.size() != b.terms.size()) return false;
  std::vector<bool> used(b.terms.size(), false);
  for (const auto& [coefficient, expr] : a.terms) {
    size_t i = 0;
    while (i < used.size() && (used[i] || coefficient != scale * b.terms[i].first ||
                               !DeepEqual(expr, b.terms[i].second))) {
      ++i;
    }
    if (i == used.size()) return false;
    used[i] = true;
  }
  return true;
}

}  // namespace fuse_epilogue
