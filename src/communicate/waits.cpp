// Waiting for messages that the caller looks for itself.

#include <thread>

#include "communicate/hang/flight_recorder.hpp"
#include "communicate/mpi_calls.hpp"
#include "dat/communicator.hpp"

namespace dat {

namespace {

constexpr std::chrono::microseconds kShortNap{50};  // MPI's own way of waiting takes a whole core

void wait_until(FlightRecorder::Ticket ticket, const std::function<bool()>& done) {
  {
    const FlightRecorder::Waiting waiting(ticket);
    while (!done()) std::this_thread::sleep_for(kShortNap);
  }
  FlightRecorder::of_process().end(ticket);
}

}  // namespace

std::optional<Communicator::Arrival> Communicator::probe(int from, int tag) {
  if (alone()) return std::nullopt;
  const Turn turn;
  int arrived, bytes;
  MPI_Status about;
  turn.check(MPI_Iprobe(from, tag, group_, &arrived, &about), "MPI_Iprobe");
  if (arrived == 0) return std::nullopt;
  turn.check(MPI_Get_count(&about, MPI_BYTE, &bytes), "MPI_Get_count");
  return Arrival{about.MPI_SOURCE, about.MPI_TAG, static_cast<std::size_t>(bytes)};
}

void Communicator::wait_for_message(int from, const std::function<bool()>& done) {
  wait_until(FlightRecorder::of_process().begin(Call::receive, name_, from, 0), done);
}

void Communicator::wait_for_work(int from, const std::function<bool()>& done) {
  wait_until(FlightRecorder::of_process().begin(Call::work, name_, from, 0), done);
}

void Communicator::sleep_until_called(int from, int tag) {
  const FlightRecorder::Absence absence;
  while (!probe(from, tag)) std::this_thread::sleep_for(kNap);
}

}  // namespace dat
