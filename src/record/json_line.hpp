#pragma once

#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>

namespace dat {

inline constexpr std::size_t kNumberBytes = 26;  // the longest shortest form of a double, and a comma

/// Writes one JSON object into a text, in place of what stands there. Numbers have the shortest form that reads back
/// exactly.
class JsonLine {
 public:
  JsonLine(std::string& line, std::string_view kind) : line_(line) {
    line_.assign("{\"kind\":\"").append(kind).append("\"");
  }

  void text(std::string_view characters) { line_ += characters; }

  void key(std::string_view name) { line_.append(",\"").append(name).append("\":"); }

  template <class Number>
  void number(Number value) {
    if constexpr (std::is_floating_point_v<Number>)
      if (!std::isfinite(value)) return text("null");
    char digits[kNumberBytes];
    text({digits, std::to_chars(digits, digits + sizeof digits, value).ptr});
  }

  template <class Number>
  void field(std::string_view name, Number value) {
    key(name);
    number(value);
  }

  /// `word` needs no escapes.
  void field(std::string_view name, const std::string& word) {
    key(name);
    line_.append("\"").append(word).append("\"");
  }

  /// "name":[value(0),...,value(count - 1)]
  template <class Value>
  void array(std::string_view name, std::size_t count, const Value& value) {
    key(name);
    text("[");
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) text(",");
      number(value(i));
    }
    text("]");
  }

  /// The whole line.
  [[nodiscard]] std::string_view close() { return line_ += "}\n"; }

 private:
  std::string& line_;
};

}  // namespace dat
