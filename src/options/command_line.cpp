#include "options/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "dat/error.hpp"
#include "dat/shell.hpp"
#include "options/help.hpp"
#include "options/recipes.hpp"
#include "options/values/hints.hpp"
#include "options/words.hpp"

namespace dat {

namespace {

/// CLI11's help in the manner of option_lines.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string left = "  " + option->get_name(positional, !positional);
    if (const std::size_t brace = left.find("{false}"); brace != std::string::npos) left.erase(brace);
    if (!positional && !option->get_type_name().empty()) left += " " + option->get_type_name();
    return option_lines(left, option->get_description(), option->get_default_str());
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (auto at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n")) text.erase(at, 1);
    return text;
  }
};

/// Name in a word: of "--lr" or "--lr=0.1".
std::string name_in(const std::string& word) { return word.substr(0, word.find('=')); }

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  file.peek();  // finds out about folders
  const bool recipe = std::ranges::any_of(recipes(), [&](const Recipe& r) { return r.name == path; });
  require(file.is_open() && !file.bad(), ExitCode::usage, "cannot read the configuration file '", path,
          recipe ? "'; did you mean --recipe " + path + "?" : "'; check the path given to --config");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Advice about an argument that is no option.
std::string advice_about(const std::string& word, const std::vector<std::string>& known, const std::string& otherwise) {
  // Texts put a long dash in place of two short ones.
  std::string plain = word;
  while (plain.starts_with("\u2013") || plain.starts_with("\u2014")) plain.erase(0, 3);
  if (plain != word)
    return "; options begin with two plain dashes: --" +
           plain.substr(std::min(plain.find_first_not_of('-'), plain.size()));
  if (is_one_of(word, {"true", "false", "on", "off", "yes", "no"}))
    return "; a switch has its value after '=': --NAME=true or --NAME=false";
  if (word.ends_with(".toml") && is_one_of("config", known))
    return "; did you mean --config " + shell_quoted(word) + "?";
  if (word.ends_with(".h5") && is_one_of("data", known)) return "; did you mean --data " + shell_quoted(word) + "?";
  return otherwise;
}

}  // namespace

struct CommandLine::Entry {
  Bound* options;
  const OptionRow* row;
  CLI::Option* option;

  [[nodiscard]] Field field() const { return options->field(*row); }
};

struct CommandLine::Parser : CLI::App {
  using CLI::App::App;
};

CommandLine::CommandLine(const std::string& verb, std::vector<std::string> words, std::vector<std::string> verbs)
    : parser_(std::make_unique<Parser>("", "dat_hpc " + verb)),
      program_("dat_hpc " + verb),
      words_(std::move(words)),
      verbs_(std::move(verbs)) {
  parser_->formatter(std::make_shared<HelpFormatter>());
  parser_->allow_extras();
  parser_->set_help_flag();
  const std::string help = "print this help; --help all: every option, --help WORD: those with WORD in them";
  parser_->add_flag("-h,--help", help);  // only to be shown: read() looks for it first
  parser_->add_flag("--version", versions_, "print the versions of program and libraries, exit");
}

CommandLine::~CommandLine() = default;

void CommandLine::describe(const std::string& about) {
  std::string lines = about.find('\n') == std::string::npos ? wrapped(about, 0) : about;
  if (lines.ends_with('\n')) lines.pop_back();
  parser_->description(lines);
}

void CommandLine::add(Bound& options) {
  bounds_.push_back(&options);
  for (const OptionRow& row : options.table().rows())
    if (row.parent.empty() && row.environment.empty()) add_row(options, row);
}

void CommandLine::add_configurable(Bound& options, bool with_recipes) {
  in_file_ = &options;
  if (with_recipes)
    parser_->add_option("--recipe", recipe_, "options of a published training, by name; --recipe list: all of them")
        ->type_name("NAME")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  parser_
      ->add_option("--config", config_file_,
                   with_recipes ? "TOML file or a run: options below as key = value lines; command line wins"
                                : "TOML file: options below as key = value lines; command line wins")
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  parser_->add_flag("--print-config", print_config_, "print the complete configuration as such a file and exit");
  if (with_recipes)
    parser_->add_flag("--cite", cite_, "print the publications behind these options, or --config RUN, and exit");
  add(options);
}

