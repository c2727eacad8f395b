// The verb validate: plans the run on one rank and says what it will need.

#include "verbs/training/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <sstream>

#include "dat/aggregator.hpp"
#include "dat/cheat.hpp"
#include "forecast/calibration.hpp"
#include "measure/bench_file.hpp"
#include "measure/loading.hpp"
#include "measure/process_memory.hpp"
#include "options/ranges.hpp"
#include "options/values/hints.hpp"
#include "reduce/sums/sums.hpp"
#include "reduce/transport/transport.hpp"
#include "run/advice.hpp"
#include "run/begin/found.hpp"
#include "run/settle_generators.hpp"
#include "train/attackers/attackers.hpp"
#include "train/generators/generator.hpp"
#include "train/plan/goal.hpp"
#include "train/plan/parts.hpp"
#include "train/plan/replica_of.hpp"
#include "train/plan/role.hpp"
#include "train/planned.hpp"
#include "train/trainer.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

[[nodiscard]] std::string megabytes(auto bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

/// "128, 64 or 32".
[[nodiscard]] std::string numbers(const std::vector<int>& all) {
  std::vector<std::string> words;
  for (const int number : all) words.push_back(std::to_string(number));
  return alternatives(words);
}

/// Gradients that a rank sends in a step, in the mean over draws with the first probabilities.
[[nodiscard]] std::string sent_text(const Trainer& trainer, const TrainOptions& options, int ranks) {
  std::vector<double> sent = trainer.layers().selector().probabilities();
  const double any = probability_of_any(sent);
  const bool of_any = options.mask == "per_worker" && options.mask_transport == "union";
  const bool of_all = options.mask == "per_worker" && options.mask_transport == "dense";
  for (double& one : sent) {
    const double drawn = one / any;
    one = of_all ? 1 : of_any ? 1 - std::pow(1 - drawn, ranks) : drawn;
  }
  return megabytes(trainer.reducer().bytes_sent(sent, ranks));
}

/// [layers] 1, and 0 of those that stand still.
[[nodiscard]] std::vector<double> all_active(const Trainer& trainer) {
  std::vector<double> all = trainer.layers().selector().probabilities();
  for (double& p : all) p = p > 0 ? 1 : 0;
  return all;
}

/// Cost of each layer in the budget; empty where that is 1.
[[nodiscard]] std::string costs_text(const Trainer& trainer, const TrainOptions& options, int ranks) {
  if (options.budget_unit == "layers") return "";
  std::ostringstream text;
  text << "budget           " << trainer.layers().budget() << " of " << trainer.model().parameters.layers()
       << ", in the mean of the layers' " << options.budget_unit;
  if (options.budget_unit == "seconds")
    text << " as measured now" << (ranks > 1 ? ", without those of the sum over the ranks" : "");
  text << "\n";
  const std::vector<double> costs = trainer.layers().costs();
  for (std::size_t d = 0; d < costs.size(); ++d)
    text << fmt::format("  {:<36}{:.4f}\n", trainer.model().parameters.layer_names[d], costs[d]);
  return text.str();
}

[[nodiscard]] std::string listed(std::string text, const std::vector<std::string>& all) {
  for (const std::string& line : all) text += wrapped(line, 6, "  ");
  return text;
}

/// Differences of the run from one without any option.
[[nodiscard]] std::string differences_text(const TrainOptions& options) {
  const std::vector<std::string> all = differences_from_defaults(options);
  return listed(all.empty() ? "options          the defaults\n" : "options that differ from the defaults:\n", all);
}

/// Differences of the run from its recipe; empty: it has none.
[[nodiscard]] std::string recipe_text(const TrainOptions& options, const std::string& recipe) {
  if (recipe.empty()) return "";
  const std::vector<std::string> all = differences_from_recipe(options, recipe);
  return listed("recipe           " + recipe + (all.empty() ? ", as it stands\n" : "; options that differ from it:\n"),
                all);
}

/// Sizes of training images by epoch, and what they cost; empty: they are those of the data.
[[nodiscard]] std::string sizes_by_epoch(Trainer& trainer, const Plan& plan) {
  const auto& parts = plan.sizes.parts();
  if (parts.size() == 1) return "";
  const auto pixels = [&](int size) { return size > 0 ? size : trainer.splits().train->info().size; };
  const double whole = trainer.model().graph.macs();
  std::ostringstream text;
  text << "training images  " << std::setprecision(2);
  double sum = 0;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const int size = pixels(parts[k].value);
    const double macs = trainer.replica().macs(size);
    text << (k == 0 ? "" : ", then ") << size << "x" << size << " (" << macs / whole << " of the multiply-adds)";
    double until = plan.epochs_made();
    if (k + 1 < parts.size()) {
      text << " up to epoch " << parts[k + 1].from;
      until = std::min<double>(parts[k + 1].from, until);
    }
    sum += std::max(0.0, until - parts[k].from) * static_cast<double>(plan.steps_per_epoch) * macs;
  }
  text << "; of the whole run " << sum / (whole * static_cast<double>(std::max<std::int64_t>(1, plan.steps))) << "\n";
  return text.str();
}

