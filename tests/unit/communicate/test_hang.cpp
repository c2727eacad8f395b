// The parts of the hang watch that need no second rank: the record of communications, the verdict, its text, and the
// rule that tells slow ranks. Whole hangs: tests/e2e/hang.py.

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "catch.hpp"
#include "communicate/hang/beside.hpp"
#include "communicate/hang/flight_recorder.hpp"
#include "communicate/hang/heartbeats.hpp"
#include "communicate/hang/listed.hpp"
#include "communicate/hang/processes.hpp"
#include "communicate/hang/verdict.hpp"
#include "dat/communicator.hpp"
#include "dat/random.hpp"
#include "dat/tick.hpp"
#include "train/watch/stragglers.hpp"

using namespace dat;
using Main = RankState::Main;
using Kind = Verdict::Kind;

namespace {

constexpr double kTimeout = 10;

CallRecord call(Call what, std::int64_t number, std::int64_t bytes = 8, const std::string& purpose = "") {
  CallRecord record;
  record.call = what;
  record.group = 1;
  record.number = number;
  record.bytes = bytes;
  std::copy(purpose.begin(), purpose.end(), record.purpose.begin());
  return record;
}

RankState waiting(const CallRecord& at, double still) {
  return {.heard = true, .silent = 0.2, .still = still, .main = Main::waiting, .at = at, .reference = {}};
}

RankState computing(const CallRecord& after, double still) {
  return {.heard = true, .silent = 0.2, .still = still, .main = Main::computing, .at = after, .reference = {}};
}

RankState silent(RankState rank, double seconds, bool heard = true) {
  rank.silent = seconds;
  rank.heard = heard;
  return rank;
}

RankState ended() { return {.heard = true, .silent = 50, .still = 0, .main = Main::ended, .at = {}, .reference = {}}; }

std::vector<Place> places(std::size_t ranks) {
  std::vector<Place> all;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    all.push_back({"node" + std::to_string(rank / 2), 100 + static_cast<std::int64_t>(rank)});
  return all;
}

std::string text_of(const std::vector<RankState>& ranks, const std::string& why = "") {
  return hang_text(judge(ranks, kTimeout), ranks, places(ranks.size()), why);
}

}  // namespace

TEST_CASE("the record keeps the last 64 communications, and finds them by group and number", "[hang]") {
  FlightRecorder recorder;
  CHECK((recorder.kept().empty() && recorder.now().record.call == Call::none));
  CHECK((recorder.seconds_waited() == 0 && recorder.progress() == ticks));
  const CallLabel outer("statistics");
  for (int k = 1; k <= 100; ++k) {
    const CallLabel label("gradients", "conv1.weight", k == 100 ? "linear.bias" : "");
    const FlightRecorder::Ticket ticket = recorder.begin(Call::sum, 7, k, 4 * k);
    recorder.end(k < 100 ? ticket : ticket - FlightRecorder::kKept);  // one of long ago, which is no more
  }
  const std::vector<CallRecord> kept = recorder.kept();
  REQUIRE(kept.size() == 64);
  for (std::size_t k = 0; k < kept.size(); ++k) {
    CHECK((kept[k].number == 37 + static_cast<std::int64_t>(k) && kept[k].bytes == 4 * kept[k].number));
    CHECK((k == 63 ? kept[k].ended == 0 : kept[k].ended > 0 && kept[k].ended >= kept[k].begun));
  }
  CHECK(dat::text_of(kept[0]) == "sum #37 of 148 bytes (gradients conv1.weight)");
  CHECK(dat::text_of(kept[63]) == "sum #100 of 400 bytes (gradients conv1.weight to linear.bias)");
  CHECK(recorder.find(7, 50).bytes == 200);
  CHECK((recorder.find(7, 36).call == Call::none && recorder.find(8, 50).call == Call::none));
  CHECK(recorder.now().record.number == 100);
  const std::uint64_t before = recorder.progress();
  recorder.end(recorder.begin(Call::send, 7, 50, 1));
  CHECK(recorder.progress() == before + 2);
  (void)recorder.begin(Call::receive, 7, 50, 1);
  (void)recorder.begin(Call::work, 7, 50, 0);
  CHECK(recorder.find(7, 50).call == Call::sum);  // the number of a message is a rank
  CHECK(dat::text_of(recorder.now().record) == "work from rank 50 (statistics)");
}

