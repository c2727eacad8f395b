#include "options/train/parse.hpp"

#include "options/attack_words.hpp"
#include "options/train/citations.hpp"
#include "options/train/table.hpp"

namespace dat {

namespace {

/// Options that the short help shows.
const std::vector<std::string> kMainOptions = {"help",   "recipe",       "config", "data",      "network", "width",
                                               "attack", "attack-steps", "norm",   "eps",       "loss",    "eval",
                                               "lr",     "schedule",     "epochs", "optimizer", "batch",   "selector",
                                               "budget", "out",          "resume", "seed",      "device"};

}  // namespace

std::optional<TrainOrder> parse_training(CommandLine& line, const std::string& about, void (*take)(TrainOrder& order),
                                         Bound* more, const std::string* sweep) {
  TrainOrder order;
  Bound bound(train_table(), order.options);
  line.describe(about);
  line.show_first(kMainOptions);
  line.add_configurable(bound, true);
  if (more != nullptr) line.add(*more);
  if (!line.read()) return {};
  if (sweep == nullptr || sweep->empty() || line.prints_config() || line.cites()) settle_typed(bound, order.options);
  order.given = line.given();
  order.recipe = line.recipe();
  if ((line.prints_config() || line.cites()) && take != nullptr) take(order);
  if (!line.finish()) return {};
  if (line.cites()) {
    line.answer(citations_text(order.options));
    return {};
  }
  return order;
}

void settle_typed(Bound& bound, TrainOptions& options) {
  require_attacks(options.eval);
  bound.check();
  settle(options);
}

}  // namespace dat
