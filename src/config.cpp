#include "dat/config.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <type_traits>

#include "dat/aggregator.hpp"
#include "dat/attack.hpp"
#include "dat/attack_sequence.hpp"
#include "dat/codec.hpp"
#include "dat/error.hpp"
#include "dat/loss.hpp"
#include "dat/network.hpp"
#include "dat/optimizer.hpp"
#include "dat/sampler.hpp"
#include "dat/selector.hpp"
#include "options/attack_words.hpp"
#include "options/first_screen.hpp"
#include "options/hints.hpp"
#include "options/recipes.hpp"
#include "options/selector_options.hpp"
#include "options/slurm_time.hpp"
#include "reduce/transport/transport.hpp"

namespace dat {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
bool read_number(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_fraction(const std::string& text, double& value) {
  const std::size_t slash = text.find('/');
  double denominator = 1;
  if (slash != std::string::npos && !read_number(text.substr(slash + 1), denominator)) return false;
  if (!read_number(text.substr(0, slash), value)) return false;
  value /= denominator;
  return std::isfinite(value);
}

template <class T>
std::string number_text(T value) {
  char buffer[32];
  const auto shortest = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, shortest.ptr);
  if constexpr (std::is_floating_point_v<T>) {
    const double k = std::round(value * 255);  // radii and step sizes are given in grey levels
    if (text.size() > 8 && k / 255 == value) text = number_text(static_cast<std::int64_t>(k)) + "/255";
  }
  return text;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result + '"';
}

std::string join(const std::vector<std::string>& words, const std::string& separator) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : separator) + word;
  return all;
}

/// One value as it was written: on the command line, or in the file without or with quotes.
struct Value {
  enum class Form : std::uint8_t { argument, bare, quoted };
  std::string text;
  Form form = Form::argument;
};

struct Entry {
  int line = 0;
  std::string key;
  bool list = false;
  std::vector<Value> values;
};

/// Reads `key = value` lines: TOML without tables, plus fractions (8/255) as values. CLI11's own reader tells no line
/// numbers, cuts strings at '#' and passes over repeated keys and lines that it does not understand.
class FileReader {
 public:
  FileReader(std::string text, std::string name) : text_(std::move(text)), name_(std::move(name)) {}

  std::vector<Entry> read() {
    std::vector<Entry> entries;
    std::set<std::string> seen;
    for (skip(true); more(); skip(true)) {
      check(text_[at_] != '[', "there are no sections here; write the options as plain 'key = value' lines");
      Entry entry{line_, word("="), false, {}};
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

/// What values an option takes, and how the help shows them.
struct Rule {
  std::string label{};                 ///< e.g. PATH; empty: by type or choices
  std::vector<std::string> choices{};  ///< strings: the only values, if any
  bool number_too = false;             ///< strings: or a whole number of at least 1
  double low = -kInfinity, high = kInfinity;
  bool above = false;                 ///< `low` itself is out
  bool below = false;                 ///< `high` itself is out
  std::optional<double> automatic{};  ///< the number that stands for `word`
  std::string word = "auto";
  bool commas = false;                           ///< lists: commas separate the values, too
  std::map<std::string, std::string> aliases{};  ///< strings: words that stand for a choice
  std::string (*advice)(const std::string& text) =
      nullptr;  ///< ends the message about a text that is refused; or empty
};

template <class T>
std::string expectation(const Rule& rule) {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string>) {
    if (rule.choices.empty()) return "a string in quotes";
    return "one of " + join(rule.choices, ", ") + (rule.number_too ? " or a whole number of at least 1" : "");
  }
  std::string text = std::is_integral_v<T> ? "a whole number" : "a number (fractions such as 8/255 too)";
  if (rule.low > -kInfinity) text += (rule.above ? " above " : " of at least ") + number_text(rule.low);
  if (std::is_integral_v<T> && rule.high == kInfinity)
    text += " below 2^" + std::to_string(std::numeric_limits<T>::digits);
  if (rule.high < kInfinity) text += (rule.below ? " and below " : " and at most ") + number_text(rule.high);
  return text + (rule.automatic ? " or " + quoted(rule.word) : "");
}

bool convert(const Value& source, const Rule&, bool& value) {
  value = source.text == "true";
  return source.form != Value::Form::quoted && (value || source.text == "false");
}

bool convert(const Value& source, const Rule& rule, std::string& value) {
  const auto alias = rule.aliases.find(source.text);
  value = alias == rule.aliases.end() ? source.text : alias->second;
  std::int64_t number = 0;
  if (rule.number_too && read_number(value, number) && number >= 1) return true;
  return source.form != Value::Form::bare &&
         (rule.choices.empty() || std::find(rule.choices.begin(), rule.choices.end(), value) != rule.choices.end());
}

template <class T>
bool convert(const Value& source, const Rule& rule, T& value) {
  if (rule.automatic && source.text == rule.word) {
    value = static_cast<T>(*rule.automatic);
    return true;
  }
  if constexpr (std::is_integral_v<T>) {
    if (source.form == Value::Form::quoted || !read_number(source.text, value)) return false;
  } else {
    if (!read_fraction(source.text, value)) return false;
  }
  const double number = static_cast<double>(value);
  return (rule.above ? number > rule.low : number >= rule.low) &&
         (rule.below ? number < rule.high : number <= rule.high);
}

/// "; did you mean '0.1'?" for a number in another spelling: 0,1, or of a whole one 64.0 or 1e3.
template <class T>
std::string other_spelling(const std::string& text, const Rule& rule) {
  std::string plain = text;
  std::replace(plain.begin(), plain.end(), ',', '.');
  double number = 0;
  T value{};
  if (!read_number(plain, number)) return "";
  if constexpr (std::is_integral_v<T>) {
    if (std::abs(number) >= 9e15 || number != std::floor(number)) return "";
    plain = number_text(static_cast<std::int64_t>(number));
  }
  return convert(Value{plain}, rule, value) ? "; did you mean '" + plain + "'?" : "";
}

template <class T>
void assign(const Value& source, const Rule& rule, const std::string& where, T& value) {
  if (convert(source, rule, value)) return;
  if (source.form != Value::Form::argument && convert(Value{source.text}, rule, value)) {
    fail(ExitCode::usage, where, " must stand ", source.form == Value::Form::bare ? "in" : "without", " quotes");
  }
  std::string advice = rule.advice == nullptr ? "" : rule.advice(source.text);
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) advice = other_spelling<T>(source.text, rule);
  fail(ExitCode::usage, where, " must be ", expectation<T>(rule), ", not '", source.text, "'",
       advice.empty() ? hint(source.text, rule.choices) : advice);
}

template <class T>
void assign_all(const std::vector<Value>& sources, const Rule& rule, const std::string& where, T& value) {
  require(sources.size() == 1, ExitCode::usage, where, " takes one value, not ", sources.size());
  assign(sources[0], rule, where, value);
}

template <class T>
void assign_all(const std::vector<Value>& sources, const Rule& rule, const std::string& where, std::vector<T>& values) {
  values.clear();
  for (const Value& source : sources) {
    std::istringstream words(source.text);
    std::string word = source.text;
    while (!rule.commas || std::getline(words, word, ',')) {
      assign(Value{word, source.form}, rule, where, values.emplace_back());
      if (!rule.commas) break;
    }
  }
}

template <class T>
std::string value_text(const T& value, const Rule& rule, bool toml) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return toml ? quoted(value) : value;
  } else if constexpr (std::is_arithmetic_v<T>) {
    if (rule.automatic && static_cast<double>(value) == *rule.automatic) return toml ? quoted(rule.word) : rule.word;
    const std::string text = number_text(value);
    return toml && text.find('/') != std::string::npos ? quoted(text) : text;  // plain TOML has no fractions
  } else {
    std::vector<std::string> words;
    for (const auto& element : value) words.push_back(value_text(element, rule, toml));
    return toml ? "[" + join(words, ", ") + "]" : join(words, ",");
  }
}

template <class T>
constexpr bool kIsList = false;
template <class T>
constexpr bool kIsList<std::vector<T>> = true;

/// Help of at most 80 columns: names and values on the left, wrapped description and default on the right.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    constexpr std::size_t kColumn = 30, kWidth = 80;
    std::string left = "  " + option->get_name(positional, !positional);
    if (const std::size_t brace = left.find("{false}"); brace != std::string::npos) left.erase(brace);
    if (!positional && !option->get_type_name().empty()) left += " " + option->get_type_name();
    for (std::size_t line = 0; left.size() - line > kWidth;) {
      const std::size_t bar = left.find_last_of('|', line + kWidth - 1);
      if (bar == std::string::npos || bar < line) break;
      left.insert(bar + 1, "\n" + std::string(kColumn, ' '));
      line = bar + 2;
    }
    std::istringstream words(option->get_description() +
                             (option->get_default_str().empty() ? "" : " [" + option->get_default_str() + "]"));
    std::string text = left.size() + 2 > kColumn ? left + "\n" : left, line = text == left ? left : "";
    text.erase(text.size() - line.size());
    line.resize(kColumn, ' ');
    for (std::string word; words >> word;) {
      if (line.size() + 1 + word.size() > kWidth) {
        text += line + "\n";
        line.assign(kColumn, ' ');
      }
      line += (line.back() == ' ' ? "" : " ") + word;
    }
    return text + line + "\n";
  }

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;) text.erase(at, 1);
    return text;
  }
};

/// The options of one verb: each is one `add` line, from which the command line, the file, the help and the resolved
/// configuration follow.
class Options {
 public:
  Options(const std::string& verb, const std::string& description)
      : app_("", "dat_hpc " + verb), name_("dat_hpc " + verb) {
    std::string lines = description.find('\n') == std::string::npos ? wrapped(description, 0) : description;
    if (lines.ends_with('\n')) lines.pop_back();
    app_.description(lines);
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.allow_extras();
    app_.set_help_flag();
    const std::string help = "print this help; --help all: every option, --help WORD: those with WORD in them";
    app_.add_flag("-h,--help", help);  // only to be shown: parse() looks for it first
    app_.add_flag("--version", version_, "print the versions of program and libraries, exit");
  }

