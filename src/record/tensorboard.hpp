#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dat/report.hpp"
#include "files/protobuf.hpp"
#include "record/history.hpp"

namespace dat {

/// The numbers of metrics.jsonl once more, in a file that TensorBoard reads: a scalar for each number of a step and of
/// an evaluation ("step/lr", "evaluation/test/raw/pgd10/adv_acc"), in float32, those left out that are not finite; a
/// histogram of the layers' probabilities, but where all are 1 ("step/p"); and the pictures of evaluations
/// ("evaluation/test/raw/pgd10/attacked"). The file is made from the record each time that a part of the run begins, so
/// that it has each number once, whatever has been cut off the record; from then on each step is added with one
/// write(), and nothing is allocated. Pictures stay as long as the record has their evaluation. The file has a new name
/// each time, and says that a session starts with it, so that a TensorBoard that looks on drops what it has read.
/// Source: tensorboard/compat/proto/{event,summary,histogram}.proto of tensorflow/tensorboard, and tensorflow's
/// lib/io/record_writer.h for the frames.
class TensorBoard {
 public:
  /// Writes the file, and removes those before it. history: of the record in the folder. Error(io).
  TensorBoard(const std::string& folder, const History& history);
  ~TensorBoard();
  TensorBoard(const TensorBoard&) = delete;
  TensorBoard& operator=(const TensorBoard&) = delete;

  // A line of the record, which is on its way to the file when this returns. Error(io).
  void step(const StepRecord& record, std::int64_t n_active);
  void evaluation(const EvaluationRecord& record);

  /// Returns whether there is such a file in a folder.
  [[nodiscard]] static bool is_in(const std::string& folder);
  static void remove_from(const std::string& folder);

 private:
  /// Takes all memory that steps will ask for.
  void make_room(std::size_t layers);
  void write_history(const History& history, const std::string& before);
  /// A step whose probabilities are in p_.
  void add_step(const StepRecord& record, std::int64_t n_active);
  void add_scalars(const EvaluationRecord& record);
  void add_scalar(const char* name, double value);
  void add_probabilities();
  /// Ends an event whose values are in summary_.
  void end_event(double wall_time, std::int64_t step);
  void frame(const ProtobufMessage& event);
  void flush();

  std::string path_;
  int file_ = -1;
  double began_;        ///< seconds since 1970 at the beginning of the run, had it never stood still
  std::string frames_;  ///< what is not yet written
  std::string prefix_, tag_;
  ProtobufMessage value_, histogram_, summary_, event_;
  std::vector<float> p_;  ///< [layers]
};

}  // namespace dat
