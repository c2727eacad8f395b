#pragma once

#include <string>

#include "assess/evaluation.hpp"
#include "assess/sequence_files.hpp"
#include "dat/run_lock.hpp"

namespace dat {

/// The images of an evaluation without a sequence, each as the first attack leaves it that breaks it; on rank 0.
class KeptImages {
 public:
  /// Opens the folder, and keeps it until its end. Error(usage): it is a training's, a certification's or a sequence's,
  /// or another process writes there; else as AdversarialImages.
  KeptImages(const std::string& folder, const Dataset& images);

  [[nodiscard]] AdversarialImages& images() { return images_; }
  /// Writes adversarial.h5. facts: of the whole evaluation. Error(io).
  void write(const EvaluationAttacks& attacks, const EvaluationResult& result, const FileFacts& facts);

 private:
  RunLock lock_;
  AdversarialImages images_;
};

}  // namespace dat
