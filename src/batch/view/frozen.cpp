#include "batch/view/frozen.hpp"

#include <cassert>

#include "perturb.hpp"
#include "pointwise.hpp"

namespace dat {

FrozenView::FrozenView(Buffers& images, FrozenProgram& program, bool under_noise)
    : images_(images),
      losses_(images.backend.allocate_floats(images.capacity, "losses")),
      correct_(images.backend.allocate_floats(images.capacity, "losses")),
      program_(program),
      values_(program.logits()),
      gradients_(program.dlogits()),
      images_a_pass_(program.n() / (under_noise ? images.copies() : 1)),
      recorded_(images.backend) {
  assert(program.n() % images_a_pass_ == 0 && images.capacity % images_a_pass_ == 0);
  images.attach(*this);
  if (under_noise) copies = images.copies();
  Backend& backend = images.backend;
  const bool several = images_a_pass_ < images.capacity || backend.leaves_samples_out();
  if (several || under_noise) logits_ = backend.allocate_floats(std::int64_t{images.capacity} * classes, "logits");
  if (several && !under_noise) {
    const int all = passes_for(images.capacity) * program.n();
    packed_ = {.samples = backend.allocate_array<std::int32_t>(all, "labels"),
               .labels = backend.allocate_array<std::int32_t>(program.n(), "labels"),
               .targets = backend.allocate_array<std::int32_t>(program.n(), "labels"),
               .x = backend.allocate_floats(program.n() * layout.elements(), "images"),
               .dx = backend.allocate_floats(program.n() * layout.elements(), "images"),
               .losses = backend.allocate_floats(program.n(), "losses"),
               .correct = backend.allocate_floats(program.n(), "losses")};
    host_samples_.resize(static_cast<std::size_t>(all));
  }
  host_done_.resize(static_cast<std::size_t>(images.capacity));
  scale = program.gradient_scale();
  logits = logits_ != nullptr ? logits_ : program.logits();
  losses = losses_;
  correct = correct_;
}

void FrozenView::allow_reference() {
  reference = reference_ = images_.backend.allocate_floats(std::int64_t{images_.capacity} * classes, "logits");
}

void FrozenView::prepare(const AttackGoal& goal) {
  const BatchKey& of = images_.batch().key;
  take_up(of.seed, Purpose::attack_start, of.epoch, goal);
  for (int first = 0; first < n && goal.reference; first += images_a_pass_) {
    show(clean + first * layout.elements(), first);
    copy_logits(reference_, first);
  }
}

void FrozenView::take_up(std::uint64_t key_of_draws, Purpose what, std::uint32_t when, const AttackGoal& goal) {
  assert(layout == images_.layout);
  images_.attach(*this);
  take(goal);
  seed = key_of_draws;
  purpose = what;
  time = when;
  run = 0;
  gathered_.reset();
}

int FrozenView::live() {
  images_.backend.copy_to_host(host_done_.data(), done, static_cast<std::size_t>(n) * sizeof(std::int32_t));
  const int left = static_cast<int>(std::count(host_done_.begin(), host_done_.begin() + n, 0));
  if (left == 0 || packed_.samples == nullptr || !pays_to_gather(left, gathered_.value_or(n))) return left;
  std::ranges::fill(host_samples_, -1);
  for (std::int32_t sample = 0, slot = 0; sample < n; ++sample)
    if (host_done_[static_cast<std::size_t>(sample)] == 0) host_samples_[static_cast<std::size_t>(slot++)] = sample;
  images_.backend.copy_to_device(packed_.samples, host_samples_.data(), host_samples_.size() * sizeof(std::int32_t));
  gathered_ = left;
  return left;
}

bool FrozenView::pays_to_gather(int left, int now) const {
  // An eighth: moving images to and fro takes some time, too.
  return images_.backend.leaves_samples_out() ? left < now - now / 8 : passes_for(left) < passes_for(now);
}

void FrozenView::pass_gathered(bool gradient) {
  const std::int64_t size = program_.n(), pixels = layout.elements();
  for (int first = 0; first < *gathered_; first += program_.n()) {
    const kernels::Slots images{packed_.samples + first, pixels}, single{packed_.samples + first, 1};
    each(device, size * pixels, kernels::Gather<float>{images, x_adv, packed_.x});
    each(device, size, kernels::Gather<std::int32_t>{single, labels, packed_.labels});
    each(device, size, kernels::Gather<std::int32_t>{single, targets, packed_.targets});
    program_.forward(packed_.x, wanted(first, *gathered_));
    loss({{.device = device,
           .n = wanted(first, *gathered_),
           .classes = classes,
           .labels = packed_.labels,
           .targets = packed_.targets},
          program_.logits(),
          packed_.losses,
          packed_.correct,
          gradient ? program_.dlogits() : nullptr},
         program_.gradient_scale());
    each(device, size * classes, kernels::Scatter{{packed_.samples + first, classes}, program_.logits(), logits_});
    each(device, size, kernels::Scatter{single, packed_.losses, losses_});
    each(device, size, kernels::Scatter{single, packed_.correct, correct_});
    if (!gradient) continue;
    program_.backward(packed_.dx);
    each(device, size * pixels, kernels::Scatter{images, packed_.dx, images_.dx});
  }
}

void FrozenView::gradient() {
  count_passes();
  gathered_ ? pass_gathered(true) : pass({});
}

void FrozenView::forward() { gathered_ ? pass_gathered(false) : look(x_adv, loss, losses_, correct_); }

void FrozenView::gradient_step(float alpha, float eps) {
  count_passes();
  program_.refresh();  // not inside what is recorded
  const PgdUpdate update{clean, eta, x_adv, alpha, eps};
  recorded_.play({n, alpha, eps, loss}, [this, update] { pass(update); });
}

void FrozenView::pass(const PgdUpdate& update) {
  for (int first = 0; first < n; first += images_a_pass_) {
    const std::int64_t at = first * layout.elements();
    show(x_adv + at, first);
    loss(piece(first), program_.gradient_scale());
    if (update.x == nullptr) keep_logits(first);
    PgdUpdate part = update;
    if (part.x != nullptr) part = {part.x + at, part.eta + at, part.x_adv + at, part.alpha, part.eps};
    differentiate(images_.dx + at, first, part);
  }
}

void FrozenView::look(const float* x, SampleLoss* by, float* loss_of, float* correct_of) {
  for (int first = 0; first < n; first += images_a_pass_) {
    show(x + first * layout.elements(), first);
    Logits part = piece(first);
    part.loss = loss_of + first;
    part.correct = correct_of + first;
    part.gradient = nullptr;
    by(part, 1.0F);
    keep_logits(first);
  }
}

Logits FrozenView::piece(int first) const {
  return {part(first, wanted(first, n)),
          values_,
          losses_ + first,
          correct_ + first,
          gradients_,
          reference_ != nullptr ? reference_ + std::int64_t{first} * classes : nullptr};
}

void FrozenView::copy_logits(float* to, int first) {
  if (to == nullptr) return;
  const std::int64_t count = std::int64_t{wanted(first, n)} * classes;
  each(device, count, kernels::Scale{values_, to + std::int64_t{first} * classes, 1.0F, false});
}

}  // namespace dat
