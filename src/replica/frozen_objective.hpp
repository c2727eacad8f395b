#pragma once

#include <memory>
#include <vector>

#include "dat/attack.hpp"
#include "dat/program.hpp"
#include "replica/images.hpp"

namespace dat {

/// The attack's view of the frozen network, on the images of one micro-batch, in pieces of the program's size.
class FrozenObjective : public Objective {
 public:
  FrozenObjective(Images& images, FrozenProgram& program);
  /// For the samples that are in the images now, from a random start.
  void prepare(std::uint64_t seed, Purpose purpose, std::uint32_t time);
  void gradient() override;
  void forward() override;
  /// The work of one iteration is recorded when it is done for the second time, and replayed from then on.
  void gradient_step(float alpha, float eps) override;
  /// Loss and correctness of `x` (clean or x_adv), [images.count] each on the device, without a gradient.
  void measure(const float* x, float* loss, float* correct);

 protected:
  Images& images_;
  float *losses_, *correct_;  ///< [images.capacity], of the last pass

 private:
  struct Recorded {
    int n;
    float alpha, eps;
    SampleLoss* loss;
    std::unique_ptr<Backend::Recording> work;
  };
  void run(const PgdUpdate& update);
  /// What the program has computed of the samples from `first` on, and where it belongs.
  [[nodiscard]] Logits piece(int first) const;
  void keep_logits(int first);
  void count_passes() { passes += (n + program_.n() - 1) / program_.n() * program_.n(); }

  FrozenProgram& program_;
  float* logits_ = nullptr;  ///< [images.capacity, classes], of all pieces; null where there is one
  std::vector<Recorded> recorded_;
};

/// What all objectives on these images have in common.
void attach(Objective& objective, const Images& images);

}  // namespace dat
