#include "train/examples/local_examples.hpp"

#include "train/plan/goal.hpp"
#include "train/plan/replica_of.hpp"

namespace dat {

LocalExamples::LocalExamples(const ExampleParts& parts)
    : ranks_(parts.ranks),
      dataset_(parts.images),
      loading_(loader_options(parts.options, parts.plan, data_threads(parts.options, parts.replica.backend()))),
      timer_(parts.timer),
      attacker_(parts.replica.images(), parts.replica, parts.method.attacks,
                parts.method.attack_passes != 0 ? &parts.statistics : nullptr),
      begun_(parts.ranks, parts.plan, parts.replica, parts.options.stale_attack) {}

void LocalExamples::start(std::int64_t step) {
  loading_.pixels = attacker_.reads_pixels();
  loading_.first_step = step;
  loader_ = std::make_unique<Loader>(dataset_, ranks_.size(), ranks_.rank(), loading_);
}

void LocalExamples::take_batch(std::int64_t step) {
  if (batch_ == nullptr || batch_->key.step != step) batch_ = &loader_->next();
}

void LocalExamples::begin(std::int64_t step) {
  take_batch(step);
  next_ = 0;
  passes_before_ = attacker_.passes() - begun_.passes();
  timer_.lap(Phase::data);
}

const Batch* LocalExamples::next() {
  if (next_ == batch_->micro_batches) return nullptr;
  Batch& batch = attacker_.load(*batch_, next_++);
  attacker_.begin();
  timer_.lap(Phase::data);
  if (begun_.is_of(batch.key.step)) begun_.resume(attacker_);
  attacker_.finish();
  timer_.lap(Phase::attack);
  return &batch;
}

void LocalExamples::look_ahead(std::int64_t step) {
  if (begun_.iterations() == 0) return;
  take_batch(step);
  attacker_.load(*batch_, 0);
  attacker_.begin();
  timer_.lap(Phase::data);
  passes_before_ += begun_.begin(attacker_);  // not of the step that is being done
  timer_.lap(Phase::attack);
}

std::unique_ptr<ExampleSource> make_local_examples(const ExampleParts& parts) {
  auto local = std::make_unique<LocalExamples>(parts);
  Attacker& attacker = local->attacker();
  std::unique_ptr<ExampleSource> source = std::move(local);
  source = make_cheated(std::move(source), attacker, parts);
  if (parts.options.warm_start != 0) source = make_warm_started(std::move(source), attacker, parts);
  if (parts.options.staleness != 0) source = make_attacked_by_old_weights(std::move(source), attacker, parts);
  return source;
}

}  // namespace dat
