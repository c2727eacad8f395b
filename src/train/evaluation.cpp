#include "train/evaluation.hpp"

namespace dat {

Evaluator::Evaluator(Communicator& world, const Dataset& dataset, const std::uint8_t* all, Images& images,
                     FrozenObjective& objective)
    : world_(world),
      dataset_(dataset),
      all_(all),
      images_(images),
      objective_(objective),
      loss_(images.backend.allocate_floats(images.capacity, "losses")),
      correct_(images.backend.allocate_floats(images.capacity, "losses")),
      host_(static_cast<std::size_t>(images.capacity)) {
  const auto n = static_cast<std::size_t>(images.capacity);
  batch_.pixels.resize(n * static_cast<std::size_t>(images.layout.elements()));
  batch_.labels.resize(n);
  batch_.ids.resize(n);
  batch_.crops.resize(n);
}

void Evaluator::run(const Attack& attack, std::uint64_t seed, EvaluationRecord& record) {
  enum : std::uint8_t { kCount, kCleanLoss, kCleanCorrect, kAdvLoss, kAdvCorrect, kTotals };
  double totals[kTotals] = {};
  const auto add = [&](const float* device, double& total) {
    images_.backend.copy_to_host(host_.data(), device, static_cast<std::size_t>(images_.count) * sizeof(float));
    for (int i = 0; i < images_.count; ++i) total += double(host_[static_cast<std::size_t>(i)]);
  };
  const auto bytes = static_cast<std::size_t>(images_.layout.elements());
  for (std::int64_t next = world_.rank(); next < dataset_.size();) {
    batch_.count = 0;
    for (; batch_.count < images_.capacity && next < dataset_.size(); next += world_.size()) {
      const auto k = static_cast<std::size_t>(batch_.count++);
      if (all_ == nullptr) dataset_.read(next, batch_.pixels.data() + k * bytes);
      batch_.labels[k] = dataset_.label(next);
      batch_.ids[k] = next;
      batch_.crops[k] = {};
    }
    images_.load(batch_, 0, batch_.count, all_);
    objective_.prepare(seed, Purpose::evaluation_start, 0);
    objective_.measure(images_.clean, loss_, correct_);
    add(loss_, totals[kCleanLoss]);
    add(correct_, totals[kCleanCorrect]);
    attack.perturb(objective_);
    objective_.measure(images_.x_adv, loss_, correct_);
    add(loss_, totals[kAdvLoss]);
    add(correct_, totals[kAdvCorrect]);
    totals[kCount] += batch_.count;
  }
  world_.sum(totals, kTotals);
  record.images = static_cast<std::int64_t>(totals[kCount]);
  record.clean_loss = totals[kCleanLoss] / totals[kCount];
  record.clean_acc = totals[kCleanCorrect] / totals[kCount];
  record.adv_loss = totals[kAdvLoss] / totals[kCount];
  record.adv_acc = totals[kAdvCorrect] / totals[kCount];
  record.attack_steps = attack.gradient_evaluations();
}

}  // namespace dat
