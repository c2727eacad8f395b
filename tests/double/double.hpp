#pragma once

// A test double of the CUDA runtime, of cuDNN's convolutions (legacy calls, and its graph API) and batch norm, and of
// cuBLAS's products, linked instead of those libraries; and of an MPI without CUDA, in front of the real one. The host
// code of a CUDA backend, and its kernels compiled by g++, then run on a machine without a GPU.
//
// It finds: results read, or pinned buffers reused, before anybody waited for them (queued work runs as late as the
// rules allow); missing order between streams; host code that touches device memory (it crashes); uninitialised device
// memory (it is NaN); writes beyond an allocation; kernel arguments that hold host addresses or freed memory; calls
// that are not allowed during a capture; missing __syncthreads() in most cases; workspaces that are too small or shared
// with live data; algorithms that compute wrong numbers, or others at each call; TF32 where it was not wanted;
// device memory given to MPI.
//
// It cannot find: races inside kernels beyond that, out-of-bounds reads and writes that stay clear of the zone after
// each allocation, real hardware's rounding, speed, limits of real kernels (registers, shared memory), restrictions of
// the real libraries that are not written down here, and failures that the device reports late. While one host thread
// waits, device memory is open to the others.

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

/// cuDNN's handle.
struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace dat_double {

/// What the host has done so far. Tests may set the numbers back.
struct Counts {
  long synchronizations = 0;  ///< of streams, events, the device; copies that imply one
  long allocations = 0;       ///< of device and of pinned memory
  long kernels = 0;           ///< launches, and calls of the libraries, captured ones included
  long launches = 0, library_calls = 0, copies = 0, records = 0;  ///< outside captures; records: of events
  long graph_launches = 0, graph_instantiations = 0;
  long replayed = 0;                        ///< what launched graphs have queued
  std::map<std::string_view, long> work{};  ///< kernels and calls of libraries that ran, in graphs or not, by name
  long pageable_copies = 0;
  std::size_t uploaded = 0;  ///< bytes copied from the host to the device
};
Counts& counts();

/// What a cuDNN algorithm does that it should not, or need not. None does anything of it until a test says so.
struct Vices {
  std::chrono::microseconds host{0};    ///< how long a call keeps the host
  std::chrono::microseconds device{0};  ///< how long its kernel runs, beyond its work
  bool waits = false;                   ///< a call waits for the stream
  bool ignores_beta = false;            ///< overwrites what it is to add to
  bool half = false;                    ///< leaves out the second half of its second operand; a norm: of its means
  bool reads_z = false;                 ///< reads z where alpha2 is zero
  std::atomic<int>* runs = nullptr;     ///< counts its kernels
  bool cuts = false;                    ///< cuts f32 factors off to TF32's bits instead of rounding them
  double off = 0, off_y = 0;            ///< of a norm: is added to the gradient of beta, to the result
  bool refuses = false;                 ///< it is not supported, after all, and leaves an error behind
  bool plain = false;                   ///< of a norm: there are no persistent kernels
};
enum class Call { forward, data, filter, norm };  ///< norm: batch norm, both ways, algorithm 0
Vices& vices(Call call, int algorithm);
void clear_vices();
/// Lets the legacy calls of frozen convolutions that are right take that long: plans of the graph API are faster.
inline void slow_legacy(std::chrono::microseconds time) {
  for (const Call call : {Call::forward, Call::data})
    for (const int algorithm : {0, 1}) vices(call, algorithm).device = time;
}

/// cuDNN's graph API. Tests may change all of it.
struct GraphSwitches {
  bool refuse = false;                                   ///< no engine for any graph
  bool unbuilt = false;                                  ///< no engine can be built
  bool wrong = false;                                    ///< every engine computes wrong numbers
  bool open_zeros = false;                               ///< to every engine a ReLU is open where it has left a zero
  std::chrono::microseconds device{0};                   ///< how long every engine's kernel runs, beyond its work
  std::chrono::microseconds compile{5000};               ///< how long an engine is built
  std::size_t most_of_a = 6;                             ///< engines that heuristics of mode A recommend
  std::atomic<int> asked_a = 0, asked_b = 0, built = 0;  ///< heuristics that were asked; engines that were built
  int most_at_once = 0;                                  ///< threads that have used a handle each at the same time
  std::atomic<long> descriptors = 0;                     ///< there are
};
GraphSwitches& graph_switches();

/// While true, a stream that follows another one (it was the first of the two to wait for the other), as one of copies
/// does, works as late as order allows: whatever else may run, runs before. Else as early as somebody waits for it.
bool& followers_are_late();

/// Calls that MPI has got (mpi.cpp). One with device memory ends the program, unless a test counts them.
struct Mpi {
  bool counts_only = false;  ///< a call with device memory does nothing
  long calls = 0;            ///< all that have buffers
  long started = 0;          ///< those of them that return before they are done
  long device_buffers = 0;   ///< buffers among theirs that were device memory
};
Mpi& mpi();

/// Queues `work` on the stream, or adds it to the stream's capture. The name, which stays, is a kernel's, or else that
/// of a call of a library.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, std::string_view kernel = {},
                    std::string_view call = "work of a test");

void set_device_count(int count);

/// Of the device: 90 for 9.0.
int capability();

/// Whether the bytes lie within one allocation of device memory. An empty range does.
bool in_device_memory(const void* data, std::size_t bytes);

/// Ends the program if a word among the bytes of a kernel's arguments is an address that a kernel cannot use.
void check_arguments(const void* arguments, std::size_t bytes);

/// Lets the work that runs on the device take so much longer, by its own clock: nobody sleeps.
void rest(std::chrono::nanoseconds time);

/// Makes `error` the thread's last one, for cudaGetLastError.
cudaError_t set_error(cudaError_t error);

/// Name of a library's status among `known`, which are of DAT_NAMED.
#define DAT_NAMED(status) \
  { status, #status }
template <class Status>
const char* status_name(Status status, std::initializer_list<std::pair<Status, const char*>> known, const char* other) {
  for (const auto& [one, name] : known)
    if (one == status) return name;
  return other;
}

/// Prints what is wrong and ends the program.
[[noreturn]] void fail(const std::string& what);

/// Ends the program unless the bytes lie in device memory.
inline void require_device(const char* call, const char* argument, const void* data, std::size_t bytes) {
  if (!in_device_memory(data, bytes))
    fail(std::string(call) + ": " + argument + ", " + std::to_string(bytes) + " bytes, does not lie in device memory");
}

}  // namespace dat_double
