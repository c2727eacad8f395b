#include <algorithm>
#include <sstream>

#include "dat/error.hpp"
#include "dat/provenance.hpp"
#include "options/shell/shell.hpp"
#include "options/values/hints.hpp"
#include "options/values/value.hpp"
#include "printed.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

namespace {

/// Verbs that take the options of train, and are not looked through beside it.
const std::vector<std::string> kLikeTrain = {"validate", "slurm"};

/// Output of `dat_hpc VERB --help REST`. verb: its words.
std::string help_of(const std::string& verb, const std::vector<std::string>& rest) {
  std::istringstream words(verb + " --help");
  std::vector<std::string> all = {"dat_hpc"};
  for (std::string word; words >> word;) all.push_back(word);
  all.insert(all.end(), rest.begin(), rest.end());
  std::vector<const char*> arguments;
  for (const std::string& word : all) arguments.push_back(word.c_str());
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data()).text;
}

std::string line_of(const std::string& name, std::size_t width, const std::string& summary) {
  return "  " + name + std::string(width - name.size(), ' ') + summary + "\n";
}

/// A verb with its options.
VerbText described(const Verb& verb) {
  VerbText text = verb.parse(CommandLine::asking_for_descriptions()).descriptions;
  text.summary = verb.summary;
  return text;
}

const char* const kEndings =
    "Exit codes: 0 done, 2 options, 3 data, 4 checkpoint, 5 device, 6 MPI,\n"
    "7 not finite, 8 ranks disagree, 9 disk, 75 stopped early: run it again.\n";

}  // namespace

std::string first_screen() {
  std::string lines;
  for (const Verb& verb : verbs()) lines += line_of(verb.name, 18, verb.summary);
  return "dat_hpc trains image classifiers that withstand adversarial attacks.\n"
         "\n"
         "Verbs (dat_hpc VERB --help describes one):\n" +
         lines +
         "\n"
         "Examples:\n"
         "  dat_hpc data convert cifar-10-binary.tar.gz cifar10.h5\n"
         "  mpirun -np 2 dat_hpc train --recipe cifar10_small --data cifar10.h5 --out a\n"
         "  dat_hpc eval a --eval pgd20,aa-quick\n"
         "\n"
         "Options of train to begin with:\n"
         "  --recipe NAME     a published training, by name; --recipe list names them\n"
         "  --data FILE...    what 'data convert' has made; none: a small built-in set\n"
         "  --out DIR         where results go; the same command again goes on there\n"
         "  --network NAME    architecture; --width N makes it narrower\n"
         "  --attack NAME     pgd, fgsm, none, ...; --eps 8/255 is its radius\n"
         "  --attack-steps N  of pgd\n"
         "  --epochs N        length of the training\n"
         "  --selector all    train all layers in each step (default: 40/54, JointSpar)\n"
         "  --eval ATTACK,... attacks that it is measured with, such as pgd20\n"
         "\n"
         "More:\n"
         "  dat_hpc train --help      the options most used; --help all: every option\n"
         "  dat_hpc --help WORD       the options in which WORD occurs, such as layers\n"
         "  mpirun -np 2 dat_hpc      without any option, trains on the built-in set\n"
         "\n" +
         kEndings;
}

std::string screen_of(const std::string& first_word) {
  std::string usages, lines, example;
  for (const Verb& verb : verbs()) {
    if (!verb.name.starts_with(first_word + " ")) continue;
    std::istringstream help(help_of(verb.name, {}));
    for (std::string line; std::getline(help, line);)
      if (line.starts_with("Usage: "))
        usages += (usages.empty() ? "" : "       ") + line.substr(usages.empty() ? 0 : 7) + "\n";
    lines += line_of(verb.name.substr(first_word.size() + 1), 13, verb.summary);
    if (example.empty()) example = verb.name;
  }
  const char* const about = first_word == "data" ? "Makes and describes data files.\n" : "";
  return about + usages + "\n" + lines + "\ndat_hpc " + example + " --help and so on shows their options.\n";
}

Command print_command(const std::string& text) {
  return {.verb = "print",
          .run = [text](int, char**) { return print_once([&] { return unchanged(text); }); },
          .text = text};
}

Command completion_command(const std::vector<std::string>& words) {
  if (!words.empty() && words.front() == "words") {
    std::vector<VerbText> all;
    for (const Verb& verb : verbs()) all.push_back({.name = verb.name, .summary = verb.summary});
    const auto options = [](const std::string& name) {
      return described(*std::ranges::find(verbs(), name, &Verb::name));
    };
    return print_command(completions({words.begin() + 1, words.end()}, all, options));
  }
  require(words.size() == 1 && (words.front() == "bash" || words.front() == "zsh"), ExitCode::usage,
          "completion prints a script for bash or zsh: source <(dat_hpc completion bash)");
  return print_command(completion_script(words.front()));
}

Command help_command(std::vector<std::string> topic) {
  if (topic.empty()) return print_command(first_screen());
  if (topic == std::vector<std::string>{"--man"}) {
    std::vector<VerbText> all;
    for (const Verb& verb : verbs()) all.push_back(described(verb));
    return print_command(man_page(all, kEndings, version(), commit_date()));
  }
  std::string& word = topic.front();
  word.erase(0, std::min(word.find_first_not_of('-'), word.size()));
  const std::vector<std::string> known = first_words();
  if (is_one_of(word, known)) {
    // "data" is no verb without a second word.
    const bool two = topic.size() > 1 && std::ranges::find(verbs(), word, &Verb::name) == verbs().end();
    return print_command(help_of(two ? word + " " + topic[1] : word, {topic.begin() + (two ? 2 : 1), topic.end()}));
  }
  if (word == "all") return print_command(help_of("train", {"all"}));
  // A word of some options: those of train, and who else has any.
  std::vector<std::string> others;
  std::string text;
  for (const Verb& verb : verbs()) {
    if (verb.name.find(' ') != std::string::npos || is_one_of(verb.name, kLikeTrain)) continue;
    try {
      const std::string found = help_of(verb.name, {word});
      if (verb.name == "train")
        text = found;
      else
        others.push_back("dat_hpc " + verb.name + " --help " + word);
    } catch (const Error&) {  // it has none
    }
  }
  const std::string guess = hint(word, known);
  if (text.empty() && others.empty() && guess.empty()) return print_command(help_of("train", {word}));  // refuses it
  require(!text.empty() || !others.empty(), ExitCode::usage, "no verb or option is called '", word, "' or speaks of it",
          guess);
  if (!others.empty()) text += (text.empty() ? "" : "\n") + wrapped(joined(others, ", "), 6, "Also: ");
  return print_command(text);
}

}  // namespace dat
