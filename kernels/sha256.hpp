#pragma once

#include <cstdint>

#include "launch.hpp"

namespace dat::kernels {

/// One block of SHA-256 (FIPS 180-4, 6.2.2): `state` [8] is carried on by `words` [16], which are overwritten.
DAT_HD inline void sha256_block(std::uint32_t (&state)[8], std::uint32_t (&words)[16]) {
  // The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
  constexpr std::uint32_t kConstants[64] = {
      0x428a2f98U, 0x71374491U, 0xb5c0fbcfU, 0xe9b5dba5U, 0x3956c25bU, 0x59f111f1U, 0x923f82a4U, 0xab1c5ed5U,
      0xd807aa98U, 0x12835b01U, 0x243185beU, 0x550c7dc3U, 0x72be5d74U, 0x80deb1feU, 0x9bdc06a7U, 0xc19bf174U,
      0xe49b69c1U, 0xefbe4786U, 0x0fc19dc6U, 0x240ca1ccU, 0x2de92c6fU, 0x4a7484aaU, 0x5cb0a9dcU, 0x76f988daU,
      0x983e5152U, 0xa831c66dU, 0xb00327c8U, 0xbf597fc7U, 0xc6e00bf3U, 0xd5a79147U, 0x06ca6351U, 0x14292967U,
      0x27b70a85U, 0x2e1b2138U, 0x4d2c6dfcU, 0x53380d13U, 0x650a7354U, 0x766a0abbU, 0x81c2c92eU, 0x92722c85U,
      0xa2bfe8a1U, 0xa81a664bU, 0xc24b8b70U, 0xc76c51a3U, 0xd192e819U, 0xd6990624U, 0xf40e3585U, 0x106aa070U,
      0x19a4c116U, 0x1e376c08U, 0x2748774cU, 0x34b0bcb5U, 0x391c0cb3U, 0x4ed8aa4aU, 0x5b9cca4fU, 0x682e6ff3U,
      0x748f82eeU, 0x78a5636fU, 0x84c87814U, 0x8cc70208U, 0x90befffaU, 0xa4506cebU, 0xbef9a3f7U, 0xc67178f2U};
  const auto turn = [](std::uint32_t x, unsigned by) { return x >> by | x << (32U - by); };
  std::uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  std::uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (unsigned t = 0; t < 64; ++t) {
    std::uint32_t& word = words[t % 16];
    if (t >= 16) {
      const std::uint32_t early = words[(t + 1) % 16], late = words[(t + 14) % 16];
      word += (turn(early, 7) ^ turn(early, 18) ^ early >> 3U) + words[(t + 9) % 16] +
              (turn(late, 17) ^ turn(late, 19) ^ late >> 10U);
    }
    const std::uint32_t one =
        h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + kConstants[t] + word;
    const std::uint32_t two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one;
    d = c, c = b, b = a, a = one + two;
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d;
  state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

/// SHA-256 of each leaf of a run of floats: of kLeaf neighbours, of what is left in the last one; the bytes as a
/// little-endian machine has them. Leaf i's digest is out[i * 8 ..], big-endian words as they stand in memory.
struct HashLeaves {
  static constexpr int kLeaf = 1024;
  const float* data;
  std::int64_t elements;
  std::uint32_t* out;

  [[nodiscard]] DAT_HD static std::int64_t leaves(std::int64_t elements) { return (elements + kLeaf - 1) / kLeaf; }

  DAT_HD void operator()(std::int64_t i) const {
    const float* const x = data + i * kLeaf;
    const auto count = static_cast<int>(smaller<std::int64_t>(elements - i * kLeaf, kLeaf));
    std::uint32_t state[8] = {0x6a09e667U, 0xbb67ae85U, 0x3c6ef372U, 0xa54ff53aU,
                              0x510e527fU, 0x9b05688cU, 0x1f83d9abU, 0x5be0cd19U};
    std::uint32_t words[16];
    // Padding after the data is a bit, zeros, and the number of bits as two words that end a block.
    const int blocks = (count + 3 + 15) / 16;
    for (int block = 0; block < blocks; ++block) {
      for (int k = 0; k < 16; ++k) {
        const int at = block * 16 + k;
        words[k] = at < count ? swapped(bits_of(x[at])) : at == count ? 0x80000000U : 0U;
      }
      if (block + 1 == blocks) words[15] = static_cast<std::uint32_t>(count) * 32U;
      sha256_block(state, words);
    }
    for (int k = 0; k < 8; ++k) out[i * 8 + k] = swapped(state[k]);
  }

 private:
  [[nodiscard]] DAT_HD static std::uint32_t swapped(std::uint32_t x) {
    return x >> 24U | (x >> 8U & 0xff00U) | (x << 8U & 0xff0000U) | x << 24U;
  }
};

}  // namespace dat::kernels
