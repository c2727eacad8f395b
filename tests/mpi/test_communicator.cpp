#include <malloc.h>

#include <ctime>

#include "allocations.hpp"
#include "catch.hpp"
#include "communicate/hang/flight_recorder.hpp"
#include "dat/tick.hpp"
#include "world.hpp"

using namespace dat;
using dat::test::world;

// CHECK only: a rank that leaves a test early would leave the others waiting.

TEST_CASE("Ranks are numbered, and the launcher's environment tells the same number", "[communicator]") {
  CHECK((world().rank() >= 0 && world().rank() < world().size() && world().root() == (world().rank() == 0)));
  CHECK((world().node_rank() >= 0 && world().node_rank() < world().node_size()));
  CHECK(world().node_size() <= world().size());
  std::int64_t above_mean = 2 * world().node_rank() - (world().node_size() - 1);  // of 0 to node_size() - 1, twice
  world().sum(&above_mean, 1);
  CHECK((above_mean == 0 && another_rank_speaks() == (world().rank() != 0) && announced_ranks() == world().size()));
  std::int64_t ranks = 1;
  world().sum(&ranks, 1);
  CHECK(ranks == world().size());
}

TEST_CASE("A sum is over all ranks, element by element, for every type", "[communicator]") {
  const int size = world().size(), triangle = size * (size + 1) / 2;
  constexpr std::size_t kCount = 1000;
  const auto check = [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<T>(i) * static_cast<T>(world().rank() + 1);
    world().sum(values.data(), kCount - 1);
    // Whole numbers below 2^24: exact in any order.
    std::size_t wrong = 0;
    for (std::size_t i = 0; i + 1 < kCount; ++i) wrong += values[i] != static_cast<T>(i) * static_cast<T>(triangle);
    CHECK((wrong == 0 && values.back() == static_cast<T>(kCount - 1) * static_cast<T>(world().rank() + 1)));
  };
  check(0.0F);
  check(0.0);
  check(std::int64_t{0});
  world().sum(static_cast<float*>(nullptr), 0);
}

TEST_CASE("The minimum is that of all ranks", "[communicator]") {
  CHECK(world().minimum(5 - world().rank()) == 6 - world().size());
  CHECK(world().minimum((std::int64_t{1} << 40) + world().rank()) == std::int64_t{1} << 40);
}

TEST_CASE("Ranks agree only where all hold the same value", "[communicator]") {
  CHECK(world().agree(0));
  CHECK(world().agree(~std::uint64_t{0}));
  CHECK(world().agree(0x9e3779b97f4a7c15));
  for (int odd = 0; odd < world().size(); ++odd)
    for (const std::uint64_t bit : {std::uint64_t{1}, std::uint64_t{1} << 63})
      CHECK(world().agree(12345 ^ (world().rank() == odd ? bit : 0)) == (world().size() == 1));
}

TEST_CASE("A broadcast brings rank 0's bytes and text to all", "[communicator]") {
  std::vector<float> values(100, static_cast<float>(world().rank()));
  world().broadcast(values.data(), values.size() * sizeof(float));
  CHECK(values == std::vector<float>(100, 0.0F));
  for (const std::string& sent :
       {std::string("resolved = true"), std::string(), std::string(100000, 'x'), std::string("a\0b", 3)}) {
    std::string text = world().root() ? sent : std::string(static_cast<std::size_t>(world().rank()) * 7, 'y');
    world().broadcast(text);
    CHECK(text == sent);
  }
}

TEST_CASE("Rank 0 gathers values and texts in rank order", "[communicator]") {
  const double r = world().rank();
  const auto values = world().gather(std::vector<double>{r, r / 3});
  const auto texts = world().gather("rank " + std::to_string(world().rank()) +
                                    std::string(static_cast<std::size_t>(world().rank()), '!'));
  std::vector<double> expected;
  std::vector<std::string> expected_texts;
  for (int k = 0; k < world().size() && world().root(); ++k) {
    expected.insert(expected.end(), {double(k), double(k) / 3});
    expected_texts.push_back("rank " + std::to_string(k) + std::string(static_cast<std::size_t>(k), '!'));
  }
  CHECK((values == expected && texts == expected_texts));
}

