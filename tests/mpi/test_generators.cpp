#include "catch.hpp"
#include "requests.hpp"
#include "small_run.hpp"
#include "train/generators/generator.hpp"
#include "train/generators/messages.hpp"
#include "train/plan/clock.hpp"
#include "train/trainer.hpp"
#include "world.hpp"

using namespace dat;
using test::world;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

constexpr int kEndTag = 7;

/// The last rank attacks for the others.
[[nodiscard]] TrainOptions with_generator(int staleness) {
  TrainOptions options = test::small_run();
  options.threads = 1;
  options.batch = 0;
  options.total_batch = 16;
  options.micro_batch = 4;
  options.attack_batch = 4;
  options.attack_steps = 4;
  options.attack_bn = "eval";
  options.limit_train = 64;
  options.epochs = 100000;
  options.staleness = staleness;
  options.generators = 1;
  return options;
}

[[nodiscard]] double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return 4096 * resident;
}

/// Every now and then some time passes.
class Delay {
 public:
  void operator()() {
    if (random_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 2000));
  }

 private:
  std::mt19937 random_{static_cast<std::uint32_t>(world().rank())};
};

/// Takes what nobody has asked for.
void clear() {
  world().barrier();
  while (const auto arrival = world().probe(Communicator::kAnyRank, Communicator::kAnyTag)) {
    std::vector<char> message(arrival->bytes);
    world().receive(message.data(), message.size(), arrival->from, arrival->tag);
  }
  world().barrier();
}

/// How many blocks of memory are taken for one purpose.
[[nodiscard]] std::int64_t blocks(Replica& replica, const std::string& purpose) {
  return std::ranges::count(replica.backend().allocations(), purpose, &Backend::Allocation::purpose);
}

/// What is told where a trainer's first step fails.
[[nodiscard]] std::string error_of_first_step(Communicator& group, const TrainOptions& options) {
  return message_of(
      [&] {
        test::Started trainer(group, options);
        // The rule's versions are state of the trainer.
        CHECK((blocks(trainer.replica(), "weights of steps before") > 0) ==
              (options.deterministic && options.staleness > 0));
        (void)trainer.step(false);
      },
      ExitCode::communication);
}

[[nodiscard]] std::string hash_of_one_rank(TrainOptions options, int steps) {
  options.generators = 0;
  return test::OneRank(options, steps).weights_hash();
}

/// A packet that is sent as it is, or with other bytes.
template <class Packet>
void send(Packet& packet, std::size_t behind, int to, int tag, std::size_t cut = 0) {
  world().send(packet.data(), Packet::bytes(behind) - cut, to, tag);
}

}  // namespace

