#include <algorithm>

#include "dat/cheat.hpp"
#include "dat/loss.hpp"
#include "options/ranges.hpp"
#include "options/train/groups.hpp"

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

/// One value for all attackers, or one for each.
void refuse_other_counts(const TrainOptions& o) {
  const auto fits = [&](const char* option, std::size_t values) {
    require(values <= 1 || values == o.attackers.size(), ExitCode::usage, "--", option, " has ", values, " values for ",
            o.attackers.size(), " attackers; give one for all, or one for each");
  };
  fits("cheat", o.cheat.size());
  fits("cheat-from", o.cheat_from.size());
}

/// Whether one of the cheats is so; and which one.
[[nodiscard]] std::string cheat_that(const TrainOptions& o, bool (*is)(Cheat&)) {
  for (const std::string& name : o.cheat)
    if (is(*cheats().at(name)({}))) return name;
  return "";
}

/// With the mean and an order of all micro-batches, there is no gradient of a rank.
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

void refuse_delay_of_nothing(const TrainOptions& o) {
  const auto late = [](const std::string& name) { return cheats().reads(name, "cheat-delay"); };
  require(o.cheat_delay == TrainOptions{}.cheat_delay || std::any_of(o.cheat.begin(), o.cheat.end(), late),
          ExitCode::usage, "--cheat-delay works with --cheat ", alternatives(cheats().readers("cheat-delay")),
          "; leave it off");
}

void refuse_local_statistics(const TrainOptions& o) {
  for (const std::string& name : o.cheat)
    require(!cheats().reads(name, "bn-statistics") || o.bn_statistics != "local", ExitCode::usage, "--cheat ", name,
            " is about statistics that ranks share, and with --bn-statistics local they share none; leave one of them "
            "off");
}

/// A weaker attack than that of the options; none of theirs may be under way, or kept, elsewhere.
void refuse_weak_attack(const TrainOptions& o) {
  const std::string name = cheat_that(o, [](Cheat& cheat) { return cheat.attack_steps().has_value(); });
  if (name.empty()) return;
  require(o.attack != "none", ExitCode::usage, "--cheat ", name, " makes less of an --attack, and there is none");
  require(
      o.epochs_of_change().size() == 1, ExitCode::usage, "--cheat ", name,
      " makes less of an attack that is the same in all epochs; give --attack, --attack-steps, --eps and --alpha one "
      "value each");
  const bool keeps = losses().at(o.loss)({.detach = o.detach_reference})->goal().kept != StartKept::nothing;
  for (const auto& [given, option] :
       {std::pair(o.warm_start > 0, std::string("--warm-start")),
        std::pair(o.stale_attack > 0, std::string("--stale-attack")),
        std::pair(o.attack_reuse, std::string("--attack-reuse")), std::pair(keeps, "--loss " + o.loss)})
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
  const char* const nobody =
      "--cheat, --cheat-from, --cheat-every and --cheat-delay say what --attackers do; add --attackers RANK,...";
  Range names = one_of(cheats().names());
  names.commas = true;
  table
      .add("--cheat", &O::cheat,
           "what they do, one name for all or one for each; `leave`: the run goes on without the rank", names)
      .works_with("attackers", {}, nobody);
  table
      .add("--cheat-from", &O::cheat_from, "steps that are done before, one number for all or one for each; none: 0",
           {.label = "STEP,...", .low = 0, .commas = true})
      .works_with("attackers", {}, nobody);
  table.add("--cheat-every", &O::cheat_every, "steps from one cheating to the next", kPositive)
      .works_with("attackers", {}, nobody);
  table
      .add("--cheat-delay", &O::cheat_delay,
           "steps by which the gradient of `" + listing(cheats().readers("cheat-delay")) +
               "` is late; kept in host memory",
           {.low = 1, .high = 1e6})
      .works_with("attackers", {}, nobody);
  table.rule(refuse_other_ranks);
  table.rule(refuse_other_counts);
  table.rule(refuse_leaving);
  table.rule(refuse_mischief_alone);
  table.rule(refuse_sums_of_micro_batches);
  table.rule(refuse_local_statistics);
  table.rule(refuse_delay_of_nothing);
  table.rule(refuse_weak_attack);
  table.not_together({"attackers"}, {"overlap"},
                     "--attackers does not go with --overlap, by which gradients leave before anything can be done to "
                     "them; leave one of them off");
  table.not_together({"attackers"}, {"mask", {"per_worker"}},
                     "--attackers does not go with --mask per_worker: cheats want gradients of the same layers; choose "
                     "--mask shared");
  table.not_together({"attackers"}, {"holdout"},
                     "--attackers does not go with --holdout, nor with --patience and --on-overfitting, which look at "
                     "it: a rank can lie about its share of an evaluation; leave one of them off");
}

}  // namespace dat
