#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dat/registry.hpp"
#include "options/values/field.hpp"

namespace dat {

class Bound;

/// An option in certain states: with one of these values; or, where none is named, asked for at all.
struct Choice {
  std::string option;
  std::vector<std::string>
      values{};  ///< values in the form of the command line; they hold in all epochs, where they change
};

/// Condition of an option: it works with one of these choices.
struct Condition {
  std::vector<Choice> any_of;
  /// Refuses the option without them; {NAME} stands for the value of an option. Empty: the usual sentence,
  /// "--attack-stop works with --attack pgd, not with fgsm; leave it off".
  std::string sentence;
};

/// Two options that do not go together, whichever values they have of these. The sentence as in Condition.
struct Exclusion {
  Choice one, other;
  std::string sentence;
};

/// Rule for the value of an option in a run that continues.
enum class Restart : std::uint8_t {
  fixed,       ///< no: its numbers would be those of another run
  evaluation,  ///< free where nothing is held out; else evaluations choose the best network, and must be of one kind
  free         ///< yes: it does not touch the run's numbers, or those of steps to come only
};

/// An option: all that the program knows of it.
struct OptionRow {
  std::string names;                    ///< names in the form of TableOf::add
  std::string name;                     ///< the first with two dashes, without them; of a positional: its only one
  std::string about;                    ///< text for the help
  std::string group;                    ///< group of the help
  Range range{};                        ///< range of its values
  bool in_file = true;                  ///< true: it may stand in a file, and stands in the printed configuration
  bool dashes = false;                  ///< true: its value may begin with a dash
  bool positional = false;              ///< required, without dashes
  Restart restart = Restart::fixed;     //
  bool function = false;                ///< true: it decides what the network computes with its weights
  std::vector<Condition> works_with{};  ///< all of them must hold where it is asked for
  bool falls_back = false;              ///< true: it falls back where they do not hold: see OptionOf::falls_back
  /// Parent and key of a setting of a member, KEY in "--codec powersgd:KEY=VALUE": the option whose word names the
  /// member, and the members that have the setting. Its name is PARENT:KEY.
  std::string parent{}, key{};
  std::vector<std::string> members{};
  std::string cites{};                          ///< publication behind an option that is asked for; empty: none
  std::string environment{};                    ///< environment variable that sets a developer's switch
  std::optional<Choice> bound_to_ranks{};       ///< values by which ranks differ in more than their micro-batches
  std::optional<Choice> bound_with{};           ///< values of another option with which they do so; none: always
  std::function<Field(void* options)> field{};  ///< place of its value
  std::function<bool(const void* options)>
      asked{};  ///< returns whether it is asked for; null: where it is not the default

  /// What sets it: a developer's switch its variable, others their name.
  [[nodiscard]] const std::string& set_by() const { return environment.empty() ? name : environment; }
};

/// The options of a verb, an entry each, and what is refused of them.
class Table {
 public:
  /// defaults: a struct of the verb's options.
  explicit Table(std::shared_ptr<void> defaults) : defaults_(std::move(defaults)) {}

  /// Begins a group: the options that follow stand below this title in the help; `in_file`: as in OptionRow.
  void group(const std::string& name, bool in_file = true);

  /// Refuses two options together: see Exclusion.
  void not_together(const Choice& one, const Choice& other, const std::string& sentence);
  /// Lets one of two options that say the same count: the one that was set nearer to the user; the other gets its
  /// default back; set alike, they are refused. The sentence as in Condition.
  void one_counts(const std::string& one, const std::string& other, const std::string& sentence);
  /// Refuses an option together with any of these, with the same sentence: "--NAME does not go with WHY; leave one of
  /// them off".
  void not_with(const std::string& option, std::initializer_list<std::pair<Choice, const char*>> others);

  [[nodiscard]] const std::vector<OptionRow>& rows() const { return rows_; }
  [[nodiscard]] const std::vector<Exclusion>& exclusions() const { return exclusions_; }
  /// Row of an option; null: there is none.
  [[nodiscard]] const OptionRow* find(const std::string& name) const;
  /// The settings that words of this option may have.
  [[nodiscard]] std::vector<const OptionRow*> settings_of(const OptionRow& row) const;
  /// Names the setting or switch that a word for an option means, as in "it is a setting: --codec powersgd:rank=N";
  /// empty: there is none.
  [[nodiscard]] std::string where_now(const std::string& word) const;
  [[nodiscard]] void* defaults() const { return defaults_.get(); }
  /// Applies all rules to options, in the order of the table. Error(usage).
  void check(Bound& options) const {
    for (const auto& rule : rules_) rule(options);
  }

 protected:
  std::size_t add_row(const std::string& names, const std::string& about, Range range);
  void add_condition(std::size_t row, Condition condition);
  void add_rule(std::function<void(const void* options)> refuse);

  std::vector<OptionRow> rows_;
  std::vector<Exclusion> exclusions_;
  std::vector<std::function<void(Bound&)>> rules_;

 private:
  std::shared_ptr<void> defaults_;
  std::string group_ = "Options";
  bool in_file_ = true;
};

/// The row that TableOf::add has made, to say more of it.
template <class Options>
class OptionOf;

/// A table of the options that are in a struct.
template <class Options>
class TableOf : public Table {
 public:
  TableOf() : Table(std::make_shared<Options>()) {}
  /// fill: adds the rows.
  explicit TableOf(void (*fill)(TableOf& table)) : TableOf() { fill(*this); }