void CommandLine::add_row(Bound& options, const OptionRow& row) {
  const Field field = options.field(row);
  CLI::Option* option = nullptr;
  if (is_flag(field)) {
    option = parser_->add_flag(row.names, *std::get<bool*>(field), description(options.table(), row));
  } else {
    const auto take = [&options, field, &row](const CLI::results_t& results) {
      std::vector<Value> sources;
      for (const std::string& text : results) sources.push_back({text});
      if (!is_list(field)) sources.erase(sources.begin(), sources.end() - 1);
      options.take(row, sources, row.positional ? row.name : "option '--" + row.name + "'");
      return true;
    };
    option = parser_->add_option(row.names, take, description(options.table(), row));
    option->type_name(label_of(field, row.range))
        ->default_str(options.text(row))
        ->required(row.positional)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);  // the last one of a repeated option counts
    if (is_list(field)) option->expected(CLI::detail::expected_max_vector_size);
  }
  option->group(row.group);
  entries_.push_back({&options, &row, option});
}

/// The words that name options: before "--", and in place of no option's value.
std::vector<std::string*> CommandLine::option_words() {
  std::vector<std::string*> found;
  bool value = false;
  for (auto word = words_.begin(); word != std::ranges::find(words_, "--"); ++word) {
    if (value || !word->starts_with('-')) {
      value = false;
      continue;
    }
    found.push_back(&*word);
    const CLI::Option* option = parser_->get_option_no_throw(*word);
    value = option != nullptr && option->get_items_expected_max() > 0;
  }
  return found;
}

/// Puts a value that may begin with a dash into the word that names its option.
void CommandLine::join_values() {
  for (const Entry& entry : entries_) {
    if (!entry.row->dashes) continue;
    const auto found = std::ranges::find(words_, "--" + entry.row->name);
    if (found == words_.end() || found + 1 == words_.end()) continue;
    *found += "=" + *(found + 1);
    words_.erase(found + 1);
  }
}

/// A name of several letters after one dash would be read as letters that are options.
void CommandLine::refuse_single_dashes() {
  for (const std::string* word : option_words()) {
    const std::string name = name_in(*word);
    if (is_one_of(name.substr(1), names()))
      fail(ExitCode::usage, "unknown option '", name, "'; did you mean '-", name, "'?");
  }
}

/// The words for CLI11, to which a "--" after values of a list ends the list alone: a second one says that no options
/// follow. Error(usage): an option has "--" in place of its value.
std::vector<std::string> CommandLine::marked_words(const std::string& advice) {
  std::vector<std::string> words = words_;
  const auto mark = std::ranges::find(words_, "--");
  const std::vector<std::string*> named = option_words();
  if (mark == words_.end() || named.empty()) return words;
  const CLI::Option* last = parser_->get_option_no_throw(name_in(*named.back()));
  const int most = last == nullptr ? 0 : last->get_items_expected_max();
  if (most != 0 && named.back() == &*(mark - 1) && name_in(*named.back()) == *named.back())
    fail(ExitCode::usage, "option '", *named.back(), "' has no value after it", advice);
  if (most > 1) words.insert(words.begin() + (mark - words_.begin()), "--");
  return words;
}

