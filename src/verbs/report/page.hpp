#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "verbs/results/tables.hpp"

namespace dat {

/// Text as it stands in HTML, in an element or a quoted attribute: what a file says begins no tag, and is UTF-8 without
/// controls. Every text of a page goes through here.
[[nodiscard]] std::string html_text(const std::string& text);
/// A PNG file as the address of an image that needs no file: "data:image/png;base64,...".
[[nodiscard]] std::string png_address(const std::string& png);

/// A page of HTML in one file, for light and dark screens and for paper, without scripts, and without anything that
/// would be loaded. What would make it larger than kMostBytes is left out, and named at its end; pictures leave room
/// for what comes after them.
class Page {
 public:
  explicit Page(const std::string& title);

  /// level: 2 or 3.
  void heading(int level, const std::string& text);
  /// kind: a class of the style; empty: none.
  void paragraph(const std::string& text, const std::string& kind = "");
  void table(const Sheet& sheet);
  /// A text behind a line that opens it.
  void folded(const std::string& line, const std::string& text);
  /// A picture of gnuplot's, the text of its SVG file. Its names are made its own among those of other pictures.
  void chart(const std::string& svg, const std::string& about);
  /// What is HTML already; about: its name, for where it is left out.
  void html(const std::string& html, const std::string& about);

  [[nodiscard]] std::string text() const;

  static constexpr std::size_t kMostBytes = 1'900'000, kMostWithPicture = 1'600'000;

 private:
  void add(const std::string& html, const std::string& about, std::size_t most);

  std::string title_, body_;
  std::vector<std::string> left_out_;
  int charts_ = 0;
};

}  // namespace dat
