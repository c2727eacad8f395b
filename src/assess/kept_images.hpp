#pragma once

#include <string>

#include "assess/evaluation.hpp"
#include "assess/sequence_files.hpp"

namespace dat {

/// The images of an evaluation without a sequence, each as the first attack leaves it that breaks it; on rank 0.
class KeptImages {
 public:
  /// As AdversarialImages. What is kept goes with the process: nobody goes on from it.
  KeptImages(const std::string& folder, const Dataset& images) : images_(folder, images, false) { images_.unlink(); }

  [[nodiscard]] AdversarialImages& images() { return images_; }
  /// Writes adversarial.h5. facts: of the whole evaluation. Error(io).
  void write(const EvaluationAttacks& attacks, const EvaluationResult& result, const FileFacts& facts);

 private:
  AdversarialImages images_;
};

}  // namespace dat
