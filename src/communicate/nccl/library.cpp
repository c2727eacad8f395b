#include "communicate/nccl/library.hpp"

#include <dlfcn.h>

namespace dat::nccl {

namespace {

struct Loaded {
  Library library{};
  std::string why;

  Loaded() {
    void* const file = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr) {
      why = std::string("NCCL is not found: ") + dlerror() + "; LD_LIBRARY_PATH must have the folder of libnccl.so.2";
      return;
    }
    find(file, "ncclGetVersion", library.get_version);
    find(file, "ncclGetUniqueId", library.get_unique_id);
    find(file, "ncclCommInitRank", library.init_rank);
    find(file, "ncclAllReduce", library.all_reduce);
    find(file, "ncclCommGetAsyncError", library.get_async_error);
    find(file, "ncclCommAbort", library.abort);
    find(file, "ncclCommFinalize", library.finalize);
    find(file, "ncclCommDestroy", library.destroy);
    find(file, "ncclGetErrorString", library.error_string);
    find(file, "ncclGetLastError", library.last_error);
  }
  template <class F>
  void find(void* file, const char* name, F& call) {
    call = reinterpret_cast<F>(dlsym(file, name));
    if (call == nullptr && why.empty())
      why = std::string("this NCCL has no ") + name + ": 2.14 is the oldest that will do";
  }
};

}  // namespace

const Library* library(std::string& why) {
  static const Loaded loaded;
  why = loaded.why;
  return why.empty() ? &loaded.library : nullptr;
}

std::string version_text(int version) {
  // NCCL_VERSION: 2.8 and before have two digits less.
  const int unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace dat::nccl
