#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "dat/error.hpp"

namespace dat {

/// Whether lists and objects of a JSON text lie in each other more deeply than in any file that the program writes. The
/// library parses such a text, but copying and printing the value calls itself once for each level, until the stack
/// ends.
[[nodiscard]] inline bool nested_too_deeply(std::string_view text) {
  constexpr int kMost = 64;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMost) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

/// The text of a JSON file, which may be a stranger's; what: "evaluation". Error(data): it cannot be read, has more
/// than 1 GiB (an evaluation of a million images has less), or is nested too deeply.
[[nodiscard]] inline std::string json_text_in(const std::string& path, const char* what) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  require(!error, ExitCode::data, "cannot read the ", what, " ", path, ": ", error.message());
  require(bytes <= std::uintmax_t{1} << 30, ExitCode::data, path, ": has more than 1 GiB");
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  require(text.size() == bytes, ExitCode::data, "cannot read the ", what, " ", path);
  require(!nested_too_deeply(text), ExitCode::data, path, ": its JSON is nested too deeply");
  return text;
}

/// The value of a JSON text, which may be a stranger's. Error(data): it is nested too deeply; else the library's own
/// exceptions.
template <class Json = nlohmann::json>
[[nodiscard]] Json parsed_json(std::string_view text) {
  require(!nested_too_deeply(text), ExitCode::data, "its JSON is nested too deeply");
  return Json::parse(text);
}

/// The value of a text that may be no JSON: discarded then, as where it is nested too deeply.
template <class Json = nlohmann::json>
[[nodiscard]] Json json_or_discarded(std::string_view text) {
  return nested_too_deeply(text) ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
}

}  // namespace dat
