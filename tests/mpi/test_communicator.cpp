#include <numeric>

#include "catch.hpp"
#include "world.hpp"

using namespace dat;
using dat::test::world;

// CHECK only: a rank that leaves a test early would leave the others waiting.

TEST_CASE("Ranks are numbered, and the launcher's environment tells the same number", "[communicator]") {
  CHECK((world().rank() >= 0 && world().rank() < world().size()));
  CHECK(world().root() == (world().rank() == 0));
  CHECK((world().node_rank() >= 0 && world().node_rank() < world().node_size()));
  CHECK(world().node_size() <= world().size());
  CHECK(rank_from_environment() == world().rank());
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
    CHECK(wrong == 0);
    CHECK(values.back() == static_cast<T>(kCount - 1) * static_cast<T>(world().rank() + 1));
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
  CHECK(values == expected);
  CHECK(texts == expected_texts);
}

TEST_CASE("Sums under way finish with the sums that a call would have given", "[communicator]") {
  const int size = world().size(), triangle = size * (size + 1) / 2;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<float>> buffers;
    for (int k = 0; k < 100; ++k)
      buffers.emplace_back(static_cast<std::size_t>(1 + 97 * k), static_cast<float>((k + 1) * (world().rank() + 1)));
    for (auto& buffer : buffers) {
      world().start_sum(buffer.data(), std::ssize(buffer));
      world().poll();
    }
    world().finish_pending();
    for (std::size_t k = 0; k < buffers.size(); ++k)
      CHECK(buffers[k] ==
            std::vector<float>(buffers[k].size(), static_cast<float>((k + 1) * static_cast<std::size_t>(triangle))));
  }
  world().poll();
  world().finish_pending();
}

TEST_CASE("A single rank needs no launcher and is all ranks", "[communicator]") {
  const auto single = Communicator::single();
  CHECK(single->size() == 1);
  CHECK(single->root());
  float value = 3;
  single->sum(&value, 1);
  single->start_sum(&value, 1);
  single->finish_pending();
  CHECK(value == 3);
  CHECK(single->minimum(-4) == -4);
  CHECK(single->agree(7));
  CHECK(single->gather(std::vector<double>{1, 2}) == std::vector<double>{1, 2});
  CHECK(single->gather("me") == std::vector<std::string>{"me"});
  std::string text = "text";
  single->broadcast(text);
  CHECK(text == "text");
}
