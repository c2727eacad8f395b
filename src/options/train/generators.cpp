#include "options/ranges.hpp"
#include "options/train/groups.hpp"

namespace dat {

namespace {

/// Choices that the attacks of other ranks do not go with, and why.
struct Refused {
  Choice choice;
  const char* why;
};

}  // namespace

void add_generators(TrainTable& table) {
  using O = TrainOptions;
  table.group("Generators");
  table
      .add("--generators", &O::generators,
           "the last N ranks do not train: they attack the images that the others train on; --staleness hides them",
           kCount)
      .may_change();
  for (const Refused& refused : std::initializer_list<Refused>{
           {{"attack", {"none"}}, "--attack none: they would have nothing to do"},
           {{"attack-bn", {"train"}}, "--attack-bn train: an attack's passes would enter statistics of other ranks"},
           {{"bn-statistics", {"local"}}, "--bn-statistics local: they have the statistics of one trainer"},
           {{"warm-start"}, "--warm-start: perturbations are kept by the ranks that train"},
           {{"attack-reuse"}, "--attack-reuse: the last step of the attack is the training pass"},
           {{"stale-attack"}, "--stale-attack, which --staleness does for them"},
           {{"attackers"}, "--attackers, which are ranks that train"},
           {{"byzantine"}, "--byzantine, by which ranks that train leave"}})
    table.not_together({"generators"}, refused.choice,
                       std::string("--generators does not go with ") + refused.why + "; leave one of them off");
}

}  // namespace dat
