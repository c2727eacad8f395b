#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "record/history.hpp"

namespace dat {

namespace {

/// The evaluations of one network on one split: a row per step, a column per attack.
std::string evaluation_table(const History& history, const std::string& split, const std::string& weights) {
  std::vector<EvaluationSeries> columns = history.evaluation_series();
  std::erase_if(columns, [&](const EvaluationSeries& column) {
    return column.front()->split != split || column.front()->weights != weights;
  });
  std::vector<std::string> names;
  std::map<std::string, int> namesakes;
  std::map<EvaluationMoment, EvaluationSeries> rows;  // null: not evaluated under this attack
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string& attack = columns[i].front()->attack;
    const int number = ++namesakes[attack];
    names.push_back(attack + (number > 1 ? "#" + std::to_string(number) : ""));
    for (const EvaluationRecord* record : columns[i]) {
      EvaluationSeries& row = rows[moment_of(*record)];
      row.resize(columns.size());
      row[i] = record;
    }
  }
  const auto cell = [](const std::string& text) { return fmt::format(" {:>11}", text); };
  const auto figure = [](double value, int digits) { return fmt::format("{:>12.{}f}", value, digits); };
  std::string text =
      fmt::format("\nEvaluations on {} ", columns[0].back()->images) + images_text(split) + weights_text(weights);
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (const std::string how = attack_text(*columns[i].front()); !how.empty()) text += "\n  " + names[i] + ": " + how;
  text += fmt::format("\n{:>8}{:>10}{:>12}", "epochs", "step", "seconds") + cell("clean %");
  for (const std::string& name : names) text += cell(name + " %");
  text += cell("clean loss");
  for (const std::string& name : names) text += cell(name + " loss");
  text += "\n";
  for (const auto& [moment, row] : rows) {
    const EvaluationRecord& any = **std::ranges::find_if(row, [](const auto* r) { return r != nullptr; });
    text += fmt::format("{:>8}{:>10}{:>12.1f}", any.epoch, any.step, any.wall_time) + figure(100 * any.clean_acc, 2);
    for (const EvaluationRecord* r : row) text += r != nullptr ? figure(100 * r->adv_acc, 2) : cell("-");
    text += figure(any.clean_loss, 4);
    for (const EvaluationRecord* r : row) text += r != nullptr ? figure(r->adv_loss, 4) : cell("-");
    text += "\n";
  }
  return text;
}

/// Work of generators in all steps.
std::string generators_text(const RunFacts& facts, const History& history) {
  GeneratorRecord all;
  for (const GeneratorRecord& r : history.generators) {
    all.waited += r.waited;
    all.idle += r.idle;
    all.age_mean += r.age_mean / static_cast<double>(history.generators.size());
    all.age_max = std::max(all.age_max, r.age_max);
    all.dealt_again += r.dealt_again;
  }
  return fmt::format(
      "{:<16}{}; {:.2f} s waited for them, {:.2f} s that they were without work; weights of attacks {:.2f} steps old "
      "in the mean, {} at most; {} micro-batches dealt again\n",
      "generators", facts.generators, all.waited, all.idle, all.age_mean, all.age_max, all.dealt_again);
}

/// Steps, speed and messages.
std::string figures(const RunFacts& facts, const History& history) {
  double images = 0, bytes = 0, other = 0, active = 0, passes = 0;
  for (std::size_t i = 0; i < history.steps.size(); ++i) {
    const StepRecord& r = history.steps[i];
    images += static_cast<double>(r.images);
    bytes += static_cast<double>(r.bytes_sent);
    other += static_cast<double>(r.bytes_other);
    active += static_cast<double>(history.active_layers(i));
    passes += static_cast<double>(r.attack_passes);
  }
  const double training = sum_of(history.phase_seconds().front(), kPhasesOfSteps);
  double dense = 0;
  for (const std::int64_t size : facts.layer_sizes) dense += static_cast<double>(size) * sizeof(float);

  std::string text =
      fmt::format("{:<16}{} of {}\n{:<16}{}\n", "steps", history.steps.empty() ? 0LL : history.steps.back().step,
                  facts.total_steps, "ranks", facts.ranks);
  if (history.had_generators) text += generators_text(facts, history);
  if (!facts.attackers.empty()) text += fmt::format("{:<16}{}, simulated\n", "made to cheat", facts.attackers);
  if (!history.steps.empty()) {
    const auto n = static_cast<double>(history.steps.size());
    if (training != 0)
      text += fmt::format("{:<16}{:.1f} images/s, all ranks, without evaluation\n", "speed", images / training);
    if (passes != 0) {
      const double all = images * facts.attack_steps, saved = 100 * (1 - passes / all);
      text += fmt::format("{:<16}{:.2f} per image", "attack passes", passes / images);
      text += saved > 0 ? fmt::format(" of at most {}: {:.1f} % saved\n", facts.attack_steps, saved) : "\n";
    }
    if (bytes != 0 || facts.ranks != 1)
      text += fmt::format("{:<16}{:.4g} MB per step and rank ({:.4g} MB with all layers), other messages {:.4g} kB\n",
                          "gradients sent", bytes / n * 1e-6, dense * 1e-6, other / n * 1e-3);
    else
      text += fmt::format("{:<16}nothing: one rank\n", "gradients sent");
    text += fmt::format("{:<16}{:.1f} of {} in the mean\n", "active layers", active / n, history.layers());
  }
  return text;
}

/// Seconds by phase.
std::string phases(const History& history) {
  const std::array<double, kPhases> seconds = history.phase_seconds().front();
  const double total = sum_of(seconds);
  if (!(total > 0)) return "";
  std::string text = fmt::format("\n{:<12}{:>12}{:>10}\n", "phase", "seconds", "share");
  for (std::size_t phase = 0; phase < kPhasesInSum; ++phase)
    text +=
        fmt::format("{:<12}{:>12.2f}{:>8.1f} %\n", kPhaseNames[phase], seconds[phase], 100 * seconds[phase] / total);
  text += fmt::format("{:<12}{:>12.2f}\n", "sum, rank 0", total);
  if (const double hidden = seconds[static_cast<std::size_t>(Phase::hidden)]; hidden != 0)
    text += fmt::format("{:<12}{:>12.2f}  of communication beside them\n", "hidden", hidden);
  return text;
}

}  // namespace

std::string summary_table(const RunFacts& facts, const History& history, const FinalResult& result) {
  std::string text = "Run " + facts.folder + "\n\n" + figures(facts, history);
  for (const EventKind& kind : *history.kinds) text += kind.summary(history);
  std::vector<std::pair<std::string, std::string>> tables;
  for (const EvaluationRecord& r : history.evaluations)
    if (const auto table = std::pair(r.split, r.weights); std::ranges::find(tables, table) == tables.end())
      tables.push_back(table);
  for (const auto& [split, weights] : tables) text += evaluation_table(history, split, weights);
  text += phases(history);
  text += "\n";
  if (!result.weights_hash.empty()) text += fmt::format("{:<16}", "weights") + result.weights_hash + "\n";
  for (const std::string& remark : result.remarks) text += remark + "\n";
  return text;
}

}  // namespace dat
