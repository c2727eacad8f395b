#include "catch.hpp"
#include "device.hpp"
#include "train/examples/old_weights.hpp"
#include "train/generators/dealing.hpp"
#include "train/generators/generator.hpp"
#include "train/generators/messages.hpp"
#include "train/generators/versions.hpp"

using namespace dat;

TEST_CASE("Micro-batches go to the generators in turn, and to those that are fast in proportion", "[generators]") {
  Dealing alike(3, 1);
  for (const int generator : {1, 2, 0, 1, 2, 0, 1}) CHECK(alike.deal(0, 0) == generator);
  CHECK(alike.outstanding(1) == std::vector<std::int64_t>{0, 0, 0});

  Dealing idle(2, 0);  // a second is expected as long as nothing is known
  for (const double now : {0.0, 1.5}) CHECK(idle.deal(0, now) == 0);

  Dealing unknown(2, 0);  // who has not answered yet is as slow as the slowest that has
  CHECK(unknown.deal(0, 0) == 0);
  unknown.answered(0, 0, 4, 0, 0);
  for (const int generator : {0, 1, 0, 1}) CHECK(unknown.deal(0, 0) == generator);

  Dealing unequal(3, 0);
  const double seconds[] = {1, 2, 4};
  for (int generator = 0; generator < 3; ++generator) CHECK(unequal.deal(0, 0) == generator);
  for (int generator = 0; generator < 3; ++generator) unequal.answered(generator, 0, seconds[generator], 0, 0);
  int given[3] = {};
  for (int k = 0; k < 14; ++k) ++given[unequal.deal(0, 0)];
  CHECK((given[0] == 8 && given[1] == 4 && given[2] == 2));
}

TEST_CASE("A generator that is nearly through is dealt as much as one that is", "[generators]") {
  Dealing dealing(2, 0);
  for (int generator = 0; generator < 2; ++generator) CHECK(dealing.deal(0, 0) == generator);
  for (int generator = 0; generator < 2; ++generator) dealing.answered(generator, 0, 1, 0, 1);
  for (int generator = 0; generator < 2; ++generator) CHECK(dealing.deal(0, 1) == generator);
  dealing.answered(1, 0, 1, 0, 1.99);  // and the other one a moment later
  int given[2] = {};
  for (int k = 0; k < 4; ++k) ++given[dealing.deal(0, 1.99)];
  CHECK((given[0] == 2 && given[1] == 2));
}

TEST_CASE("An answer that is taken late does not put off what comes after it", "[generators]") {
  Dealing dealing(2, 0);
  for (int k = 0; k < 4; ++k) CHECK(dealing.deal(0, 0) == k % 2);
  dealing.answered(0, 0, 1, 1, 1);
  dealing.answered(1, 0, 1, 1, 1.9);  // it was done at 1, too, and the next one is nearly done
  CHECK(dealing.deal(0, 1.9) == 0);
  CHECK(dealing.deal(0, 1.9) == 1);
}

TEST_CASE("What a generator still has to do for others counts", "[generators]") {
  Dealing dealing(2, 0);
  for (const int generator : {0, 1}) CHECK(dealing.deal(0, 0) == generator);
  dealing.answered(0, 0, 1, 5, 0);
  dealing.answered(1, 0, 1, 0, 0);
  for (int k = 0; k < 4; ++k) CHECK(dealing.deal(0, 0) == 1);  // of the five, one may be nearly done
  CHECK(dealing.deal(0, 0) == 0);
}

