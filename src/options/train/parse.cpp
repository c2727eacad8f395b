#include "options/train/parse.hpp"

#include <algorithm>
#include <numeric>

#include "options/attack_words.hpp"
#include "options/recipes.hpp"
#include "options/train/citations.hpp"
#include "options/train/table.hpp"

namespace dat {

namespace {

/// Options that the short help shows.
const std::vector<std::string> kMainOptions = {"help",   "recipe",       "config", "data",      "network", "width",
                                               "attack", "attack-steps", "norm",   "eps",       "loss",    "eval",
                                               "lr",     "schedule",     "epochs", "optimizer", "batch",   "selector",
                                               "budget", "out",          "resume", "seed",      "device"};

/// Options that keep so many images a step on other ranks, and are accepted beside the others.
[[nodiscard]] std::string what_keeps(const TrainOrder& order, std::int64_t images, std::int64_t ranks) {
  const TrainOptions& o = order.options;
  const std::int64_t micro_batch = order.given.contains("micro-batch") ? o.micro_batch : 0;
  // Options that depend on the micro-batches take no total batch without them.
  const bool total = micro_batch > 0 || (!o.deterministic && o.generators >= 0 && o.mix == "pool");
  const std::string total_text = "--total-batch " + std::to_string(images);
  if (images % ranks == 0) {
    const std::int64_t each = images / ranks;
    const std::string other_micro_batch = micro_batch > 0 && each % micro_batch != 0
                                              ? " --micro-batch " + std::to_string(std::gcd(each, micro_batch))
                                              : "";
    return "--batch " + std::to_string(each) + other_micro_batch + " keeps it" +
           (total ? ", and so does " + total_text + other_micro_batch : "");
  }
  if (o.deterministic && micro_batch > 0 && images / micro_batch >= ranks) return total_text + " keeps it";
  return "a number of ranks that divides " + std::to_string(images / std::max<std::int64_t>(1, micro_batch)) +
         " keeps it with " + (total ? total_text : "--batch " + std::to_string(images) + " divided by it");
}

}  // namespace

std::optional<TrainOrder> parse_training(CommandLine& line, const std::string& about, void (*take)(TrainOrder& order),
                                         Bound* more) {
  TrainOrder order;
  Bound bound(train_table(), order.options);
  line.describe(about);
  line.show_first(kMainOptions);
  line.add_configurable(bound, true);
  if (more != nullptr) line.add(*more);
  if (!line.read()) return {};
  settle_typed(bound, order.options);
  order.given = line.given();
  order.batch_of_recipe = batch_of_recipe(line, bound);
  if ((line.prints_config() || line.cites()) && take != nullptr) take(order);
  if (!line.finish()) return {};
  if (line.cites()) {
    line.answer(citations_text(order.options));
    return {};
  }
  return order;
}

std::string batch_of_recipe(const CommandLine& line, const Bound& bound) {
  return bound.origin("batch") == Origin::recipe && bound.origin("total-batch") == Origin::none ? line.recipe() : "";
}

std::string other_ranks(const TrainOrder& order, int ranks) {
  if (order.batch_of_recipe.empty() || order.options.batch == 0 || order.options.batch.changes()) return "";
  const std::int64_t of = recipe_named(order.batch_of_recipe).ranks, batch = order.options.batch;
  if (of == ranks) return "";
  const auto ranks_text = [](std::int64_t count) { return std::to_string(count) + (count == 1 ? " rank" : " ranks"); };
  const std::int64_t written = of * batch;
  return "recipe " + order.batch_of_recipe + " is written for " + ranks_text(of) + ", " + std::to_string(written) +
         " images a step; " + ranks_text(ranks) + " of --batch " + std::to_string(batch) + " make " +
         std::to_string(ranks * batch) + ", which is another training; " + what_keeps(order, written, ranks);
}

void settle_typed(Bound& bound, TrainOptions& options) {
  require_attacks(options.eval);
  bound.check(true);
  settle(options);
}

}  // namespace dat
