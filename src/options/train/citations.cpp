#include "options/train/citations.hpp"

#include <algorithm>

#include "dat/aggregator.hpp"
#include "dat/attack.hpp"
#include "dat/codec.hpp"
#include "dat/loss.hpp"
#include "dat/network.hpp"
#include "dat/optimizer.hpp"
#include "dat/provenance.hpp"
#include "dat/selector.hpp"
#include "options/bound.hpp"
#include "options/train/table.hpp"
#include "options/values/hints.hpp"

namespace dat {

std::vector<std::pair<std::string, std::string>> citations(const TrainOptions& o) {
  std::vector<std::pair<std::string, std::string>> all = {
      {"distributed adversarial training",
       "Zhang et al., \"Distributed Adversarial Training to Robustify Deep Neural Networks at Scale\", UAI 2022"}};
  const auto add = [&](const std::string& what, const std::string& publication) {
    if (publication.empty()) return;
    const auto same = std::ranges::find_if(all, [&](const auto& one) { return one.second == publication; });
    if (same == all.end())
      all.emplace_back(what, publication);
    else if ((", " + same->first + ",").find(", " + what + ",") == std::string::npos)
      same->first += ", " + what;
  };
  const auto add_member = [&](const std::string& option, const auto& family, const std::string& name) {
    add(option + " " + name, family.cites(name));
  };
  add_member("network", networks(), o.network);
  for (const auto& part : o.attack.parts()) add_member("attack", attacks(), part.value);
  add_member("loss", losses(), o.loss);
  add_member("optimizer", optimizers(), o.optimizer);
  add_member("schedule", schedules(), o.schedule);
  for (const auto& part : o.average.parts())
    if (part.value != "none") add("average " + part.value, average_cites(part.value));
  add_member("selector", selectors(), o.selector);
  add_member("codec", codecs(), o.codec);
  add_member("aggregator", aggregators(), o.aggregator);
  const Bound bound(train_table(), const_cast<TrainOptions&>(o));
  for (const OptionRow& row : train_table().rows())
    if (!row.cites.empty() && bound.asked(row)) add(row.name + " " + bound.text(row), row.cites);
  for (const std::string& word : o.eval) {
    const std::string name = read_attack_word(word).name;
    add("eval " + name, attacks().cites(name));
  }
  return all;
}

std::string citations_text(const TrainOptions& options) {
  std::string text = "dat_hpc, commit " + commit() + ": CITATION.cff of its sources. Behind these options are:\n";
  for (const auto& [what, publication] : citations(options)) text += wrapped(publication + " (" + what + ")", 4, "  ");
  return text;
}

}  // namespace dat