/// Noise under which the network is trained; empty: none.
[[nodiscard]] std::string noise_text(const TrainOptions& options) {
  if (options.noise == 0) return "";
  return fmt::format(
      "noise            standard deviation {:g}, {} {} of each image; batches count images, passes and memory copies\n",
      options.noise, options.noise_samples, options.noise_samples == 1 ? "copy" : "copies");
}

/// Memory and messages of --warm-start; empty: none.
[[nodiscard]] std::string warm_start_text(Trainer& trainer, const TrainOptions& options, const Plan& plan, int ranks) {
  if (options.warm_start == 0) return "";
  const Dataset& train = *trainer.splits().train;
  const auto image = static_cast<double>(train.info().image_bytes());
  return "warm start       " + megabytes(warm_start_bytes(options, plan, train)) + " of host memory per rank (" +
         megabytes(image * static_cast<double>(train.size())) +
         " more on rank 0 while a checkpoint is written, twice that while one is read), " +
         megabytes(2 * image * static_cast<double>(plan.batch) * (ranks - 1) / ranks) +
         " per step and rank to others\n";
}

/// Memory of cheats on the host; empty: none.
[[nodiscard]] std::string cheats_text(const TrainOptions& options, std::int64_t parameters) {
  std::string text;
  for (const Cheater& one : attackers_of(options)) {
    const auto cheat = cheats().at(one.name)({.delay = one.own_delay(), .parameters = parameters});
    if (cheat->memory() > 0)
      text += (text.empty() ? "cheats           " : "                 ") + one.name + ": " +
              megabytes(cheat->memory()) + " of host memory on rank " + std::to_string(one.rank) + "\n";
  }
  return text;
}

/// Number and needs of generators; empty: there are none.
[[nodiscard]] std::string generators_text(const TrainOptions& options, const Plan& plan, const Dataset& images,
                                          Communicator& world) {
  if (options.generators == 0) return "";
  require_work(options, plan);
  return "generators       " + std::to_string(options.generators) + ", beside the ranks that train; " +
         megabytes(generator_memory(options, plan, images, world)) + " of memory each\n";
}

/// Summation of messages; empty: there is none.
[[nodiscard]] std::string sums_text(const Reducer& reducer, const TrainOptions& options, int ranks, int on_node) {
  const auto bytes = static_cast<double>(reducer.added_up(ranks));
  if (ranks == 1 || bytes == 0) return "";
  const bool spans = options.deterministic && on_node < ranks;
  const std::string& asked = options.node_sums;
  const std::string name = asked != "nccl" && (on_node == 1 || spans) ? "mpi" : asked == "auto" ? "window" : asked;
  return "added up         " + std::string(sums().at(name)().title) + " (--node-sums " + name + "), " +
         megabytes(bytes) + " per rank\n";
}

/// Description of the protocol that bans; empty: there is none.
[[nodiscard]] std::string protocol_text(const Trainer& trainer, const TrainOptions& options, int ranks) {
  if (!options.byzantine || ranks == 1) return "";
  const std::int64_t bytes = Protocol::bytes(ranks, trainer.contribution_numbers(), options.validators > 0);
  return "protocol         " + std::to_string(bytes) + " bytes per step and rank beside gradients\n";
}

