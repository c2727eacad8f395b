#include "communicate/progress.hpp"

#include <algorithm>
#include <string>

#include "communicate/mpi_calls.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {

/// Pause between two looks at the communication under way. In this time 100 Gbit/s bring 1.2 MB and 1 Gbit/s 12 kB: no
/// more than the buffers of a network take by themselves.
constexpr std::chrono::microseconds kPause{100};

}  // namespace

Progress& Progress::of_process() {
  static Progress& one = *new Progress;
  return one;
}

bool Progress::start() {
  if (!allowed_ || thread_.joinable()) return allowed_;
  constexpr std::size_t kRequests = 1024;
  watched_.reserve(kRequests);
  running_ = true;
  thread_ = std::thread([this] { run(); });
  return true;
}

void Progress::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(turn_);
    running_ = false;
  }
  wake_.notify_one();
  thread_.join();
}

void Progress::run() {
  std::unique_lock lock(turn_);
  while (running_) {
    if (under_way_ == 0) {
      wake_.wait(lock);
      continue;
    }
    move_on();
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

void Progress::move_on() {
  for (Watched& one : watched_) {
    if (one.free() || one.done) continue;
    if (one.errand != nullptr) {
      if (one.errand->advance(true)) finish(one);
      continue;
    }
    // Leaves the request to its owner. An error is the owner's, too, whose next call brings it.
    int done;
    if (MPI_Request_get_status(one.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0) finish(one);
  }
}

void Progress::finish(Watched& one) {
  one.done = true;
  --under_way_;
  if (one.kind == Kind::collective && --collectives_ == 0)
    seconds_ += std::chrono::duration<double>(Clock::now() - since_).count();
}

int Progress::watch(MPI_Request request, Errand* errand, Kind kind) {
  auto place = std::ranges::find_if(watched_, [](const Watched& one) { return one.free(); });
  if (place == watched_.end()) place = watched_.insert(place, Watched{});
  *place = {request, errand, kind, false};
  if (kind == Kind::collective && collectives_++ == 0) since_ = Clock::now();
  if (under_way_++ == 0) wake_.notify_one();
  return static_cast<int>(place - watched_.begin());
}

void Progress::release(int place) {
  Watched& one = watched_.at(static_cast<std::size_t>(place));
  if (!one.done) finish(one);
  one = {};
}

double Progress::seconds_under_way() const {
  return seconds_ + (collectives_ > 0 ? std::chrono::duration<double>(Clock::now() - since_).count() : 0.0);
}

void Turn::check(int status, const char* call, int from) const { check_status(status, call, from); }

void check_status(int status, const char* call, int from) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length;
  MPI_Error_string(status, text, &length);
  fail(ExitCode::communication, "MPI: ", call, from >= 0 ? " of a message of rank " + std::to_string(from) : "",
       " failed: ", std::string(text, static_cast<std::size_t>(length)));
}

}  // namespace dat
