#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dat/network.hpp"
#include "measure/repeat.hpp"

namespace dat {

/// The passes of a step: frozen forward and input gradient (in each iteration of the attack), training forward, input
/// and weight gradient (once).
enum Pass : std::uint8_t {
  frozen_forward,
  frozen_input_gradient,
  train_forward,
  train_input_gradient,
  train_weight_gradient
};
constexpr int kPasses = 5;
constexpr const char* kPassNames[kPasses] = {"frozen_forward", "frozen_input_gradient", "train_forward",
                                             "train_input_gradient", "train_weight_gradient"};

/// The convolutions of a network, each shape once and alone, on random numbers. Planned when built, before which the
/// network's own programs should be: what they have recorded is void.
class Convolutions {
 public:
  /// Plans the convolutions. The frozen passes keep activations as `storage`. Without `training`, there are no other
  /// passes.
  Convolutions(Backend& backend, const Graph& graph, int batch, DType storage, bool training);
  ~Convolutions();

  struct Row {
    std::string name;  ///< e.g. "64-128 3x3/2 @32"; "sum" for all convolutions together
    int count = 1;     ///< number of times that the network has it
    double macs = 0;   ///< multiply-adds of one pass
    Sample passes[kPasses];
    std::string implementation;

    /// 10^9 operations a second, by the definition of a convolution; 0: not measured.
    [[nodiscard]] double gflops(int pass) const {
      return passes[pass].runs > 0 ? 2e-6 * macs / passes[pass].median : 0;
    }
  };
  [[nodiscard]] int size() const { return static_cast<int>(shapes_.size()); }
  [[nodiscard]] Row measure(int shape, const Effort& effort_per_pass);

 private:
  struct Shape {
    ConvSpec spec;
    int count = 1;
    std::unique_ptr<Conv2d> frozen, training;
  };
  void upload(void* to, std::int64_t count, DType storage);

  Backend& backend_;
  DType storage_;
  std::vector<Shape> shapes_;
  std::vector<float> values_;
  std::int64_t largest_ = 0, weights_ = 0;  ///< elements of the largest activations and weights
  float *x_ = nullptr, *y_ = nullptr, *dx_ = nullptr, *w_ = nullptr, *dw_ = nullptr, *scale_ = nullptr;
  std::uint16_t* bits_ = nullptr;  ///< bits of the ReLU after a frozen convolution
};

/// All convolutions of the network together.
[[nodiscard]] Convolutions::Row total(const std::vector<Convolutions::Row>& rows);

}  // namespace dat
