#include "run/restart.hpp"

#include <utility>

#include "communicate/together.hpp"

namespace dat {

void replace(std::unique_ptr<Trainer>& trainer, Communicator& ranks, const TrainOptions& options,
             const std::function<void(Trainer&)>& restore) {
  together(ranks, [&] {
    trainer->examples().close();
    Splits splits = std::exchange(trainer, nullptr)->release_splits();  // the old one ends here
    trainer = std::make_unique<Trainer>(ranks, options, std::move(splits));
    if (ranks.root()) restore(*trainer);
  });
}

void restart(std::unique_ptr<Trainer>& trainer, Communicator& ranks, const TrainOptions& options,
             const std::optional<Checkpoint>& state) {
  replace(trainer, ranks, options, [&](Trainer& anew) { anew.restore(*state); });
  trainer->share_state();
  trainer->start();
}

}  // namespace dat
