#pragma once

#include <memory>
#include <string>

#include "assess/evaluation_report.hpp"
#include "assess/sequence_files.hpp"
#include "assess/sequence_run.hpp"
#include "dat/options/eval.hpp"
#include "dat/run_lock.hpp"
#include "replica/replica.hpp"

namespace dat {

/// Everything that is needed on every rank, in the order in which it is made.
struct EvaluationSetting {
  EvaluationSubject subject;
  std::unique_ptr<Dataset> data;
  std::int64_t share = 0;                      ///< most images of a rank
  std::unique_ptr<EvaluationAttacks> attacks;  ///< each on all images
  std::unique_ptr<SequenceRun> sequence;       ///< null without a sequence
  std::unique_ptr<Replica> replica;
  std::unique_ptr<Evaluator> evaluator;
  // Of an evaluation without a sequence, on rank 0.
  std::unique_ptr<RunLock> lock;         ///< on the folder for its files; null: there is none
  std::unique_ptr<KeptImages> attacked;  ///< null: nobody wants them
  std::string training;  ///< a hash of its options, which say what the network computes with its weights
};

/// Reads the network and its images, and plans everything. Error(usage), Error(checkpoint), Error(data), Error(device).
[[nodiscard]] EvaluationSetting prepare_evaluation(Communicator& world, const EvalOptions& options);

}  // namespace dat
