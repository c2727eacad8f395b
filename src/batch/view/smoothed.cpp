#include "batch/view/smoothed.hpp"

#include <cassert>

#include "noise.hpp"

namespace dat {

SmoothedView::SmoothedView(Buffers& images, FrozenProgram& program)
    : FrozenView(images, program, true),
      smoothed_(images.backend.allocate_floats(std::int64_t{images_a_pass_} * classes, "logits")),
      dsmoothed_(images.backend.allocate_floats(std::int64_t{images_a_pass_} * classes, "logits")),
      log_means_(images.backend.allocate_array<double>(std::int64_t{images_a_pass_} * classes, "logits")),
      dcopies_(images.backend.allocate_floats(program.n() * layout.elements(), "noisy copies")) {
  values_ = smoothed_;
  gradients_ = dsmoothed_;
}

void SmoothedView::show(const float* x, int first) {
  const int images = wanted(first, n);
  const std::uint32_t epoch = purpose == Purpose::attack_start ? time : NoisyCopies::kEvaluation;
  program_.forward(images_.shown(x, part(first, images), seed, epoch), images * copies);
  each(device, images, kernels::MeanSoftmax{program_.logits(), smoothed_, log_means_, classes, copies});
}

void SmoothedView::differentiate(float* to, int first, const PgdUpdate& update) {
  assert(update.x == nullptr);
  (void)update;
  const int images = wanted(first, n);
  each(device, std::int64_t{images} * copies,
       kernels::MeanSoftmaxGradient{program_.logits(), dsmoothed_, log_means_, program_.dlogits(), classes, copies});
  program_.backward(dcopies_, {});
  each(device, images * layout.elements(), kernels::SumOfCopies{dcopies_, to, layout.elements(), copies});
}

}  // namespace dat
