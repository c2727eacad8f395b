#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dat/attack.hpp"
#include "dat/optimizer.hpp"
#include "dat/program.hpp"
#include "train/images.hpp"

// What `dat_hpc bench` and the programs of bench/ measure with.
namespace dat {

[[nodiscard]] inline double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Milliseconds of one run of the same work, out of some runs.
struct Sample {
  double median = 0, least = 0;
  int runs = 0;  ///< 0: not measured
};
[[nodiscard]] Sample summarize(std::vector<double> ms);

/// How often work is repeated: until `seconds` have passed, but within these numbers of runs. A run before them is not
/// counted, unless the work is `warm`.
struct Effort {
  double seconds = 0;
  int least = 1, most = 1;
  bool warm = false;
  [[nodiscard]] static Effort runs(int count) { return {.seconds = 0, .least = count, .most = count}; }
};

template <class F>
[[nodiscard]] Sample repeat(const Effort& effort, const F& run) {
  const double end = now_ms() + 1e3 * effort.seconds;
  if (!effort.warm) run();
  std::vector<double> times;
  do {
    const double begin = now_ms();
    run();
    times.push_back(now_ms() - begin);
  } while (static_cast<int>(times.size()) < (now_ms() < end ? effort.most : effort.least));
  return summarize(std::move(times));
}

/// Of one call of `work`, in a recording of as many calls as the clock needs.
template <class F>
[[nodiscard]] Sample repeat_recorded(Backend& backend, const Effort& effort, const F& work) {
  constexpr double kEnough = 5;
  const auto once = [&] {
    work();
    backend.wait();
  };
  const double one = repeat(Effort::runs(3), once).least;
  const int calls = std::clamp(static_cast<int>(kEnough / one), 1, 100);
  const auto recording = backend.record([&] {
    for (int k = 0; k < calls; ++k) work();
  });
  Sample sample = repeat(effort, [&] {
    recording->replay();
    backend.wait();
  });
  sample.median /= calls;
  sample.least /= calls;
  return sample;
}

/// What the device reaches at most.
struct Ceiling {
  std::string name, unit;       ///< unit: GFLOP/s or GB/s
  double median = 0, best = 0;  ///< 0: not measured
  std::string note;             ///< why not; or what was measured
};
/// Multiply-adds in registers (CPU only), copying and adding of large arrays, a large matrix product: in this order.
/// On a backend of its own, in about `seconds`.
[[nodiscard]] std::vector<Ceiling> measure_ceilings(const BackendOptions& options, double seconds);

struct StepOptions {
  std::string network = "resnet18";
  int width = 64, batch = 64;
  int micro_batch = 0;   ///< images that are attacked and trained on at a time; 0: all of them
  int attack_batch = 0;  ///< images per pass of the attack; 0: the micro-batch
  int attack_steps = 10;
  BackendOptions backend = {.threads = 2};
  std::string attack_precision = "f32";
};

/// The step that the scripts in bench/peers do, on the same weights, images and labels (inputs.py): PGD with running
/// statistics, one pass with batch statistics on the adversarial images, SGD (lr 0.01, momentum 0.9). Attack, programs
/// and optimizer are those of a training run; the images are drawn and not read.
class TrainingStep {
 public:
  /// Error(usage): sizes that do not divide each other; Error as of the backend.
  explicit TrainingStep(const StepOptions& options);

  /// One step. Milliseconds of its parts are left in the members below.
  void run();
  double attack_ms = 0, train_ms = 0, update_ms = 0;

  /// One iteration of the attack on the images that are loaded: gradient and update.
  void attack_iteration();

  struct Losses {
    double clean, attacked, trained;
  };
  /// Error(numerical) unless the attack raises the loss and a step leaves finite numbers: no timing of wrong work. The
  /// first call warms up, too.
  Losses check();

  /// What the same network computes elsewhere, for a comparison: after three passes in training mode, so that running
  /// statistics matter, logits [batch, 10] and input gradient [batch, 3, 32, 32] of the sum of the losses at the clean
  /// images, and the mean loss before and after an attack that starts at them.
  struct Results {
    std::vector<float> logits, input_gradient;
    double clean_loss, attacked_loss;
  };
  [[nodiscard]] Results results();

  /// What was measured, for a line of JSON.
  [[nodiscard]] nlohmann::ordered_json about() const;

  [[nodiscard]] const StepOptions& options() const { return options_; }
  [[nodiscard]] Backend& backend() { return *backend_; }
  [[nodiscard]] const Graph& graph() const { return model_.graph; }

 private:
  /// f(place in NCHW, place in the backend's layout) for every pixel of the batch.
  template <class F>
  void for_each_pixel(const F& f) const;
  void copy(const float* from, float* to);
  void load(int first);  ///< the micro-batch that begins at this sample
  void add_statistics(bool accumulate);
  void update_running_statistics();
  /// Of the attack's network, over the batch: at the clean images, or after an attack.
  [[nodiscard]] double loss(bool attacked);
  [[nodiscard]] double mean_loss();

  StepOptions options_;
  std::unique_ptr<Backend> backend_;
  Model model_;
  Images images_;
  FrozenProgram frozen_;
  TrainingProgram training_;
  std::unique_ptr<Attack> attack_;
  FrozenObjective objective_;
  std::unique_ptr<Optimizer> optimizer_;
  ActiveSet active_;
  std::vector<std::int32_t> labels_;
  std::vector<std::int64_t> ids_;
  float *x_ = nullptr, *loss_ = nullptr, *correct_ = nullptr, *statistics_ = nullptr;
};

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
  /// The frozen passes keep activations as `storage`. Without `training`, there are no others.
  Convolutions(Backend& backend, const Graph& graph, int batch, DType storage, bool training);
  ~Convolutions();

  struct Row {
    std::string name;  ///< e.g. "64-128 3x3/2 @32"; "sum": of all
    int count = 1;     ///< how often the network has it
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
  float *x_ = nullptr, *y_ = nullptr, *w_ = nullptr, *dw_ = nullptr, *scale_ = nullptr;
};

/// All convolutions of the network together.
[[nodiscard]] Convolutions::Row total(const std::vector<Convolutions::Row>& rows);

/// Of the whole process so far.
[[nodiscard]] double peak_resident_mb();

}  // namespace dat
