#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace dat::cuda {

/// Plans that have been chosen by trials, kept in a file for the next process. A text: a line for each choice (machine,
/// pass and the fields of Choice, between tabs), and a last one with the SHA-256 of what is before it. It is replaced
/// as a whole, at the first choice, every few seconds and at the end, so that processes may read and keep choices at
/// the same time; of two that replace it at the same moment, one may lose its last choices, which costs trials. A file
/// that is no such text is ignored and written anew.
class PlanCache {
 public:
  /// Choice for a pass: the plan's name, and the time of a call.
  struct Choice {
    std::string plan;
    double milliseconds = 0;
    std::optional<double> cut{};  ///< the DAT_PLANNING_SECONDS that were over before all had been tried
  };

  /// @param machine  GPU, driver, library: choices of other ones are kept and not used
  /// @param writes   false: choices are kept in this object only, as on ranks beside one of the same node
  PlanCache(std::string path, std::string machine, bool writes);
  ~PlanCache();
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  /// Nothing is promised of the plan: it may not exist any more, and has to be checked.
  [[nodiscard]] std::optional<Choice> find(const std::string& pass) const;
  void keep(const std::string& pass, const Choice& choice);
  /// Replaces the file where there is something new.
  void write();
  /// Error of the file, for the user; empty: none.
  [[nodiscard]] const std::string& remark() const { return remark_; }

 private:
  using Choices = std::map<std::string, Choice>;  // by machine, tab, pass
  [[nodiscard]] Choices read();

  const std::string path_, machine_;
  const bool writes_;
  Choices known_, kept_;  ///< found at the beginning or since; since
  bool unwritten_ = false;
  std::chrono::steady_clock::time_point written_;  ///< at first long ago
  std::string remark_;
};

}  // namespace dat::cuda
