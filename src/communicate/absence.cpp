// Ranks that have left a group, and those that stay.

#include <thread>

#include "communicate/hang/flight_recorder.hpp"
#include "communicate/hang/watchdog.hpp"
#include "dat/communicator.hpp"

namespace dat {

void Communicator::excuse(int rank) {
  if (watchdog_) watchdog_->excuse(rank);
}

void Communicator::sleep_until_called(int from, int tag) {
  const FlightRecorder::Absence absence;
  // MPI's own way of waiting takes a whole core.
  while (!probe(from, tag)) std::this_thread::sleep_for(kNap);
}

}  // namespace dat
