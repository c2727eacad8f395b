// MPI in front of the real one, by its profiling interface: CUDA-aware where a test says so, as Open MPI's
// documentation describes it. A blocking sum or gather then takes device memory; a non-blocking one never does. See
// double.hpp.

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "double.hpp"

using namespace dat_double;

namespace {

/// As the library tells device memory from host memory: by the address alone.
bool on_device(const void* data) { return data != MPI_IN_PLACE && data != nullptr && in_device_memory(data, 1); }

std::size_t size_of(MPI_Datatype type) {
  int bytes = 0;
  PMPI_Type_size(type, &bytes);
  return static_cast<std::size_t>(bytes);
}

/// A copy on a stream of the library's own: it knows nothing of what the program has queued.
void copy(void* to, const void* from, std::size_t bytes) {
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream) != cudaSuccess ||
      cudaStreamSynchronize(stream) != cudaSuccess || cudaStreamDestroy(stream) != cudaSuccess)
    fail("MPI cannot copy device memory");
}

/// What MPI works on instead of the caller's buffer: a copy in host memory where that is device memory.
class Staged {
 public:
  Staged(const void* buffer, std::size_t bytes) : buffer_(const_cast<void*>(buffer)), device_(on_device(buffer)) {
    if (!device_) return;
    host_.resize(bytes);
    copy(host_.data(), buffer_, bytes);
  }
  [[nodiscard]] bool device() const { return device_; }
  [[nodiscard]] void* data() { return device_ ? host_.data() : buffer_; }
  void bring_back() {
    if (device_) copy(buffer_, host_.data(), host_.size());
  }

 private:
  void* buffer_;
  bool device_;
  std::vector<std::byte> host_;
};

void count(const char* call, const Staged& a, const Staged& b) {
  if (!a.device() && !b.device()) return;
  if (!mpi().takes_device_memory) fail(std::string(call) + " got device memory, which this MPI does not take");
  ++mpi().device_messages;
}

void require_host(const char* call, const void* a, const void* b) {
  if (on_device(a) || on_device(b)) fail(std::string(call) + " got device memory, which no MPI promises to take");
  ++mpi().messages_beside_other_work;
}

}  // namespace

namespace dat_double {

Mpi& mpi() {
  static Mpi one;
  return one;
}

}  // namespace dat_double

extern "C" {

/// Open MPI's extension (mpi-ext.h).
int MPIX_Query_cuda_support() { return mpi().takes_device_memory ? 1 : 0; }

int MPI_Allreduce(const void* from, void* to, int count_of, MPI_Datatype type, MPI_Op op, MPI_Comm group) {
  const std::size_t bytes = size_of(type) * static_cast<std::size_t>(count_of);
  Staged source(from, bytes), target(to, bytes);
  count("MPI_Allreduce", source, target);
  const int status = PMPI_Allreduce(source.data(), target.data(), count_of, type, op, group);
  target.bring_back();
  return status;
}

int MPI_Allgather(const void* from, int from_count, MPI_Datatype from_type, void* to, int to_count,
                  MPI_Datatype to_type, MPI_Comm group) {
  int ranks = 0;
  PMPI_Comm_size(group, &ranks);
  Staged source(from, size_of(from_type) * static_cast<std::size_t>(from_count)),
      target(to, size_of(to_type) * static_cast<std::size_t>(to_count) * static_cast<std::size_t>(ranks));
  count("MPI_Allgather", source, target);
  const int status = PMPI_Allgather(source.data(), from_count, from_type, target.data(), to_count, to_type, group);
  target.bring_back();
  return status;
}

int MPI_Allgatherv(const void* from, int from_count, MPI_Datatype from_type, void* to, const int* to_counts,
                   const int* at, MPI_Datatype to_type, MPI_Comm group) {
  int ranks = 0, end = 0;
  PMPI_Comm_size(group, &ranks);
  for (int rank = 0; rank < ranks; ++rank) end = std::max(end, at[rank] + to_counts[rank]);
  Staged source(from, size_of(from_type) * static_cast<std::size_t>(from_count)),
      target(to, size_of(to_type) * static_cast<std::size_t>(end));
  count("MPI_Allgatherv", source, target);
  const int status =
      PMPI_Allgatherv(source.data(), from_count, from_type, target.data(), to_counts, at, to_type, group);
  target.bring_back();
  return status;
}

int MPI_Alltoallv(const void* from, const int* from_counts, const int* from_at, MPI_Datatype from_type, void* to,
                  const int* to_counts, const int* to_at, MPI_Datatype to_type, MPI_Comm group) {
  int ranks = 0, sent = 0, received = 0;
  PMPI_Comm_size(group, &ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    sent = std::max(sent, from_at[rank] + from_counts[rank]);
    received = std::max(received, to_at[rank] + to_counts[rank]);
  }
  Staged source(from, size_of(from_type) * static_cast<std::size_t>(sent)),
      target(to, size_of(to_type) * static_cast<std::size_t>(received));
  count("MPI_Alltoallv", source, target);
  const int status =
      PMPI_Alltoallv(source.data(), from_counts, from_at, from_type, target.data(), to_counts, to_at, to_type, group);
  target.bring_back();
  return status;
}

int MPI_Iallreduce(const void* from, void* to, int count_of, MPI_Datatype type, MPI_Op op, MPI_Comm group,
                   MPI_Request* request) {
  require_host("MPI_Iallreduce", from, to);
  return PMPI_Iallreduce(from, to, count_of, type, op, group, request);
}

int MPI_Iallgather(const void* from, int from_count, MPI_Datatype from_type, void* to, int to_count,
                   MPI_Datatype to_type, MPI_Comm group, MPI_Request* request) {
  require_host("MPI_Iallgather", from, to);
  return PMPI_Iallgather(from, from_count, from_type, to, to_count, to_type, group, request);
}

int MPI_Iallgatherv(const void* from, int from_count, MPI_Datatype from_type, void* to, const int* to_counts,
                    const int* at, MPI_Datatype to_type, MPI_Comm group, MPI_Request* request) {
  require_host("MPI_Iallgatherv", from, to);
  return PMPI_Iallgatherv(from, from_count, from_type, to, to_counts, at, to_type, group, request);
}

int MPI_Ialltoallv(const void* from, const int* from_counts, const int* from_at, MPI_Datatype from_type, void* to,
                   const int* to_counts, const int* to_at, MPI_Datatype to_type, MPI_Comm group, MPI_Request* request) {
  require_host("MPI_Ialltoallv", from, to);
  return PMPI_Ialltoallv(from, from_counts, from_at, from_type, to, to_counts, to_at, to_type, group, request);
}
}
