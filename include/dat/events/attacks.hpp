#pragma once

#include <cstdint>
#include <vector>

namespace dat {

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
