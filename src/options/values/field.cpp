#include "options/values/field.hpp"

#include <algorithm>
#include <sstream>

#include "dat/error.hpp"
#include "options/values/hints.hpp"

namespace dat {

namespace {

/// A value that changes by epoch, as it is written: "1,2@12" is 1, and 2 from epoch 12 on; "4/255..8/255@0-10" grows
/// from epoch 0 to epoch 10. One grammar for all options of this kind.
struct WrittenPart {
  std::string value;
  std::string end;          ///< last value of a growing part; else empty
  int from = 0, until = 0;  ///< equal, but of what grows
};

constexpr const char* kGrows = "..";

[[nodiscard]] bool read_epoch(const std::string& text, int& epoch) {
  constexpr int kMost = 100000;
  return read_number(text, epoch) && epoch >= 0 && epoch <= kMost;
}

/// VALUE, VALUE@EPOCH, or VALUE..VALUE@EPOCH-EPOCH.
[[nodiscard]] bool read_part(const std::string& word, WrittenPart& part) {
  const std::size_t at = word.find('@');
  part.value = word.substr(0, at);
  const std::size_t grows = part.value.find(kGrows);
  const std::string epochs = at == std::string::npos ? "0" : word.substr(at + 1);
  if (grows == std::string::npos) {
    if (!read_epoch(epochs, part.from)) return false;
    part.until = part.from;
    return !part.value.empty();
  }
  part.end = part.value.substr(grows + 2);
  part.value.erase(grows);
  const std::size_t dash = epochs.find('-');
  return dash != std::string::npos && read_epoch(epochs.substr(0, dash), part.from) &&
         read_epoch(epochs.substr(dash + 1), part.until) && part.from < part.until && !part.value.empty() &&
         !part.end.empty();
}

/// Returns whether a text means such a value, and not a plain one.
[[nodiscard]] bool changes_by_epoch(const std::string& text) {
  return text.find('@') != std::string::npos || text.find(kGrows) != std::string::npos;
}

/// Its parts, the first of which begins at epoch 0 unless it grows; none: the text is not written so.
[[nodiscard]] std::vector<WrittenPart> read_parts(const std::string& text) {
  std::vector<WrittenPart> parts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    WrittenPart part;
    if (!read_part(trimmed(word), part)) return {};
    if (parts.empty() ? part.from != 0 && part.end.empty() : part.from <= parts.back().until) return {};
    parts.push_back(part);
  }
  if (text.ends_with(',')) return {};
  return parts;
}

[[nodiscard]] std::string text_of(const std::vector<WrittenPart>& parts) {
  std::vector<std::string> words;
  for (const WrittenPart& part : parts) {
    std::string& word = words.emplace_back(part.value);
    if (!part.end.empty())
      word += kGrows + part.end + "@" + std::to_string(part.from) + "-" + std::to_string(part.until);
    else if (part.from != 0)
      word += "@" + std::to_string(part.from);
  }
  return joined(words, ",");
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;
template <class T>
constexpr bool kIsByEpoch = false;
template <class T>
constexpr bool kIsByEpoch<ByEpoch<T>> = true;

template <class T>
std::string expectation(const Range& range) {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string>) {
    if (range.choices.empty()) return "a string in quotes";
    return "one of " + joined(range.choices, ", ") + (range.others != nullptr ? ", " + range.others() : "") +
           (range.number_too ? " or a whole number of at least 1" : "");
  }
  std::string text = std::is_integral_v<T> ? "a whole number" : "a number (fractions such as 8/255 too)";
  const auto bound = [](double number) {
    constexpr double kExact = 0x1p53;
    return std::is_integral_v<T> && std::fabs(number) < kExact ? number_text(static_cast<std::int64_t>(number))
                                                               : number_text(number);
  };
  if (range.low > -kInfinity) text += (range.above ? " above " : " of at least ") + bound(range.low);
  if (std::is_integral_v<T> && range.high == kInfinity)
    text += " below 2^" + std::to_string(std::numeric_limits<T>::digits);
  if (range.high < kInfinity) text += (range.below ? " and below " : " and at most ") + bound(range.high);
  return text + (range.automatic ? " or " + quoted(range.word) : "");
}

bool convert(const Value& source, const Range&, bool& value) {
  value = source.text == "true";
  return source.form != Value::Form::quoted && (value || source.text == "false");
}

bool convert(const Value& source, const Range& range, std::string& value) {
  const auto alias = range.aliases.find(source.text);
  value = alias == range.aliases.end() ? source.text : alias->second;
  std::int64_t number = 0;
  if (range.number_too && read_number(value, number) && number >= 1) return true;
  return source.form != Value::Form::bare &&
         (range.choices.empty() || is_one_of(value, range.choices) || (range.also != nullptr && range.also(value)));
}

template <class T>
bool convert(const Value& source, const Range& range, T& value) {
  if (range.automatic && source.text == range.word) {
    value = static_cast<T>(*range.automatic);
    return true;
  }
  if constexpr (std::is_integral_v<T>) {
    if (source.form == Value::Form::quoted || !read_number(source.text, value)) return false;
  } else {
    if (!read_fraction(source.text, value)) return false;
  }
  const double number = static_cast<double>(value);
  return (range.above ? number > range.low : number >= range.low) &&
         (range.below ? number < range.high : number <= range.high);
}

/// "; did you mean '0.1'?" for a number in another spelling: 0,1, or of a whole one 64.0 or 1e3.
template <class T>
std::string other_spelling(const std::string& text, const Range& range) {
  std::string plain = text;
  std::ranges::replace(plain, ',', '.');
  double number{};
  T value{};
  if (!read_number(plain, number)) return "";
  if constexpr (std::is_integral_v<T>) {
    if (std::abs(number) >= 9e15 || number != std::floor(number)) return "";
    plain = number_text(static_cast<std::int64_t>(number));
  }
  return convert(Value{plain}, range, value) ? "; did you mean '" + plain + "'?" : "";
}

template <class T>
void assign_one(const Value& source, const Range& range, const std::string& where, T& value) {
  if (convert(source, range, value)) return;
  if (source.form != Value::Form::argument && convert(Value{source.text}, range, value)) {
    fail(ExitCode::usage, where, " must stand ", source.form == Value::Form::bare ? "in" : "without", " quotes");
  }
  std::string advice = range.advice == nullptr ? "" : range.advice(source.text);
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) advice = other_spelling<T>(source.text, range);
  fail(ExitCode::usage, where, " must be ", expectation<T>(range), ", not '", source.text, "'",
       advice.empty() ? hint(source.text, range.choices) : advice);
}

