#pragma once

#include <string>

namespace dat {

/// A communication of this process that is not MPI's, while it is entered: the hang watch asks it whether it has
/// failed, and ends it before it ends the process. Any thread.
class Beside {
 public:
  virtual ~Beside() = default;
  /// Reason of a failure; empty: there is none.
  [[nodiscard]] virtual std::string failure() = 0;
  /// Ends what is under way, without the other ranks.
  virtual void abort() = 0;

 protected:
  void enter();
  void leave();
};

/// The first failure among those that are entered.
[[nodiscard]] std::string failure_beside();
/// Ends all that are entered.
void abort_beside();

}  // namespace dat
