#include "requests.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

// Stands before the MPI library, as its standard provides (MPI 3.1, 14.2: every function has a second name, PMPI_...).

namespace {

std::mutex mutex;
std::array<MPI_Request, 1024> requests;  // memory of its own would count as that of the callers
std::size_t under_way = 0;
int most = 0;

int begun(int status, const MPI_Request* request) {
  const std::lock_guard lock(mutex);
  if (under_way < requests.size()) requests[under_way++] = *request;
  most = std::max(most, static_cast<int>(under_way));
  return status;
}

void completed(MPI_Request request) {
  const std::lock_guard lock(mutex);
  const auto end = requests.begin() + static_cast<std::ptrdiff_t>(under_way);
  const auto found = std::find(requests.begin(), end, request);
  if (found != end) *found = requests[--under_way];
}

}  // namespace

extern "C" {

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm ranks, MPI_Request* request) {
  return begun(PMPI_Isend(data, count, type, to, tag, ranks, request), request);
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm ranks, MPI_Request* request) {
  return begun(PMPI_Irecv(data, count, type, from, tag, ranks, request), request);
}

int MPI_Wait(MPI_Request* request, MPI_Status* about) {
  const MPI_Request asked = *request;
  const int status = PMPI_Wait(request, about);
  completed(asked);
  return status;
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* about) {
  const MPI_Request asked = *request;
  const int status = PMPI_Test(request, done, about);
  if (*done != 0) completed(asked);
  return status;
}

}  // extern "C"

namespace dat::test {

int requests_under_way() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(under_way);
}

int most_requests() {
  const std::lock_guard lock(mutex);
  return std::exchange(most, static_cast<int>(under_way));
}

}  // namespace dat::test
