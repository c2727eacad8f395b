#include "replica/images.hpp"

#include <algorithm>

#include "augment.hpp"

namespace dat {

Images::Images(Backend& where, const DatasetInfo& info, int samples, int scratch_images, StartKept kept)
    : backend(where),
      layout(where.image_layout(info.channels, info.size, info.size)),
      classes(info.classes),
      capacity(samples),
      largest_(info.size),
      bytes_(layout.elements()) {
  const std::int64_t floats = samples * layout.elements();
  clean = backend.allocate_floats(floats, "images");
  x_adv = backend.allocate_floats(floats, "images");
  eta = backend.allocate_floats(floats, "images");
  dx = backend.allocate_floats(floats, "images");
  if (scratch_images > 0) scratch = backend.allocate_floats(scratch_images * floats, "images");
  if (kept == StartKept::images) first_images = backend.allocate_floats(floats, "images");
  if (kept == StartKept::logits) first_logits = backend.allocate_floats(std::int64_t{samples} * classes, "logits");
  const auto n = static_cast<std::size_t>(samples);
  labels = static_cast<std::int32_t*>(backend.allocate(n * sizeof(std::int32_t), "labels"));
  targets = static_cast<std::int32_t*>(backend.allocate(n * sizeof(std::int32_t), "labels"));
  done = static_cast<std::int32_t*>(backend.allocate(n * sizeof(std::int32_t), "labels"));
  ids = static_cast<std::int64_t*>(backend.allocate(n * sizeof(std::int64_t), "labels"));
  crops = static_cast<Crop*>(backend.allocate(n * sizeof(Crop), "labels"));
  pixels_ = static_cast<std::uint8_t*>(backend.allocate(n * static_cast<std::size_t>(bytes_), "images"));
}

void Images::cut(int size) {
  const int wanted = size > 0 ? size : largest_;
  if (layout.h != wanted) layout = backend.image_layout(layout.c, wanted, wanted);
}

void Images::load(const HostBatch& batch, int first, int samples, const std::uint8_t* all) {
  cut(batch.size);
  count = samples;
  const auto n = static_cast<std::size_t>(samples), at = static_cast<std::size_t>(first);
  if (all == nullptr)
    backend.copy_to_device(pixels_, batch.pixels.data() + at * static_cast<std::size_t>(bytes_),
                           n * static_cast<std::size_t>(bytes_));
  backend.copy_to_device(labels, batch.labels.data() + at, n * sizeof(std::int32_t));
  backend.copy_to_device(ids, batch.ids.data() + at, n * sizeof(std::int64_t));
  backend.copy_to_device(crops, batch.crops.data() + at, n * sizeof(Crop));
  each(
      backend.device(), std::int64_t{samples} * layout.h * layout.w,
      kernels::Augment{all != nullptr ? all : pixels_, all != nullptr ? ids : nullptr, crops, clean, layout, largest_});
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

}  // namespace dat
