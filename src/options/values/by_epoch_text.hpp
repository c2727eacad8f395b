#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dat {

/// A value that changes by epoch, as it is written: "1,2@12" is 1, and 2 from epoch 12 on; "4/255..8/255@0-10" grows
/// from epoch 0 to epoch 10. One grammar for all options of this kind.
struct WrittenPart {
  std::string value;
  std::string end;          ///< last value of a growing part; else empty
  int from = 0, until = 0;  ///< equal, but of what grows
};

/// Returns whether a text means such a value, and not a plain one.
[[nodiscard]] bool changes_by_epoch(const std::string& text);
/// Its parts, the first of which begins at epoch 0 unless it grows; none: the text is not written so.
[[nodiscard]] std::optional<std::vector<WrittenPart>> read_parts(const std::string& text);
[[nodiscard]] std::string text_of(const std::vector<WrittenPart>& parts);

}  // namespace dat
