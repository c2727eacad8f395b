#pragma once

#include <array>
#include <cstdint>

#include "dat/tensor.hpp"

namespace dat {

/// Purpose of a random number. Numbers with different purposes are independent.
enum class Purpose : std::uint32_t {
  initial_weights = 1,
  shuffle = 2,
  augmentation = 3,
  attack_start = 4,
  evaluation_start = 5,
  layer_draw = 6,
  synthetic_data = 7,
  held_out = 8,
  gradient_codec = 9,
  verification = 10,
  attackers = 11,
  noise = 12,
  certification = 13,  ///< the samples whose votes are counted
  candidate = 14,      ///< the samples that choose the class
  attack_run = 20
};

struct Philox4 {
  std::uint32_t v[4];
};

constexpr std::uint32_t kPhiloxKey0 = 0x9E3779B9u, kPhiloxKey1 = 0xBB67AE85u;
/// One of Philox' rounds, after each of which these constants are added to the keys.
[[nodiscard]] DAT_HD inline Philox4 philox_round(const Philox4& counter, std::uint32_t key0, std::uint32_t key1) {
  const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter.v[0];
  const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter.v[2];
  return Philox4{{static_cast<std::uint32_t>(b >> 32) ^ counter.v[1] ^ key0, static_cast<std::uint32_t>(b),
                  static_cast<std::uint32_t>(a >> 32) ^ counter.v[3] ^ key1, static_cast<std::uint32_t>(a)}};
}
/// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
[[nodiscard]] DAT_HD inline Philox4 philox4x32(Philox4 counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    counter = philox_round(counter, key0, key1);
    key0 += kPhiloxKey0;
    key1 += kPhiloxKey1;
  }
  return counter;
}

/// The counter of random_words().
[[nodiscard]] DAT_HD inline Philox4 random_counter(Purpose purpose, std::uint32_t time, std::uint64_t id,
                                                   std::uint32_t index) {
  return Philox4{{index, static_cast<std::uint32_t>(id), time,
                  (static_cast<std::uint32_t>(purpose) << 24) ^ static_cast<std::uint32_t>(id >> 32)}};
}
/// Four random words that depend on nothing but the arguments: no state, the same on every rank and device.
/// `time` is an epoch or a step, `id` a sample or layer number, `index` counts groups of four words.
[[nodiscard]] DAT_HD inline Philox4 random_words(std::uint64_t seed, Purpose purpose, std::uint32_t time,
                                                 std::uint64_t id, std::uint32_t index) {
  return philox4x32(random_counter(purpose, time, id, index), static_cast<std::uint32_t>(seed),
                    static_cast<std::uint32_t>(seed >> 32));
}

/// Uniform in [0, 1), 24 bits.
[[nodiscard]] DAT_HD inline float uniform(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

}  // namespace dat
