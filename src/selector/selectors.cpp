#include "dat/selector.hpp"

namespace dat {

std::unique_ptr<LayerSelector> make_all_selector(const SelectorOptions&);
std::unique_ptr<LayerSelector> make_exp3_selector(const SelectorOptions&);
std::unique_ptr<LayerSelector> make_oracle_selector(const SelectorOptions&);
std::unique_ptr<LayerSelector> make_uniform_selector(const SelectorOptions&);
std::unique_ptr<LayerSelector> make_freezeout_selector(const SelectorOptions&);
std::unique_ptr<LayerSelector> make_autofreeze_selector(const SelectorOptions&);

namespace {

/// Settings of selectors that draw layers.
[[nodiscard]] std::vector<Setting> drawing(std::vector<Setting> more = {}) {
  more.insert(more.end(), {{"budget"}, {"budget-unit"}, {"selector:p_min"}, {"resample"}, {"mask"}});
  return more;
}

}  // namespace

const Registry<std::unique_ptr<LayerSelector>(const SelectorOptions&)>& selectors() {
  static const Registry<std::unique_ptr<LayerSelector>(const SelectorOptions&)> registry(
      "selector",
      {{"all", make_all_selector, {{"freeze-by-epoch"}}},
       {"exp3", make_exp3_selector, drawing({{"selector:loss"}, {"selector:rate"}}),
        "Liu and Mozafari, \"Communication-efficient Distributed Learning for Large Batch Optimization\", ICML 2022"},
       {"oracle", make_oracle_selector, drawing()},
       {"uniform", make_uniform_selector, drawing()},
       {"freezeout",
        make_freezeout_selector,
        {{"resample"}, {"selector:t0"}, {"selector:schedule"}, {"selector:lr"}},
        "Brock, Lim, Ritchie, Weston (FreezeOut), 2017, arXiv 1706.04983"},
       {"autofreeze",
        make_autofreeze_selector,
        {{"resample"}, {"selector:percentile"}},
        "Liu, Agarwal, Venkataraman (AutoFreeze), 2021, arXiv 2102.01386"}});
  return registry;
}

}  // namespace dat
