#pragma once

#include <string>
#include <vector>

namespace dat {

/// A setting of words, KEY in "--codec powersgd:KEY=VALUE".
struct SettingText {
  std::string key;
  std::vector<std::string> members;  ///< words that have it
  std::vector<std::string> values;   ///< of its values those that are words
  bool flag = false;                 ///< true: it has no value
};

/// An option, or a positional argument, in the words of the help.
struct OptionText {
  std::vector<std::string> names{};     ///< "-q", "--quiet"; of a positional its own first: "RUN", "--checkpoint"
  std::string label{};                  ///< form of its values: "PATH", "a|b"; empty: a switch
  std::string about{};                  ///< lines after the first: settings of its words
  std::string standard{};               ///< its default; empty: none
  std::string group{};                  ///< title of the group in the help
  std::vector<std::string> values{};    ///< of its values those that are words
  bool several = false;                 ///< true: it takes all words up to the next option
  bool commas = false;                  ///< true: commas separate values in a word
  std::vector<SettingText> settings{};  ///< settings of its words

  [[nodiscard]] bool positional() const { return !names[0].starts_with('-'); }
  [[nodiscard]] bool has_dashes() const { return names.back().starts_with('-'); }
};

/// A switch for developers.
struct SwitchText {
  std::string variable, label, about, standard;
};

/// A verb in the words of its help.
struct VerbText {
  std::string name;       ///< "data convert"
  std::string summary{};  ///< a line
  std::string about{};    ///< text at the beginning of its help
  std::vector<OptionText> options{};
  std::vector<SwitchText> switches{};
};

}  // namespace dat