struct ValidateOrder : TrainOrder {
  std::string bench{};  ///< a file of bench; empty: none
};

/// Rate at which a rank reads its images, and whether that feeds the step of --bench; empty: nobody has asked.
[[nodiscard]] std::string reading_text(const Trainer& trainer, const ValidateOrder& order, const Plan& plan,
                                       const std::optional<MeasuredStep>& step, int threads) {
  const Dataset& images = *trainer.splits().train;
  const DatasetInfo& info = images.info();
  if (!step && !info.decoded) return "";
  LoaderOptions loading = loader_options(order.options, plan, threads);
  loading.sizes = {};  // the last ones, of which a step is measured
  constexpr double kSeconds = 1;
  const double rate = loading_rate(images, loading, kSeconds).images;
  std::string text = fmt::format(
      "reading          {:.1f} images/s of a rank with {} data thread{}, measured now; {} batches ahead take {}\n",
      rate, threads, threads == 1 ? "" : "s", loading.prefetch,
      megabytes(static_cast<double>(info.image_bytes()) * plan.micro_batches_of(0) * plan.micro_batch *
                loading.prefetch));
  if (!step) return text;
  text += fmt::format("step             {:.1f} images/s of a rank as {} has measured {} on {}x{}: the loader {}\n",
                      step->images_per_s, order.bench, step->network, step->size, step->size,
                      rate >= step->images_per_s ? "feeds it" : "does not feed it");
  if (step->network != order.options.network || step->size != info.size)
    text += fmt::format("warning          that step is not this training's, which has {} on {}x{}\n",
                        order.options.network, info.size, info.size);
  if (rate < step->images_per_s)
    text +=
        "warning          the step waits for images: take more --data-threads, --decode fast, or smaller images "
        "('dat_hpc data index --size')\n";
  return text;
}

/// The largest of some images as it is decoded, and the window of it that is resized, in bytes.
[[nodiscard]] std::size_t rgb_bytes(const Dataset& images) {
  constexpr std::int64_t kLookedAt = 256;
  std::size_t largest = 0;
  for (std::int64_t k = 0; k < std::min(kLookedAt, images.size()); ++k) {
    const ImageShape shape = images.shape(k * images.size() / std::min(kLookedAt, images.size()));
    largest = std::max(largest, 6 * static_cast<std::size_t>(shape.height) * static_cast<std::size_t>(shape.width));
  }
  return largest;
}

/// Peak memory of rank 0's process, measured in this one, in which all is planned. messages: bytes of them with all
/// ranks.
[[nodiscard]] std::string process_text(Trainer& trainer, const TrainOptions& options, const Plan& plan, int ranks,
                                       std::size_t messages) {
  const Dataset& train = *trainer.splits().train;
  Backend& backend = trainer.replica().backend();
  const auto a_step = static_cast<std::size_t>(plan.micro_batches_of(0)) * static_cast<std::size_t>(plan.micro_batch);
  std::size_t loader = static_cast<std::size_t>(options.prefetch + 1) * a_step * train.info().image_bytes();
  if (train.info().decoded) loader += static_cast<std::size_t>(data_threads(options, backend)) * rgb_bytes(train);
  std::int64_t evaluated = 0;
  for (const Dataset* set : {trainer.splits().test.get(), trainer.splits().holdout.get()})
    if (set != nullptr) evaluated = std::max(evaluated, set->size());
  // A tensor is copied in its order on the device first, which leaves a gap in the heap.
  constexpr std::int64_t kCopies = 2 * sizeof(float);
  const std::int64_t largest_tensor = std::ranges::max(trainer.model().parameters.segments, {}, &Segment::size).size;
  const auto checkpoint = static_cast<std::size_t>(trainer.checkpoint_bytes(ranks) + kCopies * largest_tensor);
  return text_of(
      process_memory(backend, {{"MPI", kMemoryOfMpi},
                               {"messages of all ranks", messages},
                               {"batches ahead", loader},
                               {"perturbations kept", static_cast<std::size_t>(warm_start_bytes(options, plan, train))},
                               {"results of evaluations", EvaluationResult::bytes(evaluated, options.eval.size())},
                               {"checkpoint (rank 0)", checkpoint}}));
}

