#include "train/watch/step_checks.hpp"

#include "dat/error.hpp"

namespace dat {

StepChecks::StepChecks(const Parts& parts)
    : ranks_(parts.ranks),
      options_(parts.options),
      plan_(parts.plan),
      replica_(parts.replica),
      learner_(parts.learner),
      timer_(parts.timer),
      numbers_(ranks_, replica_.backend(), replica_.model().parameters, learner_, parts.statistics, vote_,
               {.images = replica_.image_floats(),
                .counts = {plan_.micro_batch, plan_.last_micro_batch},
                .micro_batches = plan_.most_units(),
                .gradients = parts.order != nullptr ? parts.order->places(ranks_.rank()) : 1}),
      stragglers_(ranks_) {
  if (options_.precision == "f16") loss_scale_ = std::make_unique<LossScale>(replica_);
  if (options_.verify == 0) return;
  recompute_ = std::make_unique<Recompute>(ranks_, parts.images, options_, plan_, parts.method, replica_, timer_);
  verification_ = std::make_unique<Verification>(ranks_, options_, plan_, parts.method, replica_, *recompute_);
}

void StepChecks::compare(std::vector<Stateful*> replicated) {
  check_ = std::make_unique<ReplicaCheck>(ranks_, replica_.backend(), std::move(replicated));
}

void StepChecks::begin_step(bool stop) {
  vote_.wish = stop;
  stragglers_.begin();
}

void StepChecks::begin_examples(std::int64_t step) {
  if (verification_) verification_->begin(step);
  numbers_.begin();
}

bool StepChecks::may_update(std::int64_t step, const ActiveSet& active) {
  skipped_.clear();
  overflowed_to_ = 0;
  if (const BadNumbers* bad = numbers_.agreed()) {
    skip(*bad, step);
    return false;
  }
  if (!verified(active)) return false;
  skipped_steps_.in_a_row = 0;
  if (loss_scale_) loss_scale_->good_step();
  return true;
}

void StepChecks::skip(const BadNumbers& bad, std::int64_t step) {
  // Before a learning rate is blamed: a flipped bit makes a number as large as that.
  const std::size_t before = corruptions_.size();
  if (options_.check_every > 0) check_replicas(step);
  if (corruptions_.size() > before) return;
  skipped_ = "in step " + std::to_string(step + 1) + " (epoch " + std::to_string(plan_.epoch_of(step) + 1) + ") " +
             bad.text(replica_.model().parameters);
  if (bad.where == BadNumbers::Where::sum && options_.codec != "float32") skipped_ += ", by --codec " + options_.codec;
  // Numbers too large for f16 may show anywhere: in images, too, by kernels::SpoilPerturbation.
  if (loss_scale_ && loss_scale_->overflow()) {
    overflowed_to_ = loss_scale_->scale();
    return;
  }
  const std::string in_a_row =
      skipped_steps_.in_a_row > 0 ? ", after " + std::to_string(skipped_steps_.in_a_row) + " skipped in a row" : "";
  require(skipped_steps_.in_a_row < options_.max_bad_steps, ExitCode::numerical, skipped_, in_a_row,
          "; the weights are those of the step before: lower --lr or raise --warmup-epochs");
  ++skipped_steps_.in_a_row;
}

bool StepChecks::verified(const ActiveSet& active) {
  if (!verification_) return true;
  const std::optional<Verification::Finding> finding = verification_->verify(learner_, active);
  timer_.lap(Phase::other);
  if (!finding) return true;
  require(options_.on_corruption == "repair", ExitCode::integrity, finding->record.text,
          "; the weights are those of the step before, and the last checkpoint is good: run the same command again, "
          "and suspect the node if it returns");
  corruptions_.push_back(finding->record);
  return finding->usable;
}

void StepChecks::check_replicas(std::int64_t steps_done) {
  for (CorruptionRecord& record : check_->check(steps_done, options_.on_corruption == "repair"))
    corruptions_.push_back(std::move(record));
}

}  // namespace dat
