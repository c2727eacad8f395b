#pragma once

#include <string>
#include <vector>

#include "record/intervals.hpp"
#include "verbs/results/subjects.hpp"

namespace dat {

/// A row of a comparison: a run or an evaluation, or runs (evaluations) that are equal in all but their seeds.
struct ComparedRow {
  std::string name;
  std::vector<const Subject*> subjects;
};

/// Accuracy of a row in percent: of one network with Wilson's interval, of several the mean with Student's.
struct Accuracy {
  std::vector<const Figure*> figures{};
  Spread percent{};
};

/// Figures of a row that compare with those of the other rows of a block.
struct RowFigures {
  const ComparedRow* row;
  std::string weights;
  std::vector<const Subject*> subjects{};  ///< those of the row that have the figures
  std::int64_t step = 0;                   ///< of the first
  Accuracy clean{}, attacked{};
  double gap = std::numeric_limits<double>::quiet_NaN();  ///< percent: training batches less attacked; mean
  [[nodiscard]] std::string name() const { return row->name + (weights == "average" ? ", average" : ""); }
};

/// Figures of the same images after the same attack.
struct FigureBlock {
  Figure about;  ///< images and attack; clean: there was no attack
  std::vector<RowFigures> entries{};
};

/// Two evaluations of the same images after the same attack (or clean), image by image.
struct ImagePair {
  const Subject *first, *other;
  Figure about;
  std::int64_t both = 0, only_first = 0, only_other = 0, neither = 0;
  /// Exact p of McNemar's test, two-sided: only_first of only_first + only_other tosses of a fair coin. McNemar, "Note
  /// on the sampling error of the difference between correlated proportions or percentages", Psychometrika 1947.
  double p = 1;
};

/// Runs and evaluations side by side. Its subjects outlive it.
struct Comparison {
  bool grouped = false;
  std::vector<ComparedRow> rows{};
  std::vector<std::string> options{};  ///< options in which they differ; grouped: but the seed
  std::vector<FigureBlock> blocks{};
  std::vector<ImagePair> pairs{};       ///< each evaluation with the first one of the same images and attack
  std::vector<std::string> warnings{};  ///< what does not compare, and what was left out
};

/// by: option by which rows are made of runs that differ in their seeds alone; empty: a row each. Error(usage): as
/// groups_by.
[[nodiscard]] Comparison compare(const std::vector<Subject>& subjects, const std::string& by);

}  // namespace dat
