#pragma once

#include <functional>
#include <utility>

#include "dat/backend.hpp"

namespace dat {

/// A recording that makes the calls again.
class Calls final : public Backend::Recording {
 public:
  explicit Calls(std::function<void()> work) : work_(std::move(work)) {}
  void replay() override { work_(); }

 private:
  std::function<void()> work_;
};

}  // namespace dat
