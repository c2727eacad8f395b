#include "communicate/hang/beside.hpp"

#include <mutex>
#include <vector>

namespace dat {

namespace {

struct Entered {
  std::mutex mutex;
  std::vector<Beside*> all;
};

[[nodiscard]] Entered& entered() {
  static auto& one = *new Entered;  // the hang watch may ask while the process ends
  return one;
}

}  // namespace

void Beside::enter() {
  const std::scoped_lock lock(entered().mutex);
  entered().all.push_back(this);
}

void Beside::leave() {
  const std::scoped_lock lock(entered().mutex);
  std::erase(entered().all, this);
}

std::string failure_beside() {
  // An abort_beside() that hangs holds up nobody who asks.
  const std::unique_lock lock(entered().mutex, std::try_to_lock);
  if (!lock) return "";
  for (Beside* const one : entered().all)
    if (std::string why = one->failure(); !why.empty()) return why;
  return "";
}

void abort_beside() {
  const std::scoped_lock lock(entered().mutex);
  for (Beside* const one : entered().all) one->abort();
}

}  // namespace dat
