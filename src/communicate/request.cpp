#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "communicate/hang/flight_recorder.hpp"
#include "communicate/mpi_calls.hpp"
#include "dat/communicator.hpp"
#include "dat/error.hpp"

namespace dat {

void check_length(const Turn& turn, const MPI_Status& about, int expected) {
  int bytes;
  turn.check(MPI_Get_count(&about, MPI_BYTE, &bytes), "MPI_Get_count");
  require(bytes == expected, ExitCode::communication, "rank ", about.MPI_SOURCE, " has sent ", bytes,
          " bytes with tag ", about.MPI_TAG, ", where ", expected, " were expected");
}

void end_all_ranks(int exit_code) {
  const FlightRecorder::Waiting waiting(FlightRecorder::of_process().begin(Call::abort, 0, 0, 0));
  Progress::of_process().stop();
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

Request& Request::operator=(Request&& other) noexcept {
  forget();
  handle_ = std::exchange(other.handle_, MPI_REQUEST_NULL);
  errand_ = std::exchange(other.errand_, nullptr);
  expected_ = other.expected_;
  place_ = other.place_;
  record_ = other.record_;
  return *this;
}

void Request::forget() noexcept {
  if (done()) return;
  Progress::of_process().stop();  // the buffers are about to go
  if (place_ >= 0) {              // nor is it asked after by a thread that is started later
    const Turn turn;
    Progress::of_process().release(place_);
  }
  if (std::uncaught_exceptions() > 0) return;
  std::fputs("dat_hpc: error: a message was forgotten while it was under way; this is a mistake in the program\n",
             stderr);
  end_all_ranks(static_cast<int>(ExitCode::communication));
}

/// The caller has its turn.
void Request::end() noexcept {
  handle_ = MPI_REQUEST_NULL;
  errand_ = nullptr;
  Progress::of_process().release(place_);
  FlightRecorder::of_process().end(record_);
}

void Request::finish(const Turn& turn, int status, const MPI_Status& about, const char* call) {
  end();  // an error ends it, too
  if (expected_ < 0) return turn.check(status, call);
  turn.check(status, call, about.MPI_SOURCE);
  check_length(turn, about, expected_);
}

void Request::watch(bool collective) {
  const Progress::Kind kind = collective ? Progress::Kind::collective : Progress::Kind::message;
  if (!done()) place_ = Progress::of_process().watch(handle_, errand_, kind);
}

bool Request::test() {
  if (done()) return true;
  const Turn turn;
  if (errand_ != nullptr) {
    try {
      if (!errand_->advance(false)) return false;
    } catch (...) {
      end();  // an error ends it, too
      throw;
    }
    end();
    return true;
  }
  int done;
  MPI_Status about;
  const int status = MPI_Test(&handle_, &done, &about);
  if (status == MPI_SUCCESS && done == 0) return false;
  finish(turn, status, about, "MPI_Test");
  return true;
}

void Request::wait() {
  if (done()) return;
  const FlightRecorder::Waiting waiting(record_);
  // Without its turn while it sleeps: what is under way in MPI needs it.
  for (Errand* const errand = errand_; errand != nullptr; errand->nap())
    if (test()) return;
  const Turn turn;
  MPI_Status about;
  const int status = MPI_Wait(&handle_, &about);
  finish(turn, status, about, "MPI_Wait");
}

Request Communicator::start(Errand& errand, std::int64_t bytes) {
  Request request;
  request.record_ = record(Call::sum, bytes);
  request.errand_ = &errand;
  const Turn turn;
  request.watch(true);
  return request;
}

void Request::cancel() {
  if (handle_ == MPI_REQUEST_NULL) return;
  {
    const Turn turn;
    turn.check(MPI_Cancel(&handle_), "MPI_Cancel");
  }
  expected_ = -1;  // the message may be none
  wait();
}

}  // namespace dat
