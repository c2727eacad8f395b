#pragma once

#include <string>

#include "options/table.hpp"

namespace dat {

/// An option in lines of at most 80 columns: name and values (`left`) on the left, `about` and the default on the
/// right.
[[nodiscard]] std::string option_lines(const std::string& left, const std::string& about, const std::string& standard);

/// Argument of --help: nothing, "all", or a word.
class HelpTopic {
 public:
  explicit HelpTopic(const std::string& topic);
  [[nodiscard]] bool nothing() const { return word_.empty(); }
  [[nodiscard]] bool searches() const { return !text_.empty() && text_ != "all"; }
  [[nodiscard]] const std::string& text() const { return text_; }
  /// Returns whether the word occurs in an option's help, whatever the case of its letters.
  [[nodiscard]] bool occurs_in(const std::string& text) const;

 private:
  std::string text_, word_;  ///< the word as typed, and in small letters
};

/// Returns whether an argument asks for help, as "--help=milestones" does.
[[nodiscard]] bool asks_for_help(const std::string& word);

}  // namespace dat
