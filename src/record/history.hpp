#pragma once

#include <algorithm>
#include <any>
#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dat/report.hpp"

namespace dat {

constexpr std::array<const char*, kPhases> kPhaseSeries = {
    "t_data",   "t_attack", "t_forward", "t_backward", "t_encode",     "t_exposed", "t_decode",
    "t_select", "t_update", "t_other",   "t_evaluate", "t_checkpoint", "t_hidden"};

/// Calls field(name, value, unit) for each number or word of a record: the one list behind metrics.jsonl, its reader
/// and results.h5. `Record` may be const.
template <class Record, class Field>
void for_each_step_field(Record& record, Field&& field) {
  field("step", record.step, "");
  field("epoch", record.epoch, "");
  field("steps_per_epoch", record.steps_per_epoch, "");
  field("wall_time", record.wall_time, "s");
  field("lr", record.lr, "");
  field("loss_adv", record.loss_adv, "");
  field("loss_clean", record.loss_clean, "");
  field("acc_adv", record.acc_adv, "");
  field("acc_clean", record.acc_clean, "");
  field("images", record.images, "");
  for (std::size_t i = 0; i < kPhases; ++i) field(kPhaseSeries[i], record.seconds[i], "s");
  field("bytes_sent", record.bytes_sent, "byte");
  field("bytes_other", record.bytes_other, "byte");
  field("active_elements", record.active_elements, "");
  field("weight_gradients", record.weight_gradients, "");
  field("attack_passes", record.attack_passes, "");
  field("eps", record.eps, "");
}

/// Calls `field` for each field of a step's generators, in the step's record.
template <class Record, class Field>
void for_each_generator_field(Record& record, Field&& field) {
  field("t_generators", record.waited, "s");
  field("t_generators_idle", record.idle, "s");
  field("age_mean", record.age_mean, "step");
  field("age_max", record.age_max, "step");
  field("dealt_again", record.dealt_again, "");
}

template <class Record, class Field>
void for_each_evaluation_field(Record& record, Field&& field) {
  field("step", record.step, "");
  field("epoch", record.epoch, "");
  field("wall_time", record.wall_time, "s");
  field("split", record.split, "");
  field("weights", record.weights, "");
  field("attack", record.attack, "");
  field("attack_steps", record.attack_steps, "");
  field("restarts", record.restarts, "");
  field("norm", record.norm, "");
  field("eps", record.eps, "");
  field("alpha", record.alpha, "");
  field("clean_acc", record.clean_acc, "");
  field("adv_acc", record.adv_acc, "");
  field("clean_loss", record.clean_loss, "");
  field("adv_loss", record.adv_loss, "");
  field("images", record.images, "");
}

constexpr int kResultsFormat = 3;  ///< format of metrics.jsonl and results.h5

/// Evaluations of the raw or the averaged weights on one split under one attack (name, ball, step size, restarts), in
/// the order of steps.
using EvaluationSeries = std::vector<const EvaluationRecord*>;

/// Orders evaluations. Steps alone do not: a run that goes on with more ranks counts fewer steps an epoch.
using EvaluationMoment = std::pair<std::int64_t, std::int64_t>;
[[nodiscard]] inline EvaluationMoment moment_of(const EvaluationRecord& record) { return {record.epoch, record.step}; }

/// Whether a byte of a text in UTF-8 begins a letter, and how many letters the text has.
[[nodiscard]] inline bool begins_letter(char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }
[[nodiscard]] inline std::size_t letters(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_letter));
}

/// The sum of the first `phases` phases' seconds: all of a run's time, or what its steps took.
[[nodiscard]] inline double sum_of(const std::array<double, kPhases>& seconds, int phases = kPhasesInSum) {
  return std::accumulate(seconds.begin(), seconds.begin() + phases, 0.0);
}
constexpr int kPhasesOfSteps = static_cast<int>(Phase::evaluate);

/// "eps 8/255" or "l2 eps 0.5", "alpha 2/255", "1 restart".
[[nodiscard]] std::array<std::string, 3> attack_parts(const EvaluationRecord& record);

