#pragma once

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dat {

inline constexpr std::size_t kNumberBytes = 26;  // the longest shortest form of a double, and a comma

/// Writes one JSON object into a buffer that is large enough. Numbers have the shortest form that reads back exactly.
class JsonLine {
 public:
  JsonLine(std::vector<char>& buffer, std::string_view kind)
      : begin_(buffer.data()), at_(begin_), end_(begin_ + buffer.size()) {
    text("{\"kind\":\"");
    text(kind);
    text("\"");
  }

  void text(std::string_view characters) {
    assert(characters.size() <= static_cast<std::size_t>(end_ - at_));
    at_ = std::copy(characters.begin(), characters.end(), at_);
  }

  void key(std::string_view name) {
    text(",\"");
    text(name);
    text("\":");
  }

  template <class Number>
  void number(Number value) {
    if constexpr (std::is_floating_point_v<Number>) {
      if (!std::isfinite(value)) return text("null");
    }
    const auto [end, error] = std::to_chars(at_, end_, value);
    assert(error == std::errc{});
    at_ = end;
  }

  template <class Number>
  void field(std::string_view name, Number value) {
    key(name);
    number(value);
  }

  /// `word` needs no escapes.
  void field(std::string_view name, const std::string& word) {
    key(name);
    text("\"");
    text(word);
    text("\"");
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
  [[nodiscard]] std::string_view close() {
    text("}\n");
    return {begin_, at_};
  }

 private:
  char *begin_, *at_, *end_;
};

}  // namespace dat
