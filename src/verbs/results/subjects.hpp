#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "record/history.hpp"
#include "verbs/results/groups.hpp"

namespace dat {

/// Images that a network classifies right, clean or after an attack.
struct Figure {
  std::string set{};   ///< the images: "501 test images, hash 0123abcd..."
  std::string name{};  ///< "clean", "pgd10", "aa-quick", and the noise that the network sees
  std::string ball{};  ///< "eps 8/255"; empty: clean
  std::string rest{};  ///< "alpha 2/255, 1 restart"; empty: nothing
  std::int64_t right = 0, images = 0;
  std::vector<std::uint8_t> correct{};  ///< [images] of an evaluation; of a run empty

  [[nodiscard]] bool clean() const { return ball.empty(); }
  /// Returns whether two figures are of the same images, and after the same attack.
  [[nodiscard]] bool compares_with(const Figure& other) const {
    return set == other.set && name == other.name && ball == other.ball && rest == other.rest;
  }
  [[nodiscard]] double percent() const { return 100 * static_cast<double>(right) / static_cast<double>(images); }
};

/// Figures of one network on test images: of the raw or the averaged weights of a step.
struct EvaluatedNetwork {
  std::string weights;  ///< raw | average
  std::int64_t step = 0;
  std::vector<Figure> figures{};  ///< clean before attacked
};

/// A run or an evaluation that is compared. NaN: not measured.
struct Subject : Compared {
  std::string path;
  std::string failure;  ///< why it cannot be read; empty: it can
  bool there = true;    ///< false: there is nothing to read
  std::string state;    ///< of a run, as status names it: "done", "stopped", "failed 7"
  bool done = false;    ///< the run is at its end
  History record{};     ///< of a run: all but its steps, of which there is the last alone
  /// What is known of program, machines, command and data: JSON; empty: nothing.
  std::string provenance;
  double steps = std::numeric_limits<double>::quiet_NaN();
  double seconds = steps;
  double batch = steps;              ///< images of a step on all ranks
  double images_per_second = steps;  ///< on all ranks; medians of the steps but the first ten
  double reduction = steps;          ///< percent of these steps' time in which ranks wait for each other's gradients
  double megabytes = steps;          ///< gradients that a rank sends in a step
  double training = steps;           ///< percent of the last epoch's attacked training images that were right
  double efficiency = steps;         ///< images/s and rank, over those of the fewest ranks; NaN: no run to compare with
  std::vector<EvaluatedNetwork> networks{};
};

/// Reads runs and evaluations, and those right in a folder that is neither. What cannot be read has a `failure`.
[[nodiscard]] std::vector<Subject> read_subjects(const std::vector<std::string>& paths);

/// Error(data): none of them could be read.
void require_readable(const std::vector<Subject>& subjects);
/// Says which could not be read. Returns the exit code: data where there is such a one, else done.
[[nodiscard]] int tell_left_out(const std::vector<Subject>& subjects);

/// Returns whether a folder has the record of a run.
[[nodiscard]] bool holds_run(const std::string& folder);

}  // namespace dat