  /// `in_file`: these options may stand in a file, too, and in the printed configuration.
  void group(const std::string& name, bool in_file = true) {
    group_ = name;
    in_file_ = in_file;
  }

  /// The options that the help of the verb shows unless all are asked for.
  void show_first(const std::vector<std::string>& names) { first_ = {names.begin(), names.end()}; }

  /// --recipe, --config and --print-config: for verbs whose options may stand in a file.
  void configurable(bool with_recipes) {
    if (with_recipes)
      app_.add_option("--recipe", recipe_, "options of a published training, by name; --recipe list: all of them")
          ->type_name("NAME")
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app_.add_option("--config", config_file_, "TOML file: the options below as key = value lines; command line wins")
        ->type_name("FILE")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app_.add_flag("--print-config", print_config_, "print the complete configuration as such a file and exit");
  }

  /// names: as CLI11 takes them ("-q,--quiet", "--augment,!--no-augment"). Without dashes: a positional, which is
  /// required unless it has a name with dashes, too ("RUN,--checkpoint").
  template <class T>
  void add(const std::string& names, T& value, const std::string& about, Rule rule = {}) {
    constexpr bool kFlag = std::is_same_v<T, bool>;
    const bool positional = names[0] != '-' && names.find(",--") == std::string::npos;
    Field& field = fields_.emplace_back();
    field.about = about;
    field.group = group_;
    field.in_file = in_file_;
    field.list = kIsList<T>;
    field.set = [&value, rule](const std::vector<Value>& sources, const std::string& where) {
      assign_all(sources, rule, where, value);
    };
    field.toml = [&value, rule] { return value_text(value, rule, true); };
    if constexpr (kFlag) {
      field.option = app_.add_flag(names, value, about);
    } else {
      field.option = app_.add_option(
          names,
          [&field, positional](const CLI::results_t& results) {
            std::vector<Value> sources;
            for (const std::string& text : results) sources.push_back({text});
            if (!field.list) sources.erase(sources.begin(), sources.end() - 1);
            field.set(sources, positional ? field.name : "option '--" + field.name + "'");
            return true;
          },
          about);
      const std::string type = std::is_same_v<T, double> ? "NUMBER" : std::is_same_v<T, std::string> ? "TEXT" : "N";
      field.option->type_name(!rule.label.empty()    ? rule.label
                              : rule.choices.empty() ? type
                                                     : join(rule.choices, "|"))
          ->default_str(value_text(value, rule, false))
          ->required(positional)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);  // of a repeated one, the last counts
      if (field.list) field.option->expected(1, -1)->allow_extra_args();
    }
    field.option->group(group_);
    field.name = positional ? field.option->get_name(true) : field.option->get_lnames()[0];
  }

  /// Reads the arguments after the verb, then the file and the recipe that they name. Sets `command.verb` and `.text`
  /// where something is to be printed instead.
  void parse(std::vector<std::string> arguments, Command& command) {
    if (asks_for_help(arguments, command)) return;
    std::reverse(arguments.begin(), arguments.end());
    const std::string advice = "; see '" + name_ + " --help'";
    try {
      app_.parse(arguments);
    } catch (const CLI::ArgumentMismatch& error) {
      const std::string what = error.what();  // "--lr: 1 required NUMBER missing"
      if (!version_)
        fail(ExitCode::usage, "option '", what.substr(0, what.find(':')), "' has no value behind it", advice);
    } catch (const CLI::ParseError& error) {
      // --version and wrong or missing arguments at once: versions are all that was asked for.
      if (!version_) fail(ExitCode::usage, error.what(), advice);
    }
    if (version_) {
      command.verb = Command::Verb::version;
      return;
    }
    if (!app_.remaining().empty()) refuse(app_.remaining()[0], advice);
    if (recipe_ == "list") {
      command.verb = Command::Verb::print;
      command.text = recipe_list();
      return;
    }
    note_arguments(command);
    if (!config_file_.empty()) read_file(text_of(config_file_), config_file_, Origin::file);
    if (!recipe_.empty()) read_file(recipe_named(recipe_).text, "recipe " + recipe_, Origin::recipe);
    for (const Field& field : fields_)
      if (field.origin != Origin::none) command.given.insert(field.name);
  }

  /// Options that were set nearer to the user are left alone.
  void read_file(const std::string& text, const std::string& name, Origin origin) {
    for (const Entry& entry : FileReader(text, name).read()) {
      const std::string where = name + ":" + std::to_string(entry.line) + ": '" + entry.key + "'";
      const auto field = std::find_if(fields_.begin(), fields_.end(),
                                      [&](const Field& f) { return f.in_file && f.name == entry.key; });
      if (field == fields_.end()) {
        const std::string guess = hint(entry.key, names(true));
        fail(ExitCode::usage, where, " is no option of '", name_, "'", guess.empty() ? "; see its --help" : guess);
      }
      require(field->list || !entry.list, ExitCode::usage, where, " takes one value, not a list");
      if (field->origin > origin) continue;
      field->set(entry.values, where);
      field->origin = origin;
    }
  }

  /// Who has set an option.
  [[nodiscard]] Origin origin(const std::string& name) const {
    const auto field = std::find_if(fields_.begin(), fields_.end(), [&](const Field& f) { return f.name == name; });
    return field == fields_.end() ? Origin::none : field->origin;
  }

  [[nodiscard]] std::string toml(bool commented) const {
    std::string text, group;
    for (const Field& field : fields_) {
      if (!field.in_file) continue;
      if (field.group != group) text += (text.empty() ? "# " : "\n# ") + field.group + "\n";
      group = field.group;
      if (commented) text += "# " + field.about + "\n";
      text += field.name + " = " + field.toml() + "\n";
    }
    return text;
  }

  /// "lr = 0.1 (default 0.01)": what differs from the other options of the same verb.
  [[nodiscard]] std::vector<std::string> differences(const Options& defaults) const {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      const std::string own = fields_[i].toml(), other = defaults.fields_[i].toml();
      if (own != other) all.push_back(fields_[i].name + " = " + own + " (default " + other + ")");
    }
    return all;
  }

  /// The options of this line that may stand in a file, --recipe and --config included, as words of a command line.
  [[nodiscard]] std::vector<std::string> given() const {
    std::vector<std::string> words;
    if (!recipe_.empty()) words = {"--recipe", recipe_};
    if (!config_file_.empty()) words.insert(words.end(), {"--config", config_file_});
    for (const Field& field : fields_) {
      if (!field.in_file || field.option->count() == 0) continue;
      if (field.option->get_expected_min() == 0) {  // a flag
        words.push_back("--" + field.name + "=" + field.toml());
      } else {
        words.push_back("--" + field.name);
        const std::vector<std::string>& results = field.option->results();
        words.insert(words.end(), field.list ? results.begin() : results.end() - 1, results.end());
      }
    }
    return words;
  }

  /// To be called when the values are final.
  void finish(Command& command) const {
    command.resolved_toml = toml(false);
    if (!print_config_) return;
    command.verb = Command::Verb::print;
    command.text = toml(true);
  }

 private:
  struct Field {
    std::string name, about, group;
    bool list = false, in_file = true;
    Origin origin = Origin::none;
    CLI::Option* option = nullptr;
    std::function<void(const std::vector<Value>&, const std::string& where)> set;
    std::function<std::string()> toml;
  };

  /// The names that may stand in a file, or all.
  [[nodiscard]] std::vector<std::string> names(bool in_file) const {
    std::vector<std::string> all;
    if (in_file) {
      for (const Field& field : fields_)
        if (field.in_file) all.push_back(field.name);
      return all;
    }
    for (const CLI::Option* option : app_.get_options())
      all.insert(all.end(), option->get_lnames().begin(), option->get_lnames().end());
    return all;
  }

  /// --help, --help all, --help WORD: sets what is to be printed.
  bool asks_for_help(const std::vector<std::string>& arguments, Command& command) {
    const auto asked = std::find_if(arguments.begin(), arguments.end(), [](const std::string& word) {
      return word == "-h" || word == "--help" || word.starts_with("--help=");
    });
    if (asked == arguments.end()) return false;
    std::string topic = asked->starts_with("--help=") ? asked->substr(7) : asked + 1 == arguments.end() ? "" : asked[1];
    topic.erase(0, std::min(topic.find_first_not_of('-'), topic.size()));
    command.verb = Command::Verb::print;
    command.text = help(topic);
    return true;
  }

  /// The help: of the options to begin with (topic ""), of all, or of those in which the topic occurs. Error(usage): it
  /// occurs in none.
  [[nodiscard]] std::string help(const std::string& topic) {
    const bool brief = topic.empty() && !first_.empty(), search = !topic.empty() && topic != "all";
    const std::string word = lower_case(topic);
    std::size_t shown = 0, hidden = 0;
    for (CLI::Option* option : app_.get_options()) {
      const std::vector<std::string>& long_names = option->get_lnames();
      std::string text = option->get_description() + "\n" + option->get_type_name() + "\n" + option->get_group();
      for (const std::string& name : long_names) text += "\n" + name;
      const bool there = brief    ? !long_names.empty() && first_.contains(long_names[0])
                         : search ? lower_case(text).find(word) != std::string::npos
                                  : true;
      if (!there && !option->get_required()) option->group("");  // CLI11 shows no option without a group
      ++(there ? shown : hidden);
    }
    if (search && shown == 0) {
      const std::string guess = hint(topic, names(false), "--");
      fail(ExitCode::usage, "no option of '", name_, "' has '", topic, "' in its name or description",
           guess.empty() ? "; '" + name_ + " --help all' shows every option" : guess);
    }
    if (hidden > 0)
      app_.footer("These are " + std::to_string(shown) + " of " + std::to_string(shown + hidden) + " options. " +
                  name_ + " --help all shows every one,\n--help WORD those in which WORD occurs.");
    return app_.help();
  }

  /// An argument that is no option, or none of ours.
  [[noreturn]] void refuse(const std::string& word, const std::string& advice) const {
    const std::vector<std::string> known = names(false);
    const auto has = [&](const char* name) { return std::find(known.begin(), known.end(), name) != known.end(); };
    const std::string bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
    if (word[0] != '-') {
      const auto is_one_of = [&](std::initializer_list<const char*> words) {
        return std::find(words.begin(), words.end(), word) != words.end();
      };
      // Texts put a long dash in the place of two short ones.
      std::string plain = word;
      while (plain.starts_with("\u2013") || plain.starts_with("\u2014")) plain.erase(0, 3);
      const std::string what = plain != word ? "; options begin with two plain dashes: --" +
                                                   plain.substr(std::min(plain.find_first_not_of('-'), plain.size()))
                               : is_one_of({"true", "false", "on", "off", "yes", "no"})
                                   ? "; a switch has its value behind '=': --NAME=true or --NAME=false"
                               : word.ends_with(".toml") && has("config") ? "; did you mean --config " + word + "?"
                               : word.ends_with(".h5") && has("data")     ? "; did you mean --data " + word + "?"
                                                                          : advice;
      fail(ExitCode::usage, "unexpected argument '", word, "'", what);
    }
    const std::string name = word.substr(0, word.find('=')), of = bare.substr(0, bare.find('='));
    if (const std::vector<std::string>& all = verbs(); std::find(all.begin(), all.end(), of) != all.end())
      fail(ExitCode::usage, "unknown option '", name, "'; a verb has no dashes: dat_hpc ", of);
    const std::string guess = hint(of, known, "--");
    fail(ExitCode::usage, "unknown option '", name, "'", guess.empty() ? advice : guess);
  }

  /// What the command line has set, and what it has set twice.
  void note_arguments(Command& command) {
    const auto warn = [&](const std::string& name, const std::vector<std::string>& results) {
      command.warnings.push_back("option '--" + name + "' is given " +
                                 (results.size() == 2 ? "twice" : std::to_string(results.size()) + " times") +
                                 "; the last one counts, '" + results.back() + "'");
    };
    for (Field& field : fields_) {
      if (field.option->count() == 0) continue;
      field.origin = Origin::command_line;
      if (!field.list && field.option->count() > 1) warn(field.name, field.option->results());
    }
    for (const char* name : {"--recipe", "--config"})
      if (const CLI::Option* option = app_.get_option_no_throw(name); option != nullptr && option->count() > 1)
        warn(name + 2, option->results());
  }

  [[nodiscard]] static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    file.peek();  // finds out about folders
    const bool recipe =
        std::any_of(recipes().begin(), recipes().end(), [&](const Recipe& r) { return r.name == path; });
    require(file.is_open() && !file.bad(), ExitCode::usage, "cannot read the configuration file '", path,
            recipe ? "'; did you mean --recipe " + path + "?" : "'; check the path given to --config");
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  CLI::App app_;
  std::string name_, group_ = "Options", config_file_, recipe_;
  std::set<std::string> first_;  ///< empty: all
  bool version_ = false, print_config_ = false, in_file_ = true;
  std::deque<Field> fields_;  // references stay valid
};

