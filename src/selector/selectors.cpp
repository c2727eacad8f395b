#include "dat/selector.hpp"

namespace dat {

std::unique_ptr<LayerSelector> make_all_selector(const SelectorOptions&);
std::unique_ptr<LayerSelector> make_exp3_selector(const SelectorOptions&);
std::unique_ptr<LayerSelector> make_oracle_selector(const SelectorOptions&);
std::unique_ptr<LayerSelector> make_uniform_selector(const SelectorOptions&);
std::unique_ptr<LayerSelector> make_freezeout_selector(const SelectorOptions&);
std::unique_ptr<LayerSelector> make_autofreeze_selector(const SelectorOptions&);

const Registry<std::unique_ptr<LayerSelector>(const SelectorOptions&)>& selectors() {
  static const Registry<std::unique_ptr<LayerSelector>(const SelectorOptions&)> registry(
      "selector", {{"all", make_all_selector},
                   {"exp3", make_exp3_selector},
                   {"oracle", make_oracle_selector},
                   {"uniform", make_uniform_selector},
                   {"freezeout", make_freezeout_selector},
                   {"autofreeze", make_autofreeze_selector}});
  return registry;
}

}  // namespace dat
