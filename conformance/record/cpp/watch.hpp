// Sees what Caffe does to host memory: the C library's functions and BLAS are defined here once more, note what Caffe
// calls (calls of the C++ library's and of this program's do not count) and pass it on. For glibc.

#ifndef REFCAFFE_RECORD_WATCH_HPP_
#define REFCAFFE_RECORD_WATCH_HPP_

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include <map>
#include <string>

#include "lines.hpp"

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void __libc_free(void* memory);
}

namespace watch {

bool on = false;          // while an operation of the case runs
uintptr_t from[64], to[64];  // where Caffe's code is
int parts = 0;

struct Off {  // while notes are taken, nothing is noted
  bool before;
  Off() : before(on) { on = false; }
  ~Off() { on = before; }
};

std::map<void*, size_t>& blocks() {  // Caffe's and the caller's
  static std::map<void*, size_t> known;
  return known;
}

std::string& events() {  // JSON, with commas between
  static std::string text;
  return text;
}

std::string name_of(const void* block) { return "\"" + text_of(reinterpret_cast<uintptr_t>(block)) + "\""; }

void note(const std::string& event) { events() += (events().empty() ? "[" : ",[") + event + "]"; }

int add_part(dl_phdr_info* info, size_t, void*) {
  const char* slash = strrchr(info->dlpi_name, '/');
  const bool own = info->dlpi_name[0] == 0;  // this program, if Caffe is linked into it
  if (!own && strstr(slash ? slash + 1 : info->dlpi_name, "libcaffe") == NULL) return 0;
  for (int i = 0; i < info->dlpi_phnum && parts < 64; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD || !(info->dlpi_phdr[i].p_flags & PF_X)) continue;
    from[parts] = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    to[parts] = from[parts] + info->dlpi_phdr[i].p_memsz;
    ++parts;
  }
  return 0;
}

void start() { dl_iterate_phdr(add_part, NULL); }

bool is_caffe(const void* caller) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(caller);
  for (int i = 0; i < parts; ++i)
    if (from[i] <= at && at < to[i]) return true;
  return false;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace watch

extern "C" {

// Compilers make one call of it from Caffe's malloc and the memset that follows.
void* calloc(size_t count, size_t size) {
  void* memory = __libc_calloc(count, size);
  if (watch::on && watch::is_caffe(__builtin_return_address(0))) {
    watch::Off off;
    watch::blocks()[memory] = count * size;
    watch::note("\"h_alloc\",\"malloc\"," + text_of(count * size) + "," + watch::name_of(memory));
    watch::note("\"h_memset\"," + watch::name_of(memory) + ",0," + text_of(count * size));
  }
  return memory;
}

void* malloc(size_t size) {
  void* memory = __libc_malloc(size);
  if (watch::on && watch::is_caffe(__builtin_return_address(0))) {
    watch::Off off;
    watch::blocks()[memory] = size;
    watch::note("\"h_alloc\",\"malloc\"," + text_of(size) + "," + watch::name_of(memory));
  }
  return memory;
}

void free(void* memory) {
  if (watch::on && memory) {
    watch::Off off;
    if (watch::blocks().erase(memory)) watch::note("\"h_free\",\"malloc\"," + watch::name_of(memory));
  }
  __libc_free(memory);
}

// Byte by byte: these may be called before anything else works.
void* memset(void* memory, int value, size_t size) {
  volatile unsigned char* bytes = static_cast<unsigned char*>(memory);
  for (size_t i = 0; i < size; ++i) bytes[i] = value;
  if (watch::on && watch::is_caffe(__builtin_return_address(0))) {
    watch::Off off;
    if (watch::blocks().count(memory))
      watch::note("\"h_memset\"," + watch::name_of(memory) + "," + text_of(value) + "," + text_of(size));
  }
  return memory;
}

void* memcpy(void* target, const void* source, size_t size) {
  volatile unsigned char* bytes = static_cast<unsigned char*>(target);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<const unsigned char*>(source)[i];
  if (watch::on && watch::is_caffe(__builtin_return_address(0))) {
    watch::Off off;
    if (watch::blocks().count(target) && watch::blocks().count(const_cast<void*>(source)))
      watch::note("\"memcpy\",\"H2H\"," + text_of(size) + "," + watch::name_of(target) + "," + watch::name_of(source));
  }
  return target;
}

#define WATCH_BLAS(result, function, called, parameters, arguments)                            \
  result function parameters {                                                                 \
    if (watch::on) watch::note("\"" called "\",\"cpu\"," + text_of(n));                         \
    return watch::next<result(*) parameters>(#function) arguments;                              \
  }

WATCH_BLAS(void, cblas_saxpy, "axpy", (int n, float a, const float* x, int p, float* y, int q), (n, a, x, p, y, q))
WATCH_BLAS(void, cblas_daxpy, "axpy", (int n, double a, const double* x, int p, double* y, int q), (n, a, x, p, y, q))
WATCH_BLAS(void, cblas_sscal, "scal", (int n, float a, float* x, int p), (n, a, x, p))
WATCH_BLAS(void, cblas_dscal, "scal", (int n, double a, double* x, int p), (n, a, x, p))
WATCH_BLAS(float, cblas_sasum, "asum", (int n, const float* x, int p), (n, x, p))
WATCH_BLAS(double, cblas_dasum, "asum", (int n, const double* x, int p), (n, x, p))
WATCH_BLAS(float, cblas_sdot, "dot", (int n, const float* x, int p, const float* y, int q), (n, x, p, y, q))
WATCH_BLAS(double, cblas_ddot, "dot", (int n, const double* x, int p, const double* y, int q), (n, x, p, y, q))

}  // extern "C"

#endif  // REFCAFFE_RECORD_WATCH_HPP_
