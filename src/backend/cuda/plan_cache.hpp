#pragma once

#include <map>
#include <optional>
#include <string>

namespace dat::cuda {

/// Which plans have been chosen by trials, kept in a file for the next process. A text: a line for each choice
/// (machine, pass and the fields of Choice, between tabs), and a last one with the SHA-256 of what is before it. It is
/// replaced as a whole, so that processes may read and keep choices at the same time; of two that keep different ones
/// at the same moment, one may lose its own, which costs trials. A file that is no such text is ignored and written
/// anew.
class PlanCache {
 public:
  /// What was chosen for a pass: the plan's name, and how long a call took.
  struct Choice {
    std::string plan;
    double milliseconds = 0;
    std::optional<double> cut{};  ///< the --planning-seconds that were over before all had been tried
  };

  /// @param machine  GPU, driver, library: choices of other ones are kept and not used
  PlanCache(std::string path, std::string machine);

  /// Nothing is promised of the plan: it may not exist any more, and has to be checked.
  [[nodiscard]] std::optional<Choice> find(const std::string& pass) const;
  void keep(const std::string& pass, const Choice& choice);
  /// What is wrong with the file, for the user; empty: nothing.
  [[nodiscard]] const std::string& remark() const { return remark_; }

 private:
  using Choices = std::map<std::string, Choice>;  // by machine, tab, pass
  [[nodiscard]] Choices read();

  const std::string path_, machine_;
  Choices known_, kept_;  ///< found at the beginning or since; since
  std::string remark_;
};

}  // namespace dat::cuda