TEST_CASE("a communication is told with its number or the other rank, and its bytes where all ranks have the same",
          "[hang]") {
  std::string all;
  for (const CallRecord& one :
       {call(Call::none, 0, 5), call(Call::sum, 1, 9999), call(Call::sum, 0, 10000), call(Call::minimum, 2, 0),
        call(Call::agree, 3, 9999400), call(Call::broadcast, 4, 123456), call(Call::gather, 5, 8),
        call(Call::all_gather, 6, 9999500), call(Call::exchange, 7, 8), call(Call::barrier, 8, 8),
        call(Call::subgroup, 9, 8), call(Call::send, 0, 8), call(Call::receive, 2, 8), call(Call::receive, 2, 0),
        call(Call::work, 2, 8), call(Call::finalize, 10, 8), call(static_cast<Call>(99), 0, 8)})
    all += dat::text_of(one) + "; ";
  CHECK(
      all ==
      "nothing; sum #1 of 9999 bytes; sum of 10 kB; minimum #2 of 0 bytes; agreement #3 of 9999 kB; broadcast #4 of "
      "123.5 kB; gather #5; all-gather #6 of 9.999 MB; exchange #7; barrier #8; subgroup #9; message to rank 0 of 8 "
      "bytes; message from rank 2 of 8 bytes; message from rank 2; work from rank 2; the end of MPI #10; the abortion "
      "of MPI; ");
  const std::string full(CallRecord::kPurpose, 'x');
  CHECK(dat::text_of(call(Call::barrier, 1, 0, full)) == "barrier #1 (" + full + ")");
}

namespace {

/// A communication beside MPI's that has failed, or not; while it is ended, another thread asks.
struct Line final : Beside {
  explicit Line(std::string text) : why(std::move(text)) { enter(); }
  ~Line() override { leave(); }
  std::string failure() override { return why; }
  void abort() override {
    std::thread([this] { asked += "<" + failure_beside() + ">"; }).join();
  }
  std::string why, asked;
};

}  // namespace

TEST_CASE("what is beside MPI is asked for its failure and ended, as long as it is there", "[hang]") {
  {
    Line quiet(""), first("broken"), second("broken, too");
    CHECK(failure_beside() == "broken");
    abort_beside();
    CHECK(quiet.asked + first.asked + second.asked == "<><><>");  // nobody waits for who is being ended
  }
  CHECK(failure_beside().empty());
}

