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
  crops_ = static_cast<Crop*>(backend.allocate(n * sizeof(Crop), "labels"));
  pixels_ = static_cast<std::uint8_t*>(backend.allocate(n * static_cast<std::size_t>(bytes_), "images"));
}

void Images::load(const HostBatch& batch, int first, int samples) {
  count = samples;
  const auto n = static_cast<std::size_t>(samples), at = static_cast<std::size_t>(first);
  backend.copy_to_device(pixels_, batch.pixels.data() + at * static_cast<std::size_t>(bytes_),
                         n * static_cast<std::size_t>(bytes_));
  backend.copy_to_device(labels, batch.labels.data() + at, n * sizeof(std::int32_t));
  backend.copy_to_device(ids, batch.ids.data() + at, n * sizeof(std::int64_t));
  backend.copy_to_device(crops_, batch.crops.data() + at, n * sizeof(Crop));
  each(backend.device(), std::int64_t{samples} * layout.h * layout.w, kernels::Augment{pixels_, crops_, clean, layout});
}

void cross_entropy(Backend& backend, float* logits, const std::int32_t* labels, int count, int classes, float* loss,
                   float* correct, float* dlogits, float gradient_scale) {
  each(backend.device(), count,
       kernels::SoftmaxCrossEntropy{logits, labels, loss, correct, dlogits, classes, gradient_scale});
}

FrozenObjective::FrozenObjective(Images& images, FrozenProgram& program, int classes)
    : images_(images),
      program_(program),
      classes_(classes),
      loss_(images.backend.allocate_floats(images.capacity, "losses")),
      correct_(images.backend.allocate_floats(images.capacity, "losses")) {
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
  seed = key;
  purpose = what;
  time = when;
}

void FrozenObjective::gradient() {
  program_.refresh();
  for (int first = 0; first < n; first += program_.n()) {
    const std::int64_t at = first * layout.elements();
    program_.forward(x_adv + at);
    cross_entropy(images_.backend, program_.logits(), images_.labels + first, std::min(program_.n(), n - first),
                  classes_, loss_, correct_, program_.dlogits(), 1.0F);
    program_.backward(images_.dx + at);
  }
}

void FrozenObjective::measure(const float* x, float* loss, float* correct) {
  program_.refresh();
  for (int first = 0; first < n; first += program_.n()) {
    program_.forward(x + first * layout.elements());
    cross_entropy(images_.backend, program_.logits(), images_.labels + first, std::min(program_.n(), n - first),
                  classes_, loss + first, correct + first, nullptr, 1.0F);
  }
}

}  // namespace dat
