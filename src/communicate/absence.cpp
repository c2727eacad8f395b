// Ranks that have left a group, and those that stay.

#include <numeric>
#include <thread>

#include "communicate/hang/flight_recorder.hpp"
#include "communicate/hang/watchdog.hpp"
#include "communicate/mpi_calls.hpp"
#include "dat/communicator.hpp"

namespace dat {

std::vector<int> Communicator::launch_ranks_of(MPI_Comm group) const {
  const Turn turn;
  int size = 0;
  MPI_Comm_size(group, &size);
  std::vector<int> there(static_cast<std::size_t>(size)), here(there.size());
  std::iota(there.begin(), there.end(), 0);
  MPI_Group part = MPI_GROUP_NULL, whole = MPI_GROUP_NULL;
  MPI_Comm_group(group, &part);
  MPI_Comm_group(group_, &whole);
  turn.check(MPI_Group_translate_ranks(part, size, there.data(), whole, here.data()), "MPI_Group_translate_ranks");
  MPI_Group_free(&part);
  MPI_Group_free(&whole);
  for (int& rank : here) rank = launch_rank(rank);
  return here;
}

void Communicator::excuse(int rank) {
  if (watchdog_) watchdog_->excuse(rank);
}

void Communicator::sleep_until_called(int from, int tag) {
  const FlightRecorder::Absence absence;
  // MPI's own way of waiting takes a whole core.
  while (!probe(from, tag)) std::this_thread::sleep_for(kNap);
}

}  // namespace dat
