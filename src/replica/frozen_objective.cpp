#include "replica/frozen_objective.hpp"

#include <algorithm>

#include "dat/tick.hpp"
#include "pointwise.hpp"

namespace dat {

void attach(Objective& objective, const Images& images) {
  objective.device = images.backend.device();
  objective.layout = images.layout;
  objective.classes = images.classes;
  objective.clean = images.clean;
  objective.x_adv = images.x_adv;
  objective.eta = images.eta;
  objective.dx = images.dx;
  objective.labels = images.labels;
  objective.sample_ids = images.ids;
  objective.scratch = images.scratch;
  objective.scratch_stride = images.capacity * images.layout.elements();
}

FrozenObjective::FrozenObjective(Images& images, FrozenProgram& program)
    : images_(images),
      losses_(images.backend.allocate_floats(images.capacity, "losses")),
      correct_(images.backend.allocate_floats(images.capacity, "losses")),
      program_(program) {
  attach(*this, images);
  if (program.n() < images.capacity)
    logits_ = images.backend.allocate_floats(std::int64_t{images.capacity} * classes, "logits");
  logits = logits_ != nullptr ? logits_ : program.logits();
  losses = losses_;
  correct = correct_;
}

void FrozenObjective::prepare(std::uint64_t key, Purpose what, std::uint32_t when) {
  n = images_.count;
  start = nullptr;
  seed = key;
  purpose = what;
  time = when;
  loss = cross_entropy;
}

void FrozenObjective::gradient() {
  count_passes();
  run({});
}

void FrozenObjective::forward() {
  for (int first = 0; first < n; first += program_.n()) {
    program_.forward(x_adv + first * layout.elements());
    Logits part = piece(first);
    part.gradient = nullptr;
    loss(part, 1.0F);
    keep_logits(first);
  }
}

void FrozenObjective::gradient_step(float alpha, float eps) {
  count_passes();
  program_.refresh();  // not inside what is recorded
  const PgdUpdate update{clean, eta, x_adv, alpha, eps};
  const auto found = std::find_if(recorded_.begin(), recorded_.end(), [&](const Recorded& r) {
    return r.n == n && r.alpha == alpha && r.eps == eps && r.loss == loss;
  });
  if (found == recorded_.end()) {
    // Not yet: what runs for the first time may still load code.
    recorded_.push_back({n, alpha, eps, loss, nullptr});
    return run(update);
  }
  tick();
  if (found->work == nullptr) found->work = images_.backend.record([this, update] { run(update); });
  found->work->replay();
}

void FrozenObjective::run(const PgdUpdate& update) {
  for (int first = 0; first < n; first += program_.n()) {
    const std::int64_t at = first * layout.elements();
    program_.forward(x_adv + at);
    loss(piece(first), program_.gradient_scale());
    if (update.x == nullptr) keep_logits(first);
    PgdUpdate part = update;
    if (part.x != nullptr) part = {part.x + at, part.eta + at, part.x_adv + at, part.alpha, part.eps};
    program_.backward(images_.dx + at, part);
  }
}

void FrozenObjective::measure(const float* x, float* loss_of, float* correct_of) {
  for (int first = 0; first < n; first += program_.n()) {
    program_.forward(x + first * layout.elements());
    Logits part = piece(first);
    part.loss = loss_of + first;
    part.correct = correct_of + first;
    part.gradient = nullptr;
    cross_entropy(part, 1.0F);
  }
}

Logits FrozenObjective::piece(int first) const {
  return {.device = device,
          .values = program_.logits(),
          .labels = images_.labels + first,
          .n = std::min(program_.n(), n - first),
          .classes = classes,
          .loss = losses_ + first,
          .correct = correct_ + first,
          .gradient = program_.dlogits()};
}

void FrozenObjective::keep_logits(int first) {
  if (logits_ == nullptr) return;
  const std::int64_t count = std::int64_t{std::min(program_.n(), n - first)} * classes;
  each(device, count, kernels::Scale{program_.logits(), logits_ + std::int64_t{first} * classes, 1.0F, false});
}

}  // namespace dat