  /// names: as CLI11 takes them ("-q,--quiet"). Without dashes: a positional, which is
  /// required unless it has a name with dashes, too ("RUN,--checkpoint"). field: where the value is, and its default.
  template <class T, class Base>
  requires std::derived_from<Options, Base> OptionOf<Options> add(const std::string& names, T Base::*field,
                                                                  const std::string& about, Range range = {}) {
    const std::size_t row = add_row(names, about, std::move(range));
    rows_[row].field = [field](void* options) -> Field { return &(static_cast<Options*>(options)->*field); };
    return {*this, row};
  }

  /// A setting of members of a family, in the word by which the option `parent` names one: "NAME:KEY=VALUE", or ":KEY"
  /// of a switch; the first of a member's settings that is no switch needs no KEY. The members are those that name
  /// "PARENT:KEY".
  template <class T, class Base>
  requires std::derived_from<Options, Base> OptionOf<Options> setting(const std::string& parent, const std::string& key,
                                                                      const Family& family, T Base::*field,
                                                                      const std::string& about, Range range = {}) {
    return setting(parent, key, family.readers(parent + ":" + key), field, about, std::move(range));
  }
  /// Adds a setting of words that are no members of a family.
  template <class T, class Base>
  requires std::derived_from<Options, Base> OptionOf<Options> setting(const std::string& parent, const std::string& key,
                                                                      const std::vector<std::string>& members,
                                                                      T Base::*field, const std::string& about,
                                                                      Range range = {}) {
    const OptionOf<Options> made = add("--" + parent + ":" + key, field, about, std::move(range));
    OptionRow& row = rows_.back();
    row.parent = parent;
    row.key = key;
    row.members = members;
    row.in_file = false;
    return made;
  }

  /// A switch for developers: set by a variable of the environment, or by a file that was printed where it was set.
  template <class T, class Base>
  requires std::derived_from<Options, Base> OptionOf<Options> add_switch(const std::string& variable,
                                                                         const std::string& name, T Base::*field,
                                                                         const std::string& about, Range range = {}) {
    const OptionOf<Options> made = add("--" + name, field, about, std::move(range));
    rows_.back().environment = variable;
    rows_.back().in_file = false;
    return made;
  }

  /// Refuses what has to be computed: throws Error(usage) for options as they are given, before any 'auto' is settled.
  void rule(void (*refuse)(const Options& options)) {
    add_rule([refuse](const void* options) { refuse(*static_cast<const Options*>(options)); });
  }

 private:
  friend class OptionOf<Options>;
};

template <class Options>
class OptionOf {
 public:
  OptionOf(TableOf<Options>& table, std::size_t row) : table_(table), row_(row) {}

  /// Refuses the option where none of these choices holds.
  OptionOf& works_with(std::vector<Choice> any_of, std::string sentence = "") {
    table_.add_condition(row_, {std::move(any_of), std::move(sentence)});
    return *this;
  }
  OptionOf& works_with(const std::string& option, std::vector<std::string> values, std::string sentence = "") {
    return works_with({{option, std::move(values)}}, std::move(sentence));
  }
  /// Refuses the option with members of a family that do not name it; `member`: the option that names the member.
  OptionOf& counts_with(const std::string& member, const Family& family, std::string sentence = "") {
    return works_with(member, family.readers(row().name), std::move(sentence));
  }
  /// Lets the option fall back where works_with does not hold: it is refused only if it was set as near to the user as
  /// what it works with, or nearer: somebody believes that it counts. Else, --selector all over a recipe of JointSpar
  /// for instance, it gets its default back. What a run has written down is left as it is.
  OptionOf& falls_back() {
    row().falls_back = true;
    return *this;
  }
  /// Sets the test whether the option is asked for, where some values beside the default ask for nothing.
  OptionOf& asked(bool (*when)(const Options&)) {
    row().asked = [when](const void* options) { return when(*static_cast<const Options*>(options)); };
    return *this;
  }
  OptionOf& may_change(Restart restart = Restart::free) {
    row().restart = restart;
    return *this;
  }
  OptionOf& takes_dashes() {
    row().dashes = true;
    return *this;
  }
  /// Names the publication behind the option.
  OptionOf& cites(const std::string& publication) {
    row().cites = publication;
    return *this;
  }
  OptionOf& decides_function() {
    row().function = true;
    return *this;
  }
  /// Refused with --deterministic: with these values; none: with all but the default.
  OptionOf& bound_to_ranks(std::vector<std::string> values = {}) {
    row().bound_to_ranks = Choice{row().name, std::move(values)};
    return *this;
  }
  /// Or only where another option is so.
  OptionOf& bound_to_ranks_with(Choice other) {
    row().bound_with = std::move(other);
    return bound_to_ranks();
  }

 private:
  [[nodiscard]] OptionRow& row() { return table_.rows_[row_]; }

  TableOf<Options>& table_;
  std::size_t row_;
};

/// Values of the members of a family for an option that is `auto`: "gat and pgi 10; trades 6".
[[nodiscard]] std::string own_values(const Family& family, const std::string& option);

/// Description of an option in the help and the printed configuration: its text, the options that it works with, and
/// the settings of its words.
[[nodiscard]] std::string description(const Table& table, const OptionRow& row);

}  // namespace dat