TEST_CASE("Sums under way finish with the sums that a call would have given", "[communicator]") {
  const int size = world().size(), triangle = size * (size + 1) / 2;
  std::vector<Request> requests;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<float>> buffers;
    for (int k = 0; k < 100; ++k)
      buffers.emplace_back(static_cast<std::size_t>(1 + 97 * k), static_cast<float>((k + 1) * (world().rank() + 1)));
    for (auto& buffer : buffers) {
      requests.push_back(world().start_sum(buffer.data(), std::ssize(buffer)));
      (void)requests.front().test();
    }
    for (Request& request : requests) request.wait();
    requests.clear();
    for (std::size_t k = 0; k < buffers.size(); ++k)
      CHECK(buffers[k] ==
            std::vector<float>(buffers[k].size(), static_cast<float>((k + 1) * static_cast<std::size_t>(triangle))));
  }
}

TEST_CASE("A request that is moved is waited for where it has gone", "[communicator]") {
  float value = 1;
  Request first = world().start_sum(&value, 1), second;
  second = std::move(first);
  CHECK(first.test());  // NOLINT: what was moved from is done
  Request third(std::move(second));
  while (!third.test()) {
  }
  CHECK(value == static_cast<float>(world().size()));
  if (world().size() > 1) CHECK(FlightRecorder::of_process().kept().back().ended > 0);
  third.wait();  // once more
}

TEST_CASE("An all-gather brings the blocks of all ranks to all, in rank order", "[communicator]") {
  const int size = world().size(), me = world().rank();
  const auto value = [](int r, int k) { return static_cast<std::uint8_t>(50 * r + k); };
  const auto block = [&](int r, int bytes) {
    std::vector<std::uint8_t> all;
    for (int k = 0; k < bytes; ++k) all.push_back(value(r, k));
    return all;
  };
  // Equal blocks, none of no bytes among them; then blocks that grow with the rank, and of which one is empty.
  for (const int bytes : {0, 1, 7, 40000}) {
    const auto mine = block(me, bytes);
    std::vector<std::uint8_t> expected, all(static_cast<std::size_t>(bytes * size) + 1, 99);
    for (int r = 0; r < size; ++r) {
      const auto other = block(r, bytes);
      expected.insert(expected.end(), other.begin(), other.end());
    }
    expected.push_back(99);
    world().all_gather(mine.data(), all.data(), mine.size());
    CHECK(all == expected);
    std::fill(all.begin(), all.end() - 1, std::uint8_t{0});
    world().start_all_gather(mine.data(), all.data(), mine.size()).wait();
    CHECK(all == expected);
  }
  for (const int without : {0, size - 1, size}) {
    std::vector<int> bytes;
    std::vector<std::uint8_t> expected;
    for (int r = 0; r < size; ++r) {
      bytes.push_back(r == without ? 0 : 3 + 5 * r);
      const auto other = block(r, bytes.back());
      expected.insert(expected.end(), other.begin(), other.end());
    }
    const auto mine = block(me, bytes[static_cast<std::size_t>(me)]);
    std::vector<std::uint8_t> all(expected.size() + 1, 99);
    expected.push_back(99);
    world().all_gather(mine.data(), all.data(), bytes);
    CHECK(all == expected);
    // Started, the blocks stand where they shall: here, the last rank's first.
    std::vector<int> at(bytes.size());
    std::vector<std::uint8_t> reversed;
    for (int r = size - 1; r >= 0; --r) {
      const auto other = block(r, bytes[static_cast<std::size_t>(r)]);
      at[static_cast<std::size_t>(r)] = static_cast<int>(reversed.size());
      reversed.insert(reversed.end(), other.begin(), other.end());
    }
    reversed.push_back(99);
    std::fill(all.begin(), all.end() - 1, std::uint8_t{0});
    world().start_all_gather(mine.data(), all.data(), bytes, at).wait();
    CHECK(all == reversed);
  }
}

