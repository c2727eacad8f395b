#include "train/attackers/arithmetic.hpp"

namespace dat {

/// Cheat that sends what the first honest rank sends, so that its images count more than others: mimic (Karimireddy,
/// He, Jaggi, ICLR 2022), which there looks for the rank to be mimicked first.
std::unique_ptr<Cheat> make_mimic(const CheatOptions&) {
  return sends(Cheat::Sees::all, [](const CheatStep& step, std::int64_t i) { return step.first[i]; });
}

}  // namespace dat