/// metrics.jsonl in memory. NaN stands for null.
struct History {
  std::vector<std::string> layer_names;   ///< [layers]
  std::vector<std::int64_t> layer_sizes;  ///< [layers], elements
  std::vector<double> layer_costs;        ///< [layers] in the budget
  double warmup_epochs = 0;
  std::vector<StepRecord> steps;     ///< steps whose pointers are null
  std::vector<float> p, norms;       ///< [steps][layers]; norms NaN where inactive
  std::vector<std::uint8_t> active;  ///< [steps][layers]
  /// [steps][ranks of the launch] how far each rank's gradient was from the result; NaN where there was none, empty
  /// where nobody has measured.
  std::vector<std::vector<double>> distances;
  std::vector<GeneratorRecord> generators;  ///< [steps]; as a new one where there were none
  bool had_generators = false;              ///< true: in any step
  bool ends_in_step = false;                ///< true: the last line is that of a step
  std::vector<EvaluationRecord> evaluations;
  std::vector<RankRecord> ranks;
  std::vector<std::any> events;                   ///< events in the order of their lines, each its struct
  const std::vector<EventKind>* kinds = nullptr;  ///< kinds that there may be; outlive this

  [[nodiscard]] std::size_t layers() const { return layer_names.size(); }
  /// The events of one kind. Text for people alone was not read.
  template <class Event>
  [[nodiscard]] std::vector<Event> all() const {
    std::vector<Event> of_the_kind;
    for (const std::any& event : events)
      if (const auto* one = std::any_cast<Event>(&event)) of_the_kind.push_back(*one);
    return of_the_kind;
  }
  [[nodiscard]] double seconds() const;  ///< of training so far
  /// Number of ranks whose gradients have distances in any step.
  [[nodiscard]] std::size_t ranks_with_distances() const;
  [[nodiscard]] std::int64_t active_layers(std::size_t step) const;
  /// Seconds of each rank by phase, so far: every table and picture of phases is made of these. The seconds are taken
  /// from the `ranks` records, which have what follows the last step, and what one part of the run did between its last
  /// step and its end. Where there is no such record yet, they are taken from the steps (rank 0 alone).
  [[nodiscard]] std::vector<std::array<double, kPhases>> phase_seconds() const;
  /// All series of evaluations, in the order of their first evaluations.
  [[nodiscard]] std::vector<EvaluationSeries> evaluation_series() const;
};

class Hdf5File;

/// Handling of the events of a kind by the record: made from their struct by kind_of (event_kind.hpp).
struct EventKind {
  const char* name;                                ///< name in lines
  std::any (*read)(const nlohmann::json& line);    ///< throws where the line has no such event
  bool (*lasts)(const nlohmann::json& line);       ///< stays after a rollback
  std::string (*summary)(const History& history);  ///< lines of SUMMARY.txt
  std::size_t (*count)(const History& history);
  void (*write_table)(Hdf5File& file, const History& history);  ///< null: there is no table of them
};

/// Null: there is none of that name.
[[nodiscard]] const EventKind* kind_named(std::string_view name, const std::vector<EventKind>& kinds);

/// Reads folder/metrics.jsonl. A last line without newline (a killed writer) is left out. Error(data): no such file, or
/// a damaged line, or one of no kind, by number.
[[nodiscard]] History read_history(const std::string& folder, const std::vector<EventKind>& kinds = event_kinds());

/// The record of a run that may be under way.
struct RecentHistory {
  History history;           ///< its last steps, and all else
  std::int64_t damaged = 0;  ///< lines that could not be read, and were left out
};
/// Reads folder/metrics.jsonl as read_history does, but of the steps only the last `steps` ones, while lines are
/// written and cut: what cannot be read at the third try is left out. No such file is a record without lines.
/// Error(data): it begins as one of another format.
[[nodiscard]] RecentHistory read_recent(const std::string& folder, std::size_t steps,
                                        const std::vector<EventKind>& kinds = event_kinds());

/// Writes folder/results.h5 (sealed, readable with h5py): history/step/*, history/evaluation/*,
/// jointspar/{layer_name,layer_elements,step,p,active,norm}, ranks/{step,t_*,bytes}, tables of events, root attributes
/// filetype, format_version, config_toml, provenance. NaN: not measured, or a rank that was not there. result: of a run
/// that is at its end, for the attributes weights_hash, verdict and figures (its evaluations, JSON). Error(io).
void write_results(const RunFacts& facts, const History& history, const FinalResult* result = nullptr);

/// SUMMARY.txt without its last line: the run's figures, what went wrong, evaluations by split and weights, seconds by
/// phase.
[[nodiscard]] std::string summary_table(const RunFacts& facts, const History& history, const FinalResult& result);

}  // namespace dat
