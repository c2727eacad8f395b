#include "options/help.hpp"

#include <algorithm>
#include <sstream>

#include "options/values/hints.hpp"

namespace dat {

std::string option_lines(const std::string& name, const std::string& about, const std::string& standard) {
  constexpr std::size_t kColumn = 30, kWidth = 80;
  std::string left = name;
  for (std::size_t line = 0; left.size() - line > kWidth;) {
    const std::size_t bar = left.substr(line, kWidth).find_last_of('|');
    if (bar == std::string::npos) break;
    line += bar + 2;
    left.insert(line - 1, "\n" + std::string(kColumn, ' '));
  }
  std::string text = left.size() + 2 > kColumn ? left + "\n" : left, line = text == left ? left : "";
  text.erase(text.size() - line.size());
  line.resize(kColumn, ' ');
  // The option itself, then a line for each setting of its words.
  std::string what = about;
  if (!standard.empty()) what.insert(std::min(about.find('\n'), about.size()), " [" + standard + "]");
  std::istringstream lines(what);
  std::size_t indent = kColumn;
  for (std::string one; std::getline(lines, one); indent = kColumn + 2, line.assign(kColumn, ' '))
    text += wrapped(one, indent, line);
  return text;
}

bool asks_for_help(const std::string& word) { return word == "-h" || word == "--help" || word.starts_with("--help="); }

}  // namespace dat