TEST_CASE("Groups number their ranks by key, and what is collective stays among them", "[communicator]") {
  const int size = world().size(), me = world().rank();
  // Even and odd ranks, from the last to the first.
  const auto group = world().subgroup(me % 2, -me);
  std::vector<int> members;
  for (int r = size - 1; r >= 0; --r)
    if (r % 2 == me % 2) members.push_back(r);
  CHECK(group->size() == static_cast<int>(members.size()));
  CHECK(members.at(static_cast<std::size_t>(group->rank())) == me);
  CHECK((group->node_rank() >= 0 && group->node_rank() < group->node_size() && group->node_size() <= group->size()));
  std::int64_t sum = me, expected = 0;
  for (const int r : members) expected += r;
  group->sum(&sum, 1);
  CHECK(sum == expected);
  int root = me;
  group->broadcast(&root, sizeof root);
  CHECK(root == members.front());
  CHECK(group->agree(static_cast<std::uint64_t>(me % 2)));
  CHECK(group->minimum(me) == members.back());
  // A group of a group: each rank alone.
  const auto alone = group->subgroup(me, 0);
  CHECK(alone->size() == 1);
  CHECK(alone->agree(static_cast<std::uint64_t>(me)));
}

TEST_CASE("Equal keys keep the order of the ranks, and who has no colour is in no group", "[communicator]") {
  const int size = world().size(), me = world().rank(), out = size - 1;
  const auto rest = world().subgroup(me == out ? Communicator::kNoColor : 4, 0);
  CHECK((rest == nullptr) == (me == out));
  if (rest != nullptr) {
    CHECK((rest->size() == size - 1 && rest->rank() == me));
    std::int64_t ranks = 1;
    rest->sum(&ranks, 1);
    CHECK(ranks == size - 1);
  }
}

TEST_CASE("Ranks of a group, and of a group of it, know their numbers in the launch", "[communicator]") {
  for (int rank = 0; rank < world().size(); ++rank) CHECK(world().launch_rank(rank) == rank);
  CHECK(world().launch_rank() == world().rank());
  const auto backwards = world().subgroup(0, -world().rank());
  for (int rank = 0; rank < world().size(); ++rank) CHECK(backwards->launch_rank(rank) == world().size() - 1 - rank);
  CHECK((backwards->launch_rank() == world().rank() && backwards->launch_node_rank() == world().node_rank()));
  CHECK(std::ssize(backwards->launch_node_cores()) == world().node_size());
  cpu_set_t own{};
  CHECK(sched_getaffinity(0, sizeof own, &own) == 0);
  CHECK(CPU_EQUAL(&own, &world().launch_node_cores()[static_cast<std::size_t>(world().node_rank())]));
  const auto without_last = backwards->subgroup(world().rank() == world().size() - 1 ? Communicator::kNoColor : 0, 0);
  if (without_last)
    for (int rank = 0; rank < without_last->size(); ++rank)
      CHECK(without_last->launch_rank(rank) == world().size() - 2 - rank);
  CHECK((!without_last || std::ssize(without_last->launch_node_cores()) == world().node_size()));
  CHECK(Communicator::single()->launch_rank() == 0);
  // To the hang watch a group has one name on all of its ranks, and another one than any other group.
  const auto name_of = [](Communicator& group) {
    group.barrier();
    return FlightRecorder::of_process().kept().back().group;
  };
  const auto again = world().subgroup(0, -world().rank()), halves = world().subgroup(world().rank() % 2, 0);
  const std::set<std::uint32_t> names{name_of(world()), name_of(*backwards), name_of(*again), name_of(*halves),
                                      name_of(*again->subgroup(0, 0))};
  CHECK(names.size() == 5);
  CHECK(world().agree(name_of(*again)));
  CHECK(world().agree(name_of(*halves)) == (world().size() == 1));
}

