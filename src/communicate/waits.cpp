// Waiting for messages that the caller looks for itself.

#include <thread>

#include "communicate/flight_recorder.hpp"
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

void Communicator::wait_for_message(int from, const std::function<bool()>& done) {
  wait_until(FlightRecorder::of_process().begin(Call::receive, name_, from, 0), done);
}

void Communicator::wait_for_work(int from, const std::function<bool()>& done) {
  wait_until(FlightRecorder::of_process().begin(Call::work, name_, from, 0), done);
}

}  // namespace dat
