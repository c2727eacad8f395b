#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dat/by_epoch.hpp"
#include "options/values/value.hpp"

namespace dat {

/// Range of an option's values, and its form in the help.
struct Range {
  std::string label{};                              ///< e.g. PATH; empty: by type or choices
  std::vector<std::string> choices{};               ///< strings: the only values, if any
  bool number_too = false;                          ///< strings: or a whole number of at least 1
  bool (*also)(const std::string& text) = nullptr;  ///< strings: whether it is taken, too; null: nothing is
  std::string (*others)() = nullptr;                ///< names them, for messages; null where `also` is
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool above = false;                 ///< `low` itself is out
  bool below = false;                 ///< `high` itself is out
  std::optional<double> automatic{};  ///< the number that stands for `word`
  std::string word = "auto";
  bool commas = false;                           ///< lists: commas separate the values, too
  std::map<std::string, std::string> aliases{};  ///< strings: words that stand for a choice
  std::string (*advice)(const std::string& text) =
      nullptr;                                    ///< ends the message about a text that is refused; or empty
  std::vector<std::string> (*known)() = nullptr;  ///< strings: values by name, where other ones are taken, too
};

/// Place of an option's value, in the struct of its verb.
using Field = std::variant<bool*, int*, std::int64_t*, std::uint64_t*, double*, std::string*, std::vector<int>*,
                           std::vector<double>*, std::vector<std::string>*, ByEpoch<int>*, ByEpoch<double>*,
                           ByEpoch<std::string>*>;

[[nodiscard]] bool is_flag(const Field& field);
[[nodiscard]] bool is_list(const Field& field);
[[nodiscard]] bool may_change_by_epoch(const Field& field);
/// Label of the values in the help: "PATH", "a|b", "N".
[[nodiscard]] std::string label_of(const Field& field, const Range& range);

/// Reads a value, the last one, or all of a list. `where` begins the message. Error(usage): wrong type, or out of
/// range.
void assign(const std::vector<Value>& sources, const Range& range, const std::string& where, const Field& field);

/// Text of a value in the form of the command line; or (`toml`) of a file.
[[nodiscard]] std::string text_of(const Field& field, const Range& range, bool toml);

/// Returns whether the value is one of these, in the form of the command line: of words that change by epoch, each one
/// is.
[[nodiscard]] bool is_one_of(const Field& field, const Range& range, const std::vector<std::string>& values);

/// Returns whether two fields of one type have the same value.
[[nodiscard]] bool same_value(const Field& a, const Field& b);
/// Gives `to` the value of `from`, which is of its type.
void copy_value(const Field& from, const Field& to);

}  // namespace dat