TEST_CASE("With delays on both sides no version is torn, nothing hangs, memory and requests do not grow",
          "[generators]") {
  if (world().size() < 2) return;
  clear();
  const char* const wanted = std::getenv("DAT_GENERATOR_STEPS");
  const int steps = wanted != nullptr ? std::atoi(wanted) : 60;
  TrainOptions options = with_generator(3);
  options.resident = "on";  // the images wait on the devices; elsewhere they are read
  const bool trains = world().rank() + 1 < world().size();
  const auto group = world().subgroup(trains ? 0 : 1, world().rank());
  Delay delay;
  double before = 0;
  int requests = 0;
  const int begun = test::requests_under_way();
  static_cast<void>(test::most_requests());
  if (trains) {
    test::Started trainer(*group, options);
    double idle = 0;
    for (int step = 0; step < steps; ++step) {
      delay();
      const std::int64_t given = world().bytes_given();
      const StepRecord& record = trainer.step(false);
      CHECK((record.generators != nullptr && record.attack_passes == 4 * 16));
      idle += record.generators->idle;
      if (group->size() == 1) CHECK(world().bytes_given() - given == record.bytes_other);
      if (step == steps / 10) {
        before = resident_bytes();
        requests = test::most_requests();
      }
    }
    CHECK(resident_bytes() - before < 4e6);
    // The generator has its versions from the first rank, two at once; an answer is received at a time.
    CHECK(blocks(trainer.replica(), "weights sent") == (world().root() ? 2 : 0));
    CHECK(blocks(trainer.replica(), "attacked images") == 4 * trainer.plan().micro_batches_of(group->rank()) + 1);
    CHECK(idle > 0);
    if (!world().root()) CHECK(trainer.examples().bytes_sent() % std::int64_t{sizeof(Order)} == 0);
    CHECK(requests > begun);
    CHECK(trainer.examples().places() == 7);  // passes, what is dealt again, idle time; iterations by four ages
    for (const auto& [numbers, mean, most] : {std::tuple(std::vector<double>{80, 2, 0.25, 3, 1, 0, 4}, 13.0 / 8, 3),
                                              std::tuple(std::vector<double>{8, 0, 0.5, 0, 0, 1, 0}, 2.0, 2)}) {
      trainer.examples().read(numbers.data());
      const GeneratorRecord& told = *trainer.examples().generators();
      CHECK(static_cast<double>(trainer.examples().attack_passes()) == numbers[0]);
      CHECK((static_cast<double>(told.dealt_again) == numbers[1] && told.idle == numbers[2]));
      CHECK((told.age_mean == mean && told.age_max == most));
    }
    CHECK(std::max(requests, test::most_requests()) <= begun + (world().root() ? 3 : 1));
    trainer.examples().close();
    const std::int64_t given = world().bytes_given();
    trainer.examples().close();  // is closed
    CHECK(world().bytes_given() == given);
    CHECK(test::requests_under_way() == begun);
    if (world().root()) {
      const ExitCode end = ExitCode::stopped;
      world().send(&end, sizeof end, world().size() - 1, kEndTag);
      CHECK(trainer.weights_hash() == hash_of_one_rank(options, steps));
    }
  } else {
    Generator generator(world(), options);
    std::int64_t asked = 0, iterations = 0;
    const auto called = [&]() -> std::optional<ExitCode> {
      delay();
      if (++asked == 1000) before = resident_bytes();
      if (!world().probe(0, kEndTag)) return {};
      ExitCode end = ExitCode::done;
      world().receive(&end, sizeof end, 0, kEndTag);
      return end;
    };
    generator.tell([&](int count, double seconds) { iterations += seconds > 0 ? count : 0; });
    const ExitCode code = generator.serve(called, [] { return false; });
    CHECK(iterations >= 16 * steps);  // four of each micro-batch that was trained on
    CHECK(code == ExitCode::stopped);
    CHECK((before == 0 || resident_bytes() - before < 4e6));
    // Eight answers, and two versions that may arrive.
    CHECK(blocks(generator.replica(), "attacked images") == 8);
    CHECK(test::most_requests() <= begun + 10);
    CHECK(test::requests_under_way() == begun + 2);
  }
  CHECK(test::requests_under_way() == begun);
  world().barrier();
  CHECK(!world().probe(Communicator::kAnyRank, Communicator::kAnyTag));  // a trainer has waited for all answers
}

