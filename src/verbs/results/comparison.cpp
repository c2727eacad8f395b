#include "verbs/results/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "options/values/value.hpp"
#include "smoothing/bounds.hpp"

namespace dat {

namespace {

/// Accuracies of subjects that differ in their seeds, or of one.
[[nodiscard]] Accuracy accuracy_of(std::vector<const Figure*> figures) {
  std::vector<double> percents;
  for (const Figure* one : figures) percents.push_back(one->percent());
  return {std::move(figures), spread_of(percents)};
}

/// Adds a network to the entry of its row, weights and block. Of a row of several, a run that is not done is left out,
/// and a second one with the same seed, which is no other sample.
class Entries {
 public:
  explicit Entries(Comparison& comparison) : comparison_(comparison) {}

  void add(const ComparedRow& row, const Subject& subject, const EvaluatedNetwork& network) {
    const Figure* clean = nullptr;
    for (const Figure& one : network.figures)
      if (one.clean())
        clean = &one;
      else
        add(row, subject, network, clean, &one);
    if (clean != nullptr && network.figures.size() == 1) add(row, subject, network, clean, nullptr);
  }

 private:
  void add(const ComparedRow& row, const Subject& subject, const EvaluatedNetwork& network, const Figure* clean,
           const Figure* attacked) {
    if (comparison_.grouped && !subject.evaluation && !subject.done) {
      warn(subject.name + " is not at its end: its figures are left out of the row " + row.name);
      return;
    }
    const Figure& about = attacked != nullptr ? *attacked : *clean;
    auto block = std::ranges::find_if(comparison_.blocks,
                                      [&](const FigureBlock& one) { return one.about.compares_with(about); });
    if (block == comparison_.blocks.end()) block = comparison_.blocks.insert(block, FigureBlock{about});
    auto entry = std::ranges::find_if(
        block->entries, [&](const RowFigures& one) { return one.row == &row && one.weights == network.weights; });
    if (entry == block->entries.end())
      entry = block->entries.insert(entry, {.row = &row, .weights = network.weights, .step = network.step});
    if (comparison_.grouped && !subject.settings.empty())
      for (const Subject* other : entry->subjects)
        if (other->settings.at("seed") == subject.settings.at("seed")) {
          warn(other->name + " and " + subject.name + " have one seed, " + subject.settings.at("seed") +
               ": the second is left out of the row " + row.name);
          return;
        }
    entry->subjects.push_back(&subject);
    if (clean != nullptr) entry->clean.figures.push_back(clean);
    if (attacked != nullptr) entry->attacked.figures.push_back(attacked);
  }

  void warn(const std::string& text) {
    if (std::ranges::find(comparison_.warnings, text) == comparison_.warnings.end())
      comparison_.warnings.push_back(text);
  }

  Comparison& comparison_;
};

/// Says that not all figures compare, and why: the images, the balls, the attacks, their steps.
[[nodiscard]] std::string warning_of(const std::vector<FigureBlock>& blocks) {
  std::set<std::pair<const ComparedRow*, std::string>> all;
  for (const FigureBlock& block : blocks)
    for (const RowFigures& entry : block.entries) all.insert({entry.row, entry.weights});
  if (std::ranges::all_of(blocks, [&](const FigureBlock& one) { return one.entries.size() == all.size(); })) return "";
  std::string text;
  const auto add = [&](const std::string& what, std::string Figure::*part) {
    std::vector<std::string> values;
    for (const FigureBlock& block : blocks)
      if (const std::string& value = block.about.*part; std::ranges::find(values, value) == values.end())
        values.push_back(value.empty() ? "none" : value);
    if (values.size() > 1) text += (text.empty() ? "" : "; ") + what + " " + joined(values, " / ");
  };
  add("images:", &Figure::set);
  add("attacks:", &Figure::name);
  add("balls:", &Figure::ball);
  add("steps and restarts:", &Figure::rest);
  return fmt::format("not all figures compare with each other; they stand in {} tables by ", blocks.size()) + text;
}

[[nodiscard]] std::vector<ImagePair> pairs_of(const Comparison& comparison) {
  std::vector<std::pair<const Subject*, const Figure*>> firsts;
  std::vector<ImagePair> pairs;
  for (const ComparedRow& row : comparison.rows)
    for (const Subject* subject : row.subjects)
      for (const EvaluatedNetwork& network : subject->networks)
        for (const Figure& one : network.figures) {
          if (one.correct.empty()) continue;
          const auto first =
              std::ranges::find_if(firsts, [&](const auto& known) { return known.second->compares_with(one); });
          if (first == firsts.end()) {
            firsts.emplace_back(subject, &one);
            continue;
          }
          ImagePair& pair = pairs.emplace_back(ImagePair{first->first, subject, one});
          for (std::size_t i = 0; i < one.correct.size(); ++i) {
            const bool a = first->second->correct[i] != 0, b = one.correct[i] != 0;
            ++(a && b ? pair.both : a ? pair.only_first : b ? pair.only_other : pair.neither);
          }
          pair.p = fair_coin_p_value(pair.only_first, pair.only_first + pair.only_other);
        }
  std::ranges::stable_sort(pairs, [](const ImagePair& a, const ImagePair& b) {
    return std::pair(a.about.set, a.about.clean() ? "" : a.about.name) <
           std::pair(b.about.set, b.about.clean() ? "" : b.about.name);
  });
  return pairs;
}

}  // namespace

Comparison compare(const std::vector<Subject>& subjects, const std::string& by) {
  Comparison all{.grouped = !by.empty()};
  std::vector<const Compared*> members;
  for (const Subject& one : subjects) members.push_back(&one);
  if (by.empty()) {
    for (const Subject& one : subjects) all.rows.push_back({one.name, {&one}});
  } else {
    for (const Group& group : groups_by(by, members)) {
      ComparedRow& row = all.rows.emplace_back(ComparedRow{group.name, {}});
      for (const std::size_t member : group.members) row.subjects.push_back(&subjects[member]);
    }
  }
  all.options = differing(members);
  if (all.grouped) std::erase(all.options, "seed");
  Entries entries(all);
  for (const ComparedRow& row : all.rows)
    for (const Subject* subject : row.subjects)
      for (const EvaluatedNetwork& network : subject->networks) entries.add(row, *subject, network);
  for (FigureBlock& block : all.blocks)
    for (RowFigures& entry : block.entries) {
      for (Accuracy* one : {&entry.clean, &entry.attacked}) {
        *one = accuracy_of(std::move(one->figures));
        if (all.grouped || one->figures.empty()) continue;
        const Figure& first = *one->figures.front();
        const auto [low, high] = wilson(static_cast<double>(first.right), static_cast<double>(first.images));
        one->percent.interval = {100 * low, 100 * high};
      }
      std::vector<double> training;
      for (const Subject* subject : entry.subjects) training.push_back(subject->training);
      entry.gap = spread_of(training).mean - entry.attacked.percent.mean;
    }
  if (const std::string warning = warning_of(all.blocks); !warning.empty()) all.warnings.push_back(warning);
  all.pairs = pairs_of(all);
  return all;
}

}  // namespace dat