template <class T>
void assign_all(const std::vector<Value>& sources, const Range& range, const std::string& where, T& value) {
  assign_one(sources.back(), range, where, value);
}

template <class T>
void assign_all(const std::vector<Value>& sources, const Range& range, const std::string& where,
                std::vector<T>& values) {
  values.clear();
  for (const Value& source : sources) {
    std::istringstream words(source.text);
    std::string word = source.text;
    while (!range.commas || std::getline(words, word, ',')) {
      assign_one(Value{range.commas ? trimmed(word) : word, source.form}, range, where, values.emplace_back());
      if (!range.commas) break;
    }
  }
}

constexpr const char* how_by_epoch(const std::string&) { return "none,fgsm@3 (fgsm from epoch 3 on)"; }
constexpr const char* how_by_epoch(int) { return "1,2@12 (2 from epoch 12 on)"; }
constexpr const char* how_by_epoch(double) {
  return "4/255,8/255@5 (8/255 from epoch 5 on) or 4/255..8/255@0-10 (growing from epoch 0 to epoch 10)";
}

/// A value that changes by epoch. Those before the last one may stand on the edge of the range that it has to pass.
template <class T>
ByEpoch<T> read_by_epoch(const std::string& text, const Range& range, const std::string& where) {
  Range before = range;
  before.above = range.above && range.automatic;
  std::vector<typename ByEpoch<T>::Part> parts;
  const std::vector<WrittenPart> written = read_parts(text);
  bool fits = !written.empty();
  for (const WrittenPart& one : written) {
    const bool grows = !one.end.empty(), last = &one == &written.back();
    typename ByEpoch<T>::Part& part = parts.emplace_back();
    part.from = one.from;
    part.until = one.until;
    fits = fits && convert(Value{one.value}, last && !grows ? range : before, part.value);
    part.end = part.value;
    if (grows) fits = fits && std::floating_point<T> && convert(Value{one.end}, last ? range : before, part.end);
    if (grows && range.automatic) fits = fits && one.value != range.word && one.end != range.word;
  }
  require(fits, ExitCode::usage, where, " may change by epoch as in ", how_by_epoch(T{}),
          ", with epochs that increase, and each value must be ", expectation<T>(range), "; '", text, "' is not so");
  return ByEpoch<T>(std::move(parts));
}