TEST_CASE("A rank that is away sleeps until it is called, while the others do something else", "[communicator]") {
  constexpr int kTag = 5, kOther = 6;
  if (world().size() == 1) return;
  const bool away = world().rank() == world().size() - 1;
  const auto left = world().subgroup(away ? Communicator::kNoColor : 0, world().rank());
  const auto processor = [] {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
  };
  const auto begin = std::chrono::steady_clock::now();
  const double before = processor();
  if (away) {
    world().sleep_until_called(0, kTag);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    CHECK((seconds > 0.9 && processor() - before < 0.01 * seconds));
    int called = 0, other = 0;
    world().receive(&called, sizeof called, 0, kTag);
    world().receive(&other, sizeof other, 0, kOther);
    CHECK((called == 75 && other == 1));
  } else {
    if (world().root()) world().send(std::array{1}.data(), sizeof(int), world().size() - 1, kOther);  // is no call
    std::int64_t milliseconds = 0;
    while (milliseconds < 1000) {
      std::int64_t one = 1;
      left->sum(&one, 1);
      CHECK(one == world().size() - 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      milliseconds = left->minimum((std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds(1));
    }
    if (world().root()) world().send(std::array{75}.data(), sizeof(int), world().size() - 1, kTag);
  }
  world().barrier();
}

TEST_CASE("A group that is destroyed gives its memory back", "[communicator]") {
  constexpr std::size_t kGroups = 200, kBytes = 100;  // a group of MPI's takes some thousand
  const auto make = [](std::size_t groups) {
    for (std::size_t k = 0; k < groups; ++k) (void)world().subgroup(0, 0);
    return mallinfo2().uordblks;
  };
  const std::size_t before = make(kGroups), after = make(kGroups);
  INFO(before << " bytes in use, then " << after);
  CHECK(after < before + kGroups * kBytes);
}

TEST_CASE("Messages go from rank to rank, by tag and in order", "[communicator]") {
  const int size = world().size(), me = world().rank();
  if (size == 1) return;
  const int next = (me + 1) % size, before = (me + size - 1) % size;
  const auto text = [](int from, int k) {
    return std::string(static_cast<std::size_t>(3 + k), 'a') + char('0' + from);
  };
  const auto received = [&](int from, int tag, std::size_t bytes) {
    std::string all(bytes, '?');
    world().receive(all.data(), bytes, from, tag);
    return all;
  };

  // Two with one tag, one with another that is asked for first.
  const std::string first = text(me, 0), second = text(me, 1), third = text(me, 2);
  std::vector<Request> sent;
  sent.push_back(world().start_send(first.data(), first.size(), next, 5));
  sent.push_back(world().start_send(second.data(), second.size(), next, 5));
  sent.push_back(world().start_send(third.data(), third.size(), next, 6));
  CHECK(received(before, 6, third.size()) == text(before, 2));
  CHECK(received(before, 5, first.size()) == text(before, 0));
  CHECK(received(before, 5, second.size()) == text(before, 1));
  for (Request& request : sent) request.wait();

  // Asked for before it is sent.
  std::string later(7, '?');
  Request coming = world().start_receive(later.data(), later.size(), before, 7);
  const std::string mine = text(me, 3);
  world().send(mine.data(), mine.size(), next, 7);
  coming.wait();
  CHECK(later == text(before, 3));

  // Nothing at all.
  world().send(nullptr, 0, next, 8);
  world().receive(nullptr, 0, before, 8);
}

TEST_CASE("A probe tells who has written, with which tag and how much, and leaves the message", "[communicator]") {
  const int size = world().size(), me = world().rank();
  CHECK(!world().probe(Communicator::kAnyRank, Communicator::kAnyTag).has_value());
  world().barrier();
  if (me > 0) {
    const std::vector<char> message(static_cast<std::size_t>(100 * me), 'm');
    world().send(message.data(), message.size(), 0, 10 + me);
  } else {
    for (int r = 1; r < size; ++r) {
      // From the last rank to the first, whoever came first.
      const int from = size - r;
      std::optional<Communicator::Arrival> arrival;
      while (!arrival) arrival = world().probe(from, Communicator::kAnyTag);
      CHECK((arrival->from == from && arrival->tag == 10 + from));
      CHECK((arrival->bytes == static_cast<std::size_t>(100 * from) && !world().probe(from, 10).has_value()));
      std::vector<char> message(arrival->bytes, '?');
      const auto again = world().probe(Communicator::kAnyRank, arrival->tag);
      CHECK((again && again->from == from));
      world().receive(message.data(), message.size(), arrival->from, arrival->tag);
      CHECK(message == std::vector<char>(message.size(), 'm'));
      CHECK(!world().probe(from, Communicator::kAnyTag).has_value());
    }
  }
  world().barrier();
}

TEST_CASE("A message of another length than was expected is an error, and so is one to oneself", "[communicator]") {
  const int size = world().size(), me = world().rank();
  char mine[8] = {}, other[8] = {};
  CHECK(code_of([&] { world().send(mine, 1, me, 0); }) == ExitCode::communication);
  CHECK(code_of([&] { world().send(mine, 1, size, 0); }) == ExitCode::communication);
  if (size == 1) return;
  const int next = (me + 1) % size, before = (me + size - 1) % size;
  for (const std::size_t expected : {4, 3, 5, 0}) {
    const ExitCode code = expected == 4 ? ExitCode::done : ExitCode::communication;
    Request sent = world().start_send(mine, 4, next, 1);
    CHECK(code_of([&] { world().receive(other, expected, before, 1); }) == code);
    sent.wait();
    Request asked = world().start_receive(other, expected, before, 2), coming(std::move(asked));
    sent = world().start_send(mine, 4, next, 2);
    const std::string told = message_of([&] { coming.wait(); }, ExitCode::communication);
    CHECK((expected == 4 ? told.empty() : contains(told, "rank " + std::to_string(before))));
    CHECK(coming.test());
    sent.wait();
  }
}

TEST_CASE("A request that an exception leaves behind is dropped without a word", "[communicator]") {
  if (world().size() == 1) return;
  struct Never final : Errand {
    [[nodiscard]] bool advance(bool beside) override { return calls += beside, false; }
    void nap() override {}
    std::atomic<int> calls = 0;
  } never;
  (void)world().move_on_beside();
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const double before = world().seconds_under_way();
  double during = 0;
  const auto forgotten = [&](Request /*under_way*/) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    during = world().seconds_under_way();
    throw Error(ExitCode::numerical, "what the user must read");
  };
  CHECK(code_of([&] { forgotten(world().start(never, 4)); }) == ExitCode::numerical);
  const double after = world().seconds_under_way();
  CHECK((during > before && after > during));
  CHECK(after - before <= std::chrono::duration<double>(Clock::now() - begin).count());
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(world().seconds_under_way() == after);
  never.calls = 0;
  CHECK(code_of([&] { forgotten(world().start(never, 4)); }) == ExitCode::numerical);
  CHECK(never.calls == 0);  // nobody is beside any more
  static char late = 0;     // MPI still writes to it
  if (world().rank() == 0)
    CHECK((code_of([&] { forgotten(world().start_receive(&late, 1, 1, 9)); }) == ExitCode::numerical &&
           during == world().seconds_under_way()));  // messages take none
  world().barrier();
  if (world().rank() == 1) {
    during = world().seconds_under_way();
    world().start_send(&late, 1, 0, 9).wait();
    CHECK(during == world().seconds_under_way());
  }
  world().barrier();
}

TEST_CASE("What a training step may call allocates nothing", "[communicator]") {
  const int size = world().size(), me = world().rank();
  const auto count = static_cast<std::size_t>(size);
  std::vector<float> numbers(1000, 1.0F), all(1000 * count);
  std::vector<int> bytes(count, 8);
  Request request;
  const auto step = [&] {
    world().sum(numbers.data(), 10);
    request = world().start_sum(numbers.data(), std::ssize(numbers));
    (void)request.test();
    request.wait();
    world().all_gather(numbers.data(), all.data(), 400);
    world().all_gather(numbers.data(), all.data(), bytes);
    request = world().start_all_gather(numbers.data(), all.data(), 400);
    request.wait();
    world().exchange(numbers.data(), bytes, all.data(), bytes);
    world().broadcast(numbers.data(), 100);
    (void)world().agree(1);
    (void)world().probe(Communicator::kAnyRank, Communicator::kAnyTag);
    if (size == 1) return;
    request = world().start_receive(all.data(), 40, (me + size - 1) % size, 1);
    world().send(numbers.data(), 40, (me + 1) % size, 1);
    request.wait();
  };
  step();
  const std::int64_t before = allocations;
  step();
  CHECK(allocations == before);
  const std::vector<float> one(1);  // the counter does see this program's allocations
  CHECK(allocations == before + 1);
}

TEST_CASE("The main thread ticks as long as the ranks are watched", "[communicator]") {
  for (const double seconds : {600.0, 0.0}) {
    world().watch(seconds);
    CHECK(ticking == (seconds > 0 && world().size() > 1));
  }
}

// Not run with the others: ends all ranks. tests/CMakeLists.txt looks for what it says.
TEST_CASE("A request that is destroyed while it is under way ends all ranks", "[.forgotten]") {
  if (world().rank() == 0) {
    char byte = 0;
    (void)world().start_receive(&byte, 1, 1, 0);
  }
  world().barrier();
}

TEST_CASE("A sum ends while no rank calls MPI, and the time it was under way is known", "[communicator][progress]") {
  CHECK((world().move_on_beside() && world().move_on_beside()));  // it is there
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  };
  constexpr std::int64_t kCount = 1 << 20;
  std::vector<float> a(kCount, static_cast<float>(world().rank() + 1)), b(a);
  std::vector<std::vector<float>> others(12, a);
  world().barrier();
  const double before = world().seconds_under_way();
  const auto begin = Clock::now();
  Request first = world().start_sum(a.data(), kCount), second = world().start_sum(b.data(), kCount);
  std::vector<Request> rest;
  for (std::vector<float>& one : others) rest.push_back(world().start_sum(one.data(), kCount));
  // The time stands still when all are done. Without a thread it goes on until somebody tests them.
  double last = -1, now = world().seconds_under_way();
  while (last != now && seconds_since(begin) < 60) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    last = std::exchange(now, world().seconds_under_way());
  }
  CHECK(last == now);
  // All at a time count once.
  CHECK(now - before <= seconds_since(begin));
  if (world().size() > 1) CHECK(now > before);
  first.wait();
  CHECK(second.test());
  for (Request& request : rest) CHECK(request.test());
  CHECK(world().seconds_under_way() == now);
  const auto sum = static_cast<float>(world().size() * (world().size() + 1) / 2);
  CHECK((a == std::vector<float>(kCount, sum) && b == a && Communicator::single()->move_on_beside()));
  CHECK(Communicator::single()->seconds_under_way() == 0);
}

