#pragma once

#include <string>
#include <utility>
#include <vector>

#include "options/table.hpp"

namespace dat {

/// Origin of an option's value, the nearest to the user last: by no one, by a recipe, by a file, on the command line.
enum class Origin : std::uint8_t { none, recipe, file, command_line };

/// A table bound to a struct of options: its values, and who has set them.
class Bound {
 public:
  /// `options` outlives this.
  template <class Options>
  Bound(const TableOf<Options>& table, Options& options) : Bound(table, &options) {}

  [[nodiscard]] const Table& table() const { return table_; }
  [[nodiscard]] const void* options() const { return options_; }
  [[nodiscard]] Field field(const OptionRow& row) const { return row.field(options_); }
  /// Text of a value in the form of the command line, or (`toml`) of a file: words with their settings.
  [[nodiscard]] std::string text(const OptionRow& row, bool toml = false) const;
  /// Reads a value, or all of a list, and the settings of words; settings that are not named get their defaults.
  /// `where` begins the message. Error(usage): wrong type, out of range, or a setting that a word does not have.
  void take(const OptionRow& row, const std::vector<Value>& values, const std::string& where);
  /// Takes the switches for developers from the environment. Error(usage).
  void take_environment();
  [[nodiscard]] Origin origin(const std::string& name) const;
  void set_origin(const OptionRow& row, Origin origin);

  /// Returns whether an option has another value than its default, or, where its row says so, one that asks for
  /// something.
  [[nodiscard]] bool asked(const OptionRow& row) const;
  [[nodiscard]] bool holds(const Choice& choice) const;
  [[nodiscard]] bool holds(const Condition& condition) const;
  /// Returns whether all that an option works with is there.
  [[nodiscard]] bool takes_part(const OptionRow& row) const;
  void put_back(const OptionRow& row);
  /// Returns whether a word of the option's value has this setting, which else counts nowhere; true of an option.
  [[nodiscard]] bool counts(const OptionRow& row) const;

  /// "--codec int8"; of a flag its name. Not of settings and switches for developers.
  [[nodiscard]] std::string named(const OptionRow& row) const;
  /// The sentence with values in place of {NAME}.
  [[nodiscard]] std::string filled(const std::string& sentence) const;

  /// Sets what `text` says in the lines of a file called `name`; options that were set before, nearer to the user, are
  /// left alone. `program`: "dat_hpc VERB", for messages. Error(usage).
  void read(const std::string& text, const std::string& name, Origin origin, const std::string& program);

  /// Every option that may stand in a file, and the switches for developers that are set, `key = value` a line; or
  /// (`commented`) with descriptions.
  [[nodiscard]] std::string toml(bool commented = false) const;
  /// Name and value, as they stand there, and the switches for developers.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> settings() const;

  /// Applies the table's rules. `typed`: to what was typed just now, not to what a run has written down (falls_back).
  void check(bool typed = true);
  [[nodiscard]] bool typed() const { return typed_; }

 private:
  Bound(const Table& table, void* options);

  [[nodiscard]] std::string with_settings(const OptionRow& row, const std::string& text) const;

  const Table& table_;
  void* options_;
  std::vector<Origin> origins_;  ///< [rows]
  bool typed_ = false;
};

}  // namespace dat