template <class T>
void assign_all(const std::vector<Value>& sources, const Range& range, const std::string& where, ByEpoch<T>& value) {
  const Value& source = sources.back();
  if (changes_by_epoch(source.text)) {
    require(source.form != Value::Form::bare, ExitCode::usage, where, " must stand in quotes");
    value = read_by_epoch<T>(source.text, range, where);
    return;
  }
  T plain{};
  assign_one(source, range, where, plain);
  value = plain;
}

template <class T>
std::string value_text(const T& value, const Range& range, bool toml);

template <class T>
std::string value_text(const ByEpoch<T>& value, const Range& range, bool toml) {
  if (!value.changes()) return value_text(value.last(), range, toml);
  std::vector<WrittenPart> written;
  for (const auto& part : value.parts())
    written.push_back({value_text(part.value, range, false),
                       part.until > part.from ? value_text(part.end, range, false) : "", part.from, part.until});
  return toml ? quoted(text_of(written)) : text_of(written);
}

template <class T>
std::string value_text(const T& value, const Range& range, bool toml) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return toml ? quoted(value) : value;
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (range.automatic && static_cast<double>(value) == *range.automatic)
      return toml ? quoted(range.word) : range.word;
    const std::string text = number_text(value);
    return toml && text.find('/') != std::string::npos ? quoted(text) : text;  // plain TOML has no fractions
  } else {
    std::vector<std::string> words;
    for (const auto& element : value) words.push_back(value_text(element, range, toml));
    return toml ? "[" + joined(words, ", ") + "]" : joined(words, ",");
  }
}

}  // namespace

bool is_flag(const Field& field) { return std::holds_alternative<bool*>(field); }

bool is_list(const Field& field) {
  return std::visit([]<class T>(const T*) { return kIsList<T>; }, field);
}

bool may_change_by_epoch(const Field& field) {
  return std::visit([]<class T>(const T*) { return kIsByEpoch<T>; }, field);
}

std::string label_of(const Field& field, const Range& range) {
  if (!range.label.empty()) return range.label;
  if (!range.choices.empty()) return joined(range.choices, "|");
  if (std::holds_alternative<double*>(field) || std::holds_alternative<ByEpoch<double>*>(field)) return "NUMBER";
  return std::holds_alternative<std::string*>(field) ? "TEXT" : "N";
}

void assign(const std::vector<Value>& sources, const Range& range, const std::string& where, const Field& field) {
  std::visit([&](auto* value) { assign_all(sources, range, where, *value); }, field);
}

std::string text_of(const Field& field, const Range& range, bool toml) {
  return std::visit([&](const auto* value) { return value_text(*value, range, toml); }, field);
}

bool is_one_of(const Field& field, const Range& range, const std::vector<std::string>& values) {
  if (const auto* words = std::get_if<ByEpoch<std::string>*>(&field))
    return !(*words)->any([&](const std::string& word) { return !is_one_of(word, values); });
  return is_one_of(text_of(field, range, false), values);
}

bool same_value(const Field& a, const Field& b) {
  return std::visit([&]<class T>(const T* value) { return *value == *std::get<T*>(b); }, a);
}

void copy_value(const Field& from, const Field& to) {
  std::visit([&]<class T>(const T* value) { *std::get<T*>(to) = *value; }, from);
}

}  // namespace dat