TEST_CASE("What goes on in place of a message is moved on beside, until it is done", "[communicator][progress]") {
  if (world().size() == 1) return;
  struct Third final : Errand {
    [[nodiscard]] bool advance(bool beside) override { return beside ? ++calls == 3 : calls >= 3; }
    void nap() override {}
    std::atomic<int> calls = 0;
  } third;
  (void)world().move_on_beside();
  Request request = world().start(third, 4);
  for (int k = 0; k < 60000 && third.calls < 3; ++k) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK((request.test() && third.calls == 3));
}

TEST_CASE("Requests that one is waited for, one moved and one tested leave nothing under way",
          "[communicator][progress]") {
  (void)world().move_on_beside();
  std::vector<std::vector<float>> buffers(40, std::vector<float>(5000, 1.0F));
  std::vector<Request> requests;
  for (auto& buffer : buffers) requests.push_back(world().start_sum(buffer.data(), std::ssize(buffer)));  // moves them
  for (std::size_t k = 0; k < requests.size(); ++k)
    if (k % 2 == 0)
      requests[k].wait();
    else
      while (!requests[k].test()) {
      }
  const double now = world().seconds_under_way();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(world().seconds_under_way() == now);
  for (const auto& buffer : buffers) CHECK(buffer.front() == static_cast<float>(world().size()));
}

