// NCCL's double: the ten calls that the program makes, over a file that the ranks of one machine map, on the device
// memory of CUDA's double. Sums run on the stream that they are queued on, wait for the other ranks there, and go on
// waiting until they are aborted where one never comes.
//
// DAT_DOUBLE_NCCL=KIND@RANK#CALL, e.g. "wrong@1#3": what goes wrong in this sum, from 1, of this rank.
//   wrong    the sum is one too large, on all ranks
//   error    the call returns an error
//   async    the call is queued, and has failed after that
//   stuck    the rank never takes part
//   version  the rank has another version; of no call
//   new      the rank has the version that lets ranks share a GPU; of no call
//   id       the rank has no name for the group; of no call
//   mute     the rank does not tell its version; of no call
//   init     the rank cannot join; of no call
// DAT_DOUBLE_NCCL_LOG: a file that gets a line when a rank is done: "rank 0: 12 sums, ended" or "aborted".

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "../../../src/communicate/nccl/library.hpp"
#include "../double.hpp"
#include "dat/half.hpp"

using namespace dat::nccl;

namespace {

constexpr int kMostRanks = 64;
constexpr std::size_t kPiece = 64 << 10;

struct Header {
  std::atomic<int> attached, arrived, round;
};
constexpr std::size_t kHeader = 4096, kFile = kHeader + kMostRanks * kPiece;

[[nodiscard]] int rank_of_launch() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank != nullptr ? std::atoi(rank) : 0;
}

/// Whether the environment asks for this fault at this rank, in this call.
[[nodiscard]] bool fault(const char* kind, int rank, long call = 0) {
  const char* const text = std::getenv("DAT_DOUBLE_NCCL");
  char name[16] = {};
  int of = -1;
  long at = 0;
  return text != nullptr && std::sscanf(text, "%15[a-z]@%d#%ld", name, &of, &at) >= 2 && name == std::string(kind) &&
         of == rank && at == call;
}

/// Numbers of a type, added up in it.
template <class T>
void add_up(const std::byte* all, std::size_t bytes, int ranks, std::byte* result, float more) {
  for (std::size_t k = 0; k < bytes; k += sizeof(T)) {
    T sum{};
    for (int rank = 0; rank < ranks; ++rank) {
      T one;
      std::memcpy(&one, all + static_cast<std::size_t>(rank) * kPiece + k, sizeof one);
      sum = rank == 0 ? one : dat::Stored<T>::from(dat::to_float(sum) + dat::to_float(one));
    }
    sum = more == 0 ? sum : dat::Stored<T>::from(dat::to_float(sum) + more);
    std::memcpy(result + k, &sum, sizeof sum);
  }
}

}  // namespace

namespace dat::nccl {

struct Communication {
  int rank, ranks;
  char* file;
  long calls = 0, done = 0;
  std::atomic<bool> aborted{false}, failed{false};

  [[nodiscard]] Header& header() const { return *reinterpret_cast<Header*>(file); }
  [[nodiscard]] std::byte* all() const { return reinterpret_cast<std::byte*>(file + kHeader); }

  /// False: it was aborted before all ranks came.
  [[nodiscard]] bool meet() const {
    Header& h = header();
    const int round = h.round;
    if (++h.arrived == ranks) {
      h.arrived = 0;
      ++h.round;
      return true;
    }
    while (h.round == round && !aborted) std::this_thread::sleep_for(std::chrono::microseconds(50));
    return !aborted;
  }
  void wait_until_aborted() const {
    while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void sum(std::byte* data, std::size_t bytes, Type type, float more) const {
    for (std::size_t at = 0; at < bytes; at += kPiece) {
      const std::size_t piece = std::min(kPiece, bytes - at);
      std::memcpy(all() + static_cast<std::size_t>(rank) * kPiece, data + at, piece);
      if (!meet()) return;
      std::vector<std::byte> result(piece);
      if (type == float16)
        add_up<dat::Half>(all(), piece, ranks, result.data(), more);
      else if (type == bfloat16)
        add_up<dat::BFloat16>(all(), piece, ranks, result.data(), more);
      else
        add_up<float>(all(), piece, ranks, result.data(), more);
      if (!meet()) return;
      std::memcpy(data + at, result.data(), piece);
    }
  }

  void log(const char* how) const {
    if (const char* const path = std::getenv("DAT_DOUBLE_NCCL_LOG"))
      std::ofstream(path, std::ios::app) << "rank " + std::to_string(rank) + ": " + std::to_string(calls) + " sums, " +
                                                how + "\n";
  }
};

}  // namespace dat::nccl

extern "C" {

Result ncclGetVersion(int* version) {
  const int rank = rank_of_launch();
  *version = fault("version", rank) ? 22705 : fault("new", rank) ? 23000 : 22809;
  return fault("mute", rank) ? Result{2} : success;
}

Result ncclGetUniqueId(UniqueId* id) {
  if (fault("id", rank_of_launch())) return Result{2};
  const char* const folder = std::getenv("TMPDIR");
  std::snprintf(id->internal, sizeof id->internal, "%.100s/dat_nccl_XXXXXX", folder != nullptr ? folder : "/tmp");
  const int file = mkstemp(id->internal);
  if (file < 0 || ftruncate(file, kFile) != 0) return Result{2};
  close(file);
  return success;
}

Result ncclCommInitRank(Communication** communication, int ranks, UniqueId id, int rank) {
  const int file = open(id.internal, O_RDWR | O_CLOEXEC);
  if (file < 0 || ranks > kMostRanks) return Result{2};
  void* const data = mmap(nullptr, kFile, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (data == MAP_FAILED) return Result{2};
  if (++static_cast<Header*>(data)->attached == ranks) unlink(id.internal);
  if (fault("init", rank)) return Result{2};
  *communication = new Communication{rank, ranks, static_cast<char*>(data)};
  return success;
}

Result ncclAllReduce(const void* from, void* to, std::size_t count, Type type, Operation operation,
                     Communication* communication, void* stream) {
  Communication& c = *communication;
  ++c.calls;
  const std::size_t bytes = count * (type == float32 ? 4 : 2);
  dat_double::require_device("ncclAllReduce", "the buffer", to, bytes);
  if (from != to || operation != add) return Result{4};
  if (fault("error", c.rank, c.calls)) return Result{2};
  const bool stuck = fault("stuck", c.rank, c.calls), failed = fault("async", c.rank, c.calls);
  float more = 0;
  for (int rank = 0; rank < c.ranks; ++rank)
    if (fault("wrong", rank, c.calls)) more = 1;
  if (failed) c.failed = true;
  const auto work = [&c, data = static_cast<std::byte*>(to), bytes, type, more, stop = stuck || failed] {
    if (stop)
      c.wait_until_aborted();
    else
      c.sum(data, bytes, type, more);
  };
  return dat_double::enqueue(static_cast<cudaStream_t>(stream), work) == cudaSuccess ? success : Result{1};
}

Result ncclCommGetAsyncError(Communication* communication, Result* error) {
  *error = communication->failed ? Result{6} : success;
  return success;
}

/// What is queued may still refer to it.
Result ncclCommAbort(Communication* communication) {
  communication->aborted = true;
  communication->log("aborted");
  return success;
}
Result ncclCommFinalize(Communication*) { return success; }
Result ncclCommDestroy(Communication* communication) {
  communication->log("ended");
  munmap(communication->file, kFile);
  delete communication;
  return success;
}

const char* ncclGetErrorString(Result result) {
  return result == Result{6} ? "remote process exited or there was a network error" : "unhandled system error";
}
const char* ncclGetLastError(Communication*) { return "the double's fault"; }
}
