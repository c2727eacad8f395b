#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "assess/evaluation.hpp"
#include "replica/replica.hpp"

namespace dat {

/// Accuracy of a network on some sets of images, under the attacks of evaluations.
class Assessment {
 public:
  /// dealing: how images are dealt to the ranks. shown: images of each set in the pictures of rank 0's records; 0:
  /// there are none.
  Assessment(Communicator& ranks, Replica& replica, const EvaluationAttacks& attacks, Evaluator::Dealing dealing,
             int shown = 0);
  /// Adds a set. split: its name in the records. pixels: the set's pixels on the device; null: they are read image by
  /// image.
  void add(const std::string& split, const Dataset& images, const std::uint8_t* pixels);

  /// A record for each set and attack, in the order in which the sets were added. Step, epoch and time are the
  /// caller's. progress: called, where it is given, with the part of this rank's images that is done. **Collective.**
  [[nodiscard]] std::vector<EvaluationRecord> run(std::uint64_t seed, const std::function<void(double)>& progress = {});

 private:
  Communicator& ranks_;
  Replica& replica_;
  const EvaluationAttacks& attacks_;
  Evaluator::Dealing dealing_;
  int shown_;
  std::vector<std::pair<std::string, std::unique_ptr<Evaluator>>> evaluators_;  ///< evaluators by split
};

}  // namespace dat
