#include "requests.hpp"

#include <mpi.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

// Stands before the MPI library, as its standard provides (MPI 3.1, 14.2: every function has a second name, PMPI_...).

namespace {

std::mutex mutex;
std::set<MPI_Request> under_way;
int most = 0;

int begun(int status, const MPI_Request* request) {
  const std::lock_guard lock(mutex);
  under_way.insert(*request);
  most = std::max(most, static_cast<int>(under_way.size()));
  return status;
}

void completed(MPI_Request request) {
  const std::lock_guard lock(mutex);
  under_way.erase(request);
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
  return static_cast<int>(under_way.size());
}

int most_requests() {
  const std::lock_guard lock(mutex);
  return std::exchange(most, static_cast<int>(under_way.size()));
}

}  // namespace dat::test
