#include "catch.hpp"
#include "options/train/table.hpp"
#include "parsed.hpp"
#include "verbs/ranks.hpp"

using namespace dat;
using dat::test::parse;

namespace {

bool matters(const OptionRow&, const Bound&) { return true; }

/// A table beside that of the program.
struct Soup {
  std::string kind = "broth";
  int salt = 1, dumplings = 0, bread = 0, oil = 0;
  bool hot = true;
};

TableOf<Soup> soup_table() {
  TableOf<Soup> table;
  table.add("--kind", &Soup::kind, "what it is", {.choices = {"broth", "stew"}});
  table.add("--salt", &Soup::salt, "spoons", {.low = 0});
  table.add("--dumplings", &Soup::dumplings, "how many", {.low = 0})
      .works_with("kind", {"broth"})
      .asked([](const Soup& soup) { return soup.dumplings > 1; });
  table.add("--hot,!--cold", &Soup::hot, "warm");
  table.add("--bread", &Soup::bread, "slices")
      .works_with({{"kind", {"stew"}}, {"salt"}})
      .works_with("hot", {"false"})
      .works_with("kind", {"stew"});
  table.add("--oil", &Soup::oil, "drops")
      .works_with({{"kind", {"stew", "broth"}}, {"salt"}})
      .works_with("hot", {"true"});
  table.not_together({"salt", {"9"}}, {"kind", {"stew"}}, "--salt {salt} spoils --kind {kind}; take less");
  return table;
}

}  // namespace

TEST_CASE("a condition refuses an option in the usual sentence, and only where it is asked for", "[options]") {
  const TableOf<Soup> table = soup_table();
  Soup soup{.kind = "stew", .dumplings = 2};
  Bound bound(table, soup);
  CHECK_THROWS_WITH(bound.check(true), "--dumplings works with --kind broth, not with stew; leave it off");
  soup.dumplings = 1;  // as good as none
  CHECK_NOTHROW(bound.check(true));
  soup.salt = 9;
  CHECK_THROWS_WITH(bound.check(true), "--salt 9 spoils --kind stew; take less");
  soup.kind = "broth";
  CHECK_NOTHROW(bound.check(true));
  CHECK((label_of(&soup.kind, {}) == "TEXT" && label_of(&soup.salt, {}) == "N"));
  CHECK_THROWS_WITH(bound.filled("{sugar}"), "a rule names 'sugar', which is no option");
  CHECK(description(table, *table.find("dumplings")) == "how many; only with --kind broth");
  CHECK(description(table, *table.find("bread")) == "slices; only with --kind stew; not with --hot");
  CHECK(description(table, *table.find("oil")) == "drops; only with --kind stew or broth or --salt and --hot");
  soup.bread = 1;
  CHECK_THROWS_WITH(bound.check(true), "--bread works with --hot false, not with true; leave it off");
  soup.hot = false;
  CHECK_THROWS_WITH(bound.check(true), "--bread works with --kind stew, not with broth; leave it off");
}

TEST_CASE("the help says what an option works with", "[options]") {
  std::istringstream words(parse({"train", "--help", "all"}).text);
  std::string help;  // without line ends
  for (std::string word; words >> word;) help += word + " ";
  for (const char* note :
       {"lamb:beta1=NUMBER: decay rate of the first moment [0.9]",
        "only with --loss gat, kl, mart, nuat, pgi or trades [auto]",
        "powersgd:rank=N, atomo:rank=N: columns of powersgd's factors", "only with --attack pgd and --norm linf",
        "only with --holdout [0]", "per_worker:transport=dense|union|allgather: ", "what each has drawn [union]",
        "auto: sgd 5e-4; lars, lars_sgd and lamb 1e-4 [auto]", "auto: gaussian with kl, mart and trades"})
    CHECK(contains(help, note));
}

