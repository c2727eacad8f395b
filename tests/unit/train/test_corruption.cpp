#include "catch.hpp"
#include "device.hpp"
#include "fingerprint.hpp"
#include "random_values.hpp"
#include "train/watch/replica_check.hpp"
#include "train/watch/state_hash.hpp"
#include "train/watch/verification.hpp"

using namespace dat;

namespace {

/// Arrays that are nobody's state.
class Arrays final : public Stateful {
 public:
  void save(Checkpoint&) override {}
  void restore(const Checkpoint&) override {}
  void share(Communicator&) override {}
  void replicated(ReplicatedState& state) override {
    state.device("long", values.data(), std::ssize(values));
    state.host("numbers", numbers.data(), numbers.size() * sizeof(double));
    state.device("short", few.data(), std::ssize(few));
  }
  test::Shared<float> values = test::shared(std::vector<float>(2 * kChunk + 37, 0.25F)),
                      few = test::shared(std::vector<float>(5, 1.5F));
  std::vector<double> numbers{0, 1, 2.5};
};

[[nodiscard]] std::vector<std::uint64_t> values_of(StateHash& hash, Arrays& arrays) {
  std::array<Stateful*, 1> parts{&arrays};
  hash.take(parts);
  return hash.values();
}

/// Written out from the definition, on bytes.
[[nodiscard]] std::uint64_t expected(const void* data, std::size_t bytes) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < bytes / 4; ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, static_cast<const char*>(data) + 4 * i, 4);
    std::uint64_t z = (std::uint64_t{i} << 32) + word;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    total += z ^ (z >> 31);
  }
  return total;
}

}  // namespace

TEST_CASE("The hash of an array is the sum of its words' parts, wherever it lies", "[kernels][corruption]") {
  Backend& backend = test::kernel_backend();
  Arrays arrays;
  std::array<Stateful*, 1> parts{&arrays};
  StateHash hash(backend, parts);
  CHECK(hash.names() == std::vector<std::string>{"long", "numbers", "short"});
  for (std::size_t i = 0; i < arrays.values.size(); ++i)
    arrays.values[i] = std::bit_cast<float>(random_words(3, Purpose::synthetic_data, 0, i, 0).v[0]);  // NaN, too
  const std::vector<std::uint64_t> values = values_of(hash, arrays);
  CHECK(values == std::vector{expected(arrays.values.data(), arrays.values.size() * sizeof(float)),
                              expected(arrays.numbers.data(), arrays.numbers.size() * sizeof(double)),
                              expected(arrays.few.data(), arrays.few.size() * sizeof(float))});
  std::uint64_t all = 0;
  for (std::size_t k = 0; k < values.size(); ++k) all += kernels::mix_bits(values[k] + kernels::mix_bits(k));
  CHECK(hash.value() == all);
  // As in SplitMix64, whose first number from the seed 0 this is (the authors' splitmix64.c).
  CHECK(kernels::mix_bits(0x9e3779b97f4a7c15) == 0xe220a8397b1dcdaf);
}

TEST_CASE("Any one flipped bit changes the hash of its array, and no other", "[kernels][corruption]") {
  Backend& backend = test::kernel_backend();
  Arrays arrays;
  std::array<Stateful*, 1> parts{&arrays};
  StateHash hash(backend, parts);
  const std::vector<std::uint64_t> before = values_of(hash, arrays);
  const std::uint64_t all = hash.value();
  std::int64_t missed = 0;
  const auto flip = [&](void* at, std::size_t array) {
    for (int bit = 0; bit < 32; ++bit) {
      std::uint32_t word = 0;
      std::memcpy(&word, at, 4);
      word ^= 1U << bit;
      std::memcpy(at, &word, 4);
      const std::vector<std::uint64_t> after = values_of(hash, arrays);
      for (std::size_t k = 0; k < after.size(); ++k) missed += (after[k] != before[k]) != (k == array);
      missed += hash.value() == all;
      word ^= 1U << bit;
      std::memcpy(at, &word, 4);
    }
  };
  // The ends of chunks and of vectors.
  for (const int i : {0, 1, 15, 16, kChunk - 1, kChunk, 2 * kChunk - 1, 2 * kChunk, 2 * kChunk + 31, 2 * kChunk + 36})
    flip(&arrays.values[static_cast<std::size_t>(i)], 0);
  for (std::size_t i = 0; i < 6; ++i) flip(reinterpret_cast<char*>(arrays.numbers.data()) + 4 * i, 1);
  for (float& value : arrays.few) flip(&value, 2);
  CHECK(missed == 0);
  CHECK(values_of(hash, arrays) == before);

  SECTION("bits count, not values; places count, too") {
    arrays.values[7] = 0;
    const std::uint64_t zero = values_of(hash, arrays)[0];
    arrays.values[7] = -0.0F;
    CHECK(values_of(hash, arrays)[0] != zero);
    arrays.few[1] = 2;
    const std::uint64_t one = values_of(hash, arrays)[2];
    std::swap(arrays.few[0], arrays.few[1]);
    CHECK(values_of(hash, arrays)[2] != one);
  }
}

