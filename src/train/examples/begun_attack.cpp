#include "train/examples/begun_attack.hpp"

#include <algorithm>

#include "pointwise.hpp"
#include "train/message/stateful.hpp"

namespace dat {

namespace {

const char* const kBegun = "attack/begun";
constexpr int kBegunTag = 1;

}  // namespace

BegunAttack::BegunAttack(Communicator& ranks, const Plan& plan, Replica& replica, int iterations)
    : ranks_(ranks), plan_(plan), replica_(replica), iterations_(iterations) {
  if (iterations > 0) perturbation_ = replica.backend().allocate_floats(floats_of(plan.micro_batch), "images");
}

std::int64_t BegunAttack::begin(Attacker& attacker) {
  const std::int64_t before = attacker.passes();
  attacker.advance(iterations_);
  // Images are also of evaluations between the steps.
  const Batch& batch = attacker.batch();
  const std::int64_t floats = floats_of(batch.n);
  each(batch.device, kernels::groups(floats), kernels::Add<float>{batch.eta, nullptr, perturbation_, floats});
  now_ = {.step = batch.key.step, .passes = attacker.passes() - before, .images = batch.n};
  return now_.passes;
}

void BegunAttack::resume(Attacker& attacker) {
  attacker.resume(iterations_, perturbation_);
  now_ = {};
}

void BegunAttack::copy(std::vector<float>& plain, bool to_device) {
  const Layout& layout = replica_.images().layout;
  Backend& backend = replica_.backend();
  std::vector<float> there(plain.size());
  if (!to_device) backend.copy_to_host(there.data(), perturbation_, there.size() * sizeof(float));
  auto one = plain.begin();
  for (std::int64_t n = 0; one != plain.end(); ++n)
    for (int c = 0; c < layout.c; ++c)
      for (int y = 0; y < layout.h; ++y)
        for (int x = 0; x < layout.w; ++x, ++one) {
          float& other = there[static_cast<std::size_t>(layout.offset(n, c, y, x))];
          (to_device ? other : *one) = to_device ? *one : other;
        }
  if (to_device) backend.copy_to_device(perturbation_, there.data(), there.size() * sizeof(float));
}

void BegunAttack::save(Checkpoint& checkpoint) {
  if (now_.step < 0) return;
  const auto count = static_cast<std::size_t>(floats_of(now_.images));
  std::vector<float> mine(count);
  copy(mine, false);
  if (!ranks_.root()) return ranks_.send(mine.data(), count * sizeof(float), 0, kBegunTag);
  const Layout& layout = replica_.images().layout;
  Checkpoint::Array& all = checkpoint.arrays.emplace_back();
  all.name = kBegun;
  all.shape = {ranks_.size(), now_.images, layout.c, layout.h, layout.w};
  all.values = std::move(mine);
  all.values.resize(count * static_cast<std::size_t>(ranks_.size()));
  for (int rank = 1; rank < ranks_.size(); ++rank)
    ranks_.receive(all.values.data() + count * static_cast<std::size_t>(rank), count * sizeof(float), rank, kBegunTag);
  checkpoint.integers["begun_iterations"] = iterations_;
  checkpoint.integers["begun_passes"] = now_.passes;
}

void BegunAttack::restore(const Checkpoint& checkpoint) {
  now_ = {};
  restored_.clear();
  const auto found =
      std::ranges::find_if(checkpoint.arrays, [](const Checkpoint::Array& array) { return array.name == kBegun; });
  if (found == checkpoint.arrays.end()) return;
  const std::int64_t step = integer_of(checkpoint, "step"), images = plan_.micro_batch_in(step),
                     iterations = integer_of(checkpoint, "begun_iterations");
  const Layout& layout = replica_.images().layout;
  const std::vector<std::int64_t> shape{ranks_.size(), images, layout.c, layout.h, layout.w};
  if (found->shape != shape || iterations != iterations_ ||
      integer_of(checkpoint, "steps_per_epoch") != plan_.steps_per_epoch) {
    dropped_ = "the attack of the next step, of which --stale-attack " + std::to_string(iterations) +
               " had begun that part on " + std::to_string(found->shape.front()) +
               " ranks, begins anew: the ranks, their batches or the option are others now";
    return;
  }
  restored_ = found->values;
  now_ = {.step = step, .passes = integer_of(checkpoint, "begun_passes"), .images = images};
}

void BegunAttack::forget() {
  if (now_.step < 0) return;
  now_ = {};
  restored_.clear();
  dropped_ = "the attack of the next step, which --stale-attack had begun with other options, begins anew";
}

void BegunAttack::share() {
  if (iterations_ == 0) return;
  ranks_.broadcast(&now_, sizeof now_);
  if (now_.step < 0) return;
  const auto count = static_cast<std::size_t>(floats_of(now_.images));
  std::vector<float> mine(count);
  if (ranks_.root()) {
    for (int rank = 1; rank < ranks_.size(); ++rank)
      ranks_.send(restored_.data() + count * static_cast<std::size_t>(rank), count * sizeof(float), rank, kBegunTag);
    std::copy_n(restored_.begin(), count, mine.begin());
    restored_ = {};
  } else {
    ranks_.receive(mine.data(), count * sizeof(float), 0, kBegunTag);
  }
  copy(mine, true);
}

}  // namespace dat
