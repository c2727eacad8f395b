#include "run/crowding.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>

namespace dat {

CoreWait::Seconds CoreWait::count() {
  Seconds all;
  std::error_code none;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream file(task.path() / "schedstat");  // running and waiting in nanoseconds, slices
    double running = 0, waiting = 0;
    if (!(file >> running >> waiting)) continue;
    all.running += running * 1e-9;
    all.waiting += waiting * 1e-9;
  }
  return all;
}

double CoreWait::share() const {
  // Threads that have ended since then take their times with them.
  const Seconds now = count();
  const double running = std::max(0.0, now.running - begun_.running),
               waiting = std::max(0.0, now.waiting - begun_.waiting);
  return running + waiting < kLeastSeconds ? 0 : waiting / (running + waiting);
}

std::string Crowding::after_step(Communicator& ranks, const std::vector<std::string>& hosts) {
  constexpr std::int64_t kFirst = 10;  // steps before these are of planning and of a machine that wakes up
  constexpr double kMuch = 0.2;
  ++steps_;
  if (steps_ == 2) cores_->begin();
  if (told_ || steps_ % kFirst != 0 || std::popcount(static_cast<std::uint64_t>(steps_ / kFirst)) != 1) return "";
  const double mine = cores_->share();
  std::vector<double> shares(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(&mine, shares.data(), sizeof mine);
  const auto most = std::ranges::max_element(shares);
  told_ = *most > kMuch;
  if (!told_ || !ranks.root()) return "";
  const int rank = ranks.launch_rank(static_cast<int>(most - shares.begin()));
  return "the threads of rank " + std::to_string(rank) + " on " + hosts[static_cast<std::size_t>(rank)] +
         " wait for a core " + std::to_string(std::lround(100 * *most)) +
         " % of their time: more is running there than it has cores for, which slows all ranks; give the run cores of "
         "its own, or fewer --threads";
}

}  // namespace dat