const Rule kPath{.label = "PATH"};
const Rule kPaths{.label = "PATH..."};
const Rule kMix{.label = "pool|balanced:SHARE"};
const Rule kCount{.low = 0};     // 0 has a meaning of its own
const Rule kPositive{.low = 1};  // whole numbers
const Rule kShare{.low = 0, .high = 1, .above = true};
const Rule kRadius{.low = 0, .above = true};  // and of L-infinity at most 1
const Rule kAutoRadius{.low = 0, .above = true, .automatic = 0};
const Rule kDecay{.low = 0, .high = 1, .below = true};  // of an exponential average
const Rule kAttackWords{.label = "ATTACK,...", .commas = true};
const Rule kAutoCount{.low = 1, .automatic = 0};
const Rule kAutoThreads{.low = 1, .high = 4096, .automatic = 0};
const Rule kAutoEpochs{.low = 0, .automatic = -1};

Rule one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
Rule or_auto(std::vector<std::string> choices) {
  choices.insert(choices.begin(), "auto");
  return one_of(std::move(choices));
}
Rule one_attack() { return {.choices = attacks().names(), .advice = attack_advice}; }
std::vector<std::string> auto_and_norms() {
  std::vector<std::string> all = norm_names();
  all.insert(all.begin(), "auto");
  return all;
}

template <class AnyOptions>
void add_attack_precision(Options& options, AnyOptions& o) {
  options.add("--attack-precision", o.attack_precision,
              "how the attacked network keeps activations and weights; 16 bits need a GPU",
              one_of({"f32", "f16", "bf16"}));
}

/// Where a verb computes.
template <class AnyOptions>
void describe_device(Options& options, AnyOptions& o) {
  options.add("--device", o.device, "where to compute; auto: a GPU where there is one; gpu means cuda",
              {.choices = {"auto", "cpu", "cuda"}, .aliases = {{"gpu", "cuda"}}});
  options.add("--threads", o.threads, "CPU threads per rank; auto: this rank's share of the node's cores",
              kAutoThreads);
  options.add("--math", o.math, "products of f32 numbers on a GPU: tf32 where it has it, or f32",
              one_of({"f32", "tf32"}));
}

/// What train and eval have in common.
template <class AnyOptions>
void describe_machine(Options& options, AnyOptions& o) {
  describe_device(options, o);
  options.add("--deterministic", o.deterministic,
              "the same bits in every run, at any number of ranks and threads; slower on a GPU");
  options.add("--seed", o.seed, "of every random number", kCount);
  options.add(
      "--comm-timeout", o.comm_timeout,
      "seconds in which no rank gets on, or one is not heard, after which all end with code 6; 0: wait for ever",
      kCount);
  options.add("-q,--quiet", o.quiet, "no progress lines");
}

