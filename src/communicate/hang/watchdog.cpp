#include "communicate/hang/watchdog.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <ranges>
#include <sstream>

#include "communicate/hang/beside.hpp"
#include "communicate/hang/listed.hpp"
#include "communicate/hang/processes.hpp"
#include "dat/communicator.hpp"
#include "dat/error.hpp"
#include "dat/tick.hpp"

namespace dat {

namespace {

constexpr double kLookSeconds = 0.25;      // between two looks at all ranks, at most
constexpr double kLongestHeartbeat = 1;    // seconds between two, but for many ranks
constexpr double kPacketsPerSecond = 250;  // of a rank, at most: a thousand ranks take four seconds for a round
constexpr double kEndingLook = 0.05;
constexpr double kGatherSeconds = 1;  // in which all who can be reached agree to end, and report where they are
constexpr double kTurnSeconds = 2 * kGatherSeconds;  // after which another one than the lowest rank prints
constexpr double kWriteSeconds = 1;                  // for the records: the file system may hang, too
constexpr int kCrashes[] = {SIGSEGV, SIGBUS};

std::atomic<Watchdog*> of_this_process{nullptr};

/// Writes the text in one piece, unless nobody reads any more.
void write_to_stderr(std::string text) {
  text = in_one_line(std::move(text));
  constexpr std::size_t kMost = 4096;  // bytes that a pipe takes in one piece
  if (text.size() >= kMost) text.replace(kMost - 5, std::string::npos, " ...");
  text += '\n';
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 500) == 1) (void)!write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

Watchdog::Watchdog(Communicator& world, double timeout_seconds)
    : rank_(world.rank()),
      size_(world.size()),
      timeout_(timeout_seconds),
      period_(std::max(std::min(timeout_seconds / 8, kLongestHeartbeat), world.size() / kPacketsPerSecond)),
      parent_(getppid()),
      peers_(static_cast<std::size_t>(size_)),
      states_(static_cast<std::size_t>(size_)),
      socket_(rank_, size_) {
  const CallLabel label("hang watch");
  std::string all;
  for (const std::string& text : world.gather(introduction())) all += text + "\n";
  world.broadcast(all);
  std::random_device random;
  std::uint64_t token = std::uint64_t{random()} << 32 | random();
  world.broadcast(&token, sizeof token);
  socket_.set_token(token);
  std::istringstream lines(all);
  std::string line;
  for (int rank = 0; rank < size_ && std::getline(lines, line); ++rank) introduce(rank, line);
  states_[static_cast<std::size_t>(rank_)].heard = true;
  wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  require(wake_ >= 0, ExitCode::communication, "the hang watch has no event: ", std::strerror(errno));

  // Signals are for the main thread.
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  of_this_process = this;
  struct sigaction action {};
  action.sa_handler = on_crash;
  for (const int signal : kCrashes) sigaction(signal, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // signal of MPI's connections to a rank that is gone
  ticking = true;
}

Watchdog::~Watchdog() {
  for (const int signal : kCrashes) std::signal(signal, SIG_DFL);
  of_this_process = nullptr;
  stopping_ = true;
  (void)eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
  ticking = false;
}

void Watchdog::keep_records_in(const std::string& folder) {
  const std::scoped_lock lock(mutex_);
  folder_ = folder;
}

void Watchdog::excuse(int rank) { peers_[static_cast<std::size_t>(rank)].excused = true; }

void Watchdog::keep_failure(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  failure_ = why;
  failed_ = true;
}

void Watchdog::end(const std::string& why) {
  keep_failure(why);
  (void)eventfd_write(wake_, 1);
  for (;;) pause();
}

/// Handles a crash in any thread but its own. A crash while nothing waits for MPI has the usual end, when the thread
/// runs into it again.
void Watchdog::on_crash(int signal) {
  Watchdog* const watchdog = of_this_process;
  const bool mine = watchdog != nullptr && std::this_thread::get_id() == watchdog->thread_.get_id();
  if (watchdog == nullptr || mine || !FlightRecorder::of_process().now().waiting) {
    std::signal(signal, SIG_DFL);
    return;
  }
  watchdog->crashed_ = signal;
  (void)eventfd_write(watchdog->wake_, 1);
  for (;;) pause();
}

/// Text for the other ranks: the name of this process, and its address; blanks between the words.
std::string Watchdog::introduction() const {
  return fmt::format("{0} {1} {2} boot:{3}:{0}:{4}:{5} {6}", host_name(), getpid(), start_of_process(getpid()),
                     first_line("/proc/sys/kernel/random/boot_id"), link_of("/proc/self/ns/pid"), getuid(),
                     socket_.introduction());
}

void Watchdog::introduce(int rank, const std::string& text) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  std::istringstream words(text);
  words >> peer.place.host >> peer.place.process >> peer.started >> peer.machine;
  std::string way;
  std::getline(words, way);
  socket_.introduce(rank, way);
}

void Watchdog::run() {
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  const double look_seconds = std::min(period_, kLookSeconds);
  Clock::time_point looked = Clock::now(), sent = looked;
  send_to_all();
  for (;;) {
    const double every = ending_ ? kEndingLook : look_seconds;
    const double left = every - seconds(Clock::now() - looked);
    pollfd wanted[] = {{socket_.descriptor(), POLLIN, 0}, {wake_, POLLIN, 0}};
    if (left > 0) poll(wanted, 2, static_cast<int>(left * 1000) + 1);
    eventfd_t calls;
    (void)eventfd_read(wake_, &calls);
    for (Heartbeat heartbeat; socket_.receive(heartbeat);) take(heartbeat);
    const Clock::time_point now = Clock::now();
    if (const int signal = crashed_; signal != 0 && !failed_)
      keep_failure("MPI has crashed by signal " + std::to_string(signal));
    if (const std::string why = failed_ || ending_ ? "" : failure_beside(); !why.empty()) keep_failure(why);
    const bool called = stopping_ || failed_;
    if (seconds(now - looked) < every && !called) continue;
    // Time beyond the gap is time for which this process has been stopped.
    look(std::min(seconds(now - looked), 2 * every));
    looked = now;
    if (failed_ && !ending_) {
      const CallRecord& at = states_[static_cast<std::size_t>(rank_)].at;
      const std::int64_t number = of_two_ranks(at.call) ? 0 : at.number;
      const std::scoped_lock lock(mutex_);
      begin_end({.kind = Verdict::Kind::failed, .culprits = {rank_}, .group = at.group, .number = number}, failure_);
    }
    if (!ending_)
      if (const Verdict verdict = judge(states_, timeout_); verdict.kind != Verdict::Kind::none) begin_end(verdict, "");
    if (ending_) go_on_ending();
    if (stopping_ && !ending_) {
      states_[static_cast<std::size_t>(rank_)].main = RankState::Main::ended;
      for (int k = 0; k < 2; ++k) send_to_all();  // one may be lost
      return;
    }
    if (ending_ || seconds(now - sent) >= period_) {
      send_to_all();
      sent = now;
    }
  }
}

void Watchdog::take(const Heartbeat& heartbeat) {
  Peer& peer = peers_[static_cast<std::size_t>(heartbeat.sender)];
  RankState& state = states_[static_cast<std::size_t>(heartbeat.sender)];
  state.heard = true;
  state.silent = 0;
  state.still = heartbeat.still;
  state.main = believed(heartbeat.main, peer.excused);
  state.at = heartbeat.at;
  if (heartbeat.ending == 0) return;
  state.reference = heartbeat.reference;
  told_ = told_ || heartbeat.printed != 0;
  peer.written = heartbeat.written != 0;
  if (!ending_) {
    const auto culprits = heartbeat.culprits.begin();
    begin_end({.kind = heartbeat.kind,
               .culprits = {culprits, culprits + std::clamp(heartbeat.culprit_count, 0, Heartbeat::kMostCulprits)},
               .group = heartbeat.group,
               .number = heartbeat.number},
              heartbeat.why.data());
  }
  peer.reached = true;
}

void Watchdog::look(double passed) {
  const FlightRecorder& recorder = FlightRecorder::of_process();
  RankState& mine = states_[static_cast<std::size_t>(rank_)];
  const std::uint64_t progress = recorder.progress();
  mine.still = progress == progress_ ? mine.still + passed : 0;
  progress_ = progress;
  const FlightRecorder::Now now = recorder.now();
  mine.main = now.absent ? RankState::Main::left : now.waiting ? RankState::Main::waiting : RankState::Main::computing;
  mine.at = now.record;
  for (int rank = 0; rank < size_; ++rank) {
    RankState& state = states_[static_cast<std::size_t>(rank)];
    if (rank != rank_) {
      state.silent += passed;
      state.main = believed(state.main, peers_[static_cast<std::size_t>(rank)].excused);
    }
    if (state.silent > timeout_ / 4) socket_.try_all(rank);
  }
  if (parent_ != 0 && getppid() != parent_) {
    // Without the launcher, which may end this process at any moment, nobody cleans up behind it.
    remove_shared_memory();
    parent_ = 0;
  }
  warn_of_unheard();
}

void Watchdog::warn_of_unheard() {
  if (rank_ != 0 || warned_) return;
  const double patience = std::min(timeout_ / 2, 10.0);
  std::vector<int> unheard;
  for (int rank = 0; rank < size_; ++rank)
    if (const RankState& state = states_[static_cast<std::size_t>(rank)]; !state.heard && state.silent > patience)
      unheard.push_back(rank);
  if (unheard.empty()) return;
  warned_ = true;
  write_to_stderr("dat_hpc: warning: no heartbeats from " + listed(unheard) +
                  ": UDP does not pass between the hosts; there, the hang watch sees what the others wait for only");
}

void Watchdog::send_to_all() {
  const RankState& mine = states_[static_cast<std::size_t>(rank_)];
  Heartbeat heartbeat;
  std::memset(static_cast<void*>(&heartbeat), 0, sizeof heartbeat);
  heartbeat.main = mine.main;
  heartbeat.still = mine.still;
  heartbeat.at = mine.at;
  heartbeat.ending = ending_ ? 1 : 0;
  heartbeat.printed = printed_ ? 1 : 0;
  heartbeat.written = written_ ? 1 : 0;
  heartbeat.kind = verdict_.kind;
  heartbeat.culprit_count =
      static_cast<std::int32_t>(std::min<std::size_t>(verdict_.culprits.size(), Heartbeat::kMostCulprits));
  std::copy_n(verdict_.culprits.begin(), heartbeat.culprit_count, heartbeat.culprits.begin());
  heartbeat.group = verdict_.group;
  heartbeat.number = verdict_.number;
  heartbeat.reference = mine.reference;
  std::copy_n(why_.begin(), std::min(why_.size(), heartbeat.why.size() - 1), heartbeat.why.begin());
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_ && states_[static_cast<std::size_t>(rank)].main != RankState::Main::ended)
      socket_.send(rank, heartbeat);
}