TEST_CASE("A generator refuses what a trainer must not send, and names it", "[generators]") {
  if (world().size() != 2) return;
  const TrainOptions options = with_generator(1);
  TrainOptions of_one = options;
  of_one.generators = 0;
  Trainer size(test::single(), of_one);
  CHECK(Trainer(test::single(), options).examples().places() == 1);  // where no rank is there that could only attack
  const auto bytes = static_cast<std::size_t>(HeldWeights::memory(size.model()));
  if (world().root()) {
    ReceivedVersions versions(world(), 1, size.replica(), 2, false);
    versions.begin(5);
    CHECK((versions.count() == 0 && !versions.has(5)));  // none has come yet
  }
  VersionPacket version(size.replica().backend(), bytes, "weights");
  const auto order = [](const Order& what) { world().send(&what, sizeof what, 1, kOrderTag); };
  const auto send_version = [&](std::int64_t number, bool whole, std::size_t cut) {
    order({.kind = Order::Kind::begin, .step = 4, .versions = 0});
    version.header() = {.version = number};
    version.seal(bytes);
    if (!whole) version.behind()[bytes - 1] ^= std::byte{1};
    send(version, bytes, 1, kVersionTag, cut);
  };
  const Order begin{.kind = Order::Kind::begin, .step = 4};
  const auto attack = [&](const std::vector<std::pair<int, int>>& all) {
    return [&order, &begin, all] {
      order(begin);
      for (const auto& [unit, step] : all) order({.kind = Order::Kind::attack, .unit = unit, .step = step});
    };
  };
  const std::vector<std::pair<std::string, std::function<void()>>> cases{
      {"its length", [&] { world().send(&begin, sizeof begin - 1, 1, kOrderTag); }},
      {"its kind", [&] { order({.kind = static_cast<Order::Kind>(9)}); }},
      {"its number, micro-batch 0 of step 4", [&] { order({.kind = Order::Kind::attack, .step = 4}); }},
      {"its number, micro-batch 4 of step 4", attack({{4, 4}})},
      {"its number, micro-batch -1 of step 4", attack({{-1, 4}})},
      {"its number, micro-batch 1 of step -4", attack({{1, -4}})},
      {"its number, micro-batch 1 of step 400000", attack({{1, 400000}})},  // of 100000 epochs of four
      {"its number, micro-batch 1 of step 4, after that of step 4", attack({{1, 4}, {1, 4}})},
      {"its version, 5 after 3", [&] { send_version(5, true, 0); }},
      {"its hash", [&] { send_version(4, false, 0); }},
      {"has sent 116 bytes", [&] { send_version(4, true, bytes - 100); }},
      {"of a message of rank 0 failed", [&] {
         order(begin);
         std::vector<std::byte> long_one(VersionPacket::bytes(bytes) + 1);
         world().send(long_one.data(), long_one.size(), 1, kVersionTag);
       }}};
  for (const auto& [text, wrong] : cases) {
    INFO(text);
    if (world().root()) {
      wrong();
    } else {
      Generator generator(world(), options);
      const double began = seconds_now();
      const auto called = [&]() -> std::optional<ExitCode> {
        require(seconds_now() - began < 60, ExitCode::stopped, "nothing is refused");
        return {};
      };
      const std::string told =
          message_of([&] { (void)generator.serve(called, [] { return false; }); }, ExitCode::communication);
      CHECK(contains(told, text));
      CHECK(contains(told, "rank 0"));
    }
    clear();
  }
  // What is right is done: first what is wanted first.
  if (world().root()) {
    attack({{3, 4}, {1, 4}})();
    world().barrier();  // they are there before the weights
    const auto floats = static_cast<std::size_t>(4 * size.replica().images().layout.elements());
    const std::size_t behind = bytes_of_ages(options.attack_steps) + floats * sizeof(float);
    AnswerPacket answer(size.replica().backend(), behind, "images");
    world().receive(answer.data(), AnswerPacket::bytes(0), 1, kAnswerTag);
    CHECK(answer.header().step == AnswerHeader::kStop);  // which is told once
    std::fill_n(version.behind(), bytes, std::byte{0});
    version.header() = {.version = 4};
    version.seal(bytes);
    send(version, bytes, 1, kVersionTag);
    for (const int unit : {1, 3}) {
      world().receive(answer.data(), AnswerPacket::bytes(behind), 1, kAnswerTag);
      CHECK((answer.header().step == 4 && answer.header().unit == unit && answer.header().count == 4));
      CHECK((answer.header().passes == 16 && answer.header().waiting == (unit == 1 ? 1 : 0)));
    }
    order({.kind = Order::Kind::pause, .versions = 1});
    world().receive(answer.data(), AnswerPacket::bytes(0), 1, kAnswerTag);
    CHECK(answer.header().step == AnswerHeader::kPauses);
    world().send(nullptr, 0, 1, kEndTag);
  } else {
    for (const int staleness : {0, 1}) {
      const TrainOptions its = with_generator(staleness);
      Generator one(world(), its);
      std::int64_t taken = 0;  // beside messages
      for (const Backend::Allocation& block : one.replica().backend().allocations())
        if (block.purpose != "attacked images" && block.purpose != "weights received")
          taken += static_cast<std::int64_t>(block.bytes);
      if (its.device == "cpu") CHECK(generator_memory(its, Plan(its, 64, 1), *one.splits().train, world()) == taken);
    }
    Generator generator(world(), options);
    world().barrier();
    const auto called = [] { return world().probe(0, kEndTag) ? std::optional(ExitCode::stopped) : std::nullopt; };
    CHECK(generator.serve(called, [] { return true; }) == ExitCode::stopped);
  }
  clear();
}

