// What the compiler calls: the kernels are compiled with -fsanitize=thread and others, and linked
// against these functions instead of the sanitizers'. So every load and store can be checked.
#include "runtime.h"

#define CALLER __builtin_return_address(0)
#define ACCESS(size)                                                                       \
  void __tsan_read##size(void* address) { on_cpu::read(address, size, CALLER); }           \
  void __tsan_write##size(void* address) { on_cpu::write(address, size, CALLER); }         \
  void __tsan_unaligned_read##size(void* address) { on_cpu::read(address, size, CALLER); } \
  void __tsan_unaligned_write##size(void* address) { on_cpu::write(address, size, CALLER); }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_read_range(void* address, size_t size) { on_cpu::read(address, size, CALLER); }
void __tsan_write_range(void* address, size_t size) { on_cpu::write(address, size, CALLER); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

// Of -fsanitize=bounds, object-size and alignment: the layout of their data is GCC's and Clang's.
struct Location {
  const char* file;
  unsigned line, column;
};
struct TypeName {
  uint16_t kind, info;
  char name[1];
};
struct OutOfBounds {
  Location location;
  const TypeName *array, *index;
};
struct Mismatch {
  Location location;
  const TypeName* type;
  unsigned char log_alignment, kind;
};

void __ubsan_handle_out_of_bounds(OutOfBounds* data, void* index) {
  on_cpu::fault("out-of-bounds", nullptr, int(data->location.line),
                on_cpu::format("uses index %ld of a local %s", long(index), data->array->name));
}
void __ubsan_handle_type_mismatch_v1(Mismatch* data, void* pointer) {
  uintptr_t address = uintptr_t(pointer);
  size_t alignment = size_t(1) << data->log_alignment;
  if (address % alignment == 0) {
    on_cpu::fault("out-of-bounds", nullptr, int(data->location.line),
                  on_cpu::format("reaches beyond a local array as %s", data->type->name));
  }
  on_cpu::fault("misaligned", nullptr, int(data->location.line),
                on_cpu::format("an access as %s needs an address that is a multiple of %zu",
                               data->type->name, alignment));
}
}
