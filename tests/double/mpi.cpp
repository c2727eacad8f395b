// MPI in front of the real one, by its profiling interface: looks where the buffers of each call lie. See double.hpp.

#include <mpi.h>

#include <cstdlib>
#include <fstream>

#include "double.hpp"

using namespace dat_double;

namespace {

/// Device memory, told from host memory as a library does it: by the address alone.
bool on_device(const void* data) { return data != MPI_IN_PLACE && data != nullptr && in_device_memory(data, 1); }

/// Whether the real MPI may have the call: not where a test counts calls with device memory, which the host must not
/// touch.
template <class... Buffers>
bool passes(const char* call, const Buffers*... buffers) {
  ++mpi().calls;
  mpi().started += call[4] == 'I';  // MPI_Iallreduce
  const int device = (0 + ... + (on_device(buffers) ? 1 : 0));
  mpi().device_buffers += device;
  if (device != 0 && !mpi().counts_only) fail(std::string(call) + " got device memory, which goes to no MPI");
  return device == 0;
}

}  // namespace

namespace dat_double {

Mpi& mpi() {
  static Mpi one;
  return one;
}

}  // namespace dat_double

/// A call of MPI with buffers: looked at, then passed on with the same arguments. Weak, for a test may have one of its
/// own.
#define DAT_PASS(call, parameters, arguments, ...)                                  \
  __attribute__((weak)) int MPI_##call parameters {                                 \
    return passes("MPI_" #call, __VA_ARGS__) ? PMPI_##call arguments : MPI_SUCCESS; \
  }

extern "C" {

DAT_PASS(Allreduce, (const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm group),
         (from, to, count, type, op, group), from, to)
DAT_PASS(Iallreduce,
         (const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm group, MPI_Request* request),
         (from, to, count, type, op, group, request), from, to)
DAT_PASS(Bcast, (void* data, int count, MPI_Datatype type, int root, MPI_Comm group), (data, count, type, root, group),
         data)
DAT_PASS(Gather,
         (const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type, int root,
          MPI_Comm group),
         (from, count, type, to, to_count, to_type, root, group), from, to)
DAT_PASS(Gatherv,
         (const void* from, int count, MPI_Datatype type, void* to, const int* to_counts, const int* at,
          MPI_Datatype to_type, int root, MPI_Comm group),
         (from, count, type, to, to_counts, at, to_type, root, group), from, to)
DAT_PASS(Allgather,
         (const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type, MPI_Comm group),
         (from, count, type, to, to_count, to_type, group), from, to)
DAT_PASS(Iallgather,
         (const void* from, int count, MPI_Datatype type, void* to, int to_count, MPI_Datatype to_type, MPI_Comm group,
          MPI_Request* request),
         (from, count, type, to, to_count, to_type, group, request), from, to)
DAT_PASS(Allgatherv,
         (const void* from, int count, MPI_Datatype type, void* to, const int* to_counts, const int* at,
          MPI_Datatype to_type, MPI_Comm group),
         (from, count, type, to, to_counts, at, to_type, group), from, to)
DAT_PASS(Iallgatherv,
         (const void* from, int count, MPI_Datatype type, void* to, const int* to_counts, const int* at,
          MPI_Datatype to_type, MPI_Comm group, MPI_Request* request),
         (from, count, type, to, to_counts, at, to_type, group, request), from, to)
DAT_PASS(Alltoallv,
         (const void* from, const int* from_counts, const int* from_at, MPI_Datatype from_type, void* to,
          const int* to_counts, const int* to_at, MPI_Datatype to_type, MPI_Comm group),
         (from, from_counts, from_at, from_type, to, to_counts, to_at, to_type, group), from, to)
DAT_PASS(Ialltoallv,
         (const void* from, const int* from_counts, const int* from_at, MPI_Datatype from_type, void* to,
          const int* to_counts, const int* to_at, MPI_Datatype to_type, MPI_Comm group, MPI_Request* request),
         (from, from_counts, from_at, from_type, to, to_counts, to_at, to_type, group, request), from, to)
DAT_PASS(Send, (const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm group),
         (data, count, type, to, tag, group), data)
DAT_PASS(Isend, (const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm group, MPI_Request* request),
         (data, count, type, to, tag, group, request), data)
DAT_PASS(Recv, (void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm group, MPI_Status* status),
         (data, count, type, from, tag, group, status), data)
DAT_PASS(Irecv, (void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm group, MPI_Request* request),
         (data, count, type, from, tag, group, request), data)

/// What has been counted goes to the file that DAT_DOUBLE_MPI names, a line of each rank.
int MPI_Finalize() {
  if (const char* const path = std::getenv("DAT_DOUBLE_MPI"))
    std::ofstream(path, std::ios::app) << std::to_string(mpi().calls) + " calls, " +
                                              std::to_string(mpi().device_buffers) + " with device memory\n";
  return PMPI_Finalize();
}
}

#undef DAT_PASS
