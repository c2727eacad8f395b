#include <algorithm>
#include <sstream>

#include "options/shell/shell.hpp"
#include "options/values/value.hpp"

namespace dat {

namespace {

/// Text as roff reads it: no line is a request, and dashes are those that are typed.
std::string escaped(const std::string& text) {
  std::string roff;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (roff.empty() || roff.back() == '\n')) roff += "\\&";
    if (c == '\\')
      roff += "\\e";
    else if (c == '-')
      roff += "\\-";
    else
      roff += c;
  }
  return roff;
}

/// "-q, --quiet", "--lr NUMBER": names in bold, values in italics.
std::string head_of(const OptionText& option) {
  std::string line;
  for (const std::string& name : option.names) line += (line.empty() ? "\\fB" : ", \\fB") + escaped(name) + "\\fR";
  return line + (option.label.empty() || !option.has_dashes() ? "" : " \\fI" + escaped(option.label) + "\\fR");
}

/// What an option does, and its default; then a line for each setting of its words.
std::string text_of(const OptionText& option) {
  std::string text;
  std::istringstream lines(option.about);
  for (std::string line; std::getline(lines, line);) {
    if (!text.empty()) text += ".br\n";
    text +=
        escaped(line) + (text.empty() && !option.standard.empty() ? " [" + escaped(option.standard) + "]" : "") + "\n";
  }
  return text;
}

/// A text whose lines that begin with blanks stand alone.
std::string paragraph(const std::string& text) {
  std::string roff;
  std::istringstream lines(text);
  bool alone = false;
  for (std::string line; std::getline(lines, line); alone = line.starts_with(' '))
    roff += (alone && !line.starts_with(' ') ? ".br\n" : "") + escaped(line) + "\n";
  return roff;
}

/// An entry of a list: a head, and what follows it.
std::string entry(const std::string& head, const std::string& text) { return ".TP\n" + head + "\n" + text; }

bool same(const OptionText& a, const OptionText& b) {
  return a.names == b.names && a.about == b.about && a.label == b.label && a.standard == b.standard;
}

/// Names of options that an earlier verb has with the same text.
struct Known {
  const VerbText* verb;
  std::vector<std::string> names;

  [[nodiscard]] std::string text() const { return joined(names, ", ") + " as of " + verb->name; }
};

/// The section of a verb; `before`: the verbs that the page has described.
std::string section(const VerbText& verb, const std::vector<VerbText>& before) {
  std::string text = ".SH DAT_HPC " + escaped(verb.name) + "\n" + paragraph(verb.about), group;
  std::vector<Known> known;
  for (const VerbText& other : before) known.push_back({&other, {}});
  for (const OptionText& option : verb.options) {
    const auto of = std::ranges::find_if(known, [&](const Known& one) {
      return std::ranges::any_of(one.verb->options, [&](const OptionText& other) { return same(other, option); });
    });
    if (of != known.end()) {
      of->names.push_back(option.names.back());
      continue;
    }
    if (option.group != group && !option.group.empty()) text += ".SS " + escaped(option.group) + "\n";
    group = option.group;
    text += entry(head_of(option), text_of(option));
  }
  std::vector<std::string> rest;
  for (const Known& one : known)
    if (!one.names.empty()) rest.push_back(one.text());
  return text + (rest.empty() ? "" : ".PP\nAnd " + escaped(joined(rest, "; ")) + ".\n");
}

}  // namespace

std::string man_page(const std::vector<VerbText>& verbs, const std::string& endings, const std::string& version,
                     const std::string& date) {
  std::string text = ".TH DAT_HPC 1 \"" + date + "\" \"dat_hpc " + version +
                     "\" \"User Commands\"\n.ad l\n"
                     ".SH NAME\ndat_hpc \\- distributed adversarial training of image classifiers\n"
                     ".SH SYNOPSIS\n\\fBdat_hpc\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR]\n.br\n"
                     "\\fBmpirun \\-np\\fR \\fIN\\fR \\fBdat_hpc\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR]\n"
                     ".SH DESCRIPTION\n"
                     "dat_hpc trains image classifiers that withstand adversarial attacks, on many processes at once, "
                     "and measures what they withstand.\n"
                     "A value in brackets is a default.\n"
                     ".SH VERBS\n";
  for (const VerbText& verb : verbs) text += entry("\\fB" + escaped(verb.name) + "\\fR", escaped(verb.summary) + "\n");
  std::vector<VerbText> before;
  std::string switches;
  for (const VerbText& verb : verbs) {
    text += section(verb, before);
    before.push_back(verb);
    for (const SwitchText& one : verb.switches)
      if (switches.find(one.variable) == std::string::npos)
        switches += entry("\\fB" + one.variable + "\\fR=\\fI" + escaped(one.label) + "\\fR",
                          escaped(one.about + " [" + one.standard + "]") + "\n");
  }
  return text + ".SH ENVIRONMENT\nSwitches for developers:\n" + switches + ".SH EXIT STATUS\n" + paragraph(endings);
}

}  // namespace dat
