// What holds of every option of a training, whatever it is called: its ranges, what it works with and what not, what is
// bound to ranks, that it is written down and read again.

#include "catch.hpp"
#include "dat/aggregator.hpp"
#include "environment.hpp"
#include "options/train/table.hpp"
#include "options/words.hpp"
#include "parsed.hpp"

using namespace dat;
using namespace dat::test;

namespace {

using Words = std::map<std::string, std::vector<std::string>>;  // an option's values, by its name

/// Values that a rule in code asks for, where the table's own would be refused.
const Words kValues = {{"average:bn", {"ema"}},
                       {"attack", {"fgsm"}},
                       {"attackers", {"1"}},
                       {"cheat", {"alie"}},
                       {"data", {"a b.h5", "quote\"back\\slash#,.h5"}},
                       {"eval", {"pgd20"}},
                       {"freeze", {"conv1"}},
                       {"mix", {"balanced:0.25"}},
                       {"normalize", {"cifar10"}}};
/// Options that a rule in code wants beside one.
const std::map<std::string, Words> kBeside = {{"attackers", {{"cheat", {"alie"}}}},
                                              {"byzantine", {{"deterministic", {}}}},
                                              {"calibration", {{"generators", {"auto"}}}},
                                              {"mix", {{"data", {"a", "b"}}}},
                                              {"norm", {{"eps", {"0.5"}}}}};

const TrainOptions& plain() {
  static const TrainOptions options = parse({}).train;
  return options;
}

const OptionRow& row_of(const std::string& name) {
  const OptionRow* row = train_table().find(name);
  REQUIRE(row != nullptr);
  return *row;
}

bool is_number(const Field& field) {
  return std::visit(
      []<class T>(const T*) {
        return (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) || std::is_same_v<T, ByEpoch<int>> ||
               std::is_same_v<T, ByEpoch<double>> || std::is_same_v<T, std::vector<int>>;
      },
      field);
}

bool is_whole(const Field& field) {
  return is_number(field) && !std::holds_alternative<double*>(field) &&
         !std::holds_alternative<ByEpoch<double>*>(field);
}

std::string text_of_number(const Field& field, double number) {
  return is_whole(field) ? number_text(static_cast<std::int64_t>(number)) : number_text(number);
}

/// Whether an option takes this value; `at` has it then, and the values that others have by default.
bool takes(const OptionRow& row, const std::string& text, TrainOptions& at) {
  at = {};
  try {
    assign({Value{text}}, row.range, "", row.field(&at));
  } catch (const Error&) {
    return false;
  }
  return true;
}

/// A value that asks for an option, other than its default and what a bare training makes of that; as on the command
/// line, none for a switch.
std::vector<std::string> value_of(const OptionRow& row) {
  if (const auto known = kValues.find(row.name); known != kValues.end()) return known->second;
  TrainOptions defaults;
  const Field field = row.field(&defaults);
  if (is_flag(field)) return {};
  std::vector<std::string> candidates(row.range.choices.rbegin(), row.range.choices.rend());
  if (is_number(field)) {
    const double low = row.range.low, high = row.range.high;
    double was = 0;
    (void)read_fraction(dat::text_of(field, {}, false), was);
    for (const double number : {was / 2, was + 1, low, low + 1, low + 2, (low + high) / 2})
      if (std::isfinite(number)) candidates.push_back(text_of_number(field, number));
  }
  candidates.emplace_back("x");
  for (const std::string& text : candidates) {
    TrainOptions with;
    if (takes(row, text, with) && Bound(train_table(), with).asked(row) &&
        !same_value(row.field(&with), row.field(const_cast<TrainOptions*>(&plain()))))
      return {text};
  }
  FAIL("no other value of --" << row.name << " is known");
  return {};
}

void add(Words& all, const std::string& name, const std::vector<std::string>& values);

/// Makes a choice hold, with all that it works with.
void add(Words& all, const Choice& choice) {
  add(all, choice.option, choice.values.empty() ? value_of(row_of(choice.option)) : std::vector{choice.values.front()});
}

void add(Words& all, const std::string& name, const std::vector<std::string>& values) {
  const OptionRow& row = row_of(name);
  const bool is_switch = is_flag(row.field(train_table().defaults()));
  if (!row.parent.empty()) {
    // In the word of the first member that has it, or of the one by default.
    const OptionRow& parent = row_of(row.parent);
    const std::string plain = dat::text_of(parent.field(train_table().defaults()), parent.range, false);
    add(all, row.parent, {has(row, plain) ? plain : row.members.front()});
    std::string& word = all.at(row.parent).front();
    const std::string setting = ":" + row.key + (is_switch ? "" : "=" + values.front());
    if (!contains(word, ":" + row.key)) word += setting;
  } else if (!all.emplace(name, is_switch ? std::vector<std::string>{} : values).second) {
    return;
  }
  TrainOptions defaults;
  for (auto condition = row.works_with.rbegin(); condition != row.works_with.rend(); ++condition)
    if (!Bound(train_table(), defaults).holds(*condition)) add(all, condition->any_of.front());
  if (const auto beside = kBeside.find(name); beside != kBeside.end())
    for (const auto& [other, of_it] : beside->second) add(all, other, of_it);
}

Words with(const OptionRow& row) {
  Words all;
  add(all, row.name, value_of(row));
  return all;
}

/// A value of one option alone; of a setting in the word of a member that has it.
Words only(const OptionRow& row, const std::string& text) {
  if (row.parent.empty()) return {{row.name, {text}}};
  return {{row.parent, {row.members.front() + ":" + row.key + "=" + text}}};
}

std::vector<std::string> arguments_of(const Words& words) {
  std::vector<std::string> all;
  for (const auto& [name, values] : words) {
    if (!row_of(name).environment.empty()) continue;
    if (values.empty()) all.push_back("--" + name);
    for (const std::string& value : values) all.push_back("--" + name + "=" + value);
  }
  return all;
}

/// As a user gives them: switches for developers in the environment.
Parsed parse_words(const Words& words) {
  Environment environment;
  for (const auto& [name, values] : words)
    if (!row_of(name).environment.empty())
      environment.set(row_of(name).environment, values.empty() ? "true" : values.front());
  return parse(arguments_of(words));
}

std::string refusal(const Words& words) {
  return error_of([&] { parse_words(words); });
}

/// As messages call an option.
std::string called(const std::string& name) {
  const OptionRow& row = row_of(name);
  return !row.environment.empty() ? row.environment : "--" + (row.parent.empty() ? row.name : row.parent);
}

/// What they are before anything follows from other options.
TrainOptions as_given(const Words& words) {
  TrainOptions options;
  Bound bound(train_table(), options);
  for (const auto& [name, values] : words) {
    std::vector<Value> all;
    for (const std::string& value : values) all.push_back({value});
    bound.take(row_of(name), values.empty() ? std::vector<Value>{{"true"}} : all, name);
  }
  return options;
}

/// The values of a choice; of an aggregator that withstands false ranks in a word.
std::string values_text(const Choice& choice) {
  return choice.values == aggregators().readers("faults") ? "robust" : joined(choice.values, "|");
}

/// "a=b|c" of a choice; of one without values its name.
std::string short_text(const Choice& choice) {
  return choice.option + (choice.values.empty() ? "" : "=") + values_text(choice);
}

}  // namespace