bool CommandLine::read() {
  if (describes()) return false;
  join_values();
  refuse_single_dashes();
  if (helps()) return false;
  const std::string advice = "; see '" + program_ + " --help'";
  std::vector<std::string> arguments = marked_words(advice);
  std::ranges::reverse(arguments);
  try {
    parser_->parse(arguments);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what();  // "--lr: 1 required NUMBER missing"
    if (!versions_)
      fail(ExitCode::usage, "option '", what.substr(0, what.find(':')), "' has no value after it", advice);
  } catch (const CLI::ParseError& error) {
    // --version and wrong or missing arguments at once: versions are all that was asked for.
    if (!versions_) fail(ExitCode::usage, error.what(), advice);
  }
  if (versions_) return false;
  // No options follow "--"; the mark itself is no argument.
  const std::vector<std::string> rest = parser_->remaining();
  const auto extra = std::ranges::find_if(rest, [](const std::string& word) { return word != "--"; });
  if (extra != rest.end()) refuse(*extra, extra != rest.begin(), advice);
  if (recipe_ == "list") {
    text_ = recipe_list();
    return false;
  }
  note_arguments();
  for (Bound* bound : bounds_) bound->take_environment();
  for (const char* name : {"--config", "--recipe"})
    if (const CLI::Option* option = parser_->get_option_no_throw(name); option != nullptr && option->count() != 0)
      require(!option->as<std::string>().empty(), ExitCode::usage, name, " '' names nothing; leave it off");
  std::error_code unreadable;
  const std::string of_run = config_file_ + "/config.resolved.toml";
  if (!config_file_.empty() && std::filesystem::exists(of_run, unreadable)) config_file_ = of_run;
  if (!config_file_.empty()) in_file_->read(text_of_file(config_file_), config_file_, Origin::file, program_);
  if (!recipe_.empty()) in_file_->read(recipe_named(recipe_).text, "recipe " + recipe_, Origin::recipe, program_);
  return true;
}

bool CommandLine::finish() {
  if (print_config_) text_ = in_file_->toml(true);
  return !print_config_;
}

std::set<std::string> CommandLine::given() const {
  std::set<std::string> all;
  for (const Entry& entry : entries_)
    if (entry.options->origin(entry.row->name) != Origin::none) all.insert(entry.row->name);
  return all;
}

std::vector<std::string> CommandLine::words_given(const std::string& without) const {
  std::vector<std::string> words;
  if (!recipe_.empty()) words = {"--recipe", recipe_};
  if (!config_file_.empty()) words.insert(words.end(), {"--config", config_file_});
  for (const Entry& entry : entries_) {
    if (!entry.row->in_file || entry.option->count() == 0 || entry.row->name == without) continue;
    const std::string name = "--" + entry.row->name;
    if (is_flag(entry.field())) {
      words.push_back(name + "=" + entry.options->text(*entry.row));
      continue;
    }
    words.push_back(name);
    const std::vector<std::string>& results = entry.option->results();
    words.insert(words.end(), is_list(entry.field()) ? results.begin() : results.end() - 1, results.end());
  }
  return words;
}

std::vector<std::string> CommandLine::names() const {
  std::vector<std::string> all;
  for (const CLI::Option* option : std::as_const(*parser_).get_options())
    all.insert(all.end(), option->get_lnames().begin(), option->get_lnames().end());
  return all;
}

bool CommandLine::helps() {
  const auto end = std::ranges::find(words_, "--");
  const auto asked = std::find_if(words_.begin(), end, asks_for_help);
  if (asked == end) return false;
  text_ = help(asked->starts_with("--help=") ? asked->substr(7) : asked + 1 == words_.end() ? "" : asked[1]);
  return true;
}

/// The help: of the options to begin with (topic ""), of all, or of those in which the topic occurs. Error(usage): it
/// occurs in none.
std::string CommandLine::help(const std::string& word) {
  const std::string topic = word.substr(std::min(word.find_first_not_of('-'), word.size())), low = lower_case(topic);
  const bool brief = topic.empty() && !first_.empty(), searches = !topic.empty() && topic != "all";
  std::size_t shown = 0, hidden = 0;
  for (CLI::Option* option : parser_->get_options()) {
    const std::vector<std::string>& long_names = option->get_lnames();
    std::string text = option->get_description() + "\n" + option->get_type_name() + "\n" + option->get_group();
    for (const std::string& name : long_names) text += "\n" + name;
    const bool there = brief ? !long_names.empty() && first_.contains(long_names[0])
                             : !searches || lower_case(text).find(low) != std::string::npos;
    if (!there && !option->get_required()) option->group("");  // CLI11 shows no option without a group
    // Settings of its words, a line each, are for those who ask for more.
    if (brief) option->description(option->get_description().substr(0, option->get_description().find('\n')));
    ++(there ? shown : hidden);
  }
  if (searches && shown == 0) {
    const std::string guess = hint(topic, names(), "--");
    fail(ExitCode::usage, "no option of '", program_, "' has '", topic, "' in its name or description",
         guess.empty() ? "; '" + program_ + " --help all' shows every option" : guess);
  }
  if (hidden != 0)
    parser_->footer("These are " + std::to_string(shown) + " of " + std::to_string(shown + hidden) + " options. " +
                    program_ + " --help all shows every one,\n--help WORD those in which WORD occurs.");
  return parser_->help();
}

