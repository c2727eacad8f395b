#include <algorithm>

#include "dat/cheat.hpp"
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

void refuse_leaving(const TrainOptions& o) {
  for (const std::string& name : o.cheat)
    require(o.deterministic || !cheats().at(name)()->leaves(), ExitCode::usage, "--cheat ", name,
            " wants --deterministic, which deals the micro-batches of a rank that leaves to those that stay; add it");
}

}  // namespace

void add_attackers(TrainTable& table) {
  using O = TrainOptions;
  table.group("Byzantine ranks, simulated");
  table.add("--attackers", &O::attackers, "ranks that cheat, fewer than half of all, and not rank 0",
            {.label = "RANK,...", .low = 0, .commas = true});
  const char* const nobody =
      "--cheat, --cheat-from and --cheat-every say what --attackers do; add --attackers RANK,...";
  Range names = one_of(cheats().names());
  names.label = "NAME,...";
  names.commas = true;
  table
      .add("--cheat", &O::cheat,
           "what they do, one name for all or one for each (leave: the run goes on without the rank)", names)
      .works_with("attackers", {}, nobody);
  table
      .add("--cheat-from", &O::cheat_from, "steps that are done before, one number for all or one for each; none: 0",
           {.label = "STEP,...", .low = 0, .commas = true})
      .works_with("attackers", {}, nobody);
  table.add("--cheat-every", &O::cheat_every, "steps from one cheating to the next", kPositive)
      .works_with("attackers", {}, nobody);
  table.rule(refuse_other_ranks);
  table.rule(refuse_other_counts);
  table.rule(refuse_leaving);
  table.not_together({"attackers"}, {"holdout"},
                     "--attackers does not go with --holdout, nor with --patience and --on-overfitting, which look at "
                     "it: a rank can lie about its share of an evaluation; leave one of them off");
}

}  // namespace dat