void describe(Options& options, TrainOptions& o) {
  options.configurable(true);
  options.group("Data");
  options.add("--data", o.data, "files made by 'dat_hpc data', together one pool; none: a built-in synthetic set",
              kPaths);
  options.add(
      "--mix", o.mix,
      "batches from one pool; or this share of each from the first file, the rest from the others, and an epoch "
      "is one pass over the first",
      kMix);
  options.add("--limit-train", o.limit_train, "train on the first N images (balanced: of the first file) only; 0: all",
              kCount);
  options.add("--limit-test", o.limit_test, "evaluate on the first N images only; 0: all", kCount);
  options.add("--holdout", o.holdout,
              "training images, drawn at random, that are not trained on; ckpt/best.h5 is best on them", kCount);
  options.add("--augment,!--no-augment", o.augment, "random crops and flips (on unless --no-augment)");

  options.group("Network");
  options.add("--network", o.network, "architecture", one_of(networks().names()));
  options.add("--width", o.width, "channels of the first stage; auto: 64, of wrn28_10 and wrn34_10 160", kAutoCount);
  options.add("--activation", o.activation, "what follows batch norms; silu: x/(1 + exp(-x)), Swish",
              one_of({"relu", "silu"}));
  options.add("--normalize", o.normalize,
              "(x - mean)/std of the images, inside the network: attacks stay in [0, 1]; none, known numbers, or the "
              "means of all channels and then their standard deviations",
              {.label = "none|cifar10|cifar100|M,...,S,..."});
  options.add("--bn-statistics", o.bn_statistics,
              "running statistics: averaged over ranks each step, or each rank its own (rank 0's count)",
              one_of({"average", "local"}));

  options.group("Attack");
  options.add("--attack", o.attack, "how training images are perturbed", one_attack());
  options.add("--attack-steps", o.attack_steps, "gradient steps of pgd", kPositive);
  options.add("--norm", o.norm,
              "size of a perturbation: its largest entry (linf), or the root of its sum of squares (l2)",
              one_of(norm_names()));
  options.add("--eps", o.eps, "radius; pixels are in [0, 1]; l2: e.g. 0.5", kRadius);
  options.add("--alpha", o.alpha, "step size; auto: pgd 2/255, in l2 2.5 eps/steps; fgsm 1.25 eps", kAutoRadius);
  options.add("--attack-stop", o.attack_stop,
              "early stop of pgd: an image takes at most N steps while it is misclassified, then leaves the attack",
              {.low = 0, .automatic = -1, .word = "off"});
  options.add("--attack-bn", o.attack_bn,
              "batch norm during the attack: running (eval) or batch (train) statistics; auto: pgd eval, fgsm train",
              one_of({"auto", "eval", "train"}));
  add_attack_precision(options, o);
  options.add("--attack-batch", o.attack_batch, "images in a pass of the attack; auto: the micro-batch", kAutoCount);
  options.add("--warm-start", o.warm_start,
              "start from the perturbation of the epoch before (ATTA), at random every N epochs; 0: always at random",
              kCount);
  options.add("--attack-reuse", o.attack_reuse,
              "the training pass is the last step of pgd as well, whose result --warm-start keeps: one pass less");
  options.add("--stale-attack", o.stale_attack,
              "first iterations of the next step's attack on the weights before the update, while gradients are summed",
              kCount);
  options.add("--attack-start", o.attack_start,
              "where pgd and fgsm start: in the ball (uniform), or beside the image (gaussian, deviation 0.001); auto: "
              "gaussian with trades, kl and mart",
              one_of({"auto", "uniform", "gaussian"}));
  options.add("--loss", o.loss, "what is minimised", one_of(losses().names()));
  options.add("--lambda", o.lambda, "cross_entropy: weight of the loss on clean images; auto: 1 with pgd (DAT), else 0",
              {.low = 0, .automatic = -1});
  options.add("--beta", o.beta,
              "weight of the divergence of attacked from clean predictions; auto: trades 6, mart 5, kl 1",
              {.low = 0, .automatic = -1});
  options.add("--label-smoothing", o.label_smoothing, "part of the labels that all classes share in cross-entropies",
              kDecay);
  options.add("--awp-gamma", o.awp_gamma,
              "adversarial weight perturbation: train where weights have moved by this part of their norm; 0: not",
              kCount);
  options.add("--awp-from", o.awp_from, "the first epoch that does it, counted from 0, the warm-up included", kCount);
  options.add("--awp", o.awp, "weights move along the gradient of all ranks, or those of each rank along its own",
              one_of({"global", "local"}));

  options.group("Evaluation");
  options.add("--eval", o.eval, "attacks, e.g. pgd10,pgd20 (PGD of 10 and of 20 steps)", kAttackWords);
  options.add("--eval-norm", o.eval_norm, "their norm; auto: --norm", one_of(auto_and_norms()));
  options.add("--eval-eps", o.eval_eps, "their radius; auto: --eps", kAutoRadius);
  options.add("--eval-alpha", o.eval_alpha, "their step size; auto: pgd eps/4, in l2 2.5 eps/steps; fgsm 1.25 eps",
              kAutoRadius);
  options.add("--eval-attack-steps", o.eval_attack_steps, "steps of a pgd that names none", kPositive);
  options.add("--eval-restarts", o.eval_restarts, "random starts; the worst counts for each image", kPositive);
  options.add("--eval-every", o.eval_every, "epochs between evaluations; 0: only at the end", kCount);
  options.add("--patience", o.patience,
              "end early, after N evaluations without a better robust accuracy on --holdout; 0: never", kCount);

  options.group("Optimizer");
  options.add("--optimizer", o.optimizer, "update rule; lamb and lars as in DAT, lars_sgd: LARS as first published",
              one_of(optimizers().names()));
  options.add("--lr", o.lr, "learning rate at the end of the warm-up", {.low = 0, .above = true});
  options.add("--momentum", o.momentum, "of sgd, lars and lars_sgd", kDecay);
  options.add("--nesterov", o.nesterov, "sgd: Nesterov's momentum");
  options.add("--beta1", o.beta1, "lamb: decay rate of the first moment", kDecay);
  options.add("--beta2", o.beta2, "lamb: decay rate of the second moment", kDecay);
  options.add("--epsilon", o.epsilon, "lamb: added to the root of the second moment; at most 1e-3",
              {.low = 0, .above = true});
  options.add("--bias-correction", o.bias_correction, "lamb: correct the moments for having begun at zero");
  options.add("--weight-decay", o.weight_decay, "auto: sgd 5e-4, the others 1e-4", {.low = 0, .automatic = -1});
  options.add("--trust-coefficient", o.trust_coefficient, "lars_sgd: factor of the layers' own learning rates",
              {.low = 0, .above = true});
  options.add("--clamp-low", o.clamp_low, "lower bound of the weight norm in lars' and lamb's trust ratio", kCount);
  options.add("--clamp-high", o.clamp_high, "upper bound of it", {.low = 0, .above = true});
  options.add("--clip-norm", o.clip_norm, "largest norm of the whole gradient; longer ones are shortened; 0: any",
              kCount);
  options.add("--importance", o.importance, "JointSpar's 1/p multiplies the gradient (inside) or the step (outside)",
              one_of({"inside", "outside"}));
  std::vector<std::string> averages = average_rules();
  averages.insert(averages.begin(), "none");
  options.add(
      "--average", o.average,
      "also average the weights: ema, exponentially over the steps; swa, over the ends of epochs; evaluated and "
      "saved beside the raw ones",
      one_of(averages));
  options.add("--average-decay", o.average_decay, "ema: most that an average keeps of itself in a step", kDecay);
  options.add("--average-from", o.average_from, "epochs, warm-up included, after which averaging begins", kCount);
  options.add("--average-bn", o.average_bn,
              "running statistics of the averaged weights: those of the raw ones; made anew on the training images; or "
              "averaged, too; auto: rebuild",
              one_of({"auto", "raw", "rebuild", "ema"}));
  options.add("--schedule", o.schedule, "of the learning rate after the warm-up", one_of(schedules().names()));
  options.add("--milestones", o.milestones, "epochs after the warm-up at which step multiplies the rate by --lr-decay",
              {.label = "N,N,...", .low = 0, .commas = true});
  options.add("--lr-decay", o.lr_decay, "factor at each milestone", kShare);
  options.add("--epochs", o.epochs, "passes over the data after the warm-up; auto: 100, built-in set 3", kAutoEpochs);
  options.add("--warmup-epochs", o.warmup_epochs, "passes of linear warm-up; auto: 5, built-in set 1", kAutoEpochs);
  options.add("--batch", o.batch, "images per rank and step; auto: 128, built-in set 16", kAutoCount);
  options.add("--total-batch", o.total_batch,
              "instead of --batch, with --deterministic: images of all ranks and step; auto: --batch times the ranks",
              kAutoCount);
  options.add("--micro-batch", o.micro_batch, "images per pass and of one batch norm; auto: the batch", kAutoCount);

  options.group("JointSpar");
  options.add("--selector", o.selector,
              "which layers a step trains: all; drawn by the EXP3 bandit, as their gradient norms say (oracle), or all "
              "alike (uniform); or fewer and fewer, on a schedule (freezeout) or as their norms settle (autofreeze)",
              one_of(selectors().names()));
  options.add("--budget", o.budget, "mean number of active layers; auto: 40/54 of them",
              {.low = 0, .above = true, .automatic = 0});
  options.add("--budget-unit", o.budget_unit,
              "what a layer counts in the budget: 1, its bytes, or the seconds that it costs, in units of their mean",
              one_of({"layers", "bytes", "seconds"}));
  options.add("--p-min", o.p_min, "lowest probability of a layer", kShare);
  options.add("--granularity", o.granularity, "what counts as a layer", one_of({"tensor", "module", "block"}));
  options.add("--resample", o.resample, "draw the active layers anew every step, every epoch, or every N steps",
              {.label = "step|epoch|N", .choices = {"step", "epoch"}, .number_too = true});
  options.add("--mask", o.mask, "one draw of layers for all ranks, or one of each rank's own (JointSpar as published)",
              one_of({"shared", "per_worker"}));
  options.add("--bandit-loss", o.bandit_loss, "what the bandit learns from", one_of(bandit_losses()));
  options.add("--bandit-rate", o.bandit_rate, "its learning rate; auto: the loss's own",
              {.low = 0, .above = true, .automatic = 0});
  options.add("--freeze-t0", o.freeze_t0, "freezeout: share of the run after which the first layer freezes, as t_0",
              kShare);
  options.add("--freeze-schedule", o.freeze_schedule, "freezeout: the power that t_0 and the layers' t are taken to",
              one_of({"linear", "squared", "cubic"}));
  options.add("--freeze-lr", o.freeze_lr,
              "freezeout: a layer's learning rate is annealed until it freezes, from --lr over its share of the run "
              "(scaled) or from --lr; or left alone",
              one_of({"scaled", "unscaled", "constant"}));
  options.add("--freeze-percentile", o.freeze_percentile,
              "autofreeze: of the changes of norms, that which the first layer still trained has",
              {.low = 0, .high = 100});

  options.group("Reduction");
  options.add("--codec", o.codec, "how gradients become messages between ranks", one_of(codecs().names()));
  options.add("--codec-transport", o.codec_transport,
              "how messages meet; auto: sum float32, powersgd; gather int8, terngrad, atomo; two_sided bf16, f16",
              or_auto(transport_names()));
  options.add("--codec-rank", o.codec_rank,
              "columns of powersgd's factors, atoms of an atomo message; auto: powersgd 2, atomo 3", kAutoCount);
  options.add("--codec-clip", o.codec_clip,
              "terngrad: largest gradient, in standard deviations of its tensor; 0: any, which is unbiased", kCount);
  options.add("--aggregator", o.aggregator, "how the gradients of all ranks become one", one_of(aggregators().names()));
  options.add(
      "--transport", o.transport,
      "of --mask per_worker: sum all layers, or those that any rank has drawn; or all gather what each has drawn",
      one_of({"dense", "union", "allgather"}));
  options.add("--overlap", o.overlap, "send gradients while the backward pass still runs");
  options.add("--bucket", o.bucket, "most gradients in one message; auto: 2^19 with --overlap, else 2^23", kAutoCount);

  options.group("Run");
  options.add("--out", o.out, "folder for results; none: runs/ and the time or Slurm job", {.label = "DIR"});
  options.add("--max-steps", o.max_steps, "end after N steps in all; 0: when the epochs are done", kCount);
  options.add("--checkpoint-every", o.checkpoint_every, "steps between checkpoints; 0: every epoch", kCount);
  options.add("--checkpoint-async", o.checkpoint_async,
              "write checkpoints while training goes on; takes a second copy");
  options.add("--on-full", o.on_full, "a checkpoint cannot be written (disk full): end, or train on to the next one",
              one_of({"stop", "continue"}));
  options.add("--max-bad-steps", o.max_bad_steps,
              "steps in a row that are skipped where images, loss or gradient are not finite", kCount);
  options.add("--on-bad-steps", o.on_bad_steps,
              "there are more: end with code 7, or go back to the last good checkpoint, with a lower rate",
              one_of({"stop", "rollback"}));
  options.add("--on-overfitting", o.on_overfitting,
              "catastrophic overfitting, seen on --holdout: warn, end with code 7, or go back to ckpt/best.h5",
              one_of({"warn", "stop", "rollback"}));
  options.add("--overfitting-margin", o.overfitting_margin,
              "it is that where the robust accuracy is so far below the best one", kShare);
  options.add("--rollback-lr", o.rollback_lr, "factor of the learning rate from a rollback on, below 1", kShare);
  options.add("--max-rollbacks", o.max_rollbacks, "of a run; behind them it ends with code 7", kPositive);
  options.add("--resume", o.resume,
              "go on from the newest checkpoint in --out if there is one; never; or from this checkpoint or run",
              {.label = "auto|never|PATH"});
  options.add("--initialize", o.initialize,
              "begin with the weights of a checkpoint, a run, or a PyTorch state_dict saved as HDF5", kPath);
  describe_machine(options, o);
  options.add("-v,--verbose", o.verbose, "name the library code chosen for each convolution");
  options.add("--resident", o.resident, "keep the dataset in the GPU's memory; auto: where it takes half of the rest",
              one_of({"auto", "on", "off"}));
  options.add("--graphs", o.graphs, "record attacks and training passes as CUDA graphs; off: call by call, to debug",
              one_of({"on", "off"}));
  options.add("--check-every", o.check_every, "steps between comparisons of the ranks' weights; 0: never", kCount);
  options.add(
      "--on-corruption", o.on_corruption,
      "a rank whose state differs from that of most: end with code 8, or copy theirs; a gradient that cannot be "
      "recomputed: end, or leave the step out",
      one_of({"abort", "repair"}));
  options.add("--verify", o.verify,
              "every N steps another rank recomputes a micro-batch, attack included, and compares; 0: never", kCount);
  options.add("--progress", o.progress, "seconds between progress lines", {.low = 0, .above = true});
}

