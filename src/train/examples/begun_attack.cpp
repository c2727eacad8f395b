#include "train/examples/begun_attack.hpp"

#include <algorithm>
#include <utility>

#include "copy_bits.hpp"
#include "train/message/stateful.hpp"

namespace dat {

const char* const kBegun = "attack/begun";

BegunAttack::BegunAttack(Communicator& ranks, const Plan& plan, Replica& replica, int iterations)
    : ranks_(ranks), plan_(plan), replica_(replica), iterations_(iterations) {
  if (iterations > 0) perturbation_ = replica.backend().allocate_floats(floats_of(plan.micro_batch), "images");
}

std::int64_t BegunAttack::begin(Attacker& attacker) {
  const std::int64_t before = attacker.passes();
  attacker.advance(iterations_);
  // Images are also of evaluations between the steps.
  const Batch& batch = attacker.batch();
  now_ = {.step = batch.key.step, .passes = attacker.passes() - before};
  copy_bits(batch.device, batch.eta, perturbation_, floats_of(images()));
  return now_.passes;
}

void BegunAttack::resume(Attacker& attacker) {
  attacker.resume(iterations_, perturbation_);
  now_ = {};
}

void BegunAttack::save(Checkpoint& checkpoint) {
  if (is_of(-1)) return;
  std::vector<float> there(static_cast<std::size_t>(floats_of(images()))), mine = there;
  replica_.backend().copy_to_host(there.data(), perturbation_, there.size() * sizeof(float));
  turned(there.data(), replica_.images().layout, images(), layout_of_files(), mine.data());
  checkpoint.arrays.push_back({kBegun, shape_of(images()), gather_floats(ranks_, std::move(mine))});
  checkpoint.integers["begun_iterations"] = iterations_;
  checkpoint.integers["begun_passes"] = now_.passes;
}

void BegunAttack::restore(const Checkpoint& checkpoint) {
  const auto found = std::ranges::find(checkpoint.arrays, kBegun, &Checkpoint::Array::name);
  if (found == checkpoint.arrays.end()) return;
  const std::int64_t step = integer_of(checkpoint, "step"), iterations = integer_of(checkpoint, "begun_iterations");
  if (found->shape != shape_of(plan_.micro_batch_in(step)) || iterations != iterations_ ||
      integer_of(checkpoint, "steps_per_epoch") != plan_.steps_per_epoch) {
    dropped_ = "the attack of the next step, of which --stale-attack " + std::to_string(iterations) +
               " had begun that part on " + std::to_string(integer_of(checkpoint, "ranks")) +
               " ranks, begins anew: the ranks, their batches or the option are others now";
    return;
  }
  restored_ = found->values;
  now_ = {.step = step, .passes = integer_of(checkpoint, "begun_passes")};
}

void BegunAttack::forget() {
  if (is_of(-1)) return;
  now_ = {};
  dropped_ = "the attack of the next step, which --stale-attack had begun with other options, begins anew";
}

void BegunAttack::share() {
  ranks_.broadcast(&now_, sizeof now_);
  std::vector<float> mine = std::exchange(restored_, {});
  if (is_of(-1)) return;
  mine = deal_floats(ranks_, std::move(mine), static_cast<std::size_t>(floats_of(images())));
  std::vector<float> there(mine.size());
  turned(mine.data(), layout_of_files(), images(), replica_.images().layout, there.data());
  replica_.backend().copy_to_device(perturbation_, there.data(), there.size() * sizeof(float));
}

}  // namespace dat
