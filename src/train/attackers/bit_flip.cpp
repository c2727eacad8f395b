#include <bit>

#include "dat/random.hpp"
#include "train/attackers/arithmetic.hpp"

namespace dat {

namespace {

/// No cheater, but a broken memory: one random bit of one random number of its gradient is another one.
class BitFlip final : public Cheat {
 public:
  explicit BitFlip(const CheatOptions& options)
      : seed_(options.seed), rank_(static_cast<std::uint64_t>(options.rank)) {}

  [[nodiscard]] Sees sees() const override { return Sees::own; }
  void gradient(const CheatStep& step) override {
    std::int64_t all = 0;
    for (const Segment* tensor : step.tensors) all += tensor->size;
    const Philox4 words = random_words(seed_, Purpose::attackers, static_cast<std::uint32_t>(step.step), rank_, kBits);
    const std::uint64_t word = std::uint64_t{words.v[0]} << 32 | words.v[1];
    auto number = static_cast<std::int64_t>(word % static_cast<std::uint64_t>(all));
    for (const Segment* tensor : step.tensors) {
      if (number < tensor->size) {
        float& value = step.own[tensor->begin + number];
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1U << words.v[2] % 32);
        return;
      }
      number -= tensor->size;
    }
  }

 private:
  static constexpr std::uint32_t kBits = 1;  ///< apart from the numbers of other cheats
  std::uint64_t seed_, rank_;
};

}  // namespace

std::unique_ptr<Cheat> make_bit_flip(const CheatOptions& options) { return std::make_unique<BitFlip>(options); }

}  // namespace dat