void describe(Options& options, EvalOptions& o) {
  options.configurable(false);
  options.group("Data");
  options.add("RUN,--checkpoint", o.checkpoint, "the folder of a run: its newest checkpoint; or a checkpoint", kPath);
  options.add("--data", o.data, "files made by 'dat_hpc data'; none: those of the training", kPaths);
  options.add("--split", o.split, "which images; holdout: what the training kept aside",
              one_of({"test", "train", "holdout"}));
  options.add("--limit", o.limit, "the first N images only; 0: all", kCount);
  options.add("--weights", o.weights, "of a checkpoint with averaged ones; auto: those, where it has any",
              one_of({"auto", "raw", "average"}));
  options.group("Attack");
  options.add(
      "--eval,--attack", o.eval,
      "attacks, e.g. pgd10,pgd20 (PGD of 10 and of 20 steps), each on all images; and one sequence, each of whose "
      "attacks takes what those before it left right: aa-standard, aa-plus or aa-rand (AutoAttack), aa-quick "
      "(its first two attacks), or words like pgd20+fgsm",
      kAttackWords);
  options.add(
      "--norm,--eval-norm", o.norm,
      "size of a perturbation: its largest entry (linf), or the root of its sum of squares (l2); auto: that of the "
      "training",
      one_of(auto_and_norms()));
  options.add("--eps,--eval-eps", o.eps,
              "radius of the ball of perturbations; pixels are in [0, 1]; auto: that of the training", kAutoRadius);
  options.add("--alpha,--eval-alpha", o.alpha, "step size; auto: pgd eps/4, in l2 2.5 eps/steps; fgsm 1.25 eps",
              kAutoRadius);
  options.add("--attack-steps,--eval-attack-steps", o.attack_steps, "steps of a pgd that names none", kPositive);
  options.add("--restarts,--eval-restarts", o.restarts, "random starts; the worst counts for each image", kPositive);
  options.group("Run");
  options.add("--out", o.out, "FILE.json, or a folder for eval.json: results by class and image; none: not written",
              kPath);
  options.add("--save-adversarial", o.save_adversarial,
              "the images that a sequence has attacked, too: adversarial.h5 in the folder --out");
  options.add("--batch", o.batch, "images per rank and step", kPositive);
  options.add("--progress", o.progress, "seconds between progress lines", {.low = 0, .above = true});
  describe_machine(options, o);
}

/// Sets what depends on other options, and checks what concerns several of them.
void resolve(TrainOptions& o) {
  const auto check = [](bool condition, const auto&... parts) { require(condition, ExitCode::usage, parts...); };
  check(o.total_batch == 0 || o.deterministic, "--total-batch works with --deterministic, which deals its ",
        "micro-batches to the ranks; add that, or give --batch");
  check(o.total_batch == 0 || o.batch == 0, "--total-batch ", o.total_batch, " and --batch ", o.batch,
        " both say how many images a step has; give one of them");
  check(o.total_batch == 0 || o.micro_batch > 0, "--total-batch ", o.total_batch, " is dealt to the ranks as ",
        "micro-batches; say how large these are: --micro-batch N");
  check(o.total_batch == 0 || o.total_batch % o.micro_batch == 0, "--total-batch ", o.total_batch,
        " is no multiple of --micro-batch ", o.micro_batch, "; choose a divisor of it");
  if (o.deterministic) {
    const std::string refused = ordering_refused(o);
    check(refused.empty(), "--deterministic gives the same bits on any number of ranks, which ", refused,
          " does not allow; leave one of them off");
  }
  if (o.batch == 0 && o.total_batch == 0) o.batch = o.data.empty() ? 16 : 128;
  if (o.epochs < 0) o.epochs = o.data.empty() ? 3 : 100;
  if (o.warmup_epochs < 0) o.warmup_epochs = o.data.empty() ? 1 : 5;
  check(o.epochs + o.warmup_epochs > 0, "--epochs 0 and --warmup-epochs 0 leave nothing to train; raise one of them");
  check(o.micro_batch == 0 || o.batch % o.micro_batch == 0, "--batch ", o.batch, " is no multiple of --micro-batch ",
        o.micro_batch, "; choose a divisor of the batch");
  if (const double share = read_mix(o.mix); share < 1) {
    check(o.data.size() >= 2, "--mix ", o.mix, " needs --data with the labelled file and at least one more");
    (void)Mix(1, 1, share, o.micro_batch > 0 ? o.micro_batch : o.batch);
  }
  if (o.width == 0) o.width = default_width(o.network);
  (void)normalization_from(o.normalize);
  check(o.clamp_low <= o.clamp_high, "--clamp-low ", o.clamp_low, " is above --clamp-high ", o.clamp_high,
        "; swap or change them");
  check(o.epsilon <= 1e-3, "--epsilon ", number_text(o.epsilon), " is more than 1e-3: it is a part of lamb's step; ",
        "the radius of the attack is --eps");
  const TrainOptions plain;
  const auto only_with = [&](const char* optimizer, const char* option, bool given) {
    check(!given || o.optimizer == optimizer, option, " works with --optimizer ", optimizer, ", not with ", o.optimizer,
          "; leave it off");
  };
  only_with("sgd", "--nesterov", o.nesterov);
  only_with("lamb", "--beta1", o.beta1 != plain.beta1);
  only_with("lamb", "--beta2", o.beta2 != plain.beta2);
  only_with("lamb", "--epsilon", o.epsilon != plain.epsilon);
  only_with("lamb", "--bias-correction", o.bias_correction);
  only_with("lars_sgd", "--trust-coefficient", o.trust_coefficient != plain.trust_coefficient);
  check(!o.nesterov || o.momentum > 0, "--nesterov without --momentum is plain SGD; raise it, or leave --nesterov off");
  check(std::adjacent_find(o.milestones.begin(), o.milestones.end(), std::greater_equal<>()) == o.milestones.end(),
        "--milestones must increase, e.g. 75,90,95");
  check(o.attack_stop < 0 || o.attack == "pgd", "--attack-stop works with --attack pgd, not with ", o.attack,
        "; leave it off");
  check(o.attack_stop < 0 || o.attack_bn != "train", "--attack-stop does not work with --attack-bn train: where batch ",
        "statistics tie the images together, none can leave; take --attack-bn eval");
  check(!o.attack_reuse || (o.attack == "pgd" && o.attack_bn == "train" && o.attack_steps >= 2),
        "--attack-reuse works with --attack pgd, --attack-bn train and at least 2 --attack-steps: the training pass "
        "takes the place of a step in the same mode");
  check(!o.attack_reuse || o.warm_start > 0, "--attack-reuse without --warm-start trains as --attack-steps ",
        o.attack_steps - 1, " does; take that, or add --warm-start");
  check(o.warm_start == 0 || o.attack != "none", "--warm-start ", o.warm_start,
        " has no perturbation to start from with --attack none; choose an attack");
  check(o.initialize.empty() || o.resume == "auto" || o.resume == "never",
        "--initialize and --resume PATH both name a beginning; give one of them");
  name_steps(o.eval, o.eval_attack_steps, AttackUse::training);
  // What follows from other options is written down: the resolved configuration has no 'auto' that hides a number.
  const BallNorm norm = norm_from(o.norm);
  require_in_range("--eps", norm, o.eps);
  check(norm == BallNorm::linf || o.eps != plain.eps, "--norm l2 with --eps 8/255, the default of ",
        "linf, would hardly perturb an image; give its radius, such as --eps 0.5");
  check(norm == BallNorm::linf || o.attack_stop < 0, "--attack-stop works with --norm linf, not with l2; leave it off");
  check(norm == BallNorm::linf || o.warm_start == 0,
        "--warm-start keeps a byte per pixel in units of eps/127, which is too ",
        "coarse for the small pixels of --norm l2; leave it off, and --attack-reuse");
  const auto attack_of = [&](double alpha) {
    return attacks().at(o.attack)({.norm = norm, .eps = o.eps, .alpha = alpha, .steps = o.attack_steps});
  };
  // A step of the attack's own may be longer than the images are wide.
  if (o.alpha != attack_of(0)->alpha()) require_in_range("--alpha", norm, o.alpha);
  const auto attack = attack_of(o.alpha);
  o.alpha = attack->alpha();
  const auto loss = losses().at(o.loss)({.beta = o.beta});
  const bool divergence = loss->goal().reference;
  if (o.attack_bn == "auto") o.attack_bn = attack->prefers_batch_statistics() && !divergence ? "train" : "eval";
  check(!divergence || (o.attack_bn == "eval" && o.attack_stop < 0), "the attack of --loss ", o.loss, " climbs the ",
        "divergence from the clean predictions, which works with --attack-bn eval and without --attack-stop; leave ",
        "these off");
  if (o.attack_start == "auto") o.attack_start = loss->goal().spread > 0 ? "gaussian" : "uniform";
  check(o.beta <= 0 || losses().at(o.loss)({})->beta() > 0, "--beta works with --loss trades, kl or mart, not with ",
        o.loss, "; leave it off");
  o.beta = loss->beta();
  check(o.lambda <= 0 || o.loss == "cross_entropy", "--lambda works with --loss cross_entropy, not with ", o.loss,
        ", which has --beta; leave it off");
  check(!o.attack_reuse || (o.loss == "cross_entropy" && o.label_smoothing == 0),
        "--attack-reuse takes the gradient of ",
        "the training pass, which is the attack's with --loss cross_entropy and without --label-smoothing; leave one ",
        "of them off");
  check(o.label_smoothing == 0 || o.loss != "mart", "--label-smoothing works with --loss cross_entropy, trades or kl, ",
        "not with mart; leave it off");
  check(o.awp_gamma > 0 || (o.awp_from == plain.awp_from && o.awp == plain.awp),
        "--awp-from and --awp say more of --awp-gamma; add that");
  check(o.awp_gamma == 0 || (!o.attack_reuse && o.stale_attack == 0 && o.mask == "shared"), "--awp-gamma trains at ",
        "other weights than those attacked, the same layers on all ranks; it does not work with --attack-reuse, ",
        "--stale-attack or --mask per_worker; leave one of them off");
  check(o.stale_attack == 0 || (o.attack == "pgd" && o.attack_bn == "eval" && o.attack_stop < 0 && o.warm_start == 0),
        "--stale-attack works with --attack pgd and --attack-bn eval, without --attack-stop and without --warm-start; ",
        "leave it off, or those");
  check(o.stale_attack <= o.attack_steps, "--stale-attack ", o.stale_attack, " is more than the ", o.attack_steps,
        " iterations of --attack-steps");
  if (o.lambda < 0) o.lambda = o.loss == "cross_entropy" && o.attack == "pgd" ? 1 : 0;
  if (o.eval_norm == "auto") o.eval_norm = o.norm;
  check(o.eval_eps > 0 || o.eval_norm == o.norm, "--eval-norm ", o.eval_norm, " is not --norm ", o.norm,
        ", whose --eps says nothing there; give --eval-eps");
  if (o.eval_eps == 0) o.eval_eps = o.eps;
  const BallNorm eval_norm = norm_from(o.eval_norm);
  require_in_range("--eval-eps", eval_norm, o.eval_eps);
  std::set<double> own;
  for (const std::string& word : o.eval) {
    const AttackWord known = read_attack_word(word, 1);
    const double alpha = evaluation_alpha(known, eval_norm, o.eval_eps, 0);
    own.insert(
        attacks()
            .at(known.name)({.norm = eval_norm, .eps = o.eval_eps, .alpha = alpha, .steps = std::max(1, known.steps)})
            ->alpha());
  }
  if (o.eval_alpha == 0 && own.size() == 1) o.eval_alpha = *own.begin();
  if (!own.contains(o.eval_alpha)) require_in_range("--eval-alpha", eval_norm, o.eval_alpha);
  if (o.weight_decay < 0) o.weight_decay = default_weight_decay(o.optimizer);
  const bool averages = o.average != "none";
  check(averages || (o.average_from == 0 && o.average_decay == plain.average_decay &&
                     (o.average_bn == "auto" || o.average_bn == "raw")),
        "--average-decay, --average-from and --average-bn work with --average ema or swa; add that, or leave them off");
  check(o.average == "ema" || o.average_decay == plain.average_decay,
        "--average-decay works with --average ema, not with ", o.average, "; leave it off");
  if (o.average_bn == "auto") o.average_bn = o.average == "none" ? "raw" : "rebuild";
  check(o.average_bn != "ema" || o.bn_statistics == "average", "--average-bn ema does not work with --bn-statistics ",
        "local, where each rank has its own statistics; take raw or rebuild");
  check(o.patience == 0 || o.holdout > 0, "--patience looks at images that are not trained on; add --holdout N");
  check(o.patience == 0 || o.eval_every > 0, "--patience counts evaluations; give --eval-every at least 1");
  check(o.mask == "per_worker" || o.transport == plain.transport, "--transport works with --mask per_worker: with one ",
        "mask for all ranks there is nothing to choose; leave it off");
  check(o.mask == "shared" || o.importance == "inside", "--mask per_worker does not work with --importance outside: ",
        "the ranks have different 1/p, but take one step; leave one of them off");
  const bool draws = o.selector != "all" && o.selector != "freezeout" && o.selector != "autofreeze";
  check(o.mask == "shared" || draws, "--mask per_worker does not work with --selector ", o.selector,
        ", which draws no layers; leave one of them off");
  // The layers' learning rates go the way of 1/p, which is 1 there: they multiply the step.
  if (o.selector == "freezeout" && o.freeze_lr != "constant") o.importance = "outside";
  check(o.codec_rank == 0 || o.codec == "powersgd" || o.codec == "atomo",
        "--codec-rank works with --codec powersgd or ", "atomo, not with ", o.codec, "; leave it off");
  check(o.codec_clip == plain.codec_clip || o.codec == "terngrad",
        "--codec-clip works with --codec terngrad, not with ", o.codec, "; leave it off");
  const auto recomputable = [&](bool allowed, const char* option, const char* why) {
    check(o.verify == 0 || allowed, "--verify recomputes a micro-batch on another rank, which does not work with ",
          option, ": ", why, "; leave one of them off");
  };
  recomputable(o.warm_start == 0, "--warm-start", "what an attack starts from is kept by one rank, and has moved on");
  recomputable(o.stale_attack == 0, "--stale-attack", "the attack has begun on weights that are gone");
  recomputable(o.mask == "shared", "--mask per_worker", "1/p is each rank's own");
  recomputable(o.bn_statistics == "average", "--bn-statistics local", "each rank attacks with its own statistics");
  recomputable(o.awp_gamma == 0, "--awp-gamma", "the weights have been put back");
  recomputable(o.attack_precision == "f32" || o.deterministic, "--attack-precision of 16 bits",
               "without --deterministic their rounding turns too many signs");
  if (o.bandit_rate == 0) o.bandit_rate = default_bandit_rate(o.bandit_loss);
  if (o.micro_batch == 0) o.micro_batch = o.batch;
  if (o.attack_batch == 0) o.attack_batch = o.micro_batch;
  check(o.attack_batch <= o.micro_batch, "--attack-batch ", o.attack_batch, " is more than the micro-batch of ",
        o.micro_batch, " images; choose at most that");
  const bool rolls_back = o.on_bad_steps == "rollback" || o.on_overfitting == "rollback";
  check(rolls_back || (o.rollback_lr == plain.rollback_lr && o.max_rollbacks == plain.max_rollbacks),
        "--rollback-lr and --max-rollbacks work with --on-bad-steps rollback or --on-overfitting rollback; add one");
  check(!rolls_back || o.rollback_lr < 1, "--rollback-lr ", number_text(o.rollback_lr),
        " would go the same way again, ", "with the same data from the same weights; choose less than 1");
  check(o.holdout > 0 || (o.on_overfitting == plain.on_overfitting && o.overfitting_margin == plain.overfitting_margin),
        "--on-overfitting and --overfitting-margin look at images that are not trained on; add --holdout N");
  check(!o.quiet || !o.verbose, "--quiet and --verbose exclude each other; give one of them");
}

