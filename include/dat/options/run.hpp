#pragma once

#include <cstdint>
#include <string>

namespace dat {

/// Surroundings of the steps: files, setbacks, checks. Rows and rules: src/options/train/run.cpp.
struct RunSettings {
  std::string out;                        ///< empty: the run names its folder by time or job
  std::int64_t max_steps = 0;             ///< 0: no limit
  std::int64_t checkpoint_every = 0;      ///< steps; 0: every epoch
  std::string checkpoint_async = "auto";  ///< auto (on with a GPU) | on | off: checkpoints beside the steps
  std::int64_t max_bad_steps = 0;         ///< steps with numbers that are not finite, in a row, which are skipped
  std::string on_bad_steps = "stop";      ///< stop | rollback: where there are more
  std::string on_overfitting = "warn";    ///< warn | stop | rollback: the robust accuracy on what is held out collapses
  double rollback_lr = 0.5;               ///< factor of the learning rate after going back to a checkpoint
  std::int64_t max_rollbacks = 3;
  std::string resume = "auto";  ///< auto | never | path of a checkpoint or of a run
  std::string initialize;       ///< path of weights to begin with; empty: random ones
  bool verbose = false;
  std::string resident = "auto";        ///< auto | on | off: the dataset in the device's memory
  std::string precision = "f32";        ///< f32 | f16 | bf16: storage of the network in training passes
  std::string recompute = "none";       ///< none | norms: what training passes make again instead of keeping it
  std::string graphs = "on";            ///< CUDA graphs of attacks and training passes: on | off
  int check_every = 10;                 ///< steps between replica checks; 0: never
  std::string on_corruption = "abort";  ///< abort | repair
  int verify = 0;                       ///< steps between recomputed micro-batches; 0: none
  double progress = 10;                 ///< seconds between progress lines
  bool tensorboard = false;             ///< a file for TensorBoard beside metrics.jsonl

  friend bool operator==(const RunSettings&, const RunSettings&) = default;
};

}  // namespace dat
