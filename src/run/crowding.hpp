#pragma once

#include <string>
#include <vector>

#include "dat/communicator.hpp"
#include "run/core_wait.hpp"

namespace dat {

/// Sees, once, where threads of a rank wait for cores that others use.
class Crowding {
 public:
  /// Compares the ranks' shares of waiting time now and then: after 10, 20, 40 ... steps, until it is much on one of
  /// them. Called after each step of this process. Then rank 0 gets a sentence about it; else it is empty. hosts [ranks
  /// of the launch], on rank 0. **Collective.**
  [[nodiscard]] std::string after_step(Communicator& ranks, const std::vector<std::string>& hosts);

 private:
  CoreWait cores_;
  std::int64_t steps_ = 0;
  bool told_ = false;
};

}  // namespace dat
