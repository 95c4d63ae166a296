// Calls a kernel with values as TVM's host code passes them. Only the table of kernels needs it.
#pragma once

#include <type_traits>
#include <utility>

#include "runtime.h"

namespace on_cpu {

// Bytes of what a parameter of type T points to; 0 for a scalar.
template <typename T>
constexpr size_t element() {
  if constexpr (std::is_pointer<T>::value) {
    return sizeof(std::remove_pointer_t<T>);
  } else {
    return 0;
  }
}

// The values are the host's, not memory of the device: not watched.
template <typename T>
__attribute__((no_sanitize("thread"), noinline)) T value(const TVMFFIAny& from) {
  if constexpr (std::is_pointer<T>::value) {
    return static_cast<T>(from.v_ptr);
  } else if constexpr (std::is_floating_point<T>::value) {
    return T(from.v_float64);
  } else {
    return T(from.v_int64);
  }
}

template <typename... P, size_t... i>
void call(void (*kernel)(P...), const TVMFFIAny* values, std::index_sequence<i...>) {
  kernel(value<P>(values[i])...);
}
template <typename... P>
void call(void (*kernel)(P...), const TVMFFIAny* values) {
  call(kernel, values, std::index_sequence_for<P...>());
}

}  // namespace on_cpu
