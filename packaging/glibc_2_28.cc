// For wheels: newer symbols of the C and C++ libraries, by means that glibc 2.28 and GCC 8 have
// too. All are hidden: they answer for this library alone, wherever it is loaded.

#include <dlfcn.h>

#include <new>
#include <sstream>

#define HIDDEN __attribute__((visibility("hidden")))

#ifdef __aarch64__
#define OLD(name) asm(".symver old_" #name "," #name "@GLIBC_2.17")
#else
#define OLD(name) asm(".symver old_" #name "," #name "@GLIBC_2.2.5")
#endif

extern "C" {

// glibc 2.34 has moved these into libc.so.6, with a version of their own.
OLD(dlopen);
OLD(dlsym);
OLD(dlclose);
void* old_dlopen(const char* file, int mode) noexcept;
void* old_dlsym(void* handle, const char* name) noexcept;
int old_dlclose(void* handle) noexcept;
HIDDEN void* dlopen(const char* file, int mode) noexcept { return old_dlopen(file, mode); }
HIDDEN void* dlsym(void* handle, const char* name) noexcept { return old_dlsym(handle, name); }
HIDDEN int dlclose(void* handle) noexcept { return old_dlclose(handle); }

// glibc 2.32: whether reference counts may do without atomic instructions. They do not.
HIDDEN char __libc_single_threaded = 0;

// GCC 11 and 12: throw where an allocation's size overflows.
[[noreturn]] HIDDEN void throw_bad_array_new_length() asm("_ZSt28__throw_bad_array_new_lengthv");
void throw_bad_array_new_length() { throw std::bad_array_new_length(); }

// GCC 11: release what a std::exception_ptr holds. Its destructor does it, and was there before.
void old_destructor(void** held) noexcept asm("_ZNSt15__exception_ptr13exception_ptrD1Ev");
HIDDEN void release(void** held) noexcept
    asm("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void release(void** held) noexcept {
  old_destructor(held);
  *held = nullptr;
}

// GCC 9: the constructor of std::ostringstream without arguments.
HIDDEN void default_constructor(std::ostringstream* stream) asm(
    "_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
void default_constructor(std::ostringstream* stream) {
  new (stream) std::ostringstream(std::ios_base::out);
}
}
