#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dat/options/bench.hpp"
#include "measure/ceilings.hpp"
#include "measure/convolutions.hpp"
#include "measure/training_step.hpp"

namespace dat {

/// Measurement of a machine and a launch: ceilings, each convolution alone, a training step and its parts, sums over
/// the ranks. A table for a person, printed as it is measured; a file and a picture.
class Bench {
 public:
  Bench(Communicator& world, const BenchOptions& options);
  /// Measures and reports everything. argc, argv: of the program, for the file. **Collective.** Error(numerical): what
  /// would be measured is wrong; Error(io).
  void run(int argc, char** argv);

  /// Rate with which others are compared: the best of the first ceiling in GFLOP/s that was measured. A GPU's is that
  /// of f32 products, of which a pass in 16 bits is not made.
  struct Peak {
    double gflops = 0;
    std::string name;
    bool frozen = true;  ///< holds for the frozen passes, too
    [[nodiscard]] double of(int pass) const { return frozen || pass > frozen_input_gradient ? gflops : 0; }
  };

 private:
  void plan();
  /// Does each kind of work once, and checks the results.
  void check();
  [[nodiscard]] Peak measure_all_ceilings();
  void measure_convolutions(const Peak& peak);
  void measure_step();
  void measure_reading();
  void finish(const Peak& peak, int argc, char** argv);
  /// Seconds: a share of what is left of the time, which began when planning was over.
  [[nodiscard]] double part(double share) const;

  Communicator& world_;
  const BenchOptions& options_;
  StepOptions step_options_;
  DType storage_;
  std::unique_ptr<Dataset> images_;  ///< images of --data; null: no reading is measured
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<Convolutions> convolutions_;
  std::vector<std::string> hosts_;
  double begin_ms_ = 0, resident_mb_ = 0, step_ms_ = 0;  ///< step_ms_: of this rank
  std::vector<Ceiling> ceilings_;
  std::vector<Convolutions::Row> rows_;
  Convolutions::Row sum_;
  nlohmann::ordered_json found_;  ///< results for the file
};

}  // namespace dat
