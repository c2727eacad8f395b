#include "batch/buffers/noisy_copies.hpp"

#include "noise.hpp"

namespace dat {

NoisyCopies::NoisyCopies(Backend& backend, double sigma, int copies, std::int64_t capacity, std::int64_t elements)
    : backend_(backend),
      sigma_(static_cast<float>(sigma)),
      copies_(copies),
      images_(backend.allocate_floats(capacity * copies * elements, "noisy copies")) {}

const float* NoisyCopies::of(const float* x, const std::int64_t* sample_ids, const Layout& layout, int n,
                             std::uint64_t seed, std::uint32_t time) {
  each(backend_.device(), std::int64_t{n} * copies_ * ((layout.elements() + 3) / 4),
       kernels::NoisyCopies{x, images_, sample_ids, layout, seed, time, sigma_, copies_});
  return images_;
}

}  // namespace dat