TEST_CASE("what a run has written is compared option by option, by its value", "[options]") {
  const TrainOptions now = test::parse_line("--mask per_worker:dense --lr 0.1").train;
  const auto differing = [&](const std::string& toml) { return differences(read_written(toml, "run"), now, matters); };
  CHECK(differing(toml_of(now)).empty());
  // Other spellings of the same value, options that it does not have.
  CHECK(differing("# Run\nlr = 1e-1\nmask = \"per_worker:transport=dense\"\neps = 8/255\n").empty());
  CHECK(differing("mask = \"per_worker\"\nmomentum = 0.5\nlr = 0.01\n") ==
        "lr (was 0.01, is 0.1), mask:transport (was \"union\", is \"dense\"), momentum (was 0.5, is 0.9)");
  CHECK(differing("mask = \"shared\"\nlr = 0.1\n") ==
        "mask (was \"shared\", is \"per_worker:transport=dense\")");  // shared has no transport
  TrainOptions plain = now;
  plain.bucket = 7;
  CHECK(differences(read_written("lr = 0.1\n", "run"), plain, matters) == "DAT_BUCKET (was \"auto\", is 7)");
  Bound(train_table(), plain).take(*train_table().find("mask"), {Value{"per_worker"}}, "");
  CHECK(plain.mask_transport == "union");  // what a word does not name has its default
  CHECK(differing("selector = \"all\"\nbudget = 9\n").starts_with("selector (was \"all\", is \"exp3"));
  CHECK(differing("bucket = 1000\n").starts_with("DAT_BUCKET (was 1000, is "));
  CHECK(read_written("lr = 0.1\nloss = \"mart\"\n", "run").said == std::set<std::string>{"loss", "loss:detach", "lr"});
  // What is none of a training's options is no file of a run.
  for (const char* line : {"optimizer = \"adam\"", "batch-norm = 3", "lr = [", "\xff\xfe"})
    CHECK(error_of([&] { (void)read_written(line, "run"); }).starts_with("2: run:1: "));
}

TEST_CASE("a restart may change what does not touch the run's numbers, and nothing else", "[options]") {
  const auto names = [](Restart restart) {
    std::set<std::string> all;
    for (const OptionRow& row : train_table().rows())
      if (row.restart == restart) all.insert(row.name);
    return all;
  };
  const auto words = [](const std::string& line) {
    const std::vector<std::string> all = test::words_of(line);
    return std::set<std::string>(all.begin(), all.end());
  };
  CHECK(names(Restart::evaluation) == words("eval eval-eps eval-alpha"));
  CHECK(names(Restart::free) ==
        words("out resume device threads quiet resident verbose progress tensorboard limit-test eval-every data "
              "data-threads prefetch check-every epochs checkpoint-every patience max-steps node-sums graphs recompute "
              "comm-timeout checkpoint-async planning-seconds on-corruption verify max-bad-steps on-bad-steps "
              "on-overfitting on-bad-steps:lr on-bad-steps:times generators calibration generator-weights"));
  std::set<std::string> function;
  for (const OptionRow& row : train_table().rows())
    if (row.function) function.insert(row.name);
  CHECK(function == std::set<std::string>{"network", "width", "activation", "normalize"});
}

TEST_CASE("a verb is what it is called, in the help and where it is misspelt", "[options]") {
  std::set<std::string> names;
  const std::string first = parse({"--help"}).text;
  for (const Verb& verb : verbs()) {
    INFO(verb.name);
    CHECK(names.insert(verb.name).second);
    CHECK(contains(first, "\n  " + verb.name + std::string(18 - verb.name.size(), ' ') + verb.summary + "\n"));
    std::vector<std::string> words(1, verb.name.substr(0, verb.name.find(' ')));
    if (words[0] != verb.name) words.push_back(verb.name.substr(words[0].size() + 1));
    words.emplace_back("--help");
    const std::string help = parse(words).text;
    CHECK(contains(help, "dat_hpc " + verb.name));
    CHECK((help.find("Usage: ") > 20 && contains(help, ".\nUsage: ")));  // behind what the verb does
  }
  CHECK(parse({"data", "--help"}).text ==
        "Makes and describes data files.\n"
        "Usage: dat_hpc data convert [OPTIONS] SOURCE OUTPUT\n"
        "       dat_hpc data index [OPTIONS] SOURCE OUTPUT\n"
        "       dat_hpc data synthetic [OPTIONS] OUTPUT\n"
        "       dat_hpc data inspect [OPTIONS] FILES...\n\n"
        "  convert      CIFAR, MNIST, arrays of NumPy, HDF5 -> a data file\n"
        "  index        folders or tars of images -> an index, tars or a data file\n"
        "  synthetic    write a synthetic data file\n"
        "  inspect      describe data files\n\n"
        "dat_hpc data convert --help and so on shows their options.\n");
}

TEST_CASE("ranks compare the verb and its options, switches by their variables", "[options]") {
  const Facts facts = facts_of("eval", {{"lr", "0.1"}, {"DAT_BUCKET", "7"}});
  CHECK(Facts(facts.end() - 3, facts.end()) == Facts{{"verb", "eval"}, {"--lr", "0.1"}, {"DAT_BUCKET", "7"}});
  // Of switches those that may be others in parts of a run may be others on ranks.
  const auto settings = settings_of(TrainOptions{});
  const std::map<std::string, std::string> compared(settings.begin(), settings.end());
  CHECK((compared.at("network") == "\"preact_resnet18\"" && compared.contains("lr") &&
         compared.contains("DAT_BUCKET") && !compared.contains("DAT_PROGRESS")));
}