void Watchdog::begin_end(const Verdict& verdict, const std::string& why) {
  ending_ = true;
  ending_since_ = Clock::now();
  verdict_ = verdict;
  why_ = why;
  if (verdict.number > 0)
    states_[static_cast<std::size_t>(rank_)].reference =
        FlightRecorder::of_process().find(verdict.group, verdict.number);
  // In threads of their own: what hangs does not hold up the end.
  try {
    std::thread(abort_beside).detach();
    std::thread([this] {
      write_records();
      written_ = true;
    }).detach();
  } catch (const std::exception&) {
    written_ = true;  // without them, then
  }
}

void Watchdog::go_on_ending() {
  const double since = std::chrono::duration<double>(Clock::now() - ending_since_).count();
  if (told_ || printed_) {
    // The first rank to leave has the launcher kill the others, so all wait for each other's records.
    const bool all =
        written_ && std::ranges::all_of(peers_, [](const Peer& one) { return !one.reached || one.written; });
    if (all || since > kTurnSeconds + kWriteSeconds) leave();
    return;
  }
  const bool lowest = std::ranges::none_of(peers_ | std::views::take(rank_), &Peer::reached);
  // The one whose turn it is may have died after it has agreed.
  if (since < (lowest ? kGatherSeconds : kTurnSeconds)) return;
  print();
  printed_ = true;
}

