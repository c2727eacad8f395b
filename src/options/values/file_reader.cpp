#include "options/values/file_reader.hpp"

#include <algorithm>
#include <set>

#include "dat/error.hpp"

namespace dat {

namespace {

/// Goes over the text once.
class FileReader {
 public:
  FileReader(std::string text, std::string name) : text_(std::move(text)), name_(std::move(name)) {}

  std::vector<Entry> read() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // the mark that editors put in front of UTF-8
    check(!text_.starts_with("\xFF\xFE") && !text_.starts_with("\xFE\xFF"), "the file is in UTF-16; save it as UTF-8");
    std::vector<Entry> entries;
    std::set<std::string> seen;
    for (skip(true); more(); skip(true)) {
      check(text_[at_] != '[', "there are no sections here; write the options as plain 'key = value' lines");
      Entry entry{.line = line_, .key = word("=")};
      check(!entry.key.empty() && take('='), "expected 'key = value'");
      check(seen.insert(entry.key).second, "'" + entry.key + "' is set a second time; keep one of the lines");
      skip(false);
      entry.list = take('[');
      if (entry.list) {
        for (skip(true); !take(']'); skip(true)) {
          entry.values.push_back(value());
          skip(true);
          check(take(',') || (more() && text_[at_] == ']'), "expected ',' or ']' in the list '" + entry.key + "'");
        }
      } else {
        entry.values.push_back(value());
      }
      skip(false);
      check(!more() || text_[at_] == '\n', "unexpected text after the value of '" + entry.key + "'");
      entries.push_back(std::move(entry));
    }
    return entries;
  }

 private:
  [[nodiscard]] bool more() const { return at_ < text_.size(); }

  void check(bool condition, const std::string& message) const {
    require(condition, ExitCode::usage, name_, ":", line_, ": ", message);
  }

  bool take(char c) {
    const bool is_next = more() && text_[at_] == c;
    if (is_next) ++at_;
    return is_next;
  }

  void skip(bool newlines) {
    for (; more(); ++at_) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
      if (!more() || (text_[at_] == '\n' ? !newlines : std::string(" \t\r").find(text_[at_]) == std::string::npos))
        return;
      line_ += text_[at_] == '\n';
    }
  }

  std::string word(const std::string& stops) {
    const std::size_t begin = at_;
    at_ = std::min(text_.find_first_of(" \t\r\n#" + stops, at_), text_.size());
    std::string result = text_.substr(begin, at_ - begin);
    skip(false);
    return result;
  }

  Value value() {
    if (!more() || (text_[at_] != '"' && text_[at_] != '\'')) {
      Value bare{word(",]"), Value::Form::bare};
      check(!bare.text.empty(), "a value is missing");
      return bare;
    }
    const char quote = text_[at_++];
    Value string{"", Value::Form::quoted};
    for (; more() && text_[at_] != '\n'; ++at_) {
      if (take(quote)) return string;
      if (quote == '"' && take('\\')) {
        check(more() && std::string("\"\\nt").find(text_[at_]) != std::string::npos,
              "unknown escape in a string; for a plain backslash use '...' quotes");
        string.text += text_[at_] == 'n' ? '\n' : text_[at_] == 't' ? '\t' : text_[at_];
      } else {
        string.text += text_[at_];
      }
    }
    fail(ExitCode::usage, name_, ":", line_, ": a string is not closed");
  }

  std::string text_, name_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Entry> read_entries(const std::string& text, const std::string& name) {
  return FileReader(text, name).read();
}

}  // namespace dat
