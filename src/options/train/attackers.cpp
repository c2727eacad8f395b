#include <algorithm>
#include <optional>

#include "dat/cheat.hpp"
#include "dat/loss.hpp"
#include "options/train/groups.hpp"
#include "options/values/hints.hpp"

namespace dat {

namespace {

void refuse_other_ranks(const TrainOptions& o) {
  for (auto rank = o.attackers.begin(); rank != o.attackers.end(); ++rank) {
    require(*rank != 0, ExitCode::usage,
            "--attackers names rank 0, which holds the run's folder and its lock: it cannot cheat; choose others");
    require(std::find(o.attackers.begin(), rank, *rank) == rank, ExitCode::usage, "--attackers names rank ", *rank,
            " twice");
  }
  require(o.attackers.empty() || !o.cheat.empty(), ExitCode::usage, "--attackers says who cheats; say how: --cheat ",
          alternatives(cheats().names()));
}

/// One word for all attackers, or one for each; and each of them can be read.
void refuse_other_words(const TrainOptions& o) {
  require(o.cheat.size() <= 1 || o.cheat.size() == o.attackers.size(), ExitCode::usage, "--cheat has ", o.cheat.size(),
          " values for ", o.attackers.size(), " attackers; give one for all, or one for each");
  for (const std::string& word : o.cheat) {
    const std::optional<CheatWord> read = read_cheat_word(word);
    const std::string name = word.substr(0, word.find_first_of(":@"));
    require(read.has_value(), ExitCode::usage, "--cheat ", word,
            " is not written as NAME, NAME@FROM or NAME@FROM/EVERY, as in sign_flip@200/5: from step 200 on in every ",
            "fifth; after the name of ", alternatives(cheats().readers("cheat:delay")), " its delay, delayed:1000@200");
    require(!cheats().where([&](const std::string& known) { return known == name; }).empty(), ExitCode::usage,
            "--cheat must be one of ", joined(cheats().names(), ", "), ", not '", name, "'",
            hint(name, cheats().names()));
    require(read->delay == 0 || cheats().reads(name, "cheat:delay"), ExitCode::usage, "--cheat ", word, ": only ",
            listing(cheats().readers("cheat:delay")), " has a delay; leave it off");
    require(read->every == 1 || !cheats().at(name)({})->leaves(), ExitCode::usage, "--cheat ", word,
            ": who leaves does so once; leave /", read->every, " off");
  }
}

/// Name of the first cheat with this property; empty: none has it.
[[nodiscard]] std::string cheat_that(const TrainOptions& o, bool (*is)(Cheat&)) {
  for (const std::string& word : o.cheat)
    if (const std::string name = read_cheat_word(word)->name; is(*cheats().at(name)({}))) return name;
  return "";
}

/// Refuses cheats with the gradient of a rank, which does not exist with the mean and an order of all micro-batches.
void refuse_sums_of_micro_batches(const TrainOptions& o) {
  const std::string name = cheat_that(o, [](Cheat& cheat) { return cheat.sees() != Cheat::Sees::nothing; });
  require(name.empty() || !o.deterministic || ranks_may_be_false(o), ExitCode::usage, "--cheat ", name,
          " changes the gradient of a rank, and with --deterministic and --aggregator mean the sum is one of "
          "micro-batches; leave off --deterministic, or choose another aggregator");
}

void refuse_mischief_alone(const TrainOptions& o) {
  const std::string name = cheat_that(o, [](Cheat& cheat) { return cheat.mischief() != nullptr; });
  require(name.empty() || o.byzantine, ExitCode::usage, "--cheat ", name,
          " is about messages of the protocol that bans; add --byzantine, or choose another cheat");
}

void refuse_local_statistics(const TrainOptions& o) {
  for (const std::string& word : o.cheat)
    require(
        !cheats().reads(read_cheat_word(word)->name, "bn-statistics") || o.bn_statistics != "local", ExitCode::usage,
        "--cheat ", word,
        " is about statistics that ranks share, and with --bn-statistics local they share none; leave one of them off");
}

/// A weaker attack than that of the options; none of theirs may be under way, or kept, elsewhere.
void refuse_weak_attack(const TrainOptions& o) {
  const std::string name = cheat_that(o, [](Cheat& cheat) { return cheat.attack_steps().has_value(); });
  if (name.empty()) return;
  require(o.attack != "none", ExitCode::usage, "--cheat ", name, " makes less of an --attack, and there is none");
  require(o.epochs_of_change().size() == 1, ExitCode::usage, "--cheat ", name,
          " makes less of an attack that is the same in all epochs; give --attack, --attack-steps, --eps and --alpha "
          "one value each");
  const bool keeps = losses().at(o.loss)({.detach = o.detach_reference})->goal().kept != StartKept::nothing;
  for (const auto& [given, option] :
       {std::pair(o.warm_start > 0, std::string("--warm-start")),
        std::pair(o.stale_attack > 0, std::string("--stale-attack")), std::pair(keeps, "--loss " + o.loss)})
    require(!given, ExitCode::usage, "--cheat ", name, " does not go with ", option,
            ", which takes parts of the attack; leave one of them off");
}

void refuse_leaving(const TrainOptions& o) {
  const std::string name = cheat_that(o, [](Cheat& cheat) { return cheat.leaves(); });
  require(name.empty() || o.deterministic, ExitCode::usage, "--cheat ", name,
          " wants --deterministic, which deals the micro-batches of a rank that leaves to those that stay; add it");
}

}  // namespace

void add_attackers(TrainTable& table) {
  using O = TrainOptions;
  table.group("Byzantine ranks, simulated");
  table.add("--attackers", &O::attackers, "ranks that cheat, fewer than half of all, and not rank 0",
            {.label = "RANK,...", .low = 0, .commas = true});
  table
      .add("--cheat", &O::cheat,
           "what they do, one word for all or one for each; delayed:1000: with its gradient of 1000 steps before, kept "
           "in host memory; @200/5: from step 200 on, in every fifth; leave: the run goes on without the rank; all: " +
               joined(cheats().names(), ", "),
           {.label = "NAME[@FROM[/EVERY]],...", .commas = true, .known = [] { return cheats().names(); }})
      .works_with("attackers", {}, "--cheat says what --attackers do; add --attackers RANK,...");
  table.rule(refuse_other_ranks);
  table.rule(refuse_other_words);
  table.rule(refuse_leaving);
  table.rule(refuse_mischief_alone);
  table.rule(refuse_sums_of_micro_batches);
  table.rule(refuse_local_statistics);
  table.rule(refuse_weak_attack);
  table.not_together({"attackers"}, {"overlap"},
                     "--attackers does not go with --overlap, by which gradients leave before anything can be done to "
                     "them; leave one of them off");
  table.not_together(
      {"attackers"}, {"mask", {"per_worker"}},
      "--attackers does not go with --mask per_worker: cheats want gradients of the same layers; choose --mask shared");
  table.not_together({"attackers"}, {"holdout"},
                     "--attackers does not go with --holdout, nor with --patience and --on-overfitting, which look at "
                     "it: a rank can lie about its share of an evaluation; leave one of them off");
}

}  // namespace dat