TEST_CASE("Versions that begin anew, by the same number, are given anew", "[generators]") {
  if (world().size() != 2) return;
  const TrainOptions options = with_generator(1);
  const auto group = world().subgroup(world().rank(), 0);
  Trainer trainer(test::single(), options);
  const auto bytes = static_cast<std::size_t>(HeldWeights::memory(trainer.model()));
  HeldWeights held(trainer.replica(), "weights");
  VersionSender sender(*group, trainer.replica(), options, [] {});
  ReceivedVersions versions(world(), 0, trainer.replica(), 2, false);
  for (const float value : {1.0F, 2.0F}) {
    if (world().root()) {
      held.copy_from_host(std::vector<float>(bytes / sizeof(float), value).data());
      if (value == 1) held.give();  // to the network, which is sent where nothing that is held is
      CHECK(sender.send(5, value == 1 ? nullptr : &held) == std::int64_t(VersionPacket::bytes(bytes)));
    } else {
      versions.begin(5);
      const double began = seconds_now();
      bool taken = false;
      while (!taken && seconds_now() - began < 20) taken = versions.take();
      CHECK((taken && versions.has(5) && !versions.has(4) && !versions.has(6)));
      CHECK((versions.count() == 1 && versions.first() == 5 && versions.newest() == 5));
      versions.use(5);
      const std::vector<float> weights = test::weights_of(trainer);
      CHECK(weights == std::vector<float>(weights.size(), value));
      const std::uint64_t once = trainer.model().parameters.version;
      versions.use(5);
      CHECK(trainer.model().parameters.version == once);
    }
    world().barrier();
  }
  sender.finish();
}

TEST_CASE("A trainer refuses what a generator must not answer, and names it", "[generators]") {
  if (world().size() != 2) return;
  const TrainOptions options = with_generator(1);
  const auto group = world().subgroup(world().rank(), 0);
  TrainOptions of_one = options;
  of_one.generators = 0;
  Trainer size(test::single(), of_one);
  const Layout layout = size.replica().images().layout;
  const std::size_t floats = static_cast<std::size_t>(4 * layout.elements()) * sizeof(float);
  const std::size_t behind = bytes_of_ages(options.attack_steps) + floats;
  const auto version_bytes = VersionPacket::bytes(static_cast<std::size_t>(HeldWeights::memory(size.model())));
  AnswerPacket answer(size.replica().backend(), behind, "images");
  struct Case {
    std::string text;
    std::function<void(AnswerHeader&, std::int32_t* ages)> change;
    bool whole = true;
    std::size_t cut = 0;
    bool by_rule = true;
  };
  const std::vector<Case> cases{
      {"its hash", [](AnswerHeader&, std::int32_t*) {}, false},
      {"its length", [](AnswerHeader&, std::int32_t*) {}, true, floats},
      {"its number, micro-batch 4 of step 0", [](AnswerHeader& header, std::int32_t*) { header.unit = 4; }},
      {"its number, micro-batch 0 of step 2", [](AnswerHeader& header, std::int32_t*) { header.step = 2; }},
      {"its number, 3 images of micro-batch 0 of step 0",
       [](AnswerHeader& header, std::int32_t*) { header.count = 3; }},
      {"its number, 4 images of micro-batch 0 of step 0", [](AnswerHeader& header, std::int32_t*) { header.ages = 3; }},
      {"its number, 4 images of micro-batch 0 of step 0",
       [](AnswerHeader& header, std::int32_t*) { header.block = 0; }},
      {"its number, 4 images of micro-batch 0 of step 0",  // of three channels
       [](AnswerHeader& header, std::int32_t*) { header.block = 2; }},
      {"its version, 2 steps old in iteration 3 of step 0", [](AnswerHeader&, std::int32_t* ages) { ages[3] = 2; },
       true, 0, false},
      {"its version, -1 steps old in iteration 0 of step 0", [](AnswerHeader&, std::int32_t* ages) { ages[0] = -1; },
       true, 0, false},
      {"its version, 1 steps old in iteration 2 of step 0", [](AnswerHeader&, std::int32_t* ages) { ages[2] = 1; }}};
  for (const Case& one : cases) {
    INFO(one.text);
    if (world().root()) {
      TrainOptions here = options;
      here.deterministic = one.by_rule;
      const std::string told = error_of_first_step(*group, here);
      CHECK(contains(told, "a message of rank 1 is wrong: " + one.text));
    } else {
      std::vector<char> version(version_bytes);
      world().receive(version.data(), version.size(), 0, kVersionTag);
      answer.header() = {.step = 0, .unit = 0, .count = 4, .block = layout.block, .ages = options.attack_steps};
      auto* const ages = reinterpret_cast<std::int32_t*>(answer.behind());
      std::fill_n(ages, options.attack_steps, 0);
      one.change(answer.header(), ages);
      answer.seal(behind);
      if (!one.whole) answer.behind()[behind - 1] ^= std::byte{1};
      if (one.cut > 0) answer.seal(behind - one.cut);
      send(answer, behind, 0, kAnswerTag, one.cut);
    }
    clear();
  }
  // Images in another layout are right, and are turned into the trainer's.
  const Layout other{layout.c, layout.h, layout.w, layout.block == 1 ? layout.c : 1};
  const std::vector<float> images = test::random_values(4 * layout.elements(), 3, 0, 1);
  if (world().root()) {
    std::vector<float> expected(images.size());
    (void)turned(images.data(), other, 4, layout, expected.data());
    const auto run = [&] {
      test::Started trainer(*group, options, 1);
      CHECK(test::to_host(trainer.model().backend, trainer.replica().images().x_adv, std::ssize(images)) == expected);
      fail(ExitCode::communication, "a run that ends here");  // with its messages under way
    };
    CHECK(message_of(run, ExitCode::communication) == "a run that ends here");
  } else {
    std::vector<char> version(version_bytes);
    world().receive(version.data(), version.size(), 0, kVersionTag);
    for (int unit = 0; unit < 4; ++unit) {
      answer.header() = {.step = 0, .unit = unit, .count = 4, .block = other.block, .ages = options.attack_steps};
      std::fill_n(ages_in(answer), options.attack_steps, 0);
      std::ranges::copy(images, images_in(answer));
      answer.seal(behind);
      send(answer, behind, 0, kAnswerTag);
    }
  }
  clear();
}