TEST_CASE("A micro-batch is dealt again where its generator is late and another one has nothing to do",
          "[generators]") {
  Dealing dealing(3, 0);
  CHECK(dealing.deal(0, 0) == 0);
  CHECK(!dealing.deal_again(0, 0, 1e9, 0));  // nobody knows how long it should take
  CHECK(dealing.deal(0, 0) == 1);
  dealing.answered(1, 0, 0.5, 0, 0);
  CHECK(!dealing.deal_again(0, 0, 1.9, 0));
  CHECK(dealing.deal_again(0, 0, 2.1, 0) == 1);
  CHECK(dealing.outstanding(1) == std::vector<std::int64_t>{0});
  CHECK(dealing.deal_again(1, 0, 2.1, 0) == 2);
  CHECK(!dealing.deal_again(2, 0, 1e9, 0));  // all have something of this trainer
  Dealing busy(2, 0);  // what it does for others takes its time, too: 4 times two micro-batches of a second
  for (const int generator : {0, 1, 0}) CHECK(busy.deal(0, 0) == generator);
  busy.answered(1, 0, 1, 0, 0);
  busy.answered(0, 0, 1, 2, 0);
  CHECK(!busy.deal_again(0, 0, 7.9, 0));
  CHECK(busy.deal_again(0, 0, 8, 0) == 1);
  busy.answered(1, 0, 1, 0, 0);
  for (const int generator : {1, 1, 0}) CHECK(busy.deal(0, 0) == generator);
  for (int k = 0; k < 2; ++k) busy.answered(1, 0, 1, 0, 0);
  CHECK(!busy.deal_again(0, 0, 11.9, 0));  // nor is it late with what it has been dealt since
  CHECK(busy.deal_again(0, 0, 12, 0) == 1);
  Dealing first(2, 1);  // the first one as well
  for (const int generator : {1, 0}) CHECK(first.deal(0, 0) == generator);
  first.answered(0, 0, 1, 0, 0);
  CHECK(first.deal_again(1, 0, 4, 0) == 0);
  Dealing alone(1, 0);
  CHECK(alone.deal(0, 0) == 0);
  alone.answered(0, 0, 0.1, 0, 0);
  CHECK(alone.deal(0, 0) == 0);
  CHECK(!alone.deal_again(0, 0, 1e9, 0));
}

TEST_CASE("What another generator has only for later does not keep it from a late micro-batch", "[generators]") {
  Dealing dealing(2, 0);
  for (int k = 0; k < 4; ++k) CHECK(dealing.deal(k / 2, 0) == k % 2);
  dealing.answered(1, 2, 1, 1, 1);  // which it never got
  CHECK(dealing.outstanding(1) == std::vector<std::int64_t>{0, 1});
  const int answered = GENERATE(0, 1);
  dealing.answered(1, answered, 1, 1, 1);
  CHECK(!dealing.deal_again(0, 1, 8, 8));
  CHECK(dealing.deal_again(0, 0, 8, 8).has_value() == (answered == 0));
}

TEST_CASE("One hindrance does not keep a generator from work, and more of them not for good", "[generators]") {
  const int hindrances = GENERATE(1, 2);
  Dealing dealing(2, 0);
  for (int k = 0; k < 4; ++k) CHECK(dealing.deal(0, 0) == k % 2);
  for (const int generator : {0, 1}) {
    dealing.answered(generator, 0, generator == 0 && hindrances == 2 ? 10 : 1, 1, 0);
    dealing.answered(generator, 0, generator == 0 ? 10 : 1, 0, 0);
  }
  int passed_over = 0;
  for (; dealing.deal(0, 0) == 1; ++passed_over) dealing.answered(1, 0, 1, 0, 0);
  // Of 10 seconds each one leaves 98 %, until less than a second remains.
  CHECK(passed_over == (hindrances == 1 ? 0 : 114));
}

TEST_CASE("A micro-batch that is given up says nothing of its generator's speed", "[generators]") {
  Dealing dealing(2, 0);
  for (const int generator : {0, 1}) CHECK(dealing.deal(0, 0) == generator);
  dealing.answered(0, 0, 0.5, 0, 0);
  dealing.answered(1, 0, 2, 0, 0);
  CHECK(dealing.deal(0, 0) == 0);
  dealing.answered(0, 0, 0, 0, 0);
  for (const int generator : {0, 0}) CHECK(dealing.deal(0, 0) == generator);
}

TEST_CASE("Numbers of a version travel as they are, or rounded to the nearest that has eight bits", "[generators]") {
  const std::vector<float> values{-3.14159F, 1.0F, 0x1p-126F, 1.00390625F, 1.01171875F, 3e38F};
  for (const bool rounded : {false, true}) {
    VersionNumbers numbers(std::ssize(values), rounded);
    CHECK(numbers.bytes() == values.size() * (rounded ? 2 : 4));
    std::vector<float> message(values.size());
    auto* const bytes = reinterpret_cast<std::byte*>(message.data());
    std::copy(values.begin(), values.end(), numbers.room(bytes));
    numbers.pack(bytes);
    VersionNumbers other(std::ssize(values), rounded);
    const float* const found = other.unpack(bytes);
    const std::vector<float> wanted =
        rounded ? std::vector<float>{-3.140625F, 1.0F, 0x1p-126F, 1.0F, 1.015625F, 0x1.C4p+127F} : values;
    CHECK(std::vector<float>(found, found + values.size()) == wanted);
  }
}

