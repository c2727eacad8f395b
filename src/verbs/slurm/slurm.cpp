// The verb slurm: a batch script that trains with the given options.

#include "verbs/slurm/slurm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "dat/backend.hpp"
#include "options/train/citations.hpp"
#include "options/train/table.hpp"
#include "options/values/hints.hpp"
#include "printed.hpp"
#include "verbs/ranks.hpp"
#include "verbs/slurm/needs.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

constexpr int kMostOfNode = 4096;  // ranks, cores and GPUs

/// Options that the short help shows.
const std::vector<std::string> kMainOptions = {
    "help",         "nodes",  "gpus-per-node", "ranks-per-node", "cpus-per-rank", "time",
    "step-seconds", "like",   "job-name",      "modules",        "sbatch",        "sweep",
    "recipe",       "config", "data",          "network",        "epochs",        "batch",
    "out"};

const TableOf<SlurmOptions>& job_table() {
  static const TableOf<SlurmOptions> all([](auto& table) {
    using O = SlurmOptions;
    table.group("Job", false);
    table.add("--nodes", &O::nodes, "number of nodes", {.low = 1, .high = 100000});
    table.add("--gpus-per-node", &O::gpus_per_node, "0: ranks compute on CPUs", {.low = 0, .high = kMostOfNode});
    table.add("--ranks-per-node", &O::ranks_per_node, "auto: one for each GPU, or one",
              {.low = 1, .high = kMostOfNode, .automatic = 0});
    table.add("--cpus-per-rank", &O::cpus_per_rank, "cores of a rank", {.low = 1, .high = kMostOfNode});
    table.add("--time", &O::time, "time limit; none: from the seconds of a step, else 4 hours", {.label = "[D-]H:M:S"});
    table.add("--step-seconds", &O::step_seconds, "how long a step takes; auto: by --calibration, if that is given",
              {.low = 0, .high = kLongestStep, .above = true, .automatic = 0});
    table.not_together({"step-seconds"}, {"like"},
                       "--step-seconds and --like both say how long a step takes; give one of them");
    table.add("--like", &O::like, "a run, on as many ranks, whose steps took as long; none: not known",
              {.label = "RUN"});
    table.add("--job-name", &O::job_name, "of the job", {.label = "NAME"});
    table.add("--modules", &O::modules, "environment modules to load, e.g. 'openmpi/4.1 cuda/12.4'",
              {.label = "NAMES"});
    table
        .add("--sbatch", &O::sbatch, "further options of sbatch, e.g. '--partition=gpu --account=p1 --constraint=a100'",
             {.label = "OPTIONS"})
        .takes_dashes();
    table.add("--sweep", &O::sweep,
              "an array of trainings, of all combinations, e.g. 'seed=1,2,3 lr=0.05,0.1', each in a folder below "
              "--out, and a table after them; semicolons between values with commas",
              {.label = "NAME=V,V..."});
  });
  return all;
}

/// Seconds of "h", "min", "days"; 0: no unit of time.
std::int64_t seconds_of(const std::string& unit) {
  static const std::map<std::int64_t, std::set<std::string>> all = {{86400, {"d", "day", "days"}},
                                                                    {3600, {"h", "hr", "hrs", "hour", "hours"}},
                                                                    {60, {"m", "min", "mins", "minute", "minutes"}},
                                                                    {1, {"s", "sec", "secs", "second", "seconds"}}};
  for (const auto& [seconds, names] : all)
    if (names.contains(unit)) return seconds;
  return 0;
}

/// "24h" -> "24:00:00", "2d" -> "2-00:00:00", "1h30m" -> "01:30:00", "90 min" -> "01:30:00": a time as Slurm writes it.
/// Empty: this is no time with units.
[[nodiscard]] std::string slurm_time_of(const std::string& text) {
  const std::string low = lower_case(text);
  constexpr double kLongest = 1e9;
  double seconds = 0;
  bool days = false;
  const char *at = low.data(), *const end = low.data() + low.size();
  while (at != end) {
    double number{};
    const auto [behind, error] = std::from_chars(at, end, number);
    if (error != std::errc() || !(number >= 0 && number < kLongest)) return "";
    at = behind;
    while (at != end && *at == ' ') ++at;
    const char* const unit = at;
    while (at != end && std::isalpha(static_cast<unsigned char>(*at)) != 0) ++at;
    const std::int64_t factor = seconds_of({unit, at});
    if (factor == 0) return "";
    days = days || factor == 86400;
    seconds += number * static_cast<double>(factor);
    while (at != end && *at == ' ') ++at;
  }
  if (!(seconds >= 1 && seconds < kLongest)) return "";
  const auto left = static_cast<std::int64_t>(std::ceil(seconds));
  const std::int64_t hours = left / 3600, minutes = left / 60 % 60;
  if (days) return fmt::format("{}-{:02}:{:02}:{:02}", hours / 24, hours % 24, minutes, left % 60);
  return fmt::format("{:02}:{:02}:{:02}", hours, minutes, left % 60);
}