TEST_CASE("a process is told from others by its start, and one that has ended has none", "[hang]") {
  const std::int64_t own = start_of_process(getpid());
  CHECK((own > 0 && start_of_process(-1) == -1));
  const std::string name = first_line("/proc/self/comm");
  prctl(PR_SET_NAME, ") 0 (");  // a name may hold anything
  CHECK(start_of_process(getpid()) == own);
  prctl(PR_SET_NAME, name.c_str());
  CHECK(link_of("/proc/self/ns/net").starts_with("net:["));
  CHECK((first_line("/proc/none").empty() && link_of("/proc/none").empty()));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t ended{};
  CHECK(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  CHECK((start_of_process(child) == -1 && waitpid(child, nullptr, 0) == child));  // there until somebody has asked
}

TEST_CASE("who leaves has others killed after that, from a session of its own and without a file open", "[hang]") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t other = fork();
  if (other == 0) {
    close(ends[1]);
    alarm(30);  // where nobody kills it
    for (;;) pause();
  }
  const pid_t leaves = fork();
  if (leaves == 0) {
    setpgid(0, 0);
    exit_and_kill(7, {getpid(), other});  // itself is not hit: it has left before
  }
  close(ends[1]);
  siginfo_t left{};
  CHECK(waitid(P_PID, static_cast<id_t>(leaves), &left, WEXITED | WNOWAIT) == 0);  // no other process gets its number
  CHECK((left.si_code == CLD_EXITED && left.si_status == 7));
  char byte = 0;
  CHECK(read(ends[0], &byte, 1) == 0);
  close(ends[0]);
  kill(-leaves, SIGKILL);  // the group, as launchers do
  int status = 0;
  CHECK((waitpid(other, &status, 0) == other && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  CHECK(waitpid(leaves, nullptr, 0) == leaves);
}

TEST_CASE("of the files that are mapped here, those go that MPI shares memory by", "[hang]") {
  const TemporaryFolder folder;
  std::vector<void*> mapped;
  for (const char* name : {"vader_segment.h.1", "sm_segment.h", "ucx_shm_posix_7", "a vader_segment.h"}) {
    write_bytes(folder / name, "x");
    const int file = open((folder / name).c_str(), O_RDONLY);
    mapped.push_back(mmap(nullptr, 1, PROT_READ, MAP_SHARED, file, 0));
    close(file);
  }
  write_bytes(folder / "sm_segment.other", "x");
  remove_shared_memory();
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) left.insert(entry.path().filename());
  CHECK(left == std::set<std::string>{"a vader_segment.h", "sm_segment.other"});
  for (void* const one : mapped) munmap(one, 1);
}

TEST_CASE("a purpose that is too long is cut off", "[hang]") {
  FlightRecorder recorder;
  const std::string name(200, 'x');
  const CallLabel label("gradients", name.c_str());
  (void)recorder.begin(Call::barrier, 1, 1, 0);
  CHECK(dat::text_of(recorder.now().record) == "barrier #1 (gradients " + std::string(45, 'x') + ")");
}

TEST_CASE("what is read while it is written is one record, or none", "[hang]") {
  FlightRecorder recorder;
  std::atomic<bool> done{false};
  std::atomic<std::int64_t> wrong{0}, read{0};
  // More of them than there are cores: some are interrupted in the middle of a record, which is overwritten meanwhile.
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 8; ++reader)
    readers.emplace_back([&] {
      while (!done) {
        const CallRecord record = recorder.now().record;
        if (record.call == Call::none) continue;
        ++read;
        wrong += record.bytes != 3 * record.number || record.group != static_cast<std::uint32_t>(record.number);
      }
    });
  for (std::int64_t k = 1; k <= 500000; ++k) {
    const FlightRecorder::Ticket ticket = recorder.begin(Call::sum, static_cast<std::uint32_t>(k), k, 3 * k);
    recorder.end(ticket);
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK((read > 0 && wrong == 0));
}

TEST_CASE("what the main thread waits for is not what it has begun last", "[hang]") {
  FlightRecorder& recorder = FlightRecorder::of_process();
  const double before = recorder.seconds_waited();
  const auto begin = std::chrono::steady_clock::now();
  const FlightRecorder::Ticket first = recorder.begin(Call::sum, 1, 1, 8);
  const FlightRecorder::Ticket second = recorder.begin(Call::sum, 1, 2, 8);
  CHECK((!recorder.now().waiting && recorder.now().record.number == 2));
  {
    const FlightRecorder::Waiting waits(first);
    CHECK((recorder.now().waiting && recorder.now().record.number == 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(!recorder.now().waiting);
  const double waited = recorder.seconds_waited() - before;
  CHECK(waited >= 0.005);
  CHECK(waited <= std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() + 1e-6);  // rounding
  recorder.end(first);
  recorder.end(second);
}

TEST_CASE("a rank is absent as long as it says so", "[hang]") {
  const FlightRecorder& recorder = FlightRecorder::of_process();
  CHECK(!recorder.now().absent);
  {
    const FlightRecorder::Absence absence;
    CHECK(recorder.now().absent);
  }
  CHECK(!recorder.now().absent);
}

TEST_CASE("only the thread that is watched ticks", "[hang]") {
  const FlightRecorder& recorder = FlightRecorder::of_process();
  const std::uint64_t before = recorder.progress();
  tick();
  CHECK(recorder.progress() == before);
  ticking = true;
  tick();
  std::thread(tick).join();
  ticking = false;
  CHECK(recorder.progress() == before + 1);
}

TEST_CASE("heartbeats go to all addresses of a rank until one is known to arrive, and again when that is doubted",
          "[hang]") {
  HeartbeatSocket one(0, 2), other(1, 2);
  const auto meet = [](HeartbeatSocket& socket, int rank, const HeartbeatSocket& of) {
    socket.set_token(7);
    std::istringstream words(of.introduction());
    std::string port, network;
    words >> port >> network;
    // Twice the same address, since 127.0.0.1 is the network's; and what is none.
    socket.introduce(rank, port + " " + network + " 127.0.0.1 nowhere");
  };
  meet(one, 1, other);
  meet(other, 0, one);
  const auto waits = [&] {
    pollfd wanted{other.descriptor(), POLLIN, 0};
    return poll(&wanted, 1, 0) == 1 && wanted.revents == POLLIN;
  };
  const auto arrived = [&] {
    Heartbeat heartbeat{};
    one.send(1, heartbeat);
    CHECK(waits());
    int count = 0;
    while (other.receive(heartbeat)) ++count;
    CHECK(!waits());
    return count;
  };
  CHECK(arrived() == 2);
  Heartbeat answer{};
  other.send(0, answer);
  CHECK((one.receive(answer) && arrived() == 1));
  one.try_all(1);
  CHECK(arrived() == 2);
  // The number of an address may be the first one's; one that there is not is none.
  HeartbeatSocket zero(0, 2), fake(1, 2);
  for (int twice = 0; twice < 2; ++twice) meet(zero, 1, fake);
  meet(fake, 0, one);
  for (const auto& [heard, count] : {std::pair(1, 1), std::pair(3, 2)}) {
    Heartbeat heartbeat{};
    one.try_all(1);
    zero.send(1, heartbeat);
    for (int k = 0; k < heard; ++k) CHECK(fake.receive(heartbeat));
    fake.send(0, heartbeat);
    while (one.receive(heartbeat)) continue;
    CHECK(arrived() == count);
    while (fake.receive(heartbeat)) continue;
  }
  // One of another run, from a rank that there is not, from oneself, and one to another rank.
  for (const auto& [rank, size, to, token] :
       {std::tuple{0, 2, 1, 8U}, {2, 3, 1, 7U}, {-1, 2, 1, 7U}, {1, 2, 1, 7U}, {0, 3, 2, 7U}}) {
    HeartbeatSocket stranger(rank, size);
    meet(stranger, to, other);
    stranger.set_token(token);
    Heartbeat heartbeat{};
    stranger.send(to, heartbeat);
    INFO("rank " << rank << " of " << size << " to " << to << ", run " << token);
    CHECK((waits() && !other.receive(heartbeat)));
  }
}

TEST_CASE("heartbeats go by IPv6, too, where there is any", "[hang]") {
  HeartbeatSocket one(0, 2), other(1, 2);
  std::istringstream words(other.introduction());
  std::string port;
  words >> port;
  one.introduce(1, port + " elsewhere ::1");
  Heartbeat heartbeat{};
  one.send(1, heartbeat);
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  name.sin6_addr = in6addr_loopback;
  const int probe = socket(AF_INET6, SOCK_DGRAM, 0);
  const bool any = bind(probe, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
  close(probe);
  CHECK(other.receive(heartbeat) == any);
}

TEST_CASE("a host without IPv6 and one with it hear each other by IPv4, and it has no other addresses", "[hang]") {
  HeartbeatSocket one(0, 2, false), other(1, 2);
  std::istringstream words(other.introduction());
  std::string port;
  words >> port;
  one.introduce(1, port + " elsewhere ::1 127.0.0.1");
  other.introduce(0, one.introduction());
  Heartbeat heartbeat{};
  const sockaddr_in name{.sin_family = AF_INET,
                         .sin_port = htons(static_cast<std::uint16_t>(std::stoi(port))),
                         .sin_addr = {htonl(INADDR_LOOPBACK)},
                         .sin_zero = {}};
  // An empty one is none, and holds nothing up.
  CHECK(sendto(one.descriptor(), &heartbeat, 0, 0, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);
  one.send(1, heartbeat);
  CHECK((other.receive(heartbeat) && heartbeat.address == 0 && !other.receive(heartbeat)));
  other.send(0, heartbeat);
  CHECK(one.receive(heartbeat));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const std::string error = error_of([] { (void)HeartbeatSocket(0, 2); });
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(contains(error, "the hang watch has no UDP socket: Too many open files; "));
}

TEST_CASE("a rank names the address that other hosts see, and none that it alone sees", "[hang]") {
  const std::string text = HeartbeatSocket(0, 2).introduction() + " ";
  CHECK((!contains(text, " 127.") && !contains(text, " fe80:")));
  sockaddr_in name{.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(0xc6336401)}, .sin_zero = {}};
  auto* const any = reinterpret_cast<sockaddr*>(&name);
  socklen_t length = sizeof name;
  const int probe = socket(AF_INET, SOCK_DGRAM, 0);  // towards 198.51.100.1, without sending anything
  const bool seen = connect(probe, any, length) == 0 && getsockname(probe, any, &length) == 0;
  close(probe);
  if (seen) CHECK(contains(text, " " + std::string(inet_ntoa(name.sin_addr)) + " "));
}

TEST_CASE("nothing hangs while somebody gets on, or before the timeout", "[hang]") {
  const CallRecord sum = call(Call::sum, 5), before = call(Call::sum, 4);
  // Slow, as long as it moves; and a rank that stands still with nobody waiting for it.
  CHECK(judge({waiting(sum, 1000), computing(before, 9)}, kTimeout).kind == Kind::none);
  CHECK(judge({waiting(sum, 10), computing(before, 11)}, kTimeout).kind == Kind::none);
  CHECK(judge({waiting(sum, 11), computing(before, 10)}, kTimeout).kind == Kind::none);
  CHECK(judge({computing(before, 1000), computing(before, 1000)}, kTimeout).kind == Kind::none);
  CHECK(judge({computing(before, 1000), waiting(sum, 3)}, kTimeout).kind == Kind::none);
  CHECK(judge({ended(), ended(), computing(sum, 1000)}, kTimeout).kind == Kind::none);
  CHECK(judge({ended(), waiting(sum, 3)}, kTimeout).kind == Kind::none);
  CHECK(judge({silent(waiting(sum, 3), 10), computing(sum, 0)}, kTimeout).kind == Kind::none);
  // A rank that was never heard is no rank that has gone.
  CHECK(judge({computing(sum, 0), silent({}, 1000, false)}, kTimeout).kind == Kind::none);
}

TEST_CASE("a rank that is not heard any more has hung the run, whatever the others do", "[hang]") {
  const CallRecord sum = call(Call::sum, 5, 44692144, "gradients conv1 to linear");
  const std::vector<RankState> ranks = {waiting(sum, 10), waiting(sum, 10), silent(waiting(sum, 2), 10.2),
                                        computing(call(Call::broadcast, 4), 0)};
  const Verdict verdict = judge(ranks, kTimeout);
  CHECK((verdict.kind == Kind::silent && verdict.culprits == std::vector<int>{2}));
  CHECK(text_of(ranks) ==
        "rank 2 on node1 (process 102) has sent no heartbeat for 10 s: dead, stopped or cut off, last heard in sum #5 "
        "of 44.69 MB (gradients conv1 to linear); ranks 0, 1 on node0 wait in sum #5 of 44.69 MB (gradients conv1 to "
        "linear), rank 3 on node1 (process 103) computes after broadcast #4 of 8 bytes");
  CHECK(judge({computing(sum, 0), silent(computing(sum, 0), 11)}, kTimeout).culprits == std::vector<int>{1});
  // A node that is cut off, seen from both sides.
  const RankState here = waiting(sum, 10), there = silent(waiting(sum, 0.1), 10.1);
  CHECK(judge({here, here, there, there}, kTimeout).culprits == std::vector<int>{2, 3});
  CHECK(judge({there, there, here, here}, kTimeout).culprits == std::vector<int>{0, 1});
}

TEST_CASE("a rank that was never heard is guilty where all others wait", "[hang]") {
  const CallRecord sum = call(Call::sum, 5);
  const std::vector<RankState> ranks = {waiting(sum, 11), silent({}, 300, false), waiting(sum, 11)};
  CHECK((judge(ranks, kTimeout).kind == Kind::unheard && judge(ranks, kTimeout).culprits == std::vector<int>{1}));
  CHECK(text_of(ranks).starts_with("rank 1 on node0 (process 101) has not been heard at all for 300 s"));
  CHECK(judge({waiting(sum, 11), silent({}, 300, false), computing(sum, 2)}, kTimeout).kind == Kind::none);
}

TEST_CASE("a main thread that stands outside of any communication is guilty", "[hang]") {
  const CallRecord sum = call(Call::sum, 5), before = call(Call::sum, 4, 8, "losses");
  const std::vector<RankState> ranks = {waiting(sum, 10.5), computing(before, 12), waiting(sum, 10.4)};
  CHECK((judge(ranks, kTimeout).kind == Kind::still && judge(ranks, kTimeout).culprits == std::vector<int>{1}));
  CHECK(text_of(ranks) ==
        "rank 1 on node0 (process 101) has not moved for 12 s: alive, but the main thread stands outside of any "
        "communication, computing after sum #4 of 8 bytes (losses); ranks 0, 2 on node0, node1 wait in sum #5 of 8 "
        "bytes");
  CHECK(text_of({waiting({}, 11), computing({}, 12)})
            .ends_with(", computing; rank 0 on node0 (process 100) waits in a communication"));
}

TEST_CASE("a rank that has left while the others wait is guilty", "[hang]") {
  const CallRecord sum = call(Call::sum, 5);
  CHECK(judge({waiting(sum, 11), ended(), waiting(sum, 11)}, kTimeout).kind == Kind::ended);
  CHECK(text_of({waiting(sum, 11), ended()}).starts_with("rank 1 on node0 (process 101) has left the run"));
}

TEST_CASE("a rank that has left neither gets on nor is it to blame", "[hang]") {
  const CallRecord sum = call(Call::sum, 5), before = call(Call::sum, 2);
  const RankState away{.heard = true, .silent = 0.2, .still = 1000, .main = Main::left, .at = before, .reference = {}};
  // Alone it is no hang, heard or not.
  CHECK(judge({computing(sum, 0), away}, kTimeout).kind == Kind::none);
  CHECK(judge({waiting(sum, 3), computing(sum, 2), silent(away, 1000)}, kTimeout).kind == Kind::none);
  CHECK(judge({waiting(sum, 11), computing(sum, 2), away}, kTimeout).kind == Kind::none);
  RankState woken = away;
  woken.still = 0;
  // Beside it, all others are found as ever: whoever is stopped, stands, calls something else, or has ended.
  for (const RankState& absent : {away, woken, silent(away, 1000), silent(away, 1000, false)}) {
    const auto found = [&](const RankState& guilty) {
      return judge({waiting(sum, 11), absent, guilty, waiting(sum, 11)}, kTimeout);
    };
    CHECK(found(silent(waiting(sum, 1), 11)).kind == Kind::silent);
    CHECK((found(silent({}, 300, false)).kind == Kind::unheard && found(computing(before, 12)).kind == Kind::still));
    CHECK((found(waiting(call(Call::sum, 6), 12)).kind == Kind::mismatch && found(ended()).kind == Kind::ended));
    for (const RankState& guilty : {silent(waiting(sum, 1), 11), silent({}, 300, false), computing(before, 12),
                                    waiting(call(Call::sum, 6), 12), ended()})
      CHECK(found(guilty).culprits == std::vector<int>{2});
    CHECK(judge({waiting(sum, 11), absent, waiting(sum, 11)}, kTimeout).kind == Kind::undelivered);
    CHECK(judge({waiting(sum, 11), absent, waiting(sum, 11)}, kTimeout).number == 5);
  }
  CHECK(text_of({waiting(sum, 11), away, computing(before, 12), away}) ==
        "rank 2 on node1 (process 102) has not moved for 12 s: alive, but the main thread stands outside of any "
        "communication, computing after sum #2 of 8 bytes; rank 0 on node0 (process 100) waits in sum #5 of 8 bytes, "
        "ranks 1, 3 on node0, node1 have left");
}

TEST_CASE("a rank that waits for work is to blame where it is not heard, and not for what others do", "[hang]") {
  const RankState idle = waiting(call(Call::work, 0, 0, "micro-batches to attack"), 11);
  const RankState wants = waiting(call(Call::receive, 2, 0, "attacked images"), 11),
                  sums = waiting(call(Call::sum, 5), 11);
  CHECK(judge({wants, sums, silent(idle, 11)}, kTimeout).culprits == std::vector<int>{2});
  // Trainers in different collectives, and more generators than agree.
  const RankState other = waiting(call(Call::broadcast, 5), 11);
  const Verdict verdict = judge({sums, other, sums, idle, idle, idle}, kTimeout);
  CHECK((verdict.kind == Kind::mismatch && verdict.culprits == std::vector<int>{1} && verdict.number == 5));
  CHECK(judge({computing(call(Call::sum, 5), 1), idle}, kTimeout).kind == Kind::none);
  CHECK(judge({computing(call(Call::sum, 5), 11), idle}, kTimeout).culprits == std::vector<int>{0});
  const Verdict lost = judge({wants, sums, idle}, kTimeout);
  CHECK((lost.kind == Kind::mismatch || lost.kind == Kind::undelivered));
  const std::string text = text_of({wants, wants, silent(idle, 11)});
  CHECK(
      text ==
      "rank 2 on node1 (process 102) has sent no heartbeat for 11 s: dead, stopped or cut off, last heard in work from "
      "rank 0 (micro-batches to attack); ranks 0, 1 on node0 wait in message from rank 2 (attacked images)");
}

TEST_CASE("what a rank waits for inside another wait does not end that", "[hang]") {
  FlightRecorder& recorder = FlightRecorder::of_process();
  const double before = recorder.seconds_waited();
  const auto begin = std::chrono::steady_clock::now();
  const FlightRecorder::Ticket outer = recorder.begin(Call::receive, 9, 1, 0);
  {
    const FlightRecorder::Waiting waits(outer);
    {
      const FlightRecorder::Waiting inside(recorder.begin(Call::receive, 9, 1, 64));
      CHECK(recorder.now().record.bytes == 64);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CHECK((recorder.now().waiting && recorder.now().record.bytes == 0));
  }
  CHECK(!recorder.now().waiting);
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
  CHECK(recorder.seconds_waited() - before <= all.count() + 1e-6);  // once
}

TEST_CASE("a rank that is known to have left is not believed to get on", "[hang]") {
  for (const Main said : {Main::computing, Main::waiting, Main::left}) {
    CHECK((believed(said, true) == Main::left && believed(said, false) == said));
  }
  CHECK((believed(Main::ended, true) == Main::ended && believed(Main::ended, false) == Main::ended));
}

TEST_CASE("only the end of MPI wants a rank that has left", "[hang]") {
  const CallRecord sum = call(Call::sum, 5), end = call(Call::finalize, 9);
  const RankState away{.heard = true, .silent = 50, .still = 1000, .main = Main::left, .at = sum, .reference = {}};
  const std::vector<RankState> ranks = {waiting(end, 11), away, waiting(end, 11)};
  CHECK(judge(ranks, kTimeout).culprits == std::vector<int>{1});
  CHECK(
      text_of(ranks).starts_with("rank 1 on node0 (process 101) has sent no heartbeat for 50 s: dead, stopped or cut "
                                 "off, last heard asleep, having "
                                 "left; ranks 0, 2 on node0, node1 wait in the end of MPI"));
  CHECK(judge({waiting(end, 11), away, computing(sum, 2)}, kTimeout).kind == Kind::none);
  CHECK(judge({waiting(end, 11), silent(away, 1), waiting(end, 11)}, kTimeout).culprits.empty());
}

TEST_CASE("ranks in different collectives: those who differ from the most are guilty, or all", "[hang]") {
  const CallRecord sum = call(Call::sum, 5, 80), other = call(Call::broadcast, 5, 80), longer = call(Call::sum, 5, 88),
                   next = call(Call::sum, 6, 80);
  for (const CallRecord& wrong : {other, longer, next}) {
    const Verdict verdict = judge({waiting(sum, 11), waiting(wrong, 11), waiting(sum, 11)}, kTimeout);
    CHECK((verdict.kind == Kind::mismatch && verdict.culprits == std::vector<int>{1}));
    CHECK((verdict.group == 1 && verdict.number == 5));
  }
  CHECK(judge({waiting(sum, 11), waiting(other, 11)}, kTimeout).culprits == std::vector<int>{0, 1});
  CallRecord elsewhere = sum;
  elsewhere.group = 2;
  CHECK(judge({waiting(sum, 11), waiting(sum, 11), waiting(elsewhere, 11)}, kTimeout).culprits == std::vector<int>{2});
  CallRecord earlier = elsewhere;  // of another group than that of the first rank
  earlier.number = 3;
  const Verdict mixed = judge({waiting(next, 11), waiting(earlier, 11), waiting(sum, 11)}, kTimeout);
  CHECK((mixed.group == 1 && mixed.number == 5));
  CHECK(text_of({waiting(sum, 11), waiting(other, 11), waiting(sum, 11)}) ==
        "the ranks wait in different collectives: rank 1 on node0 (process 101) waits in broadcast #5 of 80 bytes; "
        "ranks 0, 2 on node0, node1 wait in sum #5 of 80 bytes");
  // An exchange has other bytes on every rank.
  const Verdict same =
      judge({waiting(call(Call::exchange, 5, 1), 11), waiting(call(Call::exchange, 5, 2), 11)}, kTimeout);
  CHECK(same.kind == Kind::undelivered);
}

TEST_CASE("the first collective that is not the same tells more than where the ranks stand", "[hang]") {
  std::vector<RankState> ranks = {waiting(call(Call::sum, 6), 11), waiting(call(Call::sum, 5), 11),
                                  waiting(call(Call::sum, 6), 11)};
  ranks[0].reference = ranks[2].reference = call(Call::broadcast, 5, 100, "active layers");
  ranks[1].reference = call(Call::sum, 5);
  CHECK(text_of(ranks) ==
        "the ranks do not call the same: sum #5 of 8 bytes is what rank 1 on node0 (process 101) has called, broadcast "
        "#5 of 100 bytes (active layers) is what ranks 0, 2 on node0, node1 have called; now ranks 0, 2 on node0, "
        "node1 wait in sum #6 of 8 bytes, rank 1 on node0 (process 101) waits in sum #5 of 8 bytes");
  const Verdict failed{.kind = Kind::failed, .culprits = {0}, .group = 1, .number = 5};
  std::swap(ranks[0].reference, ranks[1].reference);
  CHECK(hang_text(failed, ranks, places(3), "MPI_Bcast failed")
            .starts_with("rank 0 on node0 (process 100): MPI_Bcast failed: the ranks do not call the same: sum #5 of 8 "
                         "bytes is what rank 0 on node0 (process 100) has called, broadcast #5 of 100 bytes"));
  ranks[0].reference = {};  // not known: then there is nothing to compare
  CHECK(hang_text(failed, ranks, places(3), "MPI_Bcast failed") ==
        "rank 0 on node0 (process 100): MPI_Bcast failed; rank 1 on node0 (process 101) waits in sum #5 of 8 bytes, "
        "rank 2 on node1 (process 102) waits in sum #6 of 8 bytes");
  ranks[1].answers = false;
  CHECK(contains(hang_text(failed, ranks, places(3), "MPI_Bcast failed"),
                 "; rank 1 on node0 (process 101) does not answer, last heard in sum #5 of 8 bytes, rank 2 on node1 "));
  ranks[2] = ranks[1];
  CHECK(hang_text(failed, ranks, places(3), "MPI_Bcast failed")
            .ends_with("; ranks 1, 2 on node0, node1 do not answer, last heard in sum #5 of 8 bytes"));
}

TEST_CASE("all in the same collective: MPI or the network", "[hang]") {
  const CallRecord sum = call(Call::sum, 5);
  const std::vector<RankState> ranks = {waiting(sum, 11), waiting(sum, 10.1)};
  CHECK(judge(ranks, kTimeout).kind == Kind::undelivered);
  CHECK(judge({waiting(sum, 11), waiting(sum, 9.9)}, kTimeout).kind == Kind::none);
  CHECK(text_of(ranks) == "MPI or the network does not deliver; ranks 0, 1 on node0 wait in sum #5 of 8 bytes");
}

TEST_CASE("of many hosts, and of many that do different things, four are told", "[hang]") {
  const CallRecord sum = call(Call::sum, 5);
  CHECK(listed({7}) + ", " + listed({0, 1, 2, 5, 7, 8}) == "rank 7, ranks 0 to 2, 5, 7, 8");
  const std::string begin = "MPI or the network does not deliver; ranks 0 to ", nodes = "node0, node1, node2, node3";
  CHECK(text_of(std::vector(8, waiting(sum, 11))) == begin + "7 on " + nodes + " wait in sum #5 of 8 bytes");
  CHECK(text_of(std::vector(9, waiting(sum, 11))) == begin + "8 on " + nodes + ", ... wait in sum #5 of 8 bytes");
  std::vector<RankState> all;
  for (int k = 1; k <= 4; ++k) all.push_back(waiting(call(Call::sum, k), 11));
  CHECK(text_of(all).ends_with(" waits in sum #4 of 8 bytes"));
  CHECK(judge(all, kTimeout).number == 1);  // the first one that somebody waits in
  all.push_back(waiting(call(Call::sum, 5), 11));
  CHECK(text_of(all).ends_with(" waits in sum #4 of 8 bytes, ..."));
  for (const auto& [seconds, told] : {std::pair(0.54, "0.5 s"), {10.0, "10 s"}}) {
    const std::vector<RankState> few = {waiting(sum, 3), computing(sum, seconds)};
    CHECK(contains(hang_text(judge(few, 0.3), few, places(2), ""),
                   "rank 1 on node0 (process 101) has not moved for " + std::string(told) + ": "));
  }
}

namespace {

/// Steps until the rule flags somebody, at most 1000; `seconds(step, rank)` in windows as the trainer makes them.
template <class Seconds>
std::vector<std::pair<int, StragglerRule::Change>> changes(int ranks, int steps, const Seconds& seconds) {
  StragglerRule rule(ranks);
  std::vector<std::pair<int, StragglerRule::Change>> all;
  std::vector<double> window(static_cast<std::size_t>(ranks), 0.0);
  for (int step = 1; step <= steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank)
      window[static_cast<std::size_t>(rank)] += seconds(step, rank) / StragglerRule::kWindow;
    if (step % StragglerRule::kWindow != 0) continue;
    for (const StragglerRule::Change& change : rule.take(window)) all.emplace_back(step, change);
    std::fill(window.begin(), window.end(), 0.0);
  }
  return all;
}

/// exp(sigma z), z normal, by Box and Muller from the counted generator.
double noise(double sigma, int step, int rank) {
  const Philox4 words =
      random_words(11, Purpose::synthetic_data, 3, static_cast<std::uint64_t>(step), static_cast<std::uint32_t>(rank));
  const double u = (words.v[0] + 1.0) / 4294967297.0, v = words.v[1] / 4294967296.0;
  return std::exp(sigma * std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979 * v));
}

}  // namespace

TEST_CASE("a rank that becomes slow is flagged within 20 steps, and keeps up again within 20", "[hang]") {
  for (const int ranks : {2, 3, 4, 7})
    for (const double factor : {2.0, 10.0})
      for (int begin = 21; begin <= 26; ++begin) {
        const int end = begin + 60, who = ranks - 1;
        const auto found = changes(ranks, 150, [&](int step, int rank) {
          return (rank == who && step >= begin && step < end ? factor : 1.0) * 0.05 * noise(0.05, step, rank);
        });
        INFO(ranks << " ranks, " << factor << ", step " << begin);
        REQUIRE(found.size() == 2);
        CHECK((found[0].second.rank == who && found[0].second.slow));
        CHECK((found[0].first >= begin && found[0].first < begin + 20));
        CHECK(found[0].second.ratio > 1 + 0.65 * (factor - 1));  // 11 of 15 steps at least, and noise
        CHECK((found[0].second.ratio < 1.1 * factor && found[1].second.rank == who && !found[1].second.slow));
        CHECK((found[1].first >= end && found[1].first < end + 20));
      }
}

TEST_CASE("noise, a burst, and what costs next to nothing are no straggler", "[hang]") {
  // sigma = 0.2: one step in six is 22 % slower, one in 700 by 80 %.
  CHECK(changes(4, 10000, [](int step, int rank) { return 0.05 * noise(0.2, step, rank); }).empty());
  CHECK(changes(2, 10000, [](int step, int rank) { return 0.05 * noise(0.2, step, rank); }).empty());
  CHECK(changes(3, 100, [](int step, int rank) { return rank == 1 && step > 40 && step <= 50 ? 0.5 : 0.05; }).empty());
  CHECK(changes(3, 100, [](int, int rank) { return rank == 1 ? 1.9e-3 : 1e-3; }).empty());
  CHECK(changes(3, 100, [](int, int rank) { return rank == 1 ? 0.05 : 0.1; }).empty());  // as fast as one of the others
  CHECK(changes(1, 100, [](int step, int) { return static_cast<double>(step); }).empty());
}

TEST_CASE("two slow ranks of five are both flagged", "[hang]") {
  const auto found = changes(5, 20, [](int, int rank) { return rank < 2 ? 0.1 : 0.05; });
  REQUIRE(found.size() == 2);
  CHECK((found[0].first == 15 && found[0].second.rank == 0 && found[1].second.rank == 1));
}

TEST_CASE("a rank is slow from 1.5 times in the mean on, if 1.25 times in each window, and as long as in one of them",
          "[hang]") {
  StragglerRule rule(3);
  std::vector<bool> slow;
  for (const double seconds : {0.625, 0.625, 1.0, 0.625, 0.625, 0.625, 0.5, 0.5, 0.5})
    for (const StragglerRule::Change& change : rule.take(std::vector{0.5, 0.5, seconds})) {
      CHECK((change.rank == 2 && change.ratio == (change.slow ? 1.5 : 1)));
      slow.push_back(change.slow);
    }
  CHECK(slow == std::vector{true, false});
}
