#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "batch/buffers/buffers.hpp"
#include "batch/view/view.hpp"
#include "dat/program.hpp"
#include "dat/recordings.hpp"

namespace dat {

/// The frozen network, on the images of one micro-batch, in pieces of the program's size.
class FrozenView : public View {
 public:
  FrozenView(Buffers& images, FrozenProgram& program) : FrozenView(images, program, false) {}
  /// Makes room for the logits of clean images, which a goal may ask for. While the replica is built.
  void allow_reference();
  /// Computes the logits of the clean images, where the goal needs them.
  void prepare(const AttackGoal& goal) override;
  /// Takes up the micro-batch for an attack outside a training, with other keys of what is random.
  void prepare(std::uint64_t key_of_draws = 0, Purpose what = Purpose::evaluation_start, std::uint32_t when = 0) {
    take_up(key_of_draws, what, when, {});
  }
  void gradient() override;
  void forward() override;
  /// The images that the attack is not done with are put side by side from then on, if that saves enough: whole passes
  /// of the program, or samples where the backend leaves them out. The result of a sample does not depend on its place.
  [[nodiscard]] int live() override;
  /// The work of one iteration is recorded when it is done for the second time, and replayed from then on.
  void gradient_step(float alpha, float eps) override;
  /// Loss and correctness of `x` (clean or x_adv), [n] each on the device, without a gradient. The logits of
  /// `x` are left in `logits`.
  void measure(const float* x, float* loss_of, float* correct_of) { look(x, cross_entropy, loss_of, correct_of); }

 protected:
  /// under_noise: the program is shown copies of each image (show). Then images are never put side by side, for their
  /// noise is that of their places.
  FrozenView(Buffers& images, FrozenProgram& program, bool under_noise);
  /// Computes the logits `values_` of the micro-batch's images from number `first` on, as many as a pass takes, which
  /// lie at x. For this call and the call of differentiate() that belongs to it.
  virtual void show(const float* x, int first) { program_.forward(x, wanted(first, n)); }
  /// Computes the gradient `to` of these images from `gradients_`, by the logits, and makes the update where there is
  /// one.
  virtual void differentiate(float* to, int /*first*/, const PgdUpdate& update) { program_.backward(to, update); }
  /// Number of images that the pass computes that begins with number `first`, out of `samples`.
  [[nodiscard]] int wanted(int first, int samples) const { return std::min(images_a_pass_, samples - first); }

  Buffers& images_;
  float *losses_, *correct_;  ///< [images.capacity], of the last pass
  FrozenProgram& program_;
  const float* values_;  ///< [images a pass, classes]: logits that losses are taken of
  float* gradients_;     ///< [images a pass, classes]: gradients of the logits
  int images_a_pass_;

 private:
  /// Key of an iteration's recording.
  struct Iteration {
    int n;
    float alpha, eps;
    SampleLoss* loss;
    friend bool operator==(const Iteration&, const Iteration&) = default;
  };
  void take_up(std::uint64_t key_of_draws, Purpose what, std::uint32_t when, const AttackGoal& goal);
  void pass(const PgdUpdate& update);
  /// As measure(), by this loss.
  void look(const float* x, SampleLoss* by, float* loss_of, float* correct_of);
  /// Makes a pass over the images that have been put side by side, and no others.
  void pass_gathered(bool gradient);
  [[nodiscard]] int passes_for(int samples) const { return (samples + images_a_pass_ - 1) / images_a_pass_; }
  /// Returns whether `left` images side by side cost less than `now` in their places.
  [[nodiscard]] bool pays_to_gather(int left, int now) const;
  /// Logits that the program has computed of the samples from `first` on, and their place.
  [[nodiscard]] Logits piece(int first) const;
  void keep_logits(int first) { copy_logits(logits_, first); }
  /// Copies what the program has computed of the samples from `first` on to their places in `to` [n, classes]; null:
  /// nowhere.
  void copy_logits(float* to, int first);
  void count_passes() { passes += std::int64_t{passes_for(gathered_.value_or(n))} * program_.n(); }

  float* logits_ = nullptr;     ///< [images.capacity, classes], of all pieces; null where one piece is all
  float* reference_ = nullptr;  ///< [images.capacity, classes], of the clean images; null: nobody asks for them
  Recordings<Iteration> recorded_;

  /// Arrays of images that have been put side by side; null where that saves nothing.
  struct Packed {
    std::int32_t *samples = nullptr, *labels, *targets;  ///< samples: the samples of all passes; -1: an empty place
    float *x, *dx, *losses, *correct;
  };
  Packed packed_;
  std::optional<int> gathered_;  ///< number of images that are put side by side; none: all are in their own places
  std::vector<std::int32_t> host_done_, host_samples_;
};

}  // namespace dat