TEST_CASE("Bytes are counted where they are given to MPI, and each call is in the record, begun and ended",
          "[communicator]") {
  const int size = world().size(), next = (world().rank() + 1) % size, from = (world().rank() + size - 1) % size;
  const std::int64_t others = size > 1 ? 1 : 0;
  // told: bytes in the record.
  const auto given = [&](Call what, std::int64_t told, auto&& call) {
    const std::int64_t before = world().bytes_given();
    call();
    if (others > 0) {
      const CallRecord last = FlightRecorder::of_process().kept().back();
      INFO(text_of(last));
      CHECK((last.call == what && last.bytes == told && last.ended >= last.begun));
      if (of_two_ranks(what)) CHECK(last.number == (what == Call::send ? next : from));
    }
    return world().bytes_given() - before;
  };
  std::vector<float> numbers(7, 1.0F);
  std::vector<double> doubles(7, 1.0);
  std::vector<std::int64_t> wholes(2, 1);
  std::vector<float> all(numbers.size() * static_cast<std::size_t>(size)), received(all.size());
  const std::vector<int> bytes(static_cast<std::size_t>(size), 8);
  std::vector<int> at(bytes.size());
  for (std::size_t rank = 0; rank < at.size(); ++rank) at[rank] = static_cast<int>(8 * rank);
  float *const mine = numbers.data(), *const sent = all.data(), *const got = received.data();
  CHECK(given(Call::sum, 28, [&] { world().sum(mine, 7); }) == others * 28);
  CHECK(given(Call::sum, 40, [&] { world().sum(doubles.data(), 5); }) == others * 40);
  CHECK(given(Call::sum, 16, [&] { world().sum(wholes.data(), 2); }) == others * 16);
  CHECK(given(Call::sum, 28, [&] { world().start_sum(mine, 7).wait(); }) == others * 28);
  CHECK(given(Call::minimum, 8, [&] { (void)world().minimum(3); }) == others * 8);
  CHECK(given(Call::agree, 16, [&] { (void)world().agree(1); }) == others * 16);
  CHECK(given(Call::broadcast, 12, [&] { world().broadcast(mine, 12); }) == (world().root() ? others * 12 : 0));
  CHECK(given(Call::gather, 56, [&] { (void)world().gather(doubles); }) == (world().root() ? 0 : 56));
  CHECK(given(Call::gather, 4, [&] { (void)world().gather("text"); }) == (world().root() ? 0 : 8));
  CHECK(given(Call::all_gather, 28, [&] { world().all_gather(mine, got, 28); }) == others * 28);
  CHECK(given(Call::all_gather, 28, [&] { world().start_all_gather(mine, got, 28).wait(); }) == others * 28);
  CHECK(given(Call::all_gather, 8 * size, [&] { world().all_gather(mine, got, bytes); }) == others * 8);
  CHECK(given(Call::all_gather, 8 * size, [&] { world().start_all_gather(mine, got, bytes, at).wait(); }) ==
        others * 8);
  CHECK(given(Call::exchange, 8 * size, [&] { world().exchange(sent, bytes, got, bytes); }) == 8 * (size - 1));
  CHECK(given(Call::exchange, 8 * size, [&] { world().start_exchange(sent, bytes, at, got, bytes, at).wait(); }) ==
        8 * (size - 1));
  CHECK(given(Call::barrier, 0, [&] { world().barrier(); }) == 0);
  CHECK(given(Call::barrier, 0, [&] { world().meet([] {}); }) == 0);
  const auto done = [] { return true; };
  CHECK(given(Call::receive, 0, [&] { world().wait_for_message(from, done); }) == 0);
  CHECK(given(Call::work, 0, [&] { world().wait_for_work(from, done); }) == 0);
  if (others == 0) return;
  Request coming = world().start_receive(got, 5, from, 1);
  CHECK(given(Call::send, 5, [&] { world().send(mine, 5, next, 1); }) == 5);
  coming.wait();
  coming = world().start_receive(got, 6, from, 1);
  CHECK(given(Call::send, 6, [&] {
          Request going = world().start_send(mine, 6, next, 1);
          coming.wait();
          going.wait();
        }) == 6);
  Request going = world().start_send(mine, 7, next, 1);
  CHECK(given(Call::receive, 7, [&] { world().receive(got, 7, from, 1); }) == 0);
  going.wait();
}
