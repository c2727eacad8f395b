// The verb train.

#include <filesystem>
#include <utility>

#include "options/train/parse.hpp"
#include "options/train/sweep.hpp"
#include "printed.hpp"
#include "run/begin/folder.hpp"
#include "run/begin/found.hpp"
#include "run/run.hpp"
#include "run/settle_generators.hpp"
#include "run/signals.hpp"
#include "verbs/ranks.hpp"
#include "verbs/report/report.hpp"
#include "verbs/results/tables.hpp"
#include "verbs/training/validate.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

/// A training, or those of a sweep.
struct TrainingOrder : TrainOrder {
  std::string sweep{};                  ///< --sweep; empty: one training
  std::vector<SweptTraining> points{};  ///< trainings of the sweep
};

/// Plans, trains, evaluates, writes the run's folder; goes on from a checkpoint where there is one. ended: receives the
/// folder on the first rank, once the run is at its end. **Collective.**
int run_one(Communicator& world, const TrainOrder& order, int argc, char** argv, std::vector<std::string>& ended) {
  TrainOrder own = order;
  GivenWeights weights = take_network(own, world);
  const std::string told = settle_generators(world, own.options);
  if (world.root() && !told.empty()) say(told);
  Run run(world, own.options, std::move(weights), argc, argv);
  const int code = run.go();
  if (world.root() && code == static_cast<int>(ExitCode::done)) ended.push_back(run.folder());
  return code;
}

/// A training of a sweep; its record names the command that makes this training alone. **Collective.**
int run_point(Communicator& world, const SweptTraining& point, char* program, std::vector<std::string>& ended) {
  std::vector<std::string> words = point.words;
  std::string verb = "train";
  std::vector<char*> argv = {program, verb.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return run_one(world, point, static_cast<int>(argv.size()) - 1, argv.data(), ended);
}

/// Prints the table of all trainings that have begun, as the verb compare does. On one rank.
void print_table(const std::vector<SweptTraining>& points) {
  std::vector<std::string> begun;
  for (const SweptTraining& point : points)
    if (holds_run(point.options.out)) begun.push_back(point.options.out);
  if (begun.empty()) return;
  try {
    static_cast<void>(print_comparison(begun, "", text_of));
  } catch (const std::exception&) {
    complain(current_error().what());
  }
}

/// Leaves a page in the folder of a run that has ended, as the verb report does, unless one is there. A page that
/// cannot be written is a warning.
void leave_page(const std::string& folder) {
  const std::string page = folder + "/report.html";
  if (std::error_code unseen; std::filesystem::exists(page, unseen)) return;
  try {
    static_cast<void>(write_report({folder}, "", page));
  } catch (const std::exception&) {
    say(std::string("warning: the run has no page: ") + current_error().what());
  }
}

/// Trains one point after the other, once all of them are known to be possible. A point that fails is passed over; a
/// signal ends the sweep. Returns the code of the first point that has failed. **Collective.**
int run_sweep(Communicator& world, const std::vector<SweptTraining>& points, char* program,
              std::vector<std::string>& ended) {
  together(world, [&] {
    if (!world.root()) return;
    for (const SweptTraining& point : points) at_point(point, [&] { require_valid(point); });
  });
  int code = 0;
  for (std::size_t k = 0; k < points.size(); ++k) {
    if (world.root())
      say("sweep: point " + std::to_string(k + 1) + " of " + std::to_string(points.size()) + ", " + points[k].name);
    const int own = agreed_code(world, [&] { return run_point(world, points[k], program, ended); });
    if (own == static_cast<int>(ExitCode::stopped)) return own;
    if (code == 0) code = own;
  }
  if (world.root()) print_table(points);
  return code;
}

int run_training(const TrainingOrder& order, int argc, char** argv) {
  outlive_readers();
  std::vector<std::string> ended;
  const int code = with_ranks([&](Communicator& world) {
    auto settings = settings_of(order.options);
    settings.emplace_back("sweep", order.sweep);
    shake_hands(world, facts_of("train", settings));
    return order.points.empty() ? run_one(world, order, argc, argv, ended)
                                : run_sweep(world, order.points, argv[0], ended);
  });
  for (const std::string& folder : ended) leave_page(folder);  // gnuplot is started when MPI is over
  return code;
}

std::optional<TrainingOrder> parse_train(CommandLine& line) {
  static const auto table = [] {
    TableOf<TrainingOrder> own;
    own.group("Run", false);
    own.add("--sweep", &TrainingOrder::sweep,
            "trainings of all combinations, e.g. 'seed=1,2,3 lr=0.05,0.1', one after the other, each in a folder below "
            "--out; semicolons between values with commas",
            {.label = "NAME=V,V..."});
    return own;
  }();
  TrainingOrder order;
  Bound bound(table, order);
  std::optional<TrainOrder> training =
      parse_training(line,
                     "Distributed adversarial training of image classifiers. What a bare\n"
                     "  dat_hpc train --data FILE\n"
                     "does is LAMB with JointSpar: PGD-10, and the exp3 bandit draws 40/54 of the\n"
                     "layers in the mean, which a step trains. Plain PGD training, as published, is\n"
                     "  dat_hpc train --recipe madry --data FILE\n"
                     "and --selector all trains all layers in each step.",
                     take_network, &bound, &order.sweep);
  if (!training) return {};
  static_cast<TrainOrder&>(order) = std::move(*training);
  if (bound.origin("sweep") != Origin::none)
    order.points = sweep_trainings(order.sweep, order.options.out, line.words_given("out"));
  else
    require_apart_from_inputs(order.options, line.config_file());
  for (const SweptTraining& point : order.points) require_apart_from_inputs(point.options, line.config_file());
  return order;
}

}  // namespace

Verb train_verb() {
  return make_verb("train", "train a network; the verb when there are options alone", parse_train, run_training,
                   Launch::together);
}

}  // namespace dat
