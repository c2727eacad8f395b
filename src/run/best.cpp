#include "run/best.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace dat {

double held_out_accuracy(const std::vector<EvaluationRecord>& records, const std::string& weights) {
  double worst = std::numeric_limits<double>::infinity();
  for (const EvaluationRecord& record : records)
    if (record.split == "holdout" && record.weights == weights) worst = std::min(worst, record.adv_acc);
  return worst;
}

void BestNetwork::take_up(const BestRecord& record, std::int64_t evaluations_since) {
  now_ = {.record = record, .since = evaluations_since};
}

void BestNetwork::share(Communicator& ranks) { ranks.broadcast(&now_, sizeof now_); }

bool BestNetwork::judge(double accuracy, std::int64_t step) {
  const bool better = accuracy > now_.record.accuracy;
  if (better)
    now_ = {.record = {.accuracy = accuracy, .step = step}};
  else
    ++now_.since;
  return better;
}

std::string BestNetwork::overfitting_text(double accuracy, std::int64_t step) const {
  return fmt::format(
      "catastrophic overfitting: the robust accuracy on held-out images is {:.2f} % after step {}, and was {:.2f} %",
      100 * accuracy, step, 100 * now_.record.accuracy);
}

std::string BestNetwork::early_end_text(std::int64_t step, std::int64_t planned_steps) const {
  return fmt::format(
      "stopped early after step {} of {}: no better robust accuracy on {} than {:.2f} % in {} {}; "
      "ckpt/best.h5 has that network",
      step, planned_steps, images_text("holdout"), 100 * accuracy(), evaluations_since(),
      evaluations_since() == 1 ? "evaluation" : "evaluations");
}

void BestNetwork::save_as_best(Checkpoint& checkpoint, std::int64_t metrics_bytes) {
  now_.record.bytes = metrics_bytes;
  now_.record.save(checkpoint);
}

void BestNetwork::find(const CheckpointFolder& folder, const std::function<void(const std::string&)>& warn) {
  if (accuracy() < 0 || folder.restore_best(now_.record)) return;
  warn("ckpt/best.h5, the network after step " + std::to_string(now_.record.step) +
       ", is gone: the best one is chosen anew from here on");
  now_ = {};
}

}  // namespace dat
