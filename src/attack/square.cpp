#include "attack/square_loop.hpp"

namespace dat {

namespace {

/// AutoAttack's use of Square: 5000 proposals that lower the margin, without a gradient.
class Square final : public Attack {
 public:
  explicit Square(const AttackOptions& options) : norm_(options.norm), eps_(options.eps) {}

  void perturb(Objective& o) const override {
    o.loss = margin;
    square(o, {.norm = norm_, .eps = eps_, .iterations = kIterations});
  }
  [[nodiscard]] int gradient_evaluations() const override { return 0; }
  [[nodiscard]] bool random() const override { return true; }
  [[nodiscard]] Needs needs() const override { return {.scratch_images = square_images(norm_)}; }

 private:
  static constexpr int kIterations = 5000;
  BallNorm norm_;
  double eps_;
};

}  // namespace

std::unique_ptr<Attack> make_square(const AttackOptions& options) { return std::make_unique<Square>(options); }

}  // namespace dat
