#include "train/layers/per_worker_masks.hpp"

#include <algorithm>

#include "gradients.hpp"

namespace dat {

PerWorkerMasks::PerWorkerMasks(Communicator& ranks, const TrainOptions& options, const Plan& plan, Model& model)
    : LayerSampling(ranks, options, plan, model),
      masks_(static_cast<std::size_t>(ranks.size()), active_),
      updated_(active_),
      mine_(p_.size()),
      all_(p_.size() * masks_.size()),
      factors_(model.parameters.segments.size()),
      device_factors_(model.backend.allocate_floats(std::ssize(factors_), "gradient factors")),
      chunks_(model.backend, model.parameters) {
  const char* const purpose = "gradient norms";
  partial_ = model.backend.allocate_array<double>(chunks_.largest() * kSums, purpose);
  sums_ = model.backend.allocate_array<double>(sums(), purpose);
  host_sums_ = model.backend.allocate_pinned_array<double>(sums(), purpose);
}

std::int64_t PerWorkerMasks::sums() const { return std::ssize(factors_) * kSums; }

void PerWorkerMasks::set_masks(const auto& all) {
  auto from = all.begin();
  for (ActiveSet& mask : masks_)
    for (float& scale : mask.scale) scale = static_cast<float>(*from++ != 0);
  for (std::size_t d = 0; d < updated_.scale.size(); ++d)
    updated_.scale[d] =
        static_cast<float>(std::ranges::any_of(masks_, [d](const ActiveSet& mask) { return mask.scale[d] != 0.0F; }));
}

const ActiveSet& PerWorkerMasks::draw(std::int64_t step) {
  if (begin(step)) {
    p_ = selector_->probabilities();
    draw_layers(seed_, static_cast<std::uint64_t>(step), p_, active_, ranks_.rank());
    std::ranges::transform(active_.scale, mine_.begin(), [](float scale) { return scale != 0.0F; });
    const CallLabel label("active layers");
    ranks_.all_gather(mine_.data(), all_.data(), mine_.size());
    set_masks(all_);
  }
  for (std::size_t k = 0; k < factors_.size(); ++k)
    factors_[k] = active_.scale[static_cast<std::size_t>(model_.parameters.segments[k].layer)];
  model_.backend.copy_to_device(device_factors_, factors_.data(), factors_.size() * sizeof(float));
  (void)chunks_.select(active_);
  return active_;
}

void PerWorkerMasks::weigh(int segment) {
  sum(model_.backend.device(), chunks_.between(segment, segment + 1),
      kernels::Weigh{model_.parameters.gradients, device_factors_}, partial_, sums_ + std::ptrdiff_t{segment} * kSums);
}

void PerWorkerMasks::fetch(Backend::Ticket& ticket) {
  if (learns()) ticket = model_.backend.fetch(host_sums_, sums_, static_cast<std::size_t>(sums()) * sizeof(double));
}

void PerWorkerMasks::save(Checkpoint& checkpoint) {
  checkpoint.doubles["selector"] = ranks_.gather(selector_->state());
  checkpoint.doubles["p"] = ranks_.gather(p_);
  checkpoint.doubles["active_scale"] = ranks_.gather(std::vector<double>(active_.scale.begin(), active_.scale.end()));
  checkpoint.integers["masks"] = ranks_.size();
  save_costs(checkpoint);
}

void PerWorkerMasks::share(Communicator& ranks) {
  ranks.broadcast(&saved_.ranks, sizeof saved_.ranks);
  if (saved_.ranks == 0) return;  // nothing was restored: all ranks begin alike
  for (std::vector<double>* all : {&saved_.selector, &saved_.p, &saved_.scale}) share_doubles(ranks, *all);
  take();
}

void PerWorkerMasks::take() {
  LayerSampling::take();
  std::vector<double> all;
  for (int rank = 0; rank < ranks_.size(); ++rank) std::ranges::copy(row(saved_.scale, rank), std::back_inserter(all));
  set_masks(all);
}

void PerWorkerMasks::replicated(ReplicatedState& state) {
  std::vector<float> all;
  for (const ActiveSet& mask : masks_) all.insert(all.end(), mask.scale.begin(), mask.scale.end());
  state.host("active layers", all.data(), all.size() * sizeof(float));
  set_masks(all);
}

}  // namespace dat
