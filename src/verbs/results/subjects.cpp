#include "verbs/results/subjects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "communicate/together.hpp"
#include "dat/communicator.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/report.hpp"
#include "files/outside_json.hpp"
#include "interop/source.hpp"
#include "options/values/hints.hpp"
#include "printed.hpp"
#include "record/evaluation_file.hpp"
#include "record/status/run_status.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFirst = 10;  ///< steps that are not measured: caches and queues fill

[[nodiscard]] double median_of(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

[[nodiscard]] double seconds_in(const StepRecord& step, Phase first, Phase last) {
  return std::accumulate(step.seconds.begin() + static_cast<int>(first),
                         step.seconds.begin() + static_cast<int>(last) + 1, 0.0);
}

void measure(const History& history, Subject& subject) {
  const std::vector<StepRecord>& steps = history.steps;
  if (steps.empty()) return;
  subject.steps = static_cast<double>(steps.back().step);
  subject.seconds = history.seconds();
  std::vector<double> seconds, images;
  double reduction = 0, bytes = 0;
  for (std::size_t i = steps.size() > kFirst ? kFirst : 0; i < steps.size(); ++i) {
    seconds.push_back(seconds_in(steps[i], Phase::data, Phase::other));
    images.push_back(static_cast<double>(steps[i].images));
    reduction += seconds_in(steps[i], Phase::encode, Phase::decode);
    bytes += static_cast<double>(steps[i].bytes_sent);
  }
  subject.batch = median_of(images);
  subject.images_per_second = subject.batch / median_of(seconds);
  subject.reduction = 100 * reduction / std::accumulate(seconds.begin(), seconds.end(), 0.0);
  subject.megabytes = 1e-6 * bytes / static_cast<double>(seconds.size());
  double right = 0, count = 0;
  for (const StepRecord& step : steps)
    if (step.epoch == steps.back().epoch && std::isfinite(step.acc_adv)) {
      right += step.acc_adv * static_cast<double>(step.images);
      count += static_cast<double>(step.images);
    }
  subject.training = 100 * right / count;
}

[[nodiscard]] std::string set_text(std::int64_t images, const std::string& split, const std::string& hash) {
  return fmt::format("{} {}, hash {}", images, images_text(split), hash);
}

/// Hash of a run's test images, which its provenance names.
[[nodiscard]] std::string hash_of_test_images(const std::string& provenance, const std::string& folder) {
  const auto all = json_or_discarded(provenance);
  const auto hashes = all.is_object() ? all.value("hashes_of_images", nlohmann::json::object()) : nlohmann::json();
  const auto test = hashes.is_object() ? hashes.value("test", nlohmann::json()) : nlohmann::json();
  return test.is_string() ? test.get<std::string>() : "unknown in " + folder;  // like no other
}

/// The last figures of each kind of weights on the test images.
[[nodiscard]] std::vector<EvaluatedNetwork> last_networks(const History& history, const std::string& hash,
                                                          const std::string& noise) {
  std::vector<EvaluatedNetwork> networks;
  for (const char* weights : {"raw", "average"}) {
    const auto is_own = [&](const EvaluationRecord& r) { return r.split == "test" && r.weights == weights; };
    const auto last = std::find_if(history.evaluations.rbegin(), history.evaluations.rend(), is_own);
    if (last == history.evaluations.rend()) continue;
    EvaluatedNetwork& network = networks.emplace_back(EvaluatedNetwork{weights, last->step});
    const auto add = [&](const EvaluationRecord& r, const Figure& described, double part) {
      if (!(part >= 0 && part <= 1) || r.images < 1) return;
      Figure& one = network.figures.emplace_back(described);
      one.set = set_text(r.images, r.split, hash);
      one.name += noise;
      one.images = r.images;
      one.right = std::llround(part * static_cast<double>(r.images));
    };
    add(*last, {.name = "clean"}, last->clean_acc);
    for (const EvaluationRecord& r : history.evaluations) {
      if (!is_own(r) || moment_of(r) != moment_of(*last) || r.wall_time != last->wall_time || r.attack_steps == 0)
        continue;
      const auto parts = attack_parts(r);
      add(r, {.name = r.attack, .ball = parts[0], .rest = parts[1] + ", " + parts[2]}, r.adv_acc);
    }
  }
  return networks;
}

/// What a record has beside its steps, which may be many.
[[nodiscard]] History without_steps(History history) {
  history.steps.erase(history.steps.begin(), std::ranges::prev(history.steps.end(), 1, history.steps.begin()));
  history.p = history.norms = {};
  history.active = {};
  history.distances = {};
  history.generators = {};
  return history;
}

/// The state of a run, now.
void take_state(const History& history, Subject& subject) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const RunStatus status = status_of(subject.path, {}, host_name(), now, &history);
  subject.state = lower_case(name_of(status.state));
  if (status.state == RunState::failed) subject.state += fmt::format(" {}", status.writer.code);
  subject.done = status.state == RunState::done;
}

void take_run(Subject& subject) {
  History history = read_history(subject.path);
  subject.settings = settings_of_run(subject.path);
  subject.ranks = ranks_of_run(subject.path, subject.settings);
  subject.provenance = small_file(subject.path + "/provenance.json").value_or("");
  take_state(history, subject);
  measure(history, subject);
  const Settings& options = subject.settings;
  const std::string samples = options.at("noise-samples");
  const std::string noise = options.at("noise") == "0" ? ""
                                                       : ", under noise " + options.at("noise") + ", " + samples +
                                                             (samples == "1" ? " copy" : " copies");
  subject.networks = last_networks(history, hash_of_test_images(subject.provenance, subject.path), noise);
  subject.record = without_steps(std::move(history));
}