TEST_CASE("An answer has room for what it may bring, and images in it stand at a multiple of 8 bytes", "[generators]") {
  const auto backend = test::test_backend(1);
  AnswerPacket packet(*backend, 24, "test");
  CHECK(packet.room() == AnswerPacket::bytes(24));
  for (const std::size_t sealed : {0U, 8U})
    for (packet.seal(sealed); const std::size_t behind : {0U, 8U, 16U})
      CHECK(packet.whole(AnswerPacket::bytes(behind)) == (behind == sealed));
  CHECK(!packet.whole(AnswerPacket::bytes(0) - 1));
  for (const int ages : {0, 1, 2, 3}) CHECK(bytes_of_ages(ages) == (ages == 0 ? 0U : ages < 3 ? 8U : 16U));
}

TEST_CASE("Images are turned from a generator's layout into the trainer's", "[generators]") {
  const Layout planes{4, 2, 3, 1}, channels_last{4, 2, 3, 4};
  std::vector<float> images(48), turned_images(48), back(48);
  std::iota(images.begin(), images.end(), 0.0F);
  CHECK(turned(images.data(), planes, 2, channels_last, turned_images.data()) == turned_images.data());
  std::vector<float> expected;
  for (int n = 0; n < 2; ++n)
    for (int pixel = 0; pixel < 6; ++pixel)
      for (int c = 0; c < 4; ++c) expected.push_back(static_cast<float>((n * 4 + c) * 6 + pixel));
  CHECK(turned_images == expected);
  CHECK(in_layout(turned_images.data(), channels_last, 2, planes, back.data()) == back.data());
  CHECK(back == images);
  CHECK(in_layout(images.data(), planes, 2, planes, turned_images.data()) == images.data());
}

TEST_CASE("Generators beyond the micro-batches that can be under way are refused", "[generators]") {
  TrainOptions options;
  options.warmup_epochs = 0;
  options.batch = 0;
  options.total_batch = 12;
  options.micro_batch = 2;
  for (const bool deterministic : {false, true})  // 3 ranks of 2 micro-batches, or 6 of all ranks together
    for (const auto& [staleness, steps] : {std::pair(0, "1 step;"), std::pair(1, "2 steps;")}) {
      options.deterministic = deterministic;
      options.staleness = staleness;
      const Plan plan(options, 24, 3);
      CHECK(plan.most_units() == 2);
      options.generators = 6 * (staleness + 1);
      CHECK_NOTHROW(require_work(options, plan));
      const std::string most = std::to_string(options.generators++) + " micro-batches that can be under way: those of ";
      CHECK(
          contains(message_of([&] { require_work(options, plan); }, ExitCode::usage), "more than the " + most + steps));
    }
}

TEST_CASE("Steps that are under way at once have places of their own", "[generators]") {
  const StepsUnderWay under_way{.steps = 3, .units = 4};
  CHECK(under_way.places() == 12);
  std::vector<int> taken(12);
  for (std::int64_t step = 7; step < 10; ++step)
    for (int unit = 0; unit < 4; ++unit) ++taken[under_way.place(step, unit)];
  CHECK(taken == std::vector<int>(12, 1));
  CHECK(under_way.place(7, 2) == under_way.place(10, 2));
}

TEST_CASE("Iterations run on weights as many steps old as is allowed, and on newer ones as an attack goes on",
          "[generators]") {
  const Staleness newer{.versions = 3, .refresh = true, .iterations = 4};
  const Staleness oldest{.versions = 3, .refresh = false, .iterations = 4};
  for (const auto& [iteration, version] : {std::pair(0, 7), std::pair(1, 7), std::pair(2, 8), std::pair(3, 9)}) {
    CHECK(newer.version(10, iteration, 0) == version);
    CHECK(newer.version(10, iteration, 8) == std::max(version, 8));
    CHECK(oldest.version(10, iteration, 0) == 7);
  }
  TrainOptions options;
  options.staleness = 3;
  for (const auto& [name, stop, iterations] :
       {std::tuple("pgd", -1, 4), std::tuple("pgd", 0, 4), std::tuple("fgsm", -1, 1), std::tuple("none", -1, 1)}) {
    options.attack = name;
    options.attack_stop = stop;
    const Staleness found = staleness_of(options, *attacks().at(name)({.steps = 4}));
    CHECK((found.versions == 3 && found.iterations == iterations && found.refresh == (stop < 0 && iterations > 1)));
  }
}