TEST_CASE("every option alone is taken, written down as it was given, and read again", "[options]") {
  for (const OptionRow& row : train_table().rows()) {
    INFO(row.name << ": " << joined(arguments_of(with(row)), " "));
    const Parsed command = parse_words(with(row));
    TrainOptions given = command.train;
    CHECK(!same_value(row.field(&given), row.field(const_cast<TrainOptions*>(&plain()))));
    if (row.environment.empty()) CHECK(command.given.contains(row.parent.empty() ? row.name : row.parent));
    CHECK(parse_train_options(command.resolved_toml, "text") == command.train);
  }
}

TEST_CASE("the ends of every range are taken, and what is beyond them is refused by name, with the range",
          "[options]") {
  int ends = 0;
  for (const OptionRow& row : train_table().rows()) {
    TrainOptions options;
    const Field field = row.field(&options);
    const Range& range = row.range;
    const std::string where = !row.environment.empty() ? "the environment's " + row.environment + " "
                              : row.parent.empty()     ? "option '--" + row.name + "' "
                                                       : row.key + " of " + row.members.front() + " ";
    INFO(where);
    if (!range.choices.empty() || is_number(field)) {
      const std::string message = refusal(only(row, "+"));
      CHECK(contains(message, where + "must be "));
      CHECK(contains(message, "not '+'"));
      if (range.others == nullptr)
        for (const std::string& choice : range.choices) CHECK(contains(message, choice));
    }
    for (const std::string& choice : range.choices) CHECK(takes(row, choice, options));
    if (range.automatic) {
      CHECK(takes(row, range.word, options));
      CHECK(contains(dat::text_of(row.field(&options), range, false), range.word));
    }
    if (!is_number(field)) continue;
    const auto check_end = [&](double end, bool out, double direction) {
      if (!std::isfinite(end)) return;
      ++ends;
      const auto next = [&](double to) { return is_whole(field) ? end + to : std::nextafter(end, to * HUGE_VAL); };
      const double last = out ? next(-direction) : end, beyond = out ? end : next(direction);
      INFO(last << " and " << beyond);
      CHECK(takes(row, text_of_number(field, last), options));
      const std::string text = text_of_number(field, beyond), message = refusal(only(row, text));
      CHECK(contains(message, where + "must be "));
      CHECK(contains(message, "not '" + text + "'"));
      CHECK((contains(message, number_text(end)) || contains(message, text_of_number(field, end))));
    };
    check_end(range.low, range.above, -1);
    check_end(range.high, range.below, 1);
    if (is_whole(field)) CHECK(contains(refusal(only(row, "99999999999999999999")), where + "must be a whole "));
  }
  CHECK(ends > 90);
}

