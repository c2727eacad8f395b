#include "verbs/verbs.hpp"

#include <algorithm>

#include "dat/error.hpp"
#include "dat/provenance.hpp"
#include "options/help.hpp"
#include "options/values/hints.hpp"
#include "verbs/ranks.hpp"

namespace dat {

#define VERB(name) Verb name##_verb();
#include "verbs/verbs.def"
#undef VERB

namespace {

/// The second words of the verbs that begin with this one.
std::vector<std::string> kinds_of(const std::string& first) {
  std::vector<std::string> all;
  for (const Verb& verb : verbs())
    if (verb.name.starts_with(first + " ")) all.push_back(verb.name.substr(first.size() + 1));
  return all;
}

[[noreturn]] void refuse_verb(const std::string& word) {
  std::vector<std::string> known = first_words();
  for (const Verb& verb : verbs())
    if (verb.name.find(' ') != std::string::npos) known.push_back(verb.name);
  known.insert(known.end(), {"help", "completion"});
  const std::string guess = hint(word, known);
  fail(ExitCode::usage, "unknown verb '", word, "'", guess.empty() ? "; see 'dat_hpc --help'" : guess);
}

}  // namespace

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = {
#define VERB(name) name##_verb(),
#include "verbs/verbs.def"
#undef VERB
  };
  return all;
}

std::vector<std::string> first_words() {
  std::vector<std::string> all;
  for (const Verb& verb : verbs()) all.push_back(verb.name.substr(0, verb.name.find(' ')));
  return all;
}

Command command_of(const std::string& verb, const CommandLine& line, std::function<int(int argc, char** argv)> run) {
  if (run) return {.verb = verb, .run = std::move(run), .warnings = line.warnings()};
  if (line.versions_asked()) return {.verb = "version", .run = [](int, char**) { return print_once(version_text); }};
  Command command = print_command(line.text());
  command.warnings = line.warnings();
  command.descriptions = line.descriptions();
  return command;
}

bool trains(int argc, const char* const* argv) {
  return argc < 2 || argv[1][0] == '-' || argv[1] == verbs().front().name;
}

bool speaks(int argc, const char* const* argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  return !another_rank_speaks() || std::ranges::any_of(verbs(), [&](const Verb& verb) {
    return verb.launch == Launch::alone && verb.name.substr(0, verb.name.find(' ')) == word;
  });
}

Command parse_command_line(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto next_word = [&words]() -> std::string {
    if (words.empty() || words.front().starts_with('-')) return "";
    std::string word = words.front();
    words.erase(words.begin());
    return word;
  };
  if (!words.empty() && asks_for_help(words.front())) {
    if (words.front().size() > 7) return help_command({words.front().substr(7)});
    return help_command({words.begin() + 1, words.end()});
  }
  const std::string first = next_word();
  if (first == "help") return help_command(words);
  if (first == "completion") return completion_command(words);
  std::string name = first.empty() ? verbs().front().name : first;
  if (const std::vector<std::string> kinds = kinds_of(first); !kinds.empty()) {
    const std::string kind = next_word();
    if (kind.empty() && !words.empty() && asks_for_help(words.front())) return print_command(screen_of(first));
    require(std::ranges::find(kinds, kind) != kinds.end(), ExitCode::usage, "'", first, "' needs one of ",
            joined(kinds, ", "), kind.empty() ? "" : ", not '" + kind + "'", hint(kind, kinds));
    name += " " + kind;
  }
  const auto found = std::ranges::find(verbs(), name, &Verb::name);
  if (found == verbs().end()) refuse_verb(first);
  return found->parse(words);
}

}  // namespace dat
