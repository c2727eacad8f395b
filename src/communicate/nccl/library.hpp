#pragma once

#include <cstddef>
#include <string>

namespace dat::nccl {

/// NCCL's interface as far as it is used here, which its versions from 2.14 on share (nccl.h of 2.14 to 2.28): no
/// header of NCCL is needed to build the program, and no library to start it.
struct Communication;  ///< opaque
struct UniqueId {
  char internal[128];
};
enum Result : int { success = 0, in_progress = 7 };
enum Type : int { float16 = 6, float32 = 7, bfloat16 = 9 };
enum Operation : int { add = 0 };

/// The calls of a library that was found at run time.
struct Library {
  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*init_rank)(Communication** communication, int ranks, UniqueId id, int rank);
  Result (*all_reduce)(const void* from, void* to, std::size_t count, Type type, Operation operation,
                       Communication* communication, void* stream);
  Result (*get_async_error)(Communication* communication, Result* error);
  Result (*abort)(Communication* communication);
  Result (*finalize)(Communication* communication);
  Result (*destroy)(Communication* communication);
  const char* (*error_string)(Result result);
  const char* (*last_error)(Communication* communication);
};

/// libnccl.so.2, where the dynamic linker finds it (LD_LIBRARY_PATH); loaded once, never closed. Null: there is none,
/// or it lacks a call, as `why` says.
[[nodiscard]] const Library* library(std::string& why);

/// Version as text, "2.28.9", from the number of get_version().
[[nodiscard]] std::string version_text(int version);

}  // namespace dat::nccl
