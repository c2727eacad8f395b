#include "byzantine/digest.hpp"
#include "byzantine/draw.hpp"
#include "byzantine/part_work.hpp"
#include "byzantine/secret.hpp"
#include "catch.hpp"
#include "claims.hpp"
#include "device.hpp"
#include "launch.hpp"
#include "random_values.hpp"
#include "sha256.hpp"

using namespace dat;
using namespace dat::test;

namespace {

/// The leaves' digests by the formula of the kernel, which the CPU leaves to the library.
[[nodiscard]] Sha256Digest by_kernel(const std::vector<float>& data) {
  const auto elements = std::ssize(data);
  const std::int64_t leaves = kernels::HashLeaves::leaves(elements);
  const Shared<float> input(data.begin(), data.end());
  Shared<std::uint32_t> out(static_cast<std::size_t>(leaves) * 8 + 1);
  run(leaves, kernels::HashLeaves{input.data(), elements, out.data()});
  Sha256 hash;
  hash.add("root", 4);
  hash.add(&elements, sizeof elements);
  hash.add(out.data(), static_cast<std::size_t>(leaves) * 32);
  return hash.digest();
}

[[nodiscard]] std::vector<float> noise(std::size_t count, unsigned seed) {
  std::mt19937 words(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto word = static_cast<std::uint32_t>(words());  // any bits: not-a-numbers, infinities, denormals
    std::memcpy(&value, &word, sizeof value);
  }
  return values;
}

}  // namespace

TEST_CASE("The kernel hashes leaves as the library does, whatever their length", "[kernels][byzantine]") {
  for (const std::size_t count : {0, 1, 2, 12, 13, 14, 15, 16, 17, 29, 30, 1023, 1024, 1025, 2048, 5000}) {
    CAPTURE(count);
    const std::vector<float> data = noise(count, static_cast<unsigned>(count));
    const std::unique_ptr<Backend> cpu = make_backend({.device = "cpu", .threads = 1, .math = "f32"});
    const std::size_t taken = cpu->allocations().size();
    RunHasher library(*cpu, std::max<std::int64_t>(std::ssize(data), 1), 1);
    CHECK(library.root(data.data(), std::ssize(data)) == by_kernel(data));
    CHECK(cpu->allocations().size() == taken);  // the leaves go to no memory
  }
}

TEST_CASE("Roots of runs on the device are those of the host, and tell any bit", "[kernels][byzantine]") {
  Backend& backend = kernel_backend();
  const std::vector<float> data = noise(4000, 3);
  float* const input = backend.allocate_floats(4000, "test");
  backend.copy_to_device(input, data.data(), data.size() * sizeof(float));
  const std::size_t taken = backend.allocations().size();
  RunHasher hasher(backend, 4000, 3);
  CHECK((backend.allocations().size() > taken) == (backend.device().kind != DeviceKind::cpu));
  CHECK(RunHasher::memory(4000, 3) == 32 * (3 + 3));  // three whole leaves, and of each run one that is not
  const std::vector<RunHasher::Run> runs{{input, 1500}, {input + 1500, 0}, {input + 1500, 2500}};
  std::vector<Sha256Digest> roots(3);
  hasher.roots(runs, roots);
  CHECK((roots[0] == hasher.root(data.data(), 1500) && roots[1] == hasher.root(data.data(), 0)));
  CHECK(roots[2] == hasher.root(data.data() + 1500, 2500));
  for (const std::size_t at : {std::size_t{0}, std::size_t{1023}, std::size_t{1024}, std::size_t{1499}}) {
    std::vector<float> other = data;
    std::uint32_t word = 0;
    std::memcpy(&word, &other[at], sizeof word);
    word ^= 1U << (at % 32);
    std::memcpy(&other[at], &word, sizeof word);
    CHECK(hasher.root(other.data(), 1500) != roots[0]);
  }
  CHECK(hasher.root(data.data(), 1499) != roots[0]);
}

