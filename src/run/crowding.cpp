#include "run/crowding.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace dat {

std::string Crowding::after_step(Communicator& ranks, const std::vector<std::string>& hosts) {
  constexpr std::int64_t kFirst = 10;  // steps before these are of planning and of a machine that wakes up
  constexpr double kMuch = 0.2;
  ++steps_;
  if (steps_ == 2) cores_.begin();
  if (told_ || steps_ % kFirst != 0 || std::popcount(static_cast<std::uint64_t>(steps_ / kFirst)) != 1) return "";
  const std::vector<double> shares = ranks.gather(std::vector<double>{cores_.share()});
  const auto most = std::max_element(shares.begin(), shares.end());
  told_ = ranks.root() && *most > kMuch;
  ranks.broadcast(&told_, sizeof told_);
  if (!told_ || !ranks.root()) return "";
  const int rank = ranks.launch_rank(static_cast<int>(most - shares.begin()));
  return "the threads of rank " + std::to_string(rank) + " on " + hosts[static_cast<std::size_t>(rank)] +
         " wait for a core " + std::to_string(std::lround(100 * *most)) +
         " % of their time: more is running there than it has cores for, which slows all ranks; give the run cores of "
         "its own, or fewer --threads";
}

}  // namespace dat
