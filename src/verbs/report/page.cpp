#include "verbs/report/page.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "dat/error.hpp"

namespace dat {

namespace {

/// Pictures have white paper, black ink and colours of their own: in the dark their lightness is turned round.
constexpr const char* kPageStyle = R"(
*{box-sizing:border-box}
:root{color-scheme:light dark}
body{margin:0 auto;padding:1.5rem;max-width:76rem;background:#fff;color:#1b1f24;font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:0 0 1rem;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.5rem 0 .75rem;padding-bottom:.25rem;border-bottom:1px solid #d8dce2}
h3{font-size:1rem;margin:1.5rem 0 .5rem;overflow-wrap:anywhere}
p{margin:.5rem 0;overflow-wrap:anywhere}
.faint,caption,.strip{color:#5c6570}
.faint{font-size:.875rem}
.alarm{color:#b3470c}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(16rem,100%),1fr));gap:1rem}
.card,pre{background:#f5f6f8;border:1px solid #d8dce2;border-radius:.5rem;padding:1rem}
.card h3{margin:0 0 .5rem}
.card b{font-size:1.6rem;white-space:nowrap}
.card b,summary{color:#0072b2}
.wide{overflow-x:auto;margin:.5rem 0 1rem}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding-bottom:.25rem}
th,td{padding:.25rem .75rem .25rem 0;text-align:right;vertical-align:top;white-space:nowrap}
th,td{border-bottom:1px solid #d8dce2}
th:first-child,td:first-child,.words td,.words th{text-align:left}
.words td:not(:first-child){white-space:normal;overflow-wrap:anywhere;min-width:10rem}
.chart{display:block;width:100%;height:auto;max-width:62.5rem}
.strip{display:block;width:100%;height:auto;font:13px sans-serif}
.chart,.strip{min-width:40rem}
.chart image{image-rendering:pixelated}
.triples{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));gap:1rem}
figure{margin:0}
figcaption{font-size:.8125rem;overflow-wrap:anywhere}
.triples img{width:32%;image-rendering:pixelated}
summary{cursor:pointer}
pre{font-size:.8125rem;white-space:pre-wrap;overflow-wrap:anywhere}
@media screen and (prefers-color-scheme:dark){
body{background:#141414;color:#e4e7eb}
h2,.card,pre,th,td{border-color:#373c43}
.faint,caption,.strip{color:#9aa4b0}
.alarm{color:#f0a06a}
.card,pre{background:#1f2226}
.card b,summary{color:#5ab4e6}
.chart{filter:invert(.92) hue-rotate(180deg)}}
@media print{
:root{color-scheme:light}
body{max-width:none;padding:0;font-size:10pt}
.chart{max-height:23cm}
.chart,.strip{min-width:0}
.chart,.card,figure,tr{break-inside:avoid}
h2,h3{break-after:avoid}
.wide{overflow:visible}
table{font-size:7.5pt}
th,td{white-space:normal;padding-right:.4rem}}
)";

void replace_each(std::string& text, std::string_view from, const std::string& to) {
  for (std::size_t at{}; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// The drawing of an SVG file, without its first lines, its size, and gnuplot's words about itself. Names begin with
/// `prefix`, in tags alone: a text may look like a name. Error(device): it needs other files.
[[nodiscard]] std::string drawing_of(const std::string& svg, const std::string& prefix, const std::string& about) {
  const std::size_t box = svg.find("viewBox=\""), begin = svg.find('>', svg.find("<svg"));
  require(box < begin && begin != std::string::npos, ExitCode::device, "gnuplot has drawn no SVG: ", about);
  const std::size_t at_view = box + 9;
  const std::string view = svg.substr(at_view, svg.find('"', at_view) - at_view);
  std::string out =
      "<svg class=\"chart\" role=\"img\" aria-label=\"" + html_text(about) + "\" viewBox=\"" + html_text(view) + "\">";
  std::size_t at = svg.find("<g", begin);
  while (at < svg.size()) {
    const std::size_t tag = svg.find('<', at), end = svg.find('>', tag);
    if (end == std::string::npos) break;
    std::string text = svg.substr(at, tag - at), inside = svg.substr(tag, end + 1 - tag);
    if (text.find_first_not_of(" \t\n\r") == std::string::npos) text = text.empty() ? "" : "\n";
    for (const char quote : {'\'', '"'}) {
      const std::string open(1, quote);
      replace_each(inside, "xlink:href=" + open + "#", "href=" + open + "#" + prefix);
      replace_each(inside, " id=" + open, " id=" + open + prefix);
    }
    replace_each(inside, "xlink:href=", "href=");
    if (const std::size_t address = inside.find("href="); address != std::string::npos) {
      const std::string to = inside.substr(address + 6);
      require(to.starts_with("#") || to.starts_with("data:image/png;base64,"), ExitCode::data,
              "this gnuplot draws images into files of their own: ", about);
    }
    replace_each(inside, "url(#", "url(#" + prefix);
    out += text + inside;
    at = end + 1;
  }
  return out + "\n";
}

}  // namespace

std::string html_text(const std::string& text) {
  std::string out;
  for (const char c : without_controls(text))
    out += c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '"'  ? "&quot;"
           : c == '\'' ? "&#39;"
                       : std::string(1, c);
  return out;
}

std::string png_address(const std::string& png) {
  std::string digits((png.size() + 2) / 3 * 4, '\0');  // one more is written behind them
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(digits.data()), reinterpret_cast<const unsigned char*>(png.data()),
                  static_cast<int>(png.size()));
  return "data:image/png;base64," + digits;
}

Page::Page(const std::string& title) : title_(title) {}

void Page::add(const std::string& html, const std::string& about, std::size_t most) {
  if (body_.size() + html.size() > most)
    left_out_.push_back(about);
  else
    body_ += html;
}

void Page::html(const std::string& html, const std::string& about) { add(html, about, kMostBytes); }

void Page::heading(int level, const std::string& text) {
  html(fmt::format("<h{0}>{1}</h{0}>\n", level, html_text(text)), text);
}

void Page::paragraph(const std::string& text, const std::string& kind) {
  html("<p" + (kind.empty() ? "" : " class=\"" + kind + "\"") + ">" + html_text(text) + "</p>\n", text);
}

void Page::table(const Sheet& sheet) {
  if (sheet.rows.empty()) return;
  const auto is_number = [](const std::string& cell) {  // of a cell that is not empty
    return std::isdigit(static_cast<unsigned char>(cell[0])) != 0 || cell[0] == '[' || cell[0] == '-';
  };
  bool words = false;
  for (const auto& row : sheet.rows)
    for (std::size_t k = 1; k < row.size(); ++k) words = words || (row[k].size() > 24 && !is_number(row[k]));
  std::string text = std::string("<div class=\"wide\"><table") + (words ? " class=\"words\"" : "") + "><caption>" +
                     html_text(sheet.title) + "</caption>\n<thead><tr>";
  for (const std::string& cell : sheet.header) text += "<th scope=\"col\">" + html_text(cell) + "</th>";
  text += "</tr></thead>\n<tbody>\n";
  for (const auto& row : sheet.rows) {
    text += "<tr>";
    for (const std::string& cell : row) text += "<td>" + html_text(cell) + "</td>";
    text += "</tr>\n";
  }
  html(text + "</tbody></table></div>\n", "the table '" + sheet.title + "'");
}

void Page::folded(const std::string& line, const std::string& text) {
  html("<details><summary>" + html_text(line) + "</summary><pre>" + html_text(text) + "</pre></details>\n", line);
}

void Page::chart(const std::string& svg, const std::string& about) {
  add("<div class=\"wide\">" + drawing_of(svg, fmt::format("c{}-", ++charts_), about) + "</div>\n",
      "the picture '" + about + "'", kMostWithPicture);
}

std::string Page::text() const {
  std::string last;
  if (!left_out_.empty()) {
    last = "<p class=\"alarm\">The page would be larger than 2 MB, and is without:";
    const std::size_t named = std::min<std::size_t>(left_out_.size(), 50), more = left_out_.size() - named;
    for (std::size_t k = 0; k < named; ++k) last += (k == 0 ? " " : "; ") + html_text(left_out_[k].substr(0, 200));
    last += more > 0 ? fmt::format("; and {} more</p>\n", more) : "</p>\n";
  }
  // The policy has a browser refuse what a mistake of this file might let through.
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src "
         "'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<title>" +
         html_text(title_) + "</title>\n<style>" + kPageStyle + "</style>\n</head>\n<body>\n<h1>" + html_text(title_) +
         "</h1>\n" + body_ + last + "</body>\n</html>\n";
}

}  // namespace dat