TEST_CASE("SHA-256 of FIPS 180-4's example, and one after the other", "[byzantine]") {
  Sha256 hash;
  for (int k = 0; k < 2; ++k) {
    hash.add("abc", 3);
    CHECK(hash.hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  }
}

TEST_CASE("Secrets, commitments and draws are those that hashlib's SHA-256 makes", "[byzantine]") {
  const Secret secret(7, 2, "words");
  const Sha256Digest all = commitment(secret.salt(3, 4, 1), secret.share(3, 4));
  CHECK(direction_key(all, 5) == 0x3ab4fe3e3437db33);
  const auto drawn = [&](const std::vector<char>& contributed) {
    std::string pairs;
    for (const Check& check : draw_checks(all, contributed, 2))
      pairs += std::to_string(check.validator) + ">" + std::to_string(check.target) + " ";
    return pairs;
  };
  CHECK((drawn({1, 1, 0, 1, 1, 1, 1}) == "0>5 1>6 " && drawn({1, 0}) == "1>0 " && drawn({0, 1}) == "0>1 "));
}

TEST_CASE("Validators and targets are drawn as the law says", "[byzantine]") {
  constexpr int kRanks = 5, kDraws = 40000;
  // Rank 3 has been a validator, and has brought nothing.
  const std::vector<char> contributed{1, 1, 1, 0, 1};
  std::vector<int> pairs(kRanks * kRanks);
  for (int k = 0; k < kDraws; ++k) {
    const std::vector<Check> checks = draw_checks(digest_of("test", {bytes_of(k)}), contributed, 1);
    REQUIRE(checks.size() == 1);
    ++pairs[static_cast<std::size_t>(checks[0].validator * kRanks + checks[0].target)];
  }
  double square = 0;  // chi-squared: 4 validators with 3 targets each, one with 4; 15 degrees of freedom
  for (int validator = 0; validator < kRanks; ++validator)
    for (int target = 0; target < kRanks; ++target) {
      const int count = pairs[static_cast<std::size_t>(validator * kRanks + target)];
      if (target == 3 || target == validator) {
        CHECK(count == 0);
        continue;
      }
      const double expected = kDraws / 5.0 / (validator == 3 ? 4 : 3);
      square += (count - expected) * (count - expected) / expected;
    }
  CHECK(square < 37.7);  // p = .001
}

TEST_CASE("Random directions have numbers that are uniform in [-1, 1)", "[byzantine]") {
  constexpr int kCount = 10000;
  double sum = 0, squares = 0;
  for (int k = 0; k < kCount; ++k) {
    const double z = kernels::direction(static_cast<std::uint64_t>(k % 100), k / 100);
    REQUIRE((z >= -1 && z < 1));
    sum += z;
    squares += z * z;
  }
  // Variances of a number and of its square: 1/3 and 4/45.
  CHECK(std::abs(sum) < 5 * std::sqrt(kCount / 3.0));
  CHECK(std::abs(squares - kCount / 3.0) < 5 * std::sqrt(kCount * 4 / 45.0));
  // The first number of SplitMix64 with the seed 0 (Vigna, splitmix64.c); a fingerprint mixes place and word alike.
  constexpr std::uint64_t kFirst = 0xe220a8397b1dcdaf;
  CHECK(kernels::direction(0, 0) == static_cast<double>(static_cast<std::int64_t>(kFirst)) * 0x1p-63);
  CHECK(kernels::fingerprint_of(0x9e3779b9, 0x7f4a7c15) == kFirst);
}

TEST_CASE("Sums of claims are those of each run, its direction and its part of the result", "[kernels][byzantine]") {
  const Shared<float> x = shared(random_values(9100, 1)), v = shared(random_values(8700, 2));
  const std::vector<RunSums::Run> runs{{.x = 7, .elements = 8500, .v = 100, .key = 77},
                                       {.x = 9000, .elements = 30, .v = 0, .key = 5}};
  RunSums sums(kernel_backend(), 8530, 2);
  const double* const found = sums.of(runs, x.data(), v.data());
  for (std::size_t k = 0; k < runs.size(); ++k) {
    double expected[kSums] = {};
    for (std::int64_t i = 0; i < runs[k].elements; ++i) {
      const double result = v[static_cast<std::size_t>(runs[k].v + i)],
                   difference = x[static_cast<std::size_t>(runs[k].x + i)] - result;
      expected[0] += kernels::direction(runs[k].key, i) * difference;
      expected[1] += difference * difference;
      expected[2] += result * result;
    }
    for (std::size_t j = 0; j < kSums; ++j) CHECK(found[k * kSums + j] == Approx(expected[j]).margin(1e-9));
  }
}

TEST_CASE("Several validators have targets of their own, as long as there are some", "[byzantine]") {
  for (int k = 0; k < 300; ++k) {
    const Sha256Digest randomness = digest_of("test", {bytes_of(k)});
    const std::vector<Check> checks = draw_checks(randomness, std::vector<char>{1, 1, 0, 1, 1, 1}, 3);
    REQUIRE(checks.size() == 3);
    for (std::size_t a = 0; a < 3; ++a) {
      CHECK((checks[a].target != 2 && checks[a].target != checks[a].validator));
      for (std::size_t b = 0; b < a; ++b)
        CHECK((checks[a].target != checks[b].target && checks[a].validator != checks[b].validator));
    }
    CHECK(draw_checks(randomness, std::vector<char>{1, 1}, 2).size() <= 2);
    CHECK(draw_checks(randomness, std::vector<char>{1}, 1).empty());
  }
}
