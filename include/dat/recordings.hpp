#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "dat/backend.hpp"
#include "dat/tick.hpp"

namespace dat {

/// Recordings of device work that depends on a key alone: on sizes, addresses, numbers. Work with a key is called the
/// first time, for its code to be loaded; recorded when it is asked for again, which allocates; and replayed from then
/// on.
template <class Key>
class Recordings {
 public:
  explicit Recordings(Backend& backend) : backend_(backend) {}

  /// Does the work, in the form of Backend::record(). Once memory has moved, a replay may call it again, with the same
  /// key.
  template <class Work>
  void play(const Key& key, const Work& work) {
    const auto found = std::ranges::find_if(all_, [&](const One& one) { return one.key == key; });
    if (found == all_.end()) {
      // A training whose radius or step size changes by epoch leaves recordings behind that nobody plays any more.
      if (all_.size() == kMost) all_.erase(all_.begin());
      all_.push_back({key, nullptr});
      return work();
    }
    tick();
    if (found->work == nullptr) found->work = backend_.record(work);
    found->work->replay();
  }

 private:
  static constexpr std::size_t kMost = 64;
  struct One {
    Key key;
    std::unique_ptr<Backend::Recording> work;
  };
  Backend& backend_;
  std::vector<One> all_;
};

}  // namespace dat