/// What is typed must mean something; what a run has written is taken as it is.
void settle(const Options& options, TrainOptions& o) {
  require_attacks(o.eval);
  settle_selector_options(o, [&](const std::string& name) { return options.origin(name); });
  resolve(o);
}

Command parse_train(Command::Verb verb, const std::vector<std::string>& arguments) {
  const bool train = verb == Command::Verb::train;
  Command command{.verb = verb};
  Options options(train ? "train" : "validate",
                  train ? about_training()
                        : "Checks what 'train' with the same options would do; says what differs from the defaults.");
  options.show_first(main_options());
  describe(options, command.train);
  options.parse(arguments, command);
  if (command.verb != verb) return command;
  settle(options, command.train);
  options.finish(command);
  return command;
}

/// "eval --eval pgd20 runs/a", "eval --data a.h5 runs/a": options that take several words have taken the run, too.
void take_run_back(EvalOptions& o) {
  const auto take = [&](std::vector<std::string>& words) {
    o.checkpoint = words.back();
    words.pop_back();
  };
  std::error_code unreadable;
  if (o.checkpoint.empty() && o.eval.size() > 1 && !may_be_attack(o.eval.back())) take(o.eval);
  if (o.checkpoint.empty() && o.data.size() > 1 && std::filesystem::is_directory(o.data.back(), unreadable))
    take(o.data);
}

Command parse_eval(const std::vector<std::string>& arguments) {
  Command command{.verb = Command::Verb::eval};
  Options options("eval", "Clean and robust accuracy of a trained network.");
  describe(options, command.eval);
  options.parse(arguments, command);
  if (command.verb != Command::Verb::eval) return command;
  take_run_back(command.eval);
  require_attacks(command.eval.eval);
  name_steps(command.eval.eval, command.eval.attack_steps, AttackUse::evaluation);
  options.finish(command);
  require(command.verb == Command::Verb::print || !command.eval.checkpoint.empty(), ExitCode::usage,
          "eval needs a network, a run or a checkpoint: dat_hpc eval RUN",
          command.eval.data.size() > 1 ? "; give it in front of --data, which takes all words behind it" : "");
  require(
      !command.eval.save_adversarial || std::any_of(command.eval.eval.begin(), command.eval.eval.end(), names_sequence),
      ExitCode::usage, "--save-adversarial is for a sequence of attacks; add aa-quick to --eval, for instance");
  require(!command.eval.save_adversarial || (!command.eval.out.empty() && !command.eval.out.ends_with(".json")),
          ExitCode::usage, "--save-adversarial needs a folder to write to; give --out FOLDER");
  return command;
}

Command parse_data(const std::string& verb, const std::vector<std::string>& arguments) {
  const Rule classes{.low = 2, .high = 256}, size{.low = 4, .high = 4096};
  Command command;
  if (verb == "convert") {
    command.verb = Command::Verb::data_convert;
    ConvertOptions& o = command.convert;
    Options options("data convert", "Makes a data file from published sets, arrays of NumPy, or HDF5 files.");
    options.add("SOURCE", o.source,
                "a folder of CIFAR-10, CIFAR-100 (binary or Python version), MNIST or SVHN; a .pickle, .npz or .npy "
                "file of images; "
                "an HDF5 file in chunks or compressed");
    options.add("OUTPUT", o.output, "the file to write, e.g. cifar10.h5");
    options.add("--labels", o.labels, "the labels of a .npy file of images: a .npy file too; none: SOURCE has them",
                kPath);
    options.add("--val", o.val, "validation images (MedMNIST): left out, with the training images, or as test images",
                one_of({"leave", "train", "test"}));
    options.add("--size", o.size, "height and width of records' images in pixels; auto: 32",
                {.low = 4, .high = 4096, .automatic = 0});
    options.add("--label-bytes", o.label_bytes, "bytes before the pixels; the last one is the label",
                {.low = 1, .high = 16});
    options.add("--classes", o.classes,
                "auto: as many as the source names; else of records 10, of arrays as the labels say",
                {.low = 2, .high = 256, .automatic = 0});
    options.parse(arguments, command);
  } else if (verb == "synthetic") {
    command.verb = Command::Verb::data_synthetic;
    SyntheticOptions& o = command.synthetic.set;
    Options options("data synthetic", "Writes a procedural, learnable set: coloured shapes on clutter.");
    options.add("OUTPUT", command.synthetic.output, "the file to write, e.g. shapes.h5");
    options.add("--classes", o.classes, "kinds of images", classes);
    options.add("--size", o.size, "height and width of the images in pixels", size);
    options.add("--train", o.train, "training images", kPositive);
    options.add("--test", o.test, "test images", kPositive);
    options.add("--seed", o.seed, "of every random number", kCount);
    options.parse(arguments, command);
  } else {
    command.verb = Command::Verb::data_inspect;
    Options options("data inspect", "Describes data files: shapes, classes, source, hash.");
    options.add("FILES", command.inspect, "data files");
    options.parse(arguments, command);
  }
  return command;
}

