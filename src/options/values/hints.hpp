#pragma once

#include <string>
#include <vector>

namespace dat {

[[nodiscard]] std::string lower_case(std::string text);

/// The one of `known` that means the same as `word` in other programs, or is most like it, whatever the case of its
/// letters; empty: none is.
[[nodiscard]] std::string nearest(const std::string& word, const std::vector<std::string>& known);

/// "; did you mean 'lr'?" for the nearest one, or nothing.
[[nodiscard]] std::string hint(const std::string& word, const std::vector<std::string>& known,
                               const std::string& prefix = "");

/// `text` in lines of at most 80 columns, each after `indent` spaces, the first one after `begin` instead, where that
/// is given. Lines of `text` stay apart. A word that is longer than a line has a line of its own.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t indent, std::string begin = "");

}  // namespace dat
