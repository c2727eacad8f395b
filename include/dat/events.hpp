#pragma once

// Events of a run beside its steps and evaluations. An event is a struct with
// - `kKind`: "kind" of its lines in metrics.jsonl;
// - static `fields(self, field)`, which calls field(name, value) for each value of a line, in their order. A value that
//   depends on others stands after them;
// and, where there is something to say,
// - `sentence()`: the sentence for people when it happens; with `kWarns`, as a warning;
// - `lasts()`: whether it stays true when the run goes back to a checkpoint from before; without: no;
// - static `summary(events)`: lines of SUMMARY.txt about all of them;
// - `kTable`: a group of results.h5 with a dataset of each field.
// Writer, reader, tables and summary follow from the struct and from its line of events.def.

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// A rank of the launch, or -1: all of them, which is null in a line.
struct RankOrAll {
  int number = -1;

  RankOrAll(int rank = -1) : number(rank) {}  // NOLINT(google-explicit-constructor): a rank is one
  operator int() const { return number; }     // NOLINT(google-explicit-constructor)
};

/// A rank that has become persistently slower than the others, or keeps up again.
struct StragglerRecord {
  static constexpr const char* kKind = "straggler";

  std::int64_t step = 0;
  int rank = 0;
  bool slow = false;
  double ratio = 1;    ///< the rank's time for a step, waits not counted, over the median of the others
  std::string host{};  ///< name of the host, for the sentence alone

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("rank", self.rank);
    field("slow", self.slow);
    field("ratio", self.ratio);
  }

  [[nodiscard]] std::string sentence() const {
    const std::string who = "rank " + std::to_string(rank) + " on " + host;
    return slow ? who + fmt::format(
                            " is slow: its part of a step takes {:.1f} times as long as the others', in the last steps "
                            "up to {}",
                            ratio, step)
                : who + fmt::format(" keeps up with the others again, at step {}", step);
  }

  [[nodiscard]] static std::string summary(const std::vector<StragglerRecord>& all) {
    std::string text;
    for (auto r = all.begin(); r != all.end(); ++r) {
      if (!r->slow) continue;
      const auto end = std::find_if(r, all.end(),
                                    [&](const StragglerRecord& later) { return !later.slow && later.rank == r->rank; });
      text += fmt::format("{:<16}rank {}, {:.1f} times as long as the others, from about step {}", "slow", r->rank,
                          r->ratio, r->step);
      text += end == all.end() ? "\n" : fmt::format(" to {}\n", end->step);
    }
    return text;
  }
};

/// Silent corruption that the run has gone on from.
struct CorruptionRecord {
  static constexpr const char* kKind = "corruption";
  static constexpr bool kWarns = true;

  std::int64_t step = 0;
  int rank = -1;     ///< the guilty rank; -1: nobody can say
  std::string what;  ///< parts that were wrong: "weights, running means", "gradient of micro-batch 3 of rank 1"
  std::string done;  ///< reaction
  std::string text;  ///< the whole record as a sentence, for people

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("rank", self.rank);
    field("what", self.what);
    field("done", self.done);
  }

  [[nodiscard]] std::string sentence() const { return text; }

  [[nodiscard]] static std::string summary(const std::vector<CorruptionRecord>& all) {
    std::string lines;
    for (std::size_t k = 0; k < all.size(); ++k)
      lines += fmt::format("{:<16}{} of {}: step {}, {}{}; {}\n", "corruption", k + 1, all.size(), all[k].step,
                           all[k].rank >= 0 ? fmt::format("rank {}, ", all[k].rank) : "", all[k].what, all[k].done);
    return lines;
  }
};

/// A rank that has left the run, which goes on without it.
struct LeftRecord {
  static constexpr const char* kKind = "left";

  int rank = 0;
  std::int64_t step = 0;  ///< steps that were done before
  std::string why;
  // For the sentence alone: where the rank ran, and how many of how many ranks go on.
  std::string host{};
  int staying = 0, ranks = 0;

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("rank", self.rank);
    field("why", self.why);
  }

  [[nodiscard]] bool lasts() const { return true; }

  [[nodiscard]] std::string sentence() const {
    return fmt::format("rank {} on {} has left after step {}: {}; the run goes on with {} of {} ranks", rank, host,
                       step, why, staying, ranks);
  }

  [[nodiscard]] static std::string summary(const std::vector<LeftRecord>& all) {
    std::string text;
    for (const LeftRecord& r : all)
      text += fmt::format("{:<16}rank {}, after step {}: {}\n", "left", r.rank, r.step, r.why);
    return text;
  }

  friend bool operator==(const LeftRecord&, const LeftRecord&) = default;
};

/// A rank that has been banned.
struct BanRecord {
  static constexpr const char *kKind = "ban", *kTable = "bans";

