#pragma once

#include <string>

#include "assess/columns.hpp"
#include "assess/evaluation.hpp"
#include "assess/sequence.hpp"

namespace dat {

/// Writes what a sequence has found out, sealed, readable with h5py (docs/manual/evaluation.md): image/{label,
/// clean_correct, robust, broken_by, run, prediction, distance}, attack/{name, runs, images, broken, accuracy,
/// seconds}. Error(io).
void write_sequence_results(const std::string& path, const Dataset& images, const SequenceResult& result,
                            const FileFacts& facts);

/// The images of a set as an evaluation has attacked them. While the evaluation runs, each broken image is kept in a
/// plain file in the folder, `adversarial.part`, so that a killed evaluation still has them; at the end there is
/// adversarial.h5.
class AdversarialImages {
 public:
  /// @param begun  The evaluation goes on: its file of images must be in the folder.
  ///
  /// Error(usage): these images are not in the folder. Error(io).
  AdversarialImages(const std::string& folder, const Dataset& images, bool begun);
  ~AdversarialImages();
  AdversarialImages(const AdversarialImages&) = delete;
  AdversarialImages& operator=(const AdversarialImages&) = delete;

  /// Takes adversarial.part out of the folder: it is there for this process alone, and goes with it.
  void unlink();
  /// Keeps a broken image, as a BrokenImageSink takes it. Error(io).
  void keep(std::int64_t image, const float* pixels, float confidence);
  /// Brings all that was kept so far to the disk before it returns. Error(io).
  void sync();
  /// Writes adversarial.h5, sealed: images float32 [N, size, size, channels] in [0, 1], clean where no attack has
  /// broken them; clean uint8, all images clean; label, robust; confidence float32, the probability of the class that
  /// a broken image is taken for, else NaN. Removes adversarial.part. Error(io).
  void finish(const SequenceResult& result, const FileFacts& facts);

 private:
  [[nodiscard]] std::size_t pixels() const { return images_.info().image_bytes(); }
  /// Bytes of an image in the plain file: its pixels, and its confidence behind them.
  [[nodiscard]] std::size_t record_bytes() const { return (pixels() + 1) * sizeof(float); }

  const Dataset& images_;
  std::string part_, whole_;
  int file_ = -1;
  bool finished_ = false;  ///< adversarial.h5 was there already
};

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