TEST_CASE("The majority names who is wrong, and in what; without one nobody is blamed", "[corruption]") {
  using Values = std::vector<std::uint64_t>;
  using Numbers = std::vector<std::size_t>;
  const Numbers none, first{0}, second{1}, both{0, 1};
  struct Row {
    Values values;
    int source;
    Numbers differing;
    std::vector<Numbers> wrong;
  };
  for (const Row& row :
       {Row{{5, 6, 5, 6, 5, 6}, 0, none, {none, none, none}}, Row{{5, 7, 5, 6, 5, 6}, 1, second, {second, none, none}},
        Row{{5, 6, 1, 2, 5, 6}, 0, both, {none, both, none}},
        // Different ranks are wrong in different things; then none is right in all.
        Row{{1, 6, 5, 2, 5, 6, 5, 6}, 2, both, {first, second, none, none}},
        Row{{1, 6, 7, 5, 2, 7, 5, 6, 3}, -1, {0, 1, 2}, {first, second, {2}}}}) {
    const Majority m = majority_of(row.values, static_cast<int>(row.wrong.size()));
    CHECK((m.decided && m.source == row.source && m.differing == row.differing && m.wrong == row.wrong));
  }
  for (const Values& values : {Values{1, 2}, Values{1, 1, 2, 2}, Values{1, 2, 3}, Values{1, 1, 2, 3}}) {
    const Majority m = majority_of(values, static_cast<int>(values.size()));
    CHECK((!m.decided && m.source == -1 && m.differing == first));
    CHECK(m.wrong == std::vector<Numbers>(values.size()));
  }
  CHECK(ranks_text({1}, {"0 on a", "3 on b"}) == "rank 3 on b");
  CHECK(ranks_text({0, 2}, {"0 on a", "1 on b", "2 on c"}) == "ranks 0 on a, 2 on c");
}

namespace {

[[nodiscard]] Plan plan_of(int ranks, bool ordered) {
  TrainOptions options;
  options.deterministic = ordered;
  options.batch = 8;
  options.micro_batch = 2;
  options.epochs = 1;
  options.warmup_epochs = 0;
  return {options, 64, ranks};
}

}  // namespace

TEST_CASE("Every micro-batch has its turn to be recomputed, by every other rank", "[corruption]") {
  for (const bool ordered : {true, false})
    for (const int ranks : {2, 3, 5}) {
      const Plan plan = plan_of(ranks, ordered);
      std::set<std::array<int, 3>> seen;
      std::int64_t wrong = 0;
      for (std::int64_t step = 0; step < 20000; ++step) {
        const VerificationPlan chosen = verification_of(7, step, plan);
        const VerificationPlan again = verification_of(7, step, plan);
        wrong += chosen.of.rank != again.of.rank || chosen.verifier != again.verifier || chosen.third != again.third;
        wrong += chosen.of.rank < 0 || chosen.of.rank >= ranks || chosen.verifier < 0 || chosen.verifier >= ranks ||
                 chosen.of.rank == chosen.verifier;
        wrong += ranks == 2 ? chosen.third != -1
                            : chosen.third < 0 || chosen.third >= ranks || chosen.third == chosen.of.rank ||
                                  chosen.third == chosen.verifier;
        wrong += chosen.of.index < 0 || chosen.of.index >= plan.micro_batches_of(chosen.of.rank);
        seen.insert({chosen.of.rank, chosen.of.index, chosen.verifier});
      }
      INFO(ranks << (ordered ? ", ordered" : ""));
      CHECK(wrong == 0);
      int all = 0;
      for (int rank = 0; rank < ranks; ++rank) all += (ordered ? plan.micro_batches_of(rank) : 1) * (ranks - 1);
      CHECK(std::ssize(seen) == all);
    }
}