TEST_CASE("an option is refused without what it works with, in a sentence that names both", "[options]") {
  for (const OptionRow& row : train_table().rows())
    for (const Condition& condition : row.works_with) {
      Words words = with(row);
      bool holds = false;
      for (const Choice& choice : condition.any_of) {
        words.erase(choice.option);
        TrainOptions defaults;
        if (!Bound(train_table(), defaults).holds(choice)) continue;
        // The first other value.
        const OptionRow& other = row_of(choice.option);
        if (is_flag(other.field(&defaults))) add(words, other.name, {});
        for (const std::string& value : other.range.choices)
          if (std::find(choice.values.begin(), choice.values.end(), value) == choice.values.end()) {
            words[other.name] = {value};
            if (value == "l2") words["eps"] = {"0.5"};
            break;
          }
        holds = !words.contains(other.name);
      }
      INFO(joined(arguments_of(words), " "));
      REQUIRE(!holds);
      const std::string message = refusal(words);
      CHECK(message.starts_with("2: "));
      CHECK(contains(message, called(row.name)));
      CHECK(contains(message, called(condition.any_of.front().option)));
    }
}

TEST_CASE("two options that do not go together are refused in the sentence that the table has for them", "[options]") {
  std::set<std::string> never;
  for (const Exclusion& pair : train_table().exclusions()) {
    Words words;
    add(words, pair.one);
    add(words, pair.other);
    for (const Choice& choice : {pair.one, pair.other})  // whatever was beside the other one
      if (const auto word = words.find(choice.option);
          word != words.end() && !word->second.empty() && !choice.values.empty() && !contains(word->second[0], ":"))
        word->second = {choice.values.front()};
    const std::string both = short_text(pair.one) + " " + short_text(pair.other);
    INFO(joined(arguments_of(words), " "));
    TrainOptions options = as_given(words);
    const Bound bound(train_table(), options);
    const std::string message = refusal(words);
    CHECK(message.starts_with("2: "));
    for (const Choice& choice : {pair.one, pair.other}) {
      CHECK(bound.holds(choice));
      CHECK(contains(pair.sentence, called(choice.option)));
    }
    if (message != "2: " + bound.filled(pair.sentence)) never.insert(both);
  }
  // None of which another rule speaks first: it would say nothing.
  CHECK(never == std::set<std::string>{});
}