/// Error(usage): text that Slurm would not read as it is meant.
void check_words(const SlurmOptions& o) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:+/@%";
  const auto check = [&](const char* option, const std::string& value, const std::string& allowed) {
    require(value.find_first_not_of(allowed) == std::string::npos, ExitCode::usage, option, " '", value,
            "' would not be read by Slurm as it is meant; use letters, digits and _-.,:+/@% only");
  };
  check("--job-name", o.job_name, plain);
  check("--modules", o.modules, plain + " ");
  static_cast<void>(sbatch_words(o.sbatch));
  require(o.time.find_first_not_of("0123456789-:") == std::string::npos, ExitCode::usage, "--time '", o.time,
          slurm_time_of(o.time).empty() ? "' is no time of Slurm's; write [DAYS-]HOURS:MINUTES:SECONDS, as 24:00:00"
                                        : "' is written --time " + slurm_time_of(o.time) + " for Slurm");
}

/// A script that reserves GPUs trains on them, and one that trains on them reserves some. Error(device): this program,
/// which the script runs, knows no GPU.
void require_device(const SlurmOptions& job, const TrainOptions& options) {
  const bool gpus = job.gpus_per_node > 0;
  require(!gpus || options.device != "cpu", ExitCode::usage, "--gpus-per-node ", job.gpus_per_node,
          " reserves GPUs, which --device cpu leaves idle; leave one of them off");
  const bool wants = options.device == "cuda" || options.precision != "f32" || options.attack_precision != "f32";
  require(gpus || !wants, ExitCode::usage,
          "--device cuda, and precisions other than f32, need GPUs that Slurm has reserved; add --gpus-per-node N");
  require(!gpus || cuda_version() != "not built", ExitCode::device, "--gpus-per-node ", job.gpus_per_node,
          " is for a dat_hpc with CUDA, and this one, which the script would run, was built without: it would train on "
          "the CPUs beside them; build it with 'cmake --preset cuda', or leave the option off");
}

/// Adds to the words of a training that it takes the GPUs which are reserved, where it does not say so.
void settle_device(SlurmOptions& job, const TrainOptions& options) {
  if (job.gpus_per_node == 0 || options.device != "auto") return;
  const auto given = std::ranges::find(job.train, "--device");
  if (given != job.train.end()) job.train.erase(given, given + 2);
  job.train.insert(job.train.end(), {"--device", "cuda"});
}

int run_slurm(const SlurmOrder& order, int, char**) {
  return print_result([&] { return unchanged(script_of(order)); });
}

}  // namespace

std::vector<std::string> sbatch_words(const std::string& text) {
  const std::string lower = "abcdefghijklmnopqrstuvwxyz";
  const std::string value = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:+/@%=[]()*&|";
  std::vector<std::string> all;
  std::istringstream words(text);
  for (std::string word; words >> word; all.push_back(word)) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    require(name != "--" && name.starts_with("--") && name.find_first_not_of(lower + "-") == std::string::npos &&
                word.find_first_not_of(value, equals) == std::string::npos,
            ExitCode::usage, "--sbatch '", word,
            "' would not be read by Slurm as it is meant; write options as --NAME=VALUE, between blanks, with letters, "
            "digits and _-.,:+/@%=[]()*&| in values");
    // sbatch takes the beginning of an option's name for the option, but for --gpus, which it has.
    for (const std::string own : {"--array", "--wrap", "--nodes", "--ntasks", "--ntasks-per-node", "--cpus-per-task",
                                  "--gpus-per-node", "--time", "--job-name"})
      require(name == "--gpus" || !own.starts_with(name), ExitCode::usage, "--sbatch ", name, " is the script's own",
              name == own ? "" : ", as " + own, "; see the options of 'dat_hpc slurm --help'");
  }
  return all;
}

bool sets_memory(const std::string& word) {
  return word == "--mem" || word.starts_with("--mem=") || word.starts_with("--mem-p");
}

std::optional<SlurmOrder> parse_slurm(CommandLine& line) {
  SlurmOrder order;
  SlurmOptions& o = order.job;
  Bound job(job_table(), o), training(train_table(), order.training.options);
  line.describe("Prints a batch script for Slurm that trains with the options of 'train' given here.");
  line.show_first(kMainOptions);
  line.add(job);
  line.add_configurable(training, true);
  if (!line.read()) return {};
  job.check();
  check_words(o);
  if (o.ranks_per_node == 0) o.ranks_per_node = std::max(1, o.gpus_per_node);
  const bool sweep = job.origin("sweep") != Origin::none;
  o.train = line.words_given(sweep ? "out" : "");
  if (!sweep || line.prints_config() || line.cites()) settle_typed(training, order.training.options);
  order.training.given = line.given();
  if (line.prints_config() || line.cites()) take_known_network(order.training);
  if (!line.finish()) return {};
  if (line.cites()) {
    line.answer(citations_text(order.training.options));
    return {};
  }
  if (!sweep) require_device(o, order.training.options);
  settle_device(o, order.training.options);
  if (sweep) order.points = sweep_trainings(o.sweep, order.training.options.out, o.train);
  for (const SweptTraining& point : order.points) require_device(o, point.options);
  return order;
}

Verb slurm_verb() {
  return make_verb("slurm", "print a batch script that trains with these options", parse_slurm, run_slurm);
}

}  // namespace dat
