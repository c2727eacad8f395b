#include "batch/view/early_stop.hpp"

#include <algorithm>
#include <optional>

#include "perturb.hpp"

namespace dat {

std::vector<int> early_stop_sizes(int n) {
  constexpr std::size_t kSizes = 4;
  std::vector<int> sizes{n};
  while (sizes.size() < kSizes && sizes.back() > 1) sizes.push_back((sizes.back() + 1) / 2);
  return sizes;
}

EarlyStopView::EarlyStopView(Buffers& images, const Sizes& programs) : FrozenView(images, *programs.front()) {
  for (const auto& program : programs) passes_.push_back({program.get(), nullptr, nullptr});
  const int slots = programs.front()->n(), all = images.capacity;
  Backend& backend = images.backend;
  const auto floats = [&] { return backend.allocate_floats(slots * images.layout.elements(), "images"); };
  slot_x_ = floats();
  slots_.x = slot_x_;
  slots_.eta = floats();
  slots_.x_adv = floats();
  samples_ = backend.allocate_array<std::int32_t>(slots, "labels");
  labels_ = backend.allocate_array<std::int32_t>(slots, "labels");
  steps_left_ = backend.allocate_array<std::int32_t>(all, "labels");
  live_.reserve(static_cast<std::size_t>(all));
  host_steps_left_ = backend.allocate_pinned_array<std::int32_t>(all, "labels");
  host_samples_.resize(static_cast<std::size_t>(slots));
}

void EarlyStopView::steps_until_fooled(int steps, int tau, float alpha, float eps) {
  Backend& backend = images_.backend;
  if (passes_.front().forward == nullptr || slots_.alpha != alpha || slots_.eps != eps) record(alpha, eps);
  const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(std::int32_t);
  std::fill_n(host_steps_left_, n, tau);
  backend.copy_to_device(steps_left_, host_steps_left_, bytes);
  for (int k = 0; k < steps; ++k) {
    live_.clear();
    for (std::int32_t sample = 0; sample < n; ++sample)
      if (host_steps_left_[sample] >= 0) live_.push_back(sample);
    std::span<const std::int32_t> open(live_);
    while (!open.empty()) {
      Pass& pass = fitting(std::ssize(open));
      const std::size_t count = std::min(open.size(), static_cast<std::size_t>(pass.program->n()));
      assign_slots(*pass.program, open.first(count));
      pass.program->refresh();  // not inside what is recorded
      pass.forward->replay();
      open = open.subspan(count);
      // Samples that leave are known before the backward pass, during which their list travels to the host.
      std::optional<Backend::Ticket> told;
      if (open.empty() && k + 1 < steps) told = backend.fetch(host_steps_left_, steps_left_, bytes);
      pass.backward->replay();
      passes += pass.program->n();
      if (told) backend.wait_for(*told);
    }
  }
}

EarlyStopView::Pass& EarlyStopView::fitting(std::int64_t samples) {
  // The largest program of which at most an eighth would be empty, else the smallest; what it cannot hold comes later.
  return *std::find_if(passes_.begin(), std::prev(passes_.end()),
                       [&](const Pass& pass) { return 8 * samples >= 7 * pass.program->n(); });
}

void EarlyStopView::assign_slots(const FrozenProgram& program, std::span<const std::int32_t> samples) {
  std::fill_n(host_samples_.begin(), program.n(), -1);
  std::ranges::copy(samples, host_samples_.begin());
  images_.backend.copy_to_device(samples_, host_samples_.data(),
                                 static_cast<std::size_t>(program.n()) * sizeof(std::int32_t));
}

void EarlyStopView::forward(FrozenProgram& program) {
  each(device, program.n() * layout.elements(),
       kernels::FillSlots{
           {samples_, layout.elements()}, clean, eta, images_.labels, slot_x_, slots_.eta, slots_.x_adv, labels_});
  program.forward(slots_.x_adv);
  cross_entropy({{.device = device, .n = program.n(), .classes = classes, .labels = labels_},
                 program.logits(),
                 losses_,
                 correct_,
                 program.dlogits()},
                program.gradient_scale());
  each(device, program.n(), kernels::CountFooled{samples_, correct_, steps_left_});
}

void EarlyStopView::backward(FrozenProgram& program) {
  program.backward(images_.dx, slots_);
  each(device, program.n() * layout.elements(),
       kernels::KeepSteps{{samples_, layout.elements()}, steps_left_, slots_.eta, eta});
}

void EarlyStopView::record(float alpha, float eps) {
  slots_.alpha = alpha;
  slots_.eps = eps;
  for (Pass& pass : passes_) {
    FrozenProgram& program = *pass.program;
    // Once with empty slots: what runs for the first time may still load code.
    assign_slots(program, {});
    program.refresh();
    forward(program);
    backward(program);
    pass.forward = images_.backend.record([this, &program] { forward(program); });
    pass.backward = images_.backend.record([this, &program] { backward(program); });
  }
}

}  // namespace dat
