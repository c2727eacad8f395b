#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assess/alarms.hpp"
#include "assess/classes.hpp"
#include "assess/evaluation.hpp"
#include "assess/sequence_run.hpp"

namespace dat {

/// Subject of an evaluation.
struct EvaluationSubject {
  std::string checkpoint;  ///< name of the checkpoint, as given
  std::int64_t step = 0;   ///< step of the checkpoint
  std::string weights = "raw", weights_hash;
  Classes classes;
  std::vector<std::string> data;
  std::string split;
  std::int64_t split_images = 0;  ///< images of the whole split
  std::string list;               ///< the file that names the images; empty: none
  std::uint64_t seed = 1;
  BallNorm norm = BallNorm::linf;
  double eps = 0;
  bool eps_given = false;  ///< else it is the training's
  double noise = 0;        ///< standard deviation of the noise that the network sees; 0: none
  int noise_samples = 1;   ///< copies of each image under noise
};

/// Results of an evaluation, for its file and for people: by attack, by class and by image, and the alarms that they
/// raise.
class EvaluationReport {
 public:
  /// sequence, with its result: null without one. All of it must outlive the report.
  EvaluationReport(const EvaluationSubject& subject, const Dataset& images, const EvaluationAttacks& attacks,
                   const EvaluationResult& result, const SequenceRun* sequence, const SequenceResult* sequence_result);

  [[nodiscard]] const std::vector<Alarm>& alarms() const { return alarms_; }

  /// Writes eval.json. provenance: a JSON object. Error(io).
  void write(const std::string& path, const std::string& provenance) const;
  /// Lines for a person, the alarms last.
  [[nodiscard]] std::string text() const;
  /// "Final: clean_acc=... VALID".
  [[nodiscard]] std::string final_line() const;

 private:
  const EvaluationSubject& subject_;
  const Dataset& images_;
  const EvaluationResult& result_;
  const SequenceRun* sequence_;
  const SequenceResult* sequence_result_;
  std::vector<EvaluationRecord> records_;  ///< one an attack
  std::vector<Alarm> alarms_;
  Validity verdict_;
};

/// The file that --out names: itself, or eval.json in a folder. Error(usage): it is a folder.
[[nodiscard]] std::string evaluation_file(const std::string& out);
/// That file, whose folder is made. Error(io).
[[nodiscard]] std::string prepare_evaluation_file(const std::string& out);

}  // namespace dat