Command parse_plot(const std::vector<std::string>& arguments) {
  Command command{.verb = Command::Verb::plot};
  Options options("plot", "Draws runs and evaluations into their folders, and several runs side by side.");
  options.add("RUNS", command.plot.runs,
              "folders of runs (--out of train), or JSON or folders of evaluations (--out of eval)");
  options.add("--format", command.plot.format, "of the pictures", one_of({"svg", "png"}));
  options.add("--out", command.plot.out, "folder for the comparison of several runs; none: plots-compare",
              {.label = "DIR"});
  options.parse(arguments, command);
  if (command.verb != Command::Verb::plot) return command;
  require(command.plot.out.empty() || command.plot.runs.size() > 1, ExitCode::usage,
          "--out is for the comparison of several runs; the pictures of one are in its folder plots");
  if (command.plot.out.empty()) command.plot.out = "plots-compare";
  return command;
}

Command parse_bench(const std::vector<std::string>& arguments) {
  Command command{.verb = Command::Verb::bench};
  BenchOptions& o = command.bench;
  Options options("bench", "Measures this machine: ceilings, convolutions, a PGD training step, the all-reduce.");
  options.add("--network", o.network, "architecture; images are drawn, 32x32 in 10 classes",
              one_of(networks().names()));
  options.add("--width", o.width, "channels of the first stage; auto: 64, of wrn28_10 and wrn34_10 160", kAutoCount);
  options.add("--batch", o.batch, "images per rank and step", kPositive);
  options.add("--attack-steps", o.attack_steps, "gradient steps of pgd", kPositive);
  add_attack_precision(options, o);
  describe_device(options, o);
  options.add("--seconds", o.seconds, "to spend after planning; each figure is measured at least once",
              {.low = 0, .above = true});
  options.add("--out", o.out, "folder for bench.json and a picture; none: the table is all", {.label = "DIR"});
  options.parse(arguments, command);
  if (o.width == 0) o.width = default_width(o.network);
  return command;
}

Command parse_forecast(const std::vector<std::string>& arguments) {
  Command command{.verb = Command::Verb::forecast};
  ForecastOptions& o = command.forecast;
  Options options("forecast",
                  "Step time against ranks, network, codec and budget, from a calibration of a minute: what pays.");
  options.group("Calibration");
  options.add("--calibration", o.calibration,
              "calibration.json that an earlier call has left in its --out; none: measured now, as follows", kPath);
  options.add("--network", o.network, "architecture; images are drawn, 32x32 in 10 classes",
              one_of(networks().names()));
  options.add("--width", o.width, "channels of the first stage; auto: 64, of wrn28_10 and wrn34_10 160", kAutoCount);
  options.add("--batch", o.batch, "images per rank and step", kPositive);
  options.add("--attack", o.attack, "how training images are perturbed", one_attack());
  options.add("--attack-steps", o.attack_steps, "gradient steps of pgd", kPositive);
  options.add("--lambda", o.lambda, "weight of the loss on clean images; auto: 1 with pgd (DAT), else 0",
              {.low = 0, .automatic = -1});
  add_attack_precision(options, o);
  describe_device(options, o);
  options.add("--seconds", o.seconds, "to spend after planning; each figure is measured at least a few times",
              {.low = 0, .above = true});
  options.group("Forecast");
  options.add("--ranks", o.ranks, "numbers of ranks, each with its own batch",
              {.label = "N,...", .low = 1, .high = 1 << 20, .commas = true});
  options.add("--ranks-per-node", o.ranks_per_node, "that share a node's link", {.low = 1, .high = 1 << 20});
  options.add("--bandwidth", o.bandwidth,
              "networks, e.g. 10gbit (line rate), 1.2GB/s (what arrives), measured; none: 1, 10, 25 and 100gbit, and "
              "measured where it was",
              {.label = "RATE,...", .commas = true});
  options.add("--latency", o.latency, "of a message in microseconds, one or one for each; none: as measured, or 30",
              {.label = "NUMBER,...", .low = 0, .high = 1e7, .commas = true});
  options.add("--codec", o.codec, "compared with float32; none: all", {.label = "NAME,...", .commas = true});
  options.add("--budget", o.budget, "of JointSpar, compared with all layers; none: 40/54 of them",
              {.label = "NUMBER,...", .low = 0, .above = true, .commas = true});
  options.add("--budget-unit", o.budget_unit, "a budget counts layers, or bytes in units of their mean",
              one_of({"layers", "bytes"}));
  options.add("--p-min", o.p_min, "lowest probability of a layer, of budgets in bytes", kShare);
  options.add("--algorithm", o.algorithm, "of sums over the ranks", one_of({"ring", "tree"}));
  options.add("--overlap", o.overlap, "send gradients while the backward pass still runs");
  options.add("--bucket", o.bucket, "most gradients in one message; auto: 2^19 with --overlap, else 2^23", kAutoCount);
  options.add("--stale-attack", o.stale_attack, "iterations of the next attack that run while the sum is under way",
              kCount);
  options.add("--jitter", o.jitter, "standard deviation of a rank's computing time, as a part of it",
              {.low = 0, .high = 1});
  options.add("--out", o.out, "folder for calibration.json, forecast.json and a picture; none: the table is all",
              {.label = "DIR"});
  options.parse(arguments, command);
  if (command.verb != Command::Verb::forecast) return command;
  if (o.width == 0) o.width = default_width(o.network);
  if (o.lambda < 0) o.lambda = o.attack == "pgd" ? 1 : 0;
  if (o.bucket == 0) o.bucket = o.overlap ? 1 << 19 : 1 << 23;
  require(o.latency.size() <= 1 || o.latency.size() == o.bandwidth.size(), ExitCode::usage, "--latency takes one ",
          "number, or one for each --bandwidth, not ", o.latency.size());
  require(!o.ranks.empty(), ExitCode::usage, "--ranks names no number");
  return command;
}

Command parse_doctor(const std::vector<std::string>& arguments) {
  Command command{.verb = Command::Verb::doctor};
  Options options("doctor",
                  "Says what this machine offers: GPUs, driver, libraries, MPI; and why something is not used.");
  options.parse(arguments, command);
  return command;
}

/// What `wanted` and the suffix of a path say together. Error(usage): they contradict each other, or neither says it.
std::string export_format(const std::string& wanted, const std::string& out) {
  const std::string suffix = std::filesystem::path(out).extension();
  const std::string named = suffix == ".onnx" || suffix == ".safetensors" ? suffix.substr(1) : "";
  require(wanted == "auto" || named.empty() || wanted == named, ExitCode::usage, "--format ", wanted, " and --out ",
          out, " contradict each other; leave --format off for ", named, ", or choose another name");
  // "model-0.5" has none.
  require(
      wanted != "auto" || !named.empty() || suffix.size() < 2 || !std::isalpha(static_cast<unsigned char>(suffix[1])),
      ExitCode::usage, "--out ", out, ": no format has the suffix ", suffix, "; name the file .safetensors or ",
      ".onnx, or give --format");
  return wanted != "auto" ? wanted : named.empty() ? "safetensors" : named;
}

Command parse_export(const std::vector<std::string>& arguments) {
  Command command{.verb = Command::Verb::export_network};
  ExportOptions& o = command.exported;
  Options options("export", "Writes the network of a checkpoint in a form that other programs read.");
  options.add("CHECKPOINT", o.checkpoint, "a checkpoint, or the folder of a run: its newest one");
  options.add("--format", o.format,
              "safetensors and onnx are files, robustbench is a folder with a class of PyTorch; auto: as the suffix of "
              "--out says, safetensors where it has none",
              one_of({"auto", "safetensors", "onnx", "robustbench"}));
  options.add("--weights", o.weights, "of a checkpoint with averaged ones; auto: those, where it has any",
              one_of({"auto", "raw", "average"}));
  options.add("--evaluation", o.evaluation,
              "robustbench: what 'eval --out' has written of this checkpoint, for the figures; none: no figures",
              {.label = "FILE.json"});
  options.add("--out", o.out, "file or folder to write", kPath);
  options.parse(arguments, command);
  if (command.verb != Command::Verb::export_network) return command;
  require(!o.out.empty(), ExitCode::usage, "export needs a place; give --out PATH");
  o.format = export_format(o.format, o.out);
  require(o.evaluation.empty() || o.format == "robustbench", ExitCode::usage,
          "--evaluation works with --format robustbench, not with ", o.format, "; leave it off");
  return command;
}

