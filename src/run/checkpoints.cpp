#include "run/checkpoints.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "communicate/together.hpp"
#include "dat/backend.hpp"
#include "train/message/stateful.hpp"
#include "train/plan/plan.hpp"

namespace dat {

std::string not_finite(const Checkpoint& checkpoint) {
  for (const Checkpoint::Array& array : checkpoint.arrays)
    if (!std::ranges::all_of(array.values, [](float value) { return std::isfinite(value); })) return array.name;
  return "";
}

void Checkpoints::open(const std::string& run_folder, std::int64_t restored, Warn warn,
                       std::function<void()> require_alone) {
  path_ = run_folder + "/ckpt";
  folder_ = std::make_unique<CheckpointFolder>(path_, restored >= 0);
  if (restored >= 0) folder_->remove_behind(restored);
  warn_ = std::move(warn);
  require_alone_ = std::move(require_alone);
  const std::string& when = options_.checkpoint_async;
  beside_ = when == "auto" ? takes_gpu(options_.device) : when == "on";
}

void Checkpoints::write(Kind kind, std::int64_t step, Checkpoint state,
                        const std::function<void(Checkpoint&)>& complete) {
  attempt([&] {
    complete(state);
    auto store = [folder = folder_.get(), step, kind, state = std::move(state)] {
      kind == Kind::best ? folder->save_best(state) : folder->save(step, state);
    };
    if (beside_)
      writing_ = std::async(std::launch::async, std::move(store));
    else
      store();
  });
}

void Checkpoints::attempt(const std::function<void()>& writing) const {
  try {
    writing();
  } catch (const Error& error) {
    if (error.code() == ExitCode::io) require_alone_();  // a second process removes what it takes for left over
    throw;
  }
}

void Checkpoints::settle(Communicator& ranks) {
  together(ranks, [&] {
    if (writing_.valid()) attempt([this] { writing_.get(); });
  });
}

void Checkpoints::find_best(Communicator& ranks) {
  together(ranks, [&] {
    if (ranks.root()) best_.find(*folder_, warn_);
  });
  best_.share(ranks);
}

std::optional<Checkpoint> Checkpoints::to_go_back_to(std::int64_t last_good, std::int64_t steps_per_epoch,
                                                     bool best) const {
  if (best) {
    try {
      return folder_->best();
    } catch (const Error& error) {
      warn_(std::string(error.what()) + "; going back to the last checkpoint");
    }
  }
  const auto place = [&](const Checkpoint& one) {
    return at_same_place(integer_of(one, "step"), integer_of(one, "steps_per_epoch"), steps_per_epoch);
  };
  std::optional<Checkpoint> state = CheckpointFolder::newest_in(path_, warn_, last_good);
  while (state && place(*state) > last_good)
    state = CheckpointFolder::newest_in(path_, warn_, integer_of(*state, "step") - 1);
  return state ? std::move(state) : folder_->newest(warn_);  // no step after it has been good: there is no other one
}

}  // namespace dat