  std::int64_t step = 0;
  int rank = 0;
  RankOrAll by;
  std::string rule;

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("rank", self.rank);
    field("by", self.by);
    field("rule", self.rule);
  }

  [[nodiscard]] bool lasts() const { return true; }

  [[nodiscard]] static std::string summary(const std::vector<BanRecord>& all) {
    std::string text;
    for (const BanRecord& r : all)
      text += fmt::format("{:<16}rank {}, in step {}, by {}: {}\n", "banned", r.rank, r.step,
                          r.by < 0 ? "all" : fmt::format("rank {}", r.by.number), r.rule);
    return text;
  }
};

/// Accusation of a rank (--byzantine). Ranks are numbered as in the launch.
struct AccusationRecord {
  static constexpr const char *kKind = "accusation", *kTable = "accusations";

  std::int64_t step = 0;
  RankOrAll by;  ///< all: all have seen it
  int rank = 0;
  std::string rule;
  bool upheld = false;

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("by", self.by);
    field("rank", self.rank);
    field("rule", self.rule);
    field("upheld", self.upheld);
  }

  [[nodiscard]] bool lasts() const { return true; }
};

/// A step that was skipped because of numbers that are not finite, catastrophic overfitting, or a rollback.
struct SetbackRecord {
  static constexpr const char* kKind = "setback";
  static constexpr bool kWarns = true;

  std::int64_t step = 0;     ///< the skipped step, or the last step before the setback
  std::string event;         ///< skipped | overfitting | rollback
  std::string cause;         ///< observation that caused it
  std::int64_t to_step = 0;  ///< rollback: the run goes on after this step
  double lr_factor = 1;      ///< factor of the learning rates from here on

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("event", self.event);
    field("cause", self.cause);
    if (self.event != "rollback") return;
    field("to_step", self.to_step);
    field("lr_factor", self.lr_factor);
  }

  /// A step that was skipped may be made again.
  [[nodiscard]] bool lasts() const { return event == "rollback"; }

  [[nodiscard]] std::string sentence() const {
    return event == "rollback" ? fmt::format("back to the checkpoint of step {}, with {:g} times the learning rate: {}",
                                             to_step, lr_factor, cause)
                               : cause + (event == "skipped" ? ": the step is skipped" : "");
  }

  [[nodiscard]] static std::string summary(const std::vector<SetbackRecord>& all) {
    std::string skipped, others;
    for (const SetbackRecord& r : all) {
      if (r.event == "skipped") skipped += (skipped.empty() ? "" : ", ") + std::to_string(r.step);
      if (r.event == "overfitting") others += fmt::format("{:<16}{}\n", "overfitting", r.cause);
      if (r.event == "rollback")
        others += fmt::format("{:<16}from step {} to {}, {:g} times the learning rate: {}\n", "rollback", r.step,
                              r.to_step, r.lr_factor, r.cause);
    }
    if (!skipped.empty()) skipped = fmt::format("{:<16}{}: numbers that are not finite\n", "skipped steps", skipped);
    return skipped + others;
  }
};

/// A step in f16 that was skipped because its numbers were not finite, and the loss scale was lowered for it.
struct OverflowRecord {
  static constexpr const char* kKind = "overflow";

  std::int64_t step = 0;  ///< the skipped step
  double scale = 1;       ///< loss scale from this step on
  std::string cause;      ///< observation that caused it

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("scale", self.scale);
    field("cause", self.cause);
  }

  [[nodiscard]] std::string sentence() const {
    return fmt::format("{}: the step is skipped, and the loss scale is {:g} from here on", cause, scale);
  }

  [[nodiscard]] static std::string summary(const std::vector<OverflowRecord>& all) {
    if (all.empty()) return "";
    return fmt::format("{:<16}{} in f16, the last one in step {}; the loss scale was {:g} from there on\n", "overflows",
                       all.size(), all.back().step, all.back().scale);
  }
};

/// Interval that rank 0 has measured: a generator has worked on a micro-batch, or rank 0 has waited for one.
struct AttackSpan {
  int rank = 0;               ///< number in the launch; 0: rank 0 has waited
  std::int64_t step = 0;      ///< step of the micro-batch, counted from 1
  int unit = 0;               ///< its number in the step
  double begin = 0, end = 0;  ///< seconds of one clock
};

/// Work of generators since the step before, in one of a process's first steps.
struct AttacksRecord {
  static constexpr const char* kKind = "attacks";

  std::int64_t step = 0;
  bool first = false;  ///< true: the first record of a process, or after a rollback: earlier ones are of another clock,
                       ///< or of no step
  std::vector<AttackSpan> spans;

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("first", self.first);
    field("spans", self.spans);
  }
};

}  // namespace dat
