#include "options/selector_options.hpp"

#include <algorithm>
#include <vector>

#include "dat/error.hpp"
#include "dat/selector.hpp"

namespace dat {

namespace {

/// An option that only some selectors know.
struct Part {
  std::string name;
  std::vector<std::string> selectors;
  std::string of;  ///< the selectors, in messages
  bool (*changed)(const TrainOptions&);
  void (*reset)(TrainOptions&);
};

template <auto field>
bool differs(const TrainOptions& options) {
  const TrainOptions plain;
  return options.*field != plain.*field;
}

template <auto field>
void put_back(TrainOptions& options) {
  const TrainOptions plain;
  options.*field = plain.*field;
}

template <auto field>
Part part(const std::string& name, const std::vector<std::string>& selectors, const std::string& of) {
  return {name, selectors, of, differs<field>, put_back<field>};
}

const std::vector<Part>& parts() {
  using O = TrainOptions;
  static const std::vector<std::string> drawing = {"exp3", "oracle", "uniform"};
  static const std::vector<Part> all = {
      part<&O::budget>("budget", drawing, "exp3, oracle or uniform"),
      part<&O::budget_unit>("budget-unit", drawing, "exp3, oracle or uniform"),
      part<&O::p_min>("p-min", drawing, "exp3, oracle or uniform"),
      part<&O::resample>("resample", {"exp3", "oracle", "uniform", "freezeout", "autofreeze"}, "any but all"),
      part<&O::bandit_loss>("bandit-loss", {"exp3"}, "exp3"),
      // A resolved configuration has the rate of the bandit's loss.
      {"bandit-rate",
       {"exp3"},
       "exp3",
       [](const O& o) { return o.bandit_rate != 0 && o.bandit_rate != default_bandit_rate(o.bandit_loss); },
       put_back<&O::bandit_rate>},
      part<&O::freeze_t0>("freeze-t0", {"freezeout"}, "freezeout"),
      part<&O::freeze_schedule>("freeze-schedule", {"freezeout"}, "freezeout"),
      part<&O::freeze_lr>("freeze-lr", {"freezeout"}, "freezeout"),
      part<&O::freeze_percentile>("freeze-percentile", {"autofreeze"}, "autofreeze"),
  };
  return all;
}

bool known_to(const Part& part, const std::string& selector) {
  return std::find(part.selectors.begin(), part.selectors.end(), selector) != part.selectors.end();
}

}  // namespace

std::set<std::string> options_of_other_selectors(const std::string& selector) {
  std::set<std::string> names;
  for (const Part& part : parts())
    if (!known_to(part, selector)) names.insert(part.name);
  return names;
}

void settle_selector_options(TrainOptions& options, const std::function<Origin(const std::string&)>& origin) {
  for (const Part& part : parts()) {
    if (known_to(part, options.selector)) continue;
    const Origin own = origin(part.name);
    require(!part.changed(options) || own == Origin::none || own < origin("selector"), ExitCode::usage, "--", part.name,
            " works with --selector ", part.of, ", not with ", options.selector, "; leave it off");
    part.reset(options);
  }
}

}  // namespace dat