TEST_CASE("A trainer orders what the steps to come need, as far ahead as weights may be old", "[generators]") {
  if (world().size() != 2) return;
  for (const int staleness : {0, 2}) {
    INFO("staleness " << staleness);
    const TrainOptions options = with_generator(staleness);
    const auto group = world().subgroup(world().root() ? 0 : 1, world().rank());
    if (world().root()) {
      const std::string told = error_of_first_step(*group, options);
      CHECK(!contains(told, "its kind"));
      CHECK(contains(told, "a message of rank 1 is wrong: its hash"));
    } else {
      std::vector<std::pair<std::int64_t, std::int32_t>> ordered;
      const double began = seconds_now();
      const auto wanted = static_cast<std::size_t>(staleness + 1) * 4;
      while (ordered.size() < wanted && seconds_now() - began < 20) {
        if (!world().probe(0, kOrderTag)) continue;
        Order order;
        world().receive(&order, sizeof order, 0, kOrderTag);
        if (order.kind == Order::Kind::attack) ordered.emplace_back(order.step, order.unit);
      }
      CHECK(ordered.size() == wanted);
      CHECK((!ordered.empty() && ordered.back() == std::pair(std::int64_t{staleness}, 3)));
      // The version is taken: what a trainer still sends when an error ends it is gone with the trainer.
      std::optional<Communicator::Arrival> version;
      while (!version && seconds_now() - began < 20) version = world().probe(0, kVersionTag);
      CHECK(version.has_value());
      if (version) {
        std::vector<char> bytes(version->bytes);
        world().receive(bytes.data(), bytes.size(), 0, kVersionTag);
      }
      // What is no answer ends the trainer's step.
      const auto backend = make_backend({.device = "cpu"});
      AnswerPacket answer(*backend, 0, "images");
      answer.header() = {};
      answer.seal(0);
      answer.header().step = 1;
      world().send(answer.data(), AnswerPacket::bytes(0), 0, kAnswerTag);
    }
    clear();
  }
}