void Watchdog::print() {
  std::vector<Place> places;
  for (const Peer& peer : peers_) {
    states_[places.size()].answers = peer.reached || static_cast<int>(places.size()) == rank_;
    places.push_back(peer.place);
  }
  // The first to be missed is not the only one: heartbeats do not come all at once.
  for (std::size_t k = 0; verdict_.kind == Verdict::Kind::silent && k < states_.size(); ++k)
    if (const RankState& one = states_[k];
        !one.answers && one.main != RankState::Main::ended && one.main != RankState::Main::left)
      verdict_.culprits.push_back(static_cast<int>(k));
  std::ranges::sort(verdict_.culprits);
  verdict_.culprits.erase(std::unique(verdict_.culprits.begin(), verdict_.culprits.end()), verdict_.culprits.end());
  std::string text = hang_text(verdict_, states_, places, why_);
  if (verdict_.kind != Verdict::Kind::failed) text = fmt::format("hang: {}; --comm-timeout is {:g} s", text, timeout_);
  if (!folder().empty()) text += "; the same command goes on from the last checkpoint";
  write_to_stderr("dat_hpc: error: " + text);
}

void Watchdog::leave() {
  for (int k = 0; k < 3; ++k) send_to_all();  // some may be lost
  remove_shared_memory();
  exit_and_kill(static_cast<int>(ExitCode::communication), silent_siblings());
}

