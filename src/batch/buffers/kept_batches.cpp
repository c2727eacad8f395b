#include "batch/buffers/kept_batches.hpp"

#include "move_weights.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

/// Floats rounded up to whole groups.
[[nodiscard]] std::int64_t whole_groups(std::int64_t floats) { return kernels::groups(floats) * kernels::kGroup; }

}  // namespace

KeptBatches::KeptBatches(const Buffers& buffers, int count, int images, const char* purpose) {
  Backend& backend = buffers.backend;
  const std::int64_t floats = count * whole_groups(images * buffers.layout.elements());
  const auto numbers = static_cast<std::size_t>(count) * static_cast<std::size_t>(images);
  x_adv_ = backend.allocate_floats(floats, purpose);
  clean_ = backend.allocate_floats(floats, purpose);
  labels_ = static_cast<std::int32_t*>(backend.allocate(numbers * sizeof(std::int32_t), purpose));
  sample_ids_ = static_cast<std::int64_t*>(backend.allocate(numbers * sizeof(std::int64_t), purpose));
  all_.reserve(static_cast<std::size_t>(count));
}

void KeptBatches::clear() {
  all_.clear();
  floats_ = 0;
}

void KeptBatches::keep(const Batch& batch) {
  Batch& kept = all_.emplace_back(batch);
  const std::int64_t floats = batch.n * batch.layout.elements();
  const auto copy = [&](const float* from, float* to) {
    each(batch.device, kernels::groups(floats), kernels::Add<float>{from, nullptr, to, floats});
    return to;
  };
  kept.x_adv = copy(batch.x_adv, x_adv_ + floats_);
  kept.clean = copy(batch.clean, clean_ + floats_);
  floats_ += whole_groups(floats);
  kept.labels = labels_ + batch.begins_at;
  each(batch.device, batch.n, kernels::CopyWords{batch.labels, labels_ + batch.begins_at});
  kept.sample_ids = sample_ids_ + batch.begins_at;
  each(batch.device, 2 * std::int64_t{batch.n},
       kernels::CopyWords{reinterpret_cast<const std::int32_t*>(batch.sample_ids),
                          reinterpret_cast<std::int32_t*>(sample_ids_ + batch.begins_at)});
}

}  // namespace dat
