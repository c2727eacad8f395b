#include "batch/buffers/buffers.hpp"

#include <algorithm>

#include "augment.hpp"
#include "dat/tick.hpp"
#include "noise.hpp"

namespace dat {

NoisyCopies::NoisyCopies(Backend& backend, double sigma, int copies, std::int64_t capacity, std::int64_t elements)
    : backend_(backend),
      sigma_(static_cast<float>(sigma)),
      copies_(copies),
      images_(backend.allocate_floats(capacity * copies * elements, "noisy copies")) {}

const float* NoisyCopies::of(const float* x, const std::int64_t* sample_ids, const Layout& layout, int n,
                             std::uint64_t seed, std::uint32_t time) {
  const kernels::NoisyCopies kernel{x, images_, sample_ids, layout, seed, time, sigma_, copies_};
  each(backend_.device(), std::int64_t{n} * copies_ * layout.fours(), kernel);
  return images_;
}

Buffers::Buffers(Backend& where, const DatasetInfo& info, int samples, const Needs& needs)
    : backend(where),
      layout(where.image_layout(info.channels, info.size, info.size)),
      classes(info.classes),
      capacity(samples),
      largest_(info.size) {
  const std::int64_t floats = samples * layout.elements();
  clean = backend.allocate_floats(floats, "images");
  x_adv = backend.allocate_floats(floats, "images");
  eta = backend.allocate_floats(floats, "images");
  dx = backend.allocate_floats(floats, "images");
  scratch = backend.allocate_floats(needs.scratch_images * floats, "images");
  if (needs.start_images) first_images = backend.allocate_floats(floats, "images");
  if (needs.start_logits) first_logits = backend.allocate_floats(std::int64_t{samples} * classes, "logits");
  for (std::int32_t** const one : {&labels, &targets, &done})
    *one = backend.allocate_array<std::int32_t>(samples, "labels");
  ids = backend.allocate_array<std::int64_t>(samples, "labels");
  crops = backend.allocate_array<Crop>(samples, "labels");
  pixels_ = backend.allocate_array<std::uint8_t>(samples * layout.elements(), "images");
  empty_.device = backend.device();
  empty_.classes = classes;
  empty_.labels = labels;
  empty_.targets = targets;
  empty_.sample_ids = ids;
  empty_.layout = layout;
  empty_.clean = clean;
  empty_.x_adv = x_adv;
  empty_.eta = eta;
  empty_.first_images = first_images;
  empty_.first_logits = first_logits;
  empty_.crops = crops;
  batch_ = empty_;
}

void Buffers::cut(int size) {
  const int wanted = size == 0 ? largest_ : size;
  layout = backend.image_layout(layout.c, wanted, wanted);
  batch_.layout = layout;
}

Batch& Buffers::load(const HostBatch& read, int index, const std::uint8_t* all) {
  batch_ = empty_;
  cut(read.key.size);
  batch_.n = read.count / read.micro_batches;
  batch_.key = read.key;
  batch_.key.unit = read.dealt ? index : 0;
  batch_.begins_at = index * batch_.n;
  batch_.in_step = read.count;
  batch_.elsewhere = read.dealt ? read.elsewhere : 0;
  batch_.whole = read.dealt;
  const auto n = static_cast<std::size_t>(batch_.n), at = static_cast<std::size_t>(batch_.begins_at);
  const int side = read.side == 0 ? largest_ : read.side;
  const std::size_t bytes =
      static_cast<std::size_t>(side) * static_cast<std::size_t>(side) * static_cast<std::size_t>(layout.c);
  if (all == nullptr) backend.copy_to_device(pixels_, read.pixels.data() + at * bytes, n * bytes);
  backend.copy_to_device(labels, read.labels.data() + at, n * sizeof(std::int32_t));
  backend.copy_to_device(ids, read.ids.data() + at, n * sizeof(std::int64_t));
  backend.copy_to_device(crops, read.crops.data() + at, n * sizeof(Crop));
  each(backend.device(), std::int64_t{batch_.n} * layout.h * layout.w,
       kernels::Augment{all != nullptr ? all : pixels_, all != nullptr ? ids : nullptr, crops, clean, layout, side});
  return batch_;
}

void Buffers::attach(Objective& objective) const {
  static_cast<Batch&>(objective) = batch_;
  objective.dx = dx;
  objective.done = done;
  objective.scratch = scratch;
  objective.scratch_stride = capacity * layout.elements();
}

void Buffers::add_noise(double sigma, int of_each, std::int64_t images) {
  noise_ = std::make_unique<NoisyCopies>(backend, sigma, of_each, images, layout.elements());
}

const float* Buffers::shown(const float* x, const Samples& of, std::uint64_t seed, std::uint32_t time) {
  return noise_ ? noise_->of(x, of.sample_ids, layout, of.n, seed, time) : x;
}

const std::uint8_t* put_on_device(Backend& backend, const Dataset& dataset) {
  const std::size_t bytes = dataset.info().image_bytes();
  auto* all = static_cast<std::uint8_t*>(backend.allocate(static_cast<std::size_t>(dataset.size()) * bytes, "dataset"));
  constexpr std::int64_t kPiece = 4096;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(std::min(kPiece, dataset.size())) * bytes);
  for (std::int64_t first = 0; first < dataset.size(); first += kPiece) {
    const std::int64_t count = std::min(kPiece, dataset.size() - first);
    for (std::int64_t i = 0; i < count; ++i) {
      tick();
      dataset.read(first + i, pixels.data() + static_cast<std::size_t>(i) * bytes);
    }
    backend.copy_to_device(all + static_cast<std::size_t>(first) * bytes, pixels.data(),
                           static_cast<std::size_t>(count) * bytes);
  }
  return all;
}

bool fits_on_device(const Backend& backend, const Dataset& dataset, const std::string& wanted) {
  if (wanted != "auto") return wanted == "on";
  if (dataset.info().decoded) return false;  // a start would decode them all
  return static_cast<std::size_t>(dataset.size()) * dataset.info().image_bytes() <= backend.spare_memory() / 2;
}

}  // namespace dat