/// Ranks beside this one that do not answer; none where a lower rank sees to them.
std::vector<pid_t> Watchdog::silent_siblings() const {
  std::vector<pid_t> processes;
  const Peer& mine = peers_[static_cast<std::size_t>(rank_)];
  for (int rank = 0; rank < size_; ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (rank == rank_ || peer.machine != mine.machine) continue;
    if (peer.reached && rank < rank_) return {};
    const bool answers = peer.reached || states_[static_cast<std::size_t>(rank)].main == RankState::Main::ended;
    if (!answers && peer.started >= 0 && start_of_process(peer.place.process) == peer.started)
      processes.push_back(static_cast<pid_t>(peer.place.process));
  }
  return processes;
}

std::string Watchdog::folder() {
  const std::scoped_lock lock(mutex_);
  return folder_;
}

void Watchdog::write_records() {
  const std::string into = folder();
  if (into.empty()) return;
  const Peer& mine = peers_[static_cast<std::size_t>(rank_)];
  const std::int64_t now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
  std::ofstream file(into + "/hang-rank-" + std::to_string(rank_) + ".txt");
  file << "rank " << rank_ << " of " << size_ << " on " << mine.place.host << ", process " << mine.place.process
       << (FlightRecorder::of_process().now().absent ? ", has left" : "")
       << "\nseconds before the end, seconds that it took, bytes, what\n";
  for (const CallRecord& record : FlightRecorder::of_process().kept()) {
    const auto seconds = [](std::int64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); };
    const std::string took =
        record.ended > 0 ? fmt::format("{:.6f}", seconds(record.ended - record.begun)) : "under way";
    file << fmt::format("{:>12.6f} {:>12} {:>12}  {}\n", seconds(now - record.begun), took, record.bytes,
                        text_of(record));
  }
}

}  // namespace dat