void take_evaluation(const std::string& file, Subject& subject) {
  subject.evaluation = true;
  EvaluationFile all = read_evaluation(file);
  subject.provenance = all.provenance;
  const std::string set = set_text(std::ssize(all.label), all.split, all.hash);
  EvaluatedNetwork& network = subject.networks.emplace_back(EvaluatedNetwork{all.weights, all.step});
  for (EvaluationFile::Outcome& one : all.outcomes) {
    if (&one != &all.outcomes.front() && one.ball.empty()) continue;  // without an attack: as clean
    const auto right = std::accumulate(one.correct.begin(), one.correct.end(), std::int64_t{0});
    network.figures.push_back({.set = set,
                               .name = one.name + all.noise,
                               .ball = one.ball,
                               .rest = one.rest,
                               .right = right,
                               .images = std::ssize(one.correct),
                               .correct = std::move(one.correct)});
  }
  std::error_code unreadable;
  if (!fs::is_directory(all.checkpoint, unreadable) && !fs::is_regular_file(all.checkpoint, unreadable)) return;
  try {
    const std::string toml = config_of_source(all.checkpoint);
    if (!toml.empty()) subject.settings = settings_in(toml, all.checkpoint);
  } catch (const Error&) {  // of another origin: its options stay unknown
  }
}

[[nodiscard]] std::string own_name(const std::string& path, const std::string& evaluation) {
  const fs::path whole = fs::absolute(evaluation.empty() ? path + "/eval.json" : evaluation).lexically_normal();
  return whole.filename() == "eval.json" ? whole.parent_path().filename() : whole.stem();
}

/// A path itself; of a folder that is neither a run nor an evaluation, what is right in it.
[[nodiscard]] std::vector<std::string> members_of(const std::string& path) {
  std::error_code unreadable;
  if (!fs::is_directory(path, unreadable) || holds_run(path) || !evaluation_in(path).empty()) return {path};
  std::vector<std::string> inside = entries_in(path);
  std::erase_if(inside, [&](const std::string& entry) {
    return !fs::is_directory(entry, unreadable) || (!holds_run(entry) && evaluation_in(entry).empty());
  });
  return inside.empty() ? std::vector{path} : inside;
}

[[nodiscard]] Subject read_subject(const std::string& path) {
  Subject subject;
  subject.path = path;
  std::string file;
  try {
    file = evaluation_in(path);
    subject.name = own_name(path, file);
    if (!file.empty())
      take_evaluation(file, subject);
    else
      take_run(subject);
  } catch (const std::exception&) {
    const std::string what = current_error().what();
    subject.failure = what.find(path) == std::string::npos ? path + ": " + what : what;
    subject.settings.clear();
    subject.networks.clear();
    subject.record = {};
    subject.there = !file.empty() || holds_run(path);
  }
  return subject;
}

/// Efficiencies of runs that differ in their batch and ranks alone.
void compare_speed(std::vector<Subject>& subjects) {
  std::map<Settings, std::vector<Subject*>> kinds;
  for (Subject& one : subjects) {
    if (!std::isfinite(one.images_per_second)) continue;
    Settings kind = one.settings;
    for (const char* name : {"batch", "total-batch", "micro-batch", "threads", "seed"}) kind.erase(name);
    kinds[kind].push_back(&one);
  }
  for (const auto& [kind, all] : kinds) {
    const auto [fewest, most] =
        std::ranges::minmax_element(all, [](const Subject* a, const Subject* b) { return a->ranks < b->ranks; });
    if ((*fewest)->ranks == (*most)->ranks) continue;
    const double reference = (*fewest)->images_per_second / (*fewest)->ranks;
    for (Subject* one : all) one->efficiency = one->images_per_second / one->ranks / reference;
  }
}

}  // namespace

bool holds_run(const std::string& folder) {
  std::error_code unreadable;
  return fs::is_regular_file(folder + "/metrics.jsonl", unreadable);
}

void require_readable(const std::vector<Subject>& subjects) {
  require(std::ranges::any_of(subjects, [](const Subject& one) { return one.failure.empty(); }), ExitCode::data,
          subjects.front().failure);
}

int tell_left_out(const std::vector<Subject>& subjects) {
  auto code = static_cast<int>(ExitCode::done);
  for (const Subject& one : subjects)
    if (!one.failure.empty()) {
      say("error: left out: " + one.failure);
      code = static_cast<int>(ExitCode::data);
    }
  return code;
}

std::vector<Subject> read_subjects(const std::vector<std::string>& paths) {
  std::vector<Subject> subjects;
  std::vector<std::string> names, all;
  for (const std::string& path : paths)
    for (const std::string& member : members_of(path)) {
      subjects.push_back(read_subject(member));
      names.push_back(subjects.back().name);
      all.push_back(member);
    }
  name_apart(names, all);
  for (std::size_t i = 0; i < subjects.size(); ++i) subjects[i].name = names[i];
  compare_speed(subjects);
  return subjects;
}

}  // namespace dat
