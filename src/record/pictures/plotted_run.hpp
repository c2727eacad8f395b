#pragma once

#include <array>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "record/history.hpp"
#include "record/pictures/chart.hpp"

namespace dat {

/// A run to draw.
struct PlottedRun {
  std::string name;
  History history;

  [[nodiscard]] static double epochs(const StepRecord& r) {
    return static_cast<double>(r.step) / static_cast<double>(r.steps_per_epoch);
  }
  /// Epochs done when an evaluation was made, found by its time, which orders everything.
  [[nodiscard]] double epochs(const EvaluationRecord& r) const;
  /// Epochs done before the first step, and after the last one.
  [[nodiscard]] double begin() const;
  [[nodiscard]] double end() const;
  /// The index of the first step after which so many epochs were done, or the number of steps.
  [[nodiscard]] std::size_t step_at(double done) const;
};

/// The run in a folder, named by the folder. Error(data): as read_history, or it has made no step.
[[nodiscard]] PlottedRun read_run(const std::string& folder);

/// A panel with the axis of epochs below, and above it the time at which each mark was reached.
[[nodiscard]] Panel epoch_panel(const PlottedRun& run, const Axis& y, const std::vector<Series>& series = {});

/// A unit in which a time is a number of few digits.
struct TimeUnit {
  const char* name;
  double seconds;
};
[[nodiscard]] TimeUnit time_unit(double seconds);

/// Names attacks by what tells them apart; what they share is for the title.
class AttackNames {
 public:
  void add(const EvaluationRecord& record);
  [[nodiscard]] std::string name(const EvaluationRecord& record) const;
  /// Second line of a title: "evaluations: pgd10, eps 8/255, alpha 2/255, 1 restart; 10000 test images". images: as of
  /// evaluated_images; a training's own attack is another one.
  [[nodiscard]] std::string facts(const std::string& images) const;

 private:
  std::array<std::string, 4> shared_;  ///< name, ball, step, restarts; empty: not of all
  bool any_ = false;
};

/// The images of the last evaluations on each of these splits: "10000 test images and 500 held-out training images".
[[nodiscard]] std::string evaluated_images(const std::vector<const PlottedRun*>& runs,
                                           const std::vector<std::string>& splits);

/// One line of a picture of evaluations.
struct Curve {
  std::string name, look;
  EvaluationSeries records;
  bool clean = false;

  [[nodiscard]] double accuracy(const EvaluationRecord& r) const { return 100 * (clean ? r.clean_acc : r.adv_acc); }
  [[nodiscard]] double loss(const EvaluationRecord& r) const { return clean ? r.clean_loss : r.adv_loss; }
};

/// Accuracy on clean images first, then one curve per attack, split after split, of the raw and of the averaged
/// weights. A colour per attack, a dash per split and weights.
[[nodiscard]] std::vector<Curve> curves_of(const PlottedRun& run, const AttackNames& names);

/// Draws stacked bars of seconds by phase, a bar for each row. Phases that are below a hundredth of every bar are drawn
/// as one, and a line names them. Hidden communication has no place in a bar, but a column in the table beside it.
/// shares: in the key, the first row's of its sum.
void draw_phase_bars(Plots& plots, const std::string& title, const std::string& x_label, const std::string& y,
                     const std::vector<std::string>& names, const std::vector<std::array<double, kPhases>>& rows,
                     bool shares);

}  // namespace dat