TEST_CASE("what is bound to ranks is refused with --deterministic, by name", "[options]") {
  int refused = 0;
  for (const OptionRow& row : train_table().rows()) {
    if (!row.bound_to_ranks) continue;
    Words words;
    add(words, *row.bound_to_ranks);
    words["deterministic"] = {};
    INFO(joined(arguments_of(words), " "));
    CHECK(contains(refusal(words),
                   "--deterministic gives the same bits on any number of ranks, which " + called(row.name)));
    ++refused;
    if (!row.bound_with) continue;
    words["aggregator"] = {"median"};
    CHECK(refusal(words) == "none");
  }
  CHECK(refused > 6);
}

TEST_CASE("options depend on each other as they are meant to", "[options]") {
  // Of families, test_settings says it.
  std::string all;
  for (const OptionRow& row : train_table().rows()) {
    std::vector<std::string> parts;
    for (const Condition& condition : row.works_with)
      for (const Choice& choice : condition.any_of)
        if (choice.option != "attack" && choice.option != "loss" && choice.option != "optimizer" &&
            choice.option != "selector" && choice.option != "codec" && choice.option != "aggregator")
          parts.push_back(short_text(choice));
    for (const Exclusion& pair : train_table().exclusions())
      if (pair.one.option == row.name)
        parts.push_back("not " + values_text(pair.one) + (pair.one.values.empty() ? "" : " ") + short_text(pair.other));
    if (row.bound_to_ranks && !row.bound_with) parts.push_back("not deterministic");
    if (!parts.empty()) all += row.name + ": " + joined(parts, ", ") + "\n";
  }
  CHECK(all ==
        "train-size: not stale-attack\n"
        "bn-statistics: not deterministic\n"
        "new-head: initialize\n"
        "freeze: not mask=per_worker\n"
        "norm: not l2 eps=8/255\n"
        "attack-stop: norm=linf, not attack-bn=train\n"
        "warm-start: not augment=resized, not attack=none, not norm=l2, not attack-start:radius, not attack-start:box, "
        "not project=off\n"
        "stale-attack: not attack-bn=train, not attack-stop, not warm-start, not deterministic\n"
        "staleness: not attack-bn=train, not warm-start, not stale-attack, not bn-statistics=local, not verify, not "
        "byzantine, not attackers, not attack=none\n"
        "attack-start:radius: norm=linf\n"
        "attack-start:box: norm=linf\n"
        "project: norm=linf\n"
        "awp-gamma: not stale-attack, not mask=per_worker\n"
        "awp: awp-gamma, not deterministic\n"
        "noise: not warm-start, not attack-stop, not attack-bn=train, not stale-attack, not staleness, not generators, "
        "not loss=gat|mart|nuat|pgi\n"
        "noise-samples: noise\n"
        "patience: holdout, not eval-every=0\n"
        "optimizer:nesterov: not momentum=0\n"
        "no-decay: not weight-decay=0\n"
        "average:bn: not ema bn-statistics=local\n"
        "budget-unit: not deterministic\n"
        "mask: not per_worker selector=all|freezeout|autofreeze, not deterministic\n"
        "codec: not deterministic\n"
        "node-sums: not nccl deterministic\n"
        "aggregator: not robust warm-start, not robust precision=f16, not robust average:bn=rebuild, not robust "
        "budget-unit=seconds, not robust verify\n"
        "byzantine: not aggregator:mixing, not awp-gamma, not holdout\n"
        "validators: byzantine\n"
        "overlap: not deterministic\n"
        "bucket: byzantine=false\n"
        "generators: not attack=none, not attack-bn=train, not bn-statistics=local, not warm-start, not stale-attack, "
        "not attackers, not byzantine\n"
        "generator-weights: generators, not bf16 deterministic\n"
        "attackers: not overlap, not mask=per_worker, not holdout\n"
        "cheat: attackers\n"
        "on-overfitting: holdout\n"
        "initialize: not resume\n"
        "resident: not on augment=resized\n"
        "verify: not warm-start, not stale-attack, not mask=per_worker, not bn-statistics=local, not awp-gamma\n");
}
