#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "options/bound.hpp"
#include "options/shell/option_text.hpp"

namespace dat {

/// The words after a verb, read into the options of its tables. The only place that knows CLI11.
class CommandLine {
 public:
  /// verbs: the names of all verbs, for advice.
  CommandLine(const std::string& verb, std::vector<std::string> words, std::vector<std::string> verbs);
  ~CommandLine();

  /// Words of a command line that asks for descriptions() alone.
  [[nodiscard]] static std::vector<std::string> asking_for_descriptions();

  /// Sets the text at the beginning of the help: in lines of its own, or to be wrapped.
  void describe(const std::string& about);
  /// The options that the help of the verb shows unless all are asked for.
  void show_first(const std::vector<std::string>& names) { first_ = {names.begin(), names.end()}; }
  /// Takes options from the command line. `options` outlives this.
  void add(Bound& options);
  /// Takes them from a file or the folder of a run as well, with --config, and prints them, with --print-config;
  /// `with_recipes`: those of a training, with --recipe, too, and what is behind them, with --cite.
  void add_configurable(Bound& options, bool with_recipes);

  /// Reads the words, then the file and the recipe that they name. False: something is to be printed instead of
  /// running, which text() says, or versions_asked(). Error(usage).
  [[nodiscard]] bool read();
  /// Finishes the reading when the values are final. False: the configuration is to be printed, which text() has then.
  [[nodiscard]] bool finish();

  /// Once the words are read: whether the configuration is to be printed.
  [[nodiscard]] bool prints_config() const { return print_config_; }
  /// Whether publications are to be named: answer() takes them.
  [[nodiscard]] bool cites() const { return cite_; }
  /// Sets a text that is to be printed instead of running.
  void answer(std::string text) { text_ = std::move(text); }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool versions_asked() const { return versions_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// The path of --config; empty: not given.
  [[nodiscard]] const std::string& config_file() const { return config_file_; }
  /// Recipe that --recipe names; empty: none.
  [[nodiscard]] const std::string& recipe() const { return recipe_; }
  /// Name, text and options of the verb, where the words asked for them; else no options.
  [[nodiscard]] const VerbText& descriptions() const { return descriptions_; }
  /// Options that the command line, a file or a recipe has set, by name.
  [[nodiscard]] std::set<std::string> given() const;
  /// The options of this line that may stand in a file, --recipe and --config included, as words of a command line; but
  /// for one of this name.
  [[nodiscard]] std::vector<std::string> words_given(const std::string& without = "") const;

 private:
  struct Entry;  ///< a row, where its values are, and CLI11's option
  struct Parser;

  void add_row(Bound& options, const OptionRow& row);
  [[nodiscard]] bool helps();
  [[nodiscard]] bool describes();
  [[nodiscard]] std::string help(const std::string& topic);
  [[noreturn]] void refuse(const std::string& word, bool behind_mark, const std::string& advice) const;
  [[nodiscard]] std::vector<std::string*> option_words();
  void join_values();
  void refuse_single_dashes();
  [[nodiscard]] std::vector<std::string> marked_words(const std::string& advice);
  void note_arguments();
  [[nodiscard]] std::vector<std::string> names() const;

  std::unique_ptr<Parser> parser_;
  std::string program_;  ///< "dat_hpc train"
  std::vector<std::string> words_, verbs_;
  std::set<std::string> first_;  ///< empty: all
  std::vector<Entry> entries_;
  std::vector<Bound*> bounds_;
  Bound* in_file_ = nullptr;  ///< the options of add_configurable
  std::string config_file_, recipe_, text_;
  VerbText descriptions_;
  bool versions_ = false, print_config_ = false, cite_ = false;
  std::vector<std::string> warnings_;
};

/// The options of a verb that has no others, by the rows that `fill` adds. about: as in CommandLine::describe. None:
/// something is to be printed instead of running. Error(usage).
template <class Options>
[[nodiscard]] std::optional<Options> read_options(CommandLine& line, const std::string& about,
                                                  void (*fill)(TableOf<Options>& table)) {
  static const TableOf<Options> table(fill);
  Options options;
  Bound bound(table, options);
  line.describe(about);
  line.add(bound);
  if (!line.read()) return {};
  bound.check();
  return options;
}

}  // namespace dat
