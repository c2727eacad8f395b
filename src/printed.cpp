#include "printed.hpp"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <streambuf>
#include <string_view>

#include "dat/error.hpp"

namespace dat {

int utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const int length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t k = 1; k < static_cast<std::size_t>(length); ++k) {
    if (k == text.size()) return -1;
    // No longer form than is needed, no halves of pairs, nothing after U+10FFFF.
    const unsigned low = k > 1 ? 0x80 : first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = k > 1 ? 0xbf : first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (byte(k) < low || byte(k) > high) return 0;
  }
  return length;
}

namespace {

/// Cleans the front of `text`, up to a character whose end may come yet; returns how many bytes stand before it.
std::size_t clean(std::string& text) {
  std::string cleaned;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = std::string_view(text).substr(at);
    const int length = utf8_length(rest);
    if (length < 0) break;
    const auto first = static_cast<unsigned char>(rest[0]);
    const bool control = length == 1 ? (first < ' ' && first != '\n' && first != '\t') || first == 0x7f
                                     : length == 2 && first == 0xc2 && static_cast<unsigned char>(rest[1]) < 0xa0;
    const std::size_t bytes = length == 0 ? 1 : static_cast<std::size_t>(length);
    if (length == 0 || control)
      cleaned += '?';
    else
      cleaned += rest.substr(0, bytes);
    at += bytes;
  }
  const std::size_t done = cleaned.size();
  text.replace(0, at, cleaned);
  return done;
}

/// Cleans what it hands on to another buffer.
class CleanBuffer : public std::streambuf {
 public:
  explicit CleanBuffer(std::streambuf* out) : out_(out) {}

 protected:
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    std::string all = std::move(begun_);
    all.append(text, static_cast<std::size_t>(count));
    const std::size_t done = clean(all);
    begun_ = all.substr(done);
    return out_->sputn(all.data(), static_cast<std::streamsize>(done)) == static_cast<std::streamsize>(done) ? count
                                                                                                             : 0;
  }
  int_type overflow(int_type c) override {
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? c : traits_type::eof();
  }
  int sync() override { return out_->pubsync(); }

 private:
  std::streambuf* out_;
  std::string begun_;  ///< the first bytes of a character, which may be written in pieces
};

}  // namespace

std::string without_controls(std::string text) {
  const std::size_t done = clean(text);
  text.replace(done, std::string::npos, text.size() - done, '?');
  return text;
}

std::string in_one_line(std::string text) {
  text = without_controls(std::move(text));
  for (char& c : text)
    if (c == '\n' || c == '\t') c = ' ';
  return text;
}

const std::string& unchanged(const std::string& text) {
  const std::string printed = without_controls(text);
  const auto [there, here] = std::mismatch(text.begin(), text.end(), printed.begin(), printed.end());
  if (there == text.end()) return text;
  const auto at = static_cast<std::size_t>(here - printed.begin());
  const std::size_t begin = printed.rfind('\n', at) + 1;  // 0 in the first line
  fail(ExitCode::usage, "what is to be printed holds control characters, or bytes that are no UTF-8, in the line '",
       printed.substr(begin, printed.find('\n', at) - begin), "'; rename the file that it names");
}

void clean_output() {
  // Until the process ends: it is written to, and emptied, after main.
  std::cout.rdbuf(new CleanBuffer(std::cout.rdbuf()));
}

void print_error_line(const std::string& line) { std::cerr << in_one_line(line) + "\n" << std::flush; }

void say(const std::string& line) { print_error_line("dat_hpc: " + line); }

winsize terminal_size() {
  winsize size{};
  static_cast<void>(ioctl(STDOUT_FILENO, TIOCGWINSZ, &size));  // where there is none, it stays as it is
  return size;
}

}  // namespace dat
