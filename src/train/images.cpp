#include "train/images.hpp"

#include <algorithm>

#include "augment.hpp"
#include "loss.hpp"

namespace dat {

Images::Images(Backend& where, const DatasetInfo& info, int samples)
    : backend(where),
      layout(where.image_layout(info.channels, info.size, info.size)),
      capacity(samples),
      bytes_(layout.elements()) {
  const std::int64_t floats = samples * layout.elements();
  clean = backend.allocate_floats(floats, "images");
  x_adv = backend.allocate_floats(floats, "images");
  eta = backend.allocate_floats(floats, "images");
  dx = backend.allocate_floats(floats, "images");
  const auto n = static_cast<std::size_t>(samples);
  labels = static_cast<std::int32_t*>(backend.allocate(n * sizeof(std::int32_t), "labels"));
  ids = static_cast<std::int64_t*>(backend.allocate(n * sizeof(std::int64_t), "labels"));
  crops = static_cast<Crop*>(backend.allocate(n * sizeof(Crop), "labels"));
  pixels_ = static_cast<std::uint8_t*>(backend.allocate(n * static_cast<std::size_t>(bytes_), "images"));
}

void Images::load(const HostBatch& batch, int first, int samples, const std::uint8_t* all) {
  count = samples;
  const auto n = static_cast<std::size_t>(samples), at = static_cast<std::size_t>(first);
  if (all == nullptr)
    backend.copy_to_device(pixels_, batch.pixels.data() + at * static_cast<std::size_t>(bytes_),
                           n * static_cast<std::size_t>(bytes_));
  backend.copy_to_device(labels, batch.labels.data() + at, n * sizeof(std::int32_t));
  backend.copy_to_device(ids, batch.ids.data() + at, n * sizeof(std::int64_t));
  backend.copy_to_device(crops, batch.crops.data() + at, n * sizeof(Crop));
  each(backend.device(), std::int64_t{samples} * layout.h * layout.w,
       kernels::Augment{all != nullptr ? all : pixels_, all != nullptr ? ids : nullptr, crops, clean, layout});
}

const std::uint8_t* put_on_device(Backend& backend, const Dataset& dataset) {
  const std::size_t bytes = dataset.info().image_bytes();
  auto* all = static_cast<std::uint8_t*>(backend.allocate(static_cast<std::size_t>(dataset.size()) * bytes, "dataset"));
  constexpr std::int64_t kPiece = 4096;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(std::min(kPiece, dataset.size())) * bytes);
  for (std::int64_t first = 0; first < dataset.size(); first += kPiece) {
    const std::int64_t count = std::min(kPiece, dataset.size() - first);
    for (std::int64_t i = 0; i < count; ++i)
      dataset.read(first + i, pixels.data() + static_cast<std::size_t>(i) * bytes);
    backend.copy_to_device(all + static_cast<std::size_t>(first) * bytes, pixels.data(),
                           static_cast<std::size_t>(count) * bytes);
  }
  return all;
}

bool fits_on_device(const Backend& backend, const Dataset& dataset, const std::string& wanted) {
  if (wanted != "auto") return wanted == "on";
  return static_cast<std::size_t>(dataset.size()) * dataset.info().image_bytes() <= backend.spare_memory() / 2;
}

void cross_entropy(Backend& backend, float* logits, const std::int32_t* labels, int count, int classes, float* loss,
                   float* correct, float* dlogits, float gradient_scale) {
  each(backend.device(), count,
       kernels::SoftmaxCrossEntropy{logits, labels, loss, correct, dlogits, classes, gradient_scale});
}

FrozenObjective::FrozenObjective(Images& images, FrozenProgram& program, int classes)
    : images_(images),
      classes_(classes),
      loss_(images.backend.allocate_floats(images.capacity, "losses")),
      correct_(images.backend.allocate_floats(images.capacity, "losses")),
      program_(program) {
  device = images.backend.device();
  layout = images.layout;
  clean = images.clean;
  x_adv = images.x_adv;
  eta = images.eta;
  dx = images.dx;
  sample_ids = images.ids;
}

void FrozenObjective::prepare(std::uint64_t key, Purpose what, std::uint32_t when) {
  n = images_.count;
  start = nullptr;
  seed = key;
  purpose = what;
  time = when;
}

void FrozenObjective::gradient() {
  count_passes();
  run({});
}

void FrozenObjective::gradient_step(float alpha, float eps) {
  count_passes();
  program_.refresh();  // not inside what is recorded
  const PgdUpdate update{clean, eta, x_adv, alpha, eps};
  const auto found = std::find_if(recorded_.begin(), recorded_.end(),
                                  [&](const Recorded& r) { return r.n == n && r.alpha == alpha && r.eps == eps; });
  if (found == recorded_.end()) {
    // Not yet: what runs for the first time may still load code.
    recorded_.push_back({n, alpha, eps, nullptr});
    return run(update);
  }
  if (found->work == nullptr) found->work = images_.backend.record([this, update] { run(update); });
  found->work->replay();
}

void FrozenObjective::run(const PgdUpdate& update) {
  for (int first = 0; first < n; first += program_.n()) {
    const std::int64_t at = first * layout.elements();
    program_.forward(x_adv + at);
    cross_entropy(images_.backend, program_.logits(), images_.labels + first, std::min(program_.n(), n - first),
                  classes_, loss_, correct_, program_.dlogits(), program_.gradient_scale());
    PgdUpdate part = update;
    if (part.x != nullptr) part = {part.x + at, part.eta + at, part.x_adv + at, part.alpha, part.eps};
    program_.backward(images_.dx + at, part);
  }
}

void FrozenObjective::measure(const float* x, float* loss, float* correct) {
  for (int first = 0; first < n; first += program_.n()) {
    program_.forward(x + first * layout.elements());
    cross_entropy(images_.backend, program_.logits(), images_.labels + first, std::min(program_.n(), n - first),
                  classes_, loss + first, correct + first, nullptr, 1.0F);
  }
}

}  // namespace dat