/// Attack of an epoch: "eps 8/255; 10 passes forward and back per image".
[[nodiscard]] std::string attack_text(const TrainOptions& options, const EpochAttack& one) {
  return (one.eps > 0 ? ball_text(norm_from(options.norm), one.eps) + "; " : "") +
         std::to_string(one.attack->gradients_of_run()) + " passes forward and back per image";
}

/// A line for each epoch from which on the attack is another one.
[[nodiscard]] std::string attacks_text(const TrainOptions& options, const StepMethod& method) {
  std::string text;
  for (const EpochAttack& one : method.attacks.all())
    text += (one.from > 0 ? "\n  from epoch " + std::to_string(one.from) + "   " : "") + attack_text(options, one);
  return text;
}

/// "2:03:00 h", of seconds.
[[nodiscard]] std::string hours(double seconds) {
  constexpr double kLongest = 1e15;  // which NaN becomes, too
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(kLongest, seconds)));
  return fmt::format("{}:{:02}:{:02} h", whole / 3600, whole / 60 % 60, whole % 60);
}

/// Time of the run by --calibration; empty: there is none. whole: with the number of generators settled.
[[nodiscard]] std::string time_text(const TrainOptions& whole, const Dataset& train, int launched, int on_node) {
  if (whole.calibration.empty()) return "";
  const std::optional<double> seconds = forecast_of_run(whole, train, launched, on_node);
  if (!seconds) {
    const int size = read_calibration(whole.calibration).image_size, own = train.info().size;
    return fmt::format("time             not known: {} is of images of {}x{}, and these have {}\n", whole.calibration,
                       size, size, whole.train_size.changes() ? "several sizes" : fmt::format("{}x{}", own, own));
  }
  return "time             " + hours(*seconds) + " by " + whole.calibration + ", without evaluations and checkpoints\n";
}