std::vector<std::string> CommandLine::asking_for_descriptions() { return {"--\tdescriptions"}; }

bool CommandLine::describes() {
  if (words_ != asking_for_descriptions()) return false;
  descriptions_ = {.name = program_.substr(program_.find(' ') + 1), .about = parser_->get_description()};
  for (const CLI::Option* option : parser_->get_options()) {
    const auto entry = std::ranges::find_if(entries_, [&](const Entry& one) { return one.option == option; });
    OptionText text{.label = option->get_type_name(),
                    .about = option->get_description(),
                    .standard = option->get_default_str(),
                    .group = option->get_group()};
    if (option->get_positional()) text.names.push_back(option->get_name(true));
    for (const std::string& name : option->get_snames()) text.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) text.names.push_back("--" + name);
    if (entry != entries_.end()) {
      describe_values(entry->options->table(), *entry->row, text);
      if (option->get_positional() && entry->row->range.label.empty()) text.label = "PATH";
    } else if (text.names.back() == "--recipe") {
      for (const Recipe& recipe : recipes()) text.values.push_back(recipe.name);
    }
    descriptions_.options.push_back(std::move(text));
  }
  for (const Bound* bound : bounds_)
    for (const OptionRow& row : bound->table().rows())
      if (!row.environment.empty())
        descriptions_.switches.push_back(
            {row.environment, label_of(bound->field(row), row.range), row.about, bound->text(row)});
  return true;
}

/// An argument that is no option, or none of ours. behind_mark: it stands after "--".
void CommandLine::refuse(const std::string& word, bool behind_mark, const std::string& advice) const {
  if (word[0] != '-') fail(ExitCode::usage, "unexpected argument '", word, "'", advice_about(word, names(), advice));
  if (behind_mark) fail(ExitCode::usage, "unexpected argument '", word, "'; after '--' there are no options", advice);
  const std::string bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  const std::string name = name_in(word), of = name_in(bare);
  if (is_one_of(of, verbs_)) fail(ExitCode::usage, "unknown option '", name, "'; a verb has no dashes: dat_hpc ", of);
  for (const Bound* bound : bounds_)
    if (const std::string where = bound->table().where_now(of); !where.empty())
      fail(ExitCode::usage, "unknown option '", name, "'; ", where);
  const std::string guess = hint(of, names(), "--");
  fail(ExitCode::usage, "unknown option '", name, "'", guess.empty() ? advice : guess);
}

/// Notes the options that the command line has set, and those that it has set twice.
void CommandLine::note_arguments() {
  const auto warn = [&](const std::string& name, const std::vector<std::string>& results) {
    warnings_.push_back("option '--" + name + "' is given " +
                        (results.size() == 2 ? "twice" : std::to_string(results.size()) + " times") +
                        "; the last one counts, '" + results.back() + "'");
  };
  for (const Entry& entry : entries_) {
    if (entry.option->count() == 0) continue;
    entry.options->set_origin(*entry.row, Origin::command_line);
    if (!is_list(entry.field()) && entry.option->count() > 1) warn(entry.row->name, entry.option->results());
  }
  for (const char* name : {"--recipe", "--config"})
    if (const CLI::Option* option = parser_->get_option_no_throw(name); option != nullptr && option->count() > 1)
      warn(name + 2, option->results());
}

}  // namespace dat