TEST_CASE("A sketch measures how far two gradients are from each other", "[kernels][corruption]") {
  Backend& backend = test::kernel_backend();
  const std::int64_t n = 40 * kChunk;
  std::vector<Chunk> table;
  for (std::int64_t begin = 0; begin < n; begin += kChunk) table.push_back({begin, kChunk, 0});
  const auto chunk_memory = test::shared(table);
  const auto first = test::shared(std::vector<std::int32_t>{0, 40});
  const Chunks chunks{chunk_memory.data(), first.data(), 40, 1};
  auto x = test::shared(std::vector<float>(static_cast<std::size_t>(n)));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = 2 * uniform(random_words(5, Purpose::synthetic_data, 0, i, 0).v[0]) - 1;
  auto y = x;
  auto of_x = test::shared(std::vector<double>(40 * kSums)), of_y = of_x,
       sums = test::shared(std::vector<double>(kSums));
  double square = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    // Its mean is not 0: without signs, too, the differences would not cancel out.
    y[i] += 0.01F * (2 * uniform(random_words(6, Purpose::synthetic_data, 0, i, 0).v[0]) - 0.8F);
    square += (double(y[i]) - x[i]) * (double(y[i]) - x[i]);
  }
  sum(backend.device(), chunks, kernels::Sketch{x.data()}, of_x.data(), sums.data());
  sum(backend.device(), chunks, kernels::Sketch{y.data()}, of_y.data(), sums.data());
  backend.wait();
  double first_chunk[2] = {0, 0}, found = 0;
  for (std::size_t i = 0; i < kChunk; ++i)  // bits 0 and 1 of the mixed place are the signs
    for (const unsigned j : {0U, 1U})
      first_chunk[j] += (kernels::mix_bits(i) >> j & 1U) != 0 ? double(x[i]) : -double(x[i]);
  for (const std::size_t j : {0U, 1U}) CHECK(of_x[j] == Approx(first_chunk[j]).margin(1e-9));
  for (std::size_t k = 0; k < 40; ++k)
    for (std::size_t j = 0; j < 2; ++j)
      found += (of_x[k * kSums + j] - of_y[k * kSums + j]) * (of_x[k * kSums + j] - of_y[k * kSums + j]) / 2;
  // 80 squares of numbers that are nearly normal: a relative standard deviation of sqrt(2 / 80) = 0.16; four of them.
  CHECK(std::abs(found / square - 1) < 0.64);
  // Two chunks, whose sketches are two numbers and the square of the norm; before them the fingerprint and the loss.
  const std::vector<double> one{1, 2, 3, 4, 25, 1, 0, 10}, other{7, 2, 0, 0, 16, 1, 2, 11};
  CHECK(distance_of_claims(one, other) == Approx(std::sqrt((9 + 16 + 4) / 2.0 / (25 + 11))));
  std::vector<double> same = one;
  CHECK(distance_of_claims(one, same) == 0);
  same[0] = 9;  // the bits
  CHECK((distance_of_claims(one, same) > 0 && distance_of_claims(one, same) < 1e-20));
  same[1] = 3;
  CHECK((distance_of_claims(one, same) == 0.5 && distance_of_claims(same, one) == Approx(1 / 3.0)));
  same[2] = std::nan("");
  CHECK(std::isnan(distance_of_claims(one, same)));
  CHECK(distance_of_claims({1, 0, 0, 0, 0}, {2, 0, 0, 0, 0}) < 1e-20);  // of nothing
  CHECK(verification_tolerance(0) == Approx(1e-4));
  CHECK(verification_tolerance(10) == Approx(1e-4 + 4 * std::sqrt(2e-4)));
}
