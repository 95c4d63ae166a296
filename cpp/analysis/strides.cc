#include "analysis/strides.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "ir/tools.h"

namespace fuse_epilogue {

using namespace ir;  // NOLINT(build/namespaces)

namespace {

// From the smallest stride on, each must be larger than what the axes before it reach together.
bool MayOverlap(const BufferType& type) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, steps
  auto strides = type.strides().as<ffi::Array<Expr>>();
  if (!strides || strides->empty()) return false;
  for (size_t i = 0; i < strides->size(); ++i) {
    auto stride = As<IntImm>((*strides)[i]), extent = As<IntImm>(type.shape()[i]);
    if (!stride) return false;
    int64_t steps = extent ? extent->value() - 1 : 1;
    if (steps > 0) axes.emplace_back(std::abs(stride->value()), steps);
  }
  std::sort(axes.begin(), axes.end());
  int64_t reach = 0;
  for (auto [stride, steps] : axes) {
    if (stride <= reach) return true;
    reach += stride * steps;
  }
  return false;
}

}  // namespace

void CheckPlacesDiffer(const SBlock& block, const Var& buffer) {
  if (!MayOverlap(BufferTypeOf(buffer))) return;
  Refuse(Code::kOutputWrite, block,
         "buffer " + Quoted(buffer) + ", which block " + Quoted(block) +
             " stores to, has strides that may put two elements into one place");
}

}  // namespace fuse_epilogue