Command parse_import(const std::vector<std::string>& arguments) {
  Command command{.verb = Command::Verb::import_network};
  ImportOptions& o = command.imported;
  std::vector<std::string> known = networks().names();
  known.insert(known.begin(), "auto");
  Options options("import", "Makes a checkpoint of a network that another program has trained.");
  options.add("FILE", o.file,
              "a safetensors file, a PyTorch state_dict saved as HDF5, a checkpoint, or the folder of a run");
  options.add("--network", o.network, "architecture; auto: as the file says", one_of(known));
  options.add("--width", o.width, "channels of the first stage; auto: as the file says, else the published ones",
              kAutoCount);
  options.add("--activation", o.activation, "what follows batch norms; auto: as the file says, else relu",
              one_of({"auto", "relu", "silu"}));
  options.add("--normalize", o.normalize,
              "(x - mean)/std of the images, inside the network, as in 'train'; auto: as the file says, else none",
              {.label = "auto|none|cifar10|cifar100|M,...,S,..."});
  options.add("--size", o.size, "height and width of its images in pixels; auto: as the file says, else 32",
              {.low = 8, .high = 4096, .automatic = 0});
  options.add("--norm", o.norm, "of the ball that it was trained for; auto: as the file says, else linf",
              one_of(auto_and_norms()));
  options.add("--eps", o.eps, "radius of the ball; auto: as the file says, else 8/255", kAutoRadius);
  options.add("--new-head", o.new_head, "classes of a last layer that begins anew; none: the file's is kept",
              {.low = 2, .high = 256, .automatic = 0, .word = "none"});
  options.add("--seed", o.seed, "of the new last layer", kCount);
  options.add("--out", o.out, "the checkpoint to write, e.g. model.h5", kPath);
  options.parse(arguments, command);
  if (command.verb != Command::Verb::import_network) return command;
  require(!o.out.empty(), ExitCode::usage, "import needs a place; give --out PATH");
  if (o.normalize != "auto") (void)normalization_from(o.normalize);
  return command;
}

Command parse_slurm(const std::vector<std::string>& arguments) {
  Command command{.verb = Command::Verb::slurm};
  SlurmOptions& o = command.slurm;
  Options options("slurm", "Prints a batch script for Slurm that trains with the options of 'train' given here.");
  const Rule text{.label = "NAME"};
  options.group("Job", false);
  options.add("--nodes", o.nodes, "number of nodes", kPositive);
  options.add("--gpus-per-node", o.gpus_per_node, "0: ranks compute on CPUs", kCount);
  options.add("--ranks-per-node", o.ranks_per_node, "auto: one for each GPU, or one", kAutoCount);
  options.add("--cpus-per-rank", o.cpus_per_rank, "cores of a rank", kPositive);
  options.show_first(main_options_of_slurm());
  options.add("--time", o.time, "time limit; none: from the seconds of a step, else 4 hours", {.label = "[D-]H:M:S"});
  options.add("--step-seconds", o.step_seconds, "how long a step takes; auto: not known",
              {.low = 0, .above = true, .automatic = 0});
  options.add("--like", o.like, "a run, on as many ranks, whose steps took as long; none: not known", {.label = "RUN"});
  options.add("--job-name", o.job_name, "of the job", text);
  options.add("--partition", o.partition, "where it is queued; none: Slurm's default", text);
  options.add("--account", o.account, "who pays; none: Slurm's default", text);
  options.add("--modules", o.modules, "environment modules to load, e.g. 'openmpi/4.1 cuda/12.4'", {.label = "NAMES"});
  describe(options, command.train);
  options.parse(arguments, command);
  if (command.verb != Command::Verb::slurm) return command;
  require(o.step_seconds == 0 || o.like.empty(), ExitCode::usage,
          "--step-seconds and --like both say how long a step takes; give one of them");
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:+/@%";
  const auto check = [&](const char* option, const std::string& value, const std::string& allowed) {
    require(value.find_first_not_of(allowed) == std::string::npos, ExitCode::usage, option, " '", value,
            "' would not be read by Slurm as it is meant; use letters, digits and _-.,:+/@% only");
  };
  check("--job-name", o.job_name, plain);
  check("--partition", o.partition, plain);
  check("--account", o.account, plain);
  check("--modules", o.modules, plain + " ");
  require(o.time.find_first_not_of("0123456789-:") == std::string::npos, ExitCode::usage, "--time '", o.time,
          slurm_time_of(o.time).empty() ? "' is no time of Slurm's; write [DAYS-]HOURS:MINUTES:SECONDS, as 24:00:00"
                                        : "' is written --time " + slurm_time_of(o.time) + " for Slurm");
  if (o.ranks_per_node == 0) o.ranks_per_node = std::max(1, o.gpus_per_node);
  o.train = options.given();
  settle(options, command.train);
  options.finish(command);
  return command;
}

using Words = std::vector<std::string>;

bool is_help(const std::string& word) { return word == "-h" || word == "--help" || word.starts_with("--help="); }

/// What stands behind --help: "dat_hpc help layers" and "dat_hpc --help layers" come here with {"layers"}.
Command parse_help(Words topic) {
  Command command{.verb = Command::Verb::print, .text = first_screen()};
  if (topic.empty()) return command;
  topic[0].erase(0, std::min(topic[0].find_first_not_of('-'), topic[0].size()));
  const auto help_of = [](const Words& verb, const Words& rest) {
    Words words = {"dat_hpc"};
    words.insert(words.end(), verb.begin(), verb.end());
    words.push_back("--help");
    words.insert(words.end(), rest.begin(), rest.end());
    std::vector<const char*> arguments;
    for (const std::string& word : words) arguments.push_back(word.c_str());
    return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
  };
  const Words& known = verbs();
  if (std::find(known.begin(), known.end(), topic[0]) != known.end()) {
    const std::ptrdiff_t of_verb = topic[0] == "data" ? std::min<std::ptrdiff_t>(2, std::ssize(topic)) : 1;
    return help_of({topic.begin(), topic.begin() + of_verb}, {topic.begin() + of_verb, topic.end()});
  }
  if (topic[0] == "all") return help_of({"train"}, {"all"});
  // A word of some options: those of train, and who else has any.
  Words others;
  command.text.clear();
  for (const std::string& verb : known) {
    if (verb == "data" || verb == "validate" || verb == "slurm") continue;
    try {
      const std::string text = help_of({verb}, {topic[0]}).text;
      if (verb == "train")
        command.text = text;
      else
        others.push_back("dat_hpc " + verb + " --help " + topic[0]);
    } catch (const Error&) {  // it has none
    }
  }
  const std::string guess = hint(topic[0], known);
  if (command.text.empty() && others.empty() && guess.empty()) return help_of({"train"}, {topic[0]});  // refuses it
  require(!command.text.empty() || !others.empty(), ExitCode::usage, "no verb or option is called '", topic[0],
          "' or speaks of it", guess);
  if (!others.empty()) command.text += (command.text.empty() ? "" : "\n") + wrapped(join(others, ", "), 6, "Also: ");
  return command;
}

}  // namespace

Command parse_command_line(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const auto next_word = [&arguments]() -> std::string {
    if (arguments.empty() || arguments[0].starts_with('-')) return "";
    std::string word = arguments[0];
    arguments.erase(arguments.begin());
    return word;
  };
  if (!arguments.empty() && is_help(arguments[0])) {
    if (arguments[0].size() > 7) return parse_help({arguments[0].substr(7)});
    return parse_help({arguments.begin() + 1, arguments.end()});
  }
  const std::string verb = next_word();
  if (verb.empty() || verb == "train") return parse_train(Command::Verb::train, arguments);
  if (verb == "validate") return parse_train(Command::Verb::validate, arguments);
  if (verb == "eval") return parse_eval(arguments);
  if (verb == "plot") return parse_plot(arguments);
  if (verb == "bench") return parse_bench(arguments);
  if (verb == "doctor") return parse_doctor(arguments);
  if (verb == "slurm") return parse_slurm(arguments);
  if (verb == "forecast") return parse_forecast(arguments);
  if (verb == "export") return parse_export(arguments);
  if (verb == "import") return parse_import(arguments);
  if (verb == "help") return parse_help(arguments);
  Words words = verbs();
  words.insert(words.end(), {"data convert", "data synthetic", "data inspect", "help"});
  const std::string guess = hint(verb, words);
  require(verb == "data", ExitCode::usage, "unknown verb '", verb, "'",
          guess.empty() ? "; see 'dat_hpc --help'" : guess);
  const std::vector<std::string> kinds = {"convert", "synthetic", "inspect"};
  const std::string kind = next_word();
  if (kind.empty() && !arguments.empty() && is_help(arguments[0]))
    return {.verb = Command::Verb::print, .text = data_screen()};
  require(std::find(kinds.begin(), kinds.end(), kind) != kinds.end(), ExitCode::usage, "'data' needs one of ",
          join(kinds, ", "), kind.empty() ? "" : ", not '" + kind + "'", hint(kind, kinds));
  return parse_data(kind, arguments);
}

std::string ordering_refused(const TrainOptions& o) {
  const TrainOptions plain;
  const auto named = [](const char* option, const std::string& value) { return std::string(option) + " " + value; };
  if (o.codec != plain.codec) return named("--codec", o.codec);
  if (o.codec_transport != plain.codec_transport) return named("--codec-transport", o.codec_transport);
  if (repeats(o.aggregator) != Repeats::at_any_ranks) return named("--aggregator", o.aggregator);
  if (o.mask != plain.mask) return named("--mask", o.mask);
  if (o.bn_statistics != plain.bn_statistics) return named("--bn-statistics", o.bn_statistics);
  if (o.awp != plain.awp) return named("--awp", o.awp);
  if (o.budget_unit == "seconds") return named("--budget-unit", o.budget_unit);
  if (o.stale_attack > 0) return named("--stale-attack", std::to_string(o.stale_attack));
  return o.overlap ? "--overlap" : "";
}

bool sums_are_ordered(const TrainOptions& options) {
  return options.deterministic && ordering_refused(options).empty();
}

std::string toml_of(const TrainOptions& options) {
  TrainOptions copy = options;
  Options all("train", "");
  describe(all, copy);
  return all.toml(false);
}

TrainOptions parse_train_options(const std::string& toml, const std::string& where) {
  TrainOptions result;
  Options options("train", "");
  describe(options, result);
  options.read_file(toml, where, Origin::file);
  resolve(result);
  return result;
}

std::vector<std::string> differences_from_defaults(const TrainOptions& options) {
  TrainOptions own = options, plain;
  plain.data = own.data;  // without data of one's own, other defaults hold
  resolve(plain);
  plain.data.clear();
  Options all("train", ""), defaults("train", "");
  describe(all, own);
  describe(defaults, plain);
  return all.differences(defaults);
}

}  // namespace dat
