#include "batch/attacker.hpp"

#include <algorithm>

#include "batch/view/frozen.hpp"
#include "batch/view/training.hpp"

namespace dat {

namespace {

/// Augmentations of the training images beside the cut, in their order. Another augmentation is a line here.
[[nodiscard]] std::vector<std::unique_ptr<AttackPart>> augmentations([[maybe_unused]] Buffers& buffers) {
  std::vector<std::unique_ptr<AttackPart>> all;
  return all;
}

}  // namespace

Attacker::Attacker(Buffers& buffers, Programs& programs, const AttackPlan& plan, StatisticsSink* statistics)
    : buffers_(buffers), programs_(programs), plan_(plan), augmentations_(augmentations(buffers)) {
  for (const auto& one : augmentations_) add(*one);
  if (statistics != nullptr) in_training_mode_ = std::make_unique<TrainingView>(buffers, programs, *statistics);
}

View& Attacker::view() { return in_training_mode_ ? *in_training_mode_ : programs_.attacked(); }

Batch& Attacker::load(const HostBatch& read, int index) {
  Batch& batch = buffers_.load(read, index, pixels_);
  for (AttackPart* const part : parts_) part->loaded(read, batch);
  return batch;
}

Objective& Attacker::begin() {
  View& view = this->view();
  view.prepare(planned().goal);
  done_ = 0;
  for (AttackPart* const part : parts_) part->begins(view);
  return view;
}

void Attacker::resume(int done, const float* perturbation) {
  view().start = perturbation;
  done_ = done;
}

void Attacker::advance(int count) {
  View& view = this->view();
  const std::int64_t before = view.passes;
  planned().attack->advance(view, done_, count);
  done_ += count;
  view.start = view.eta;
  passes_ += view.passes - before;
}

/// Number of iterations that may follow on the present network; 0: all.
int Attacker::stretch() {
  int count = 0;
  for (AttackPart* const part : parts_) count = std::max(count, part->stretch(done_));
  return count;
}

void Attacker::finish() {
  const EpochAttack& now = planned();
  const int all = now.attack->gradient_evaluations();
  do {
    const int count = stretch();
    if (done_ == 0 && count == 0) {  // in one piece
      const Attack* attack = now.attack.get();
      for (AttackPart* const part : parts_)
        if (const Attack* const other = part->instead(now)) attack = other;
      return finish(*attack);
    }
    advance(count > 0 ? count : all - done_);
  } while (done_ < all);
}

void Attacker::finish(const Attack& attack) {
  View& view = this->view();
  const std::int64_t before = view.passes;
  attack.perturb(view);
  passes_ += view.passes - before;
}

}  // namespace dat
