#include <algorithm>
#include <utility>

#include "options/shell/shell.hpp"
#include "options/values/value.hpp"

namespace dat {

namespace {

using Words = std::vector<std::string>;

/// Lines for a shell: words that begin as the one that is typed, each once.
class Found {
 public:
  explicit Found(std::string typed) : typed_(std::move(typed)) {}

  void add(const std::string& word, const std::string& about = "") {
    if (!word.starts_with(typed_) || is_one_of(word, seen_)) return;
    seen_.push_back(word);
    text_ += word + "\t" + about + "\n";
  }
  /// Adds files or folders where a form of values speaks of them.
  void add_paths(const std::string& label) {
    const auto has = [&](const char* part) { return label.find(part) != std::string::npos; };
    if (has("PATH") || has("FILE"))
      text_ += ":files\n";
    else if (has("DIR") || has("RUN"))
      text_ += ":folders\n";
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string typed_, text_;
  Words seen_;
};

/// The values of an option that go on from `typed`, with `before` in front of each.
void add_values(const OptionText& option, const std::string& before, const std::string& typed, Found& found) {
  const std::size_t comma = option.commas ? typed.rfind(',') + 1 : 0;  // npos + 1 is 0
  const std::string start = before + typed.substr(0, comma), word = typed.substr(comma);
  const std::size_t colon = word.rfind(':');
  if (colon == std::string::npos) {
    for (const std::string& value : option.values) found.add(start + value);
    return found.add_paths(option.label);
  }
  const std::string member = word.substr(0, word.find(':')), head = start + word.substr(0, colon + 1);
  for (const SettingText& setting : option.settings) {
    if (!is_one_of(member, setting.members)) continue;
    found.add(head + setting.key + (setting.flag ? "" : "="));
    for (const std::string& value : setting.values) found.add(head + setting.key + "=" + value);
  }
}

/// Option that a word names; null: none.
const OptionText* option_named(const VerbText& verb, const std::string& word) {
  const auto named =
      std::ranges::find_if(verb.options, [&](const OptionText& one) { return is_one_of(word, one.names); });
  return named == verb.options.end() ? nullptr : &*named;
}

/// Option whose values end the words, the last word among them; null: none.
const OptionText* open_option(const VerbText& verb, const Words& words) {
  const auto word =
      std::find_if(words.rbegin(), words.rend(), [](const std::string& one) { return one.starts_with('-'); });
  if (word == words.rend()) return nullptr;
  const OptionText* const option = option_named(verb, *word);
  const bool open = option != nullptr && !option->label.empty() && (option->several || word - words.rbegin() == 1);
  return open ? option : nullptr;
}

/// Completions of the words after a verb.
void add_of_verb(const VerbText& verb, const Words& words, Found& found) {
  const std::string& last = words.back();
  if (const std::size_t equals = last.find('='); last.starts_with("--") && equals != std::string::npos) {
    if (const OptionText* const option = option_named(verb, last.substr(0, equals)))
      add_values(*option, last.substr(0, equals + 1), last.substr(equals + 1), found);
    return;
  }
  const OptionText* const open = open_option(verb, words);
  if (open != nullptr && !last.starts_with('-')) return add_values(*open, "", last, found);
  bool positional = false;
  for (const OptionText& option : verb.options) {
    positional = positional || option.positional();
    if (option.positional() && !last.starts_with('-')) add_values(option, "", last, found);
  }
  if (last.empty() && positional) return;
  for (const OptionText& option : verb.options)
    if (option.has_dashes()) found.add(option.names.back(), option.about.substr(0, option.about.find('\n')));
}

const char* const kBash = R"(# Completion of dat_hpc for bash, in this shell: source <(dat_hpc completion bash)
_dat_hpc() {
  local words typed breaks before='' found path kind
  # shellcheck disable=SC2162  # a backslash keeps a blank in a word
  read -a words <<<"${COMP_LINE:0:COMP_POINT}"
  [[ ${COMP_LINE:0:COMP_POINT} != *[[:space:]] ]] || words+=('')
  typed=${words[-1]}
  # Of a word with one of these bash replaces what stands behind the last one.
  breaks=${COMP_WORDBREAKS//[^:=@]/}
  [[ -z $breaks || $typed != *[$breaks]* ]] || before=${typed%"${typed##*[$breaks]}"}
  COMPREPLY=()
  while IFS= read -r found; do
    case $found in
      :files | :folders)
        path=${typed#--*=}
        [ "$found" = :files ] && kind=-f || kind=-d
        compopt -o filenames
        while IFS= read -r found; do
          found=${typed%"$path"}$found
          COMPREPLY+=("${found#"$before"}")
        done < <(compgen "$kind" -- "$path") ;;
      *)
        found=${found%%$'\t'*}
        [[ $found != *= ]] || compopt -o nospace
        COMPREPLY+=("${found#"$before"}") ;;
    esac
  done < <("${COMP_WORDS[0]/#\~/$HOME}" completion words "${words[@]:1}" 2>/dev/null)
}
complete -F _dat_hpc dat_hpc
)";

const char* const kZsh = R"(#compdef dat_hpc
# Completion of dat_hpc for zsh: as _dat_hpc in a folder of fpath, or source <(dat_hpc completion zsh)
_dat_hpc() {
  local line paths= typed=$words[CURRENT]
  local -a open closed
  for line in "${(@f)$("${words[1]/#\~/$HOME}" completion words "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      :files | :folders) paths=$line ;;
      *=$'\t'*) open+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
      *$'\t'*) closed+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done
  (( $#open )) && _describe -t settings setting open -S ''
  (( $#closed )) && _describe -t words word closed
  if [[ -n $paths ]]; then
    [[ $typed == --*=* ]] && compset -P '*='
    if [[ $paths == :folders ]]; then _files -/; else _files; fi
  fi
}
if [[ $funcstack[1] == _dat_hpc ]]; then _dat_hpc "$@"; else compdef _dat_hpc dat_hpc; fi
)";

}  // namespace

std::string completions(const Words& words, const std::vector<VerbText>& verbs,
                        const std::function<VerbText(const std::string& verb)>& options) {
  Found found(words.empty() ? "" : words.back());
  const std::string first = words.empty() ? "" : words[0];
  const auto add_verbs = [&](const std::string& before) {
    for (const VerbText& verb : verbs)
      if (verb.name.starts_with(before)) {
        const std::string rest = verb.name.substr(before.size());
        const std::size_t blank = rest.find(' ');
        found.add(rest.substr(0, blank), blank == std::string::npos ? verb.summary : "");
      }
  };
  const auto named = [&](const std::string& name) {
    return std::ranges::any_of(verbs, [&](const VerbText& verb) { return verb.name == name; });
  };
  if (words.size() < 2 && !first.starts_with('-')) {
    add_verbs("");
    found.add("help", "options by VERB or WORD; --man: the manual page");
    found.add("completion", "completion of options in bash or zsh");
  } else if (first.starts_with('-')) {
    add_of_verb(options(verbs.front().name), words, found);
  } else if (first == "help") {
    add_verbs("");
    found.add("--man", "the manual page, for man");
  } else if (first == "completion") {
    for (const char* shell : {"bash", "zsh"}) found.add(shell);
  } else if (named(first)) {
    add_of_verb(options(first), {words.begin() + 1, words.end()}, found);
  } else if (words.size() == 2) {
    add_verbs(first + " ");
  } else if (named(first + " " + words[1])) {
    add_of_verb(options(first + " " + words[1]), {words.begin() + 2, words.end()}, found);
  }
  return found.text();
}

std::string completion_script(const std::string& shell) { return shell == "bash" ? kBash : kZsh; }

}  // namespace dat
