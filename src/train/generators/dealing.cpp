#include "train/generators/dealing.hpp"

#include <algorithm>
#include <limits>

namespace dat {

Dealing::Dealing(int generators, int first) : all_(static_cast<std::size_t>(generators)), first_(first) {}

double Dealing::seconds(const One& one) const {
  if (one.seconds > 0) return one.seconds;
  const double most = std::ranges::max_element(all_, {}, &One::seconds)->seconds;
  return most > 0 ? most : 1;
}

int Dealing::deal(std::int64_t step, double now) {
  const int count = static_cast<int>(std::ssize(all_));
  int best{};
  double least = std::numeric_limits<double>::infinity();
  for (int k = 0; k < count; ++k) {
    const int generator = (first_ + k) % count;
    const One& one = of(generator);
    const double end = std::max(now, one.free_at) + seconds(one);
    if (end >= least) continue;
    best = generator;
    least = end;
  }
  give(of(best), step, least);
  // Who was slow once and has nothing to do is not measured anew: it is tried again some time.
  for (One& one : all_)
    if (one.outstanding.empty()) one.seconds *= kForget;
  return best;
}

void Dealing::give(One& one, std::int64_t step, double end) {
  one.outstanding.push_back(step);
  ++one.waiting;
  one.free_at = end;
}

std::optional<int> Dealing::deal_again(int generator, std::int64_t step, double waited, double now) {
  const One& late = of(generator);
  const bool measured = std::ranges::any_of(all_, [](const One& one) { return one.seconds > 0; });
  if (!measured || waited < kLate * late.has() * seconds(late)) return {};
  const auto wanted = [step](std::int64_t one) { return one <= step; };
  for (int other = 0; other < static_cast<int>(std::ssize(all_)); ++other) {
    if (other == generator || std::ranges::any_of(of(other).outstanding, wanted)) continue;
    give(of(other), step, now + seconds(of(other)));
    return other;
  }
  return {};
}

void Dealing::answered(int generator, std::int64_t step, double seconds, int waiting, double now) {
  One& one = of(generator);
  const auto found = std::ranges::find(one.outstanding, step);
  if (found != one.outstanding.end()) one.outstanding.erase(found);
  one.waiting = waiting;
  if (seconds > 0) {  // else it has been given up
    one.seconds = one.last > 0 ? std::min(one.last, seconds) : seconds;
    one.last = seconds;
  }
  // The trainer may have looked late: of the next one, any part may be done.
  one.free_at = std::clamp(one.free_at, now + std::max(one.has() - 1, 0) * one.seconds, now + one.has() * one.seconds);
}

}  // namespace dat
