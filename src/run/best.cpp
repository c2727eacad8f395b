#include "run/best.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace dat {

double held_out_accuracy(const std::vector<EvaluationRecord>& records, const std::string& weights) {
  double worst = 1;
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
  if (better) {
    now_ = {.record = {.accuracy = accuracy, .step = step}};
  } else {
    ++now_.since;
  }
  return better;
}

std::string BestNetwork::overfitting_text(double accuracy, std::int64_t step) const {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << "catastrophic overfitting: the robust accuracy on held-out images is "
       << 100 * accuracy << " % after step " << step << ", and was " << 100 * now_.record.accuracy << " %";
  return text.str();
}

std::string BestNetwork::early_end_text(std::int64_t step, std::int64_t planned_steps) const {
  std::ostringstream text;
  text << "stopped early after step " << step << " of " << planned_steps << ": no better robust accuracy on "
       << images_text("holdout") << " than " << std::fixed << std::setprecision(2) << 100 * accuracy() << " % in "
       << evaluations_since() << (evaluations_since() == 1 ? " evaluation" : " evaluations")
       << "; ckpt/best.h5 has that network";
  return text.str();
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