[[nodiscard]] std::string text_of(ValidateOrder order) {
  std::optional<MeasuredStep> step;
  if (!order.bench.empty()) step = read_measured_step(order.bench);
  take_network(order);
  const TrainOptions whole = order.options;
  order.options = part_of(whole, epoch_of_largest_part(whole));
  const int on_node = announced_ranks_on_node(), launched = announced_ranks();
  TrainOptions options = order.options;
  const std::string forecast = settle_generators(options, launched, on_node);
  TrainOptions timed = whole;
  timed.generators = launched == 1 ? 0 : options.generators;
  // One rank is what the command looks like without a launcher.
  const int ranks = launched == 1 ? 1 : trainers_of(launched, options);
  const std::string doubt = fault_warning(options.aggregator, options.faults, ranks);
  const auto world = Communicator::single();
  Trainer trainer(*world, as_one(options, ranks));
  trainer.share_state();
  const Model& model = trainer.model();
  const Dataset& train = *trainer.splits().train;
  const Plan plan(options, mix_of(options, train, ranks), ranks);
  if (launched > 1) require_ranks(options, plan, launched);
  Backend& backend = trainer.replica().backend();
  const Reducer& reducer = trainer.reducer();
  const std::map<std::string, std::size_t> memory = memory_of(trainer, options, ranks);
  std::size_t total = 0;
  for (const auto& [purpose, bytes] : memory) total += bytes;
  std::ostringstream text;
  text << recipe_text(whole, order.recipe) << "network          " << options.network << ", width " << options.width
       << (options.activation == "relu" ? "" : ", " + options.activation)
       << (options.normalize == "none" ? "" : ", images normalized (" + options.normalize + ")") << "\n"
       << "parameters       " << file_size(model.parameters.segments) << " in " << model.parameters.segments.size()
       << " tensors, " << model.parameters.layers() << " layers (granularity " << options.granularity << ")\n"
       << frozen_text(trainer, options, plan) << "forward pass     " << std::fixed << std::setprecision(1)
       << model.graph.macs() / 1e6 << " million multiply-adds per image\n"
       << "data             " << sizes_text(trainer.splits()) << ", " << train.info().classes << " classes, "
       << train.info().size << "x" << train.info().size << "\n"
       << sizes_by_epoch(trainer, plan) << (plan.mix.extra > 0 ? "mix              " + plan.mix_text() + "\n" : "")  //
       << "ranks            " << ranks << (options.generators > 0 ? " that train, " : ", ")
       << (plan.ordered ? std::to_string(plan.micro_batches) + " micro-batches of all ranks"
                        : "batch " + std::to_string(plan.batch) + " each")
       << ", " << plan.images_of_a_step() << " in all, micro-batch " << plan.micro_batch << "\n"
       << "length           " << text_of_parts(whole, mix_of(options, train, ranks), ranks) << "\n"
       << (beginnings_of_parts(whole).size() > 1
               ? "part             ranks above, and all below, are of the one from epoch " +
                     std::to_string(options.part_begin) + " on, the largest\n"
               : "")
       << time_text(timed, train, launched, on_node) << "attack           " << attacks_text(options, trainer.method())
       << (options.attack_stop >= 0 ? " at most" : "") << ", of " << numbers(trainer.replica().attack_sizes())
       << " images at a time\n"
       << noise_text(options) << std::left << std::setw(16) << transports().at(reducer.transport())().title << " "
       << sent_text(trainer, options, ranks) << " per step on average, "
       << megabytes(reducer.bytes_sent(all_active(trainer), ranks)) << " with all layers active\n"
       << sums_text(reducer, options, ranks, on_node) << generators_text(options, plan, train, *world)
       << protocol_text(trainer, options, ranks) << "checkpoint       " << megabytes(trainer.checkpoint_bytes(ranks))
       << ", the last three are kept\n"
       << warm_start_text(trainer, options, plan, ranks) << cheats_text(options, model.parameters.size)
       << "precision        " << precision_text(options) << "\n"
       << "memory per rank  " << megabytes(total) << " (" << backend.description() << ")";
  if (backend.device().kind == DeviceKind::cuda)
    text << ", " << megabytes(backend.spare_memory()) << " of the GPU's remain";
  text << "\n";
  for (const auto& [purpose, bytes] : memory)
    if (bytes >= total / 50) text << fmt::format("  {:<24}{}\n", purpose, megabytes(bytes));
  std::size_t messages = total;
  for (const Backend::Allocation& one : backend.allocations()) messages -= one.bytes;
  backend.host_threads = choose_threads(options.threads, on_node);
  text << process_text(trainer, options, plan, ranks, messages);
  text << reading_text(trainer, order, plan, step, data_threads(options, backend));
  if (!forecast.empty()) text << "forecast         " << forecast << "\n";
  text << costs_text(trainer, options, ranks) << differences_text(whole);
  for (const std::string& remark : label_remarks(options, trainer.splits()))
    text << "warning          " << remark << "\n";
  if (!doubt.empty()) text << "warning          " << doubt << "\n";
  for (const std::string& line : advice(whole, plan, cores_of_rank(on_node).count, options.part_begin))
    text << "warning          " << line << "\n";
  return text.str();
}

}  // namespace

void require_valid(const TrainOrder& order) { static_cast<void>(text_of({order})); }

namespace {

int run_validation(const ValidateOrder& order, int, char**) {
  // It is about all ranks that are announced, and the first of them speaks.
  if (another_rank_speaks() && announced_ranks() > 1) return static_cast<int>(ExitCode::done);
  return print_result([&] { return text_of(order); });
}

std::optional<ValidateOrder> parse_validation(CommandLine& line) {
  static const auto table = [] {
    TableOf<ValidateOrder> own;
    own.add("--bench", &ValidateOrder::bench,
            "bench.json that bench has left in its --out: whether images are read as fast as its step takes them; "
            "none: not reported",
            kPath);
    return own;
  }();
  ValidateOrder order;
  Bound bound(table, order);
  std::optional<TrainOrder> training =
      parse_training(line, "Checks what 'train' with the same options would do; says what differs from the defaults.",
                     take_network, &bound);
  if (!training) return {};
  static_cast<TrainOrder&>(order) = std::move(*training);
  return order;
}

}  // namespace

Verb validate_verb() {
  return make_verb("validate", "check options and data, print sizes and memory; no training", parse_validation,
                   run_validation, Launch::together);
}

}  // namespace dat
