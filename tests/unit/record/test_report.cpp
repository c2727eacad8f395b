#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "allocations.hpp"
#include "catch.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/report.hpp"
#include "hdf5/hdf5.hpp"
#include "record/event_kind.hpp"

using namespace dat;
namespace fs = std::filesystem;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A folder that is gone after the test.
struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "dat report's XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  [[nodiscard]] std::string operator/(const std::string& file) const { return (path / file).string(); }
};

RunFacts facts_in(const std::string& folder) {
  RunFacts facts;
  facts.folder = folder;
  facts.config_toml = "lr = 0.1\n";
  facts.provenance_json = "{\"git_sha1\":\"abc\"}\n";
  facts.layer_names = {"conv1.weight", "layer1.0.conv1.weight", "linear.bias"};
  facts.layer_costs = {0.5, 2.25, 0.25};
  facts.layer_sizes = {432, 2304, 10};
  facts.ranks = 2;
  facts.total_steps = 5;
  facts.steps_per_epoch = 3;
  facts.epochs = 2;
  facts.warmup_epochs = 1;
  facts.quiet = true;
  return facts;
}

/// A step whose numbers need all digits, with the vectors that it points to.
struct Step {
  StepRecord record;
  std::vector<float> scale;
  std::vector<double> p, norms;

  explicit Step(std::int64_t number) {
    const auto x = static_cast<double>(number);
    record.step = number;
    record.epoch = static_cast<int>((number - 1) / 3);
    record.steps_per_epoch = 3;
    record.wall_time = x / 3;
    record.lr = 0.1 * x;
    record.loss_adv = std::exp(x / 7);
    record.loss_clean = number % 2 == 0 ? kNaN : std::sqrt(x);
    record.acc_adv = 1 / (1 + x);
    record.acc_clean = 2 / (3 + x);
    record.images = 128;
    for (std::size_t i = 0; i < kPhases; ++i) record.seconds[i] = x * std::sin(static_cast<double>(i) + 1) + 10;
    record.active_elements = 432 + (number % 2) * 2304;
    record.bytes_sent = 4 * record.active_elements;
    record.bytes_statistics = (std::int64_t{1} << 40) + number;
    record.weight_gradients = number + 7;
    record.attack_passes = 10 * number;
    record.eps = x / 11;
    p = {1.0, 0.3 + 0.01 * x, 0.1};
    scale = {1.0F, static_cast<float>(number % 2 == 0 ? 0 : 1 / p[1]), 0.0F};
    norms = {x / 11, x / 13, 99};
  }
  [[nodiscard]] const StepRecord& get() {
    record.scale = &scale;
    record.p = &p;
    record.norms = &norms;
    return record;
  }
};

EvaluationRecord evaluation_at(std::int64_t step) {
  return {.step = step,
          .epoch = static_cast<int>(step / 3),
          .wall_time = static_cast<double>(step) / 3,
          .split = "test",
          .attack = "pgd10",
          .attack_steps = 10,
          .restarts = 1,
          .eps = 8.0 / 255,
          .alpha = 2.0 / 255,
          .clean_acc = 1.0 / 3,
          .adv_acc = 2.0 / 7,
          .clean_loss = 1.1,
          .adv_loss = kNaN,
          .images = 10000};
}

/// Under two attacks, and on the held-out images under one of them.
std::vector<EvaluationRecord> evaluations_at(std::int64_t step) {
  std::vector<EvaluationRecord> all(3, evaluation_at(step));
  all[1].attack = "pgd20";
  all[1].attack_steps = 20;
  all[1].restarts = 5;
  all[1].alpha = 0.1 / 255;
  all[1].adv_acc = 0.125;
  all[2].split = "holdout";
  all[2].clean_acc = 0.5;
  all[2].adv_acc = 0.25;
  all[2].adv_loss = 1.75;
  all[2].images = 1000;
  return all;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<double> reals(const Hdf5File& file, const std::string& name) {
  Shape shape;
  return file.read<double>(name, shape);
}
std::vector<std::int64_t> integers(const Hdf5File& file, const std::string& name) {
  Shape shape;
  return file.read<std::int64_t>(name, shape);
}

template <class Action>
std::pair<ExitCode, std::string> error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ExitCode::done, ""};
}

/// An event that the program does not know.
struct FloodRecord {
  static constexpr const char *kKind = "flood", *kTable = "floods";
  std::int64_t step = 0;
  double depth = 0;
  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("depth", self.depth);
  }
  [[nodiscard]] bool lasts() const { return depth > 0; }
  [[nodiscard]] std::string sentence() const { return fmt::format("the water stands at {}", depth); }
  [[nodiscard]] static std::string summary(const std::vector<FloodRecord>& all) {
    return fmt::format("{:<16}{}\n", "floods", all.size());
  }
};

/// An event, and what is to be seen of it.
struct Example {
  std::string kind, line, said;
  bool lasts;
  std::function<void(Report&)> tell;
  std::function<std::string()> read_again;
};

/// fields: of its line; said: to people.
template <class Event>
Example example(const Event& event, const std::string& fields, const std::string& said, bool lasts = false) {
  const std::string line = std::string("{\"kind\":\"") + Event::kKind + "\"," + fields + "}\n";
  return {Event::kKind,
          line,
          said,
          lasts,
          [event](Report& report) { report.tell(event); },
          [line] { return line_of(std::any_cast<Event>(kind_of<Event>().read(nlohmann::json::parse(line)))); }};
}

/// Sends the lines to the terminal, or those to standard error, to a file while it lives.
class CapturedOutput {
 public:
  explicit CapturedOutput(const std::string& path, int stream = STDOUT_FILENO)
      : stream_(stream), saved_((std::fflush(stdout), dup(stream))) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    dup2(fileno(file), stream);
    std::fclose(file);
  }
  ~CapturedOutput() {
    std::fflush(stdout);
    dup2(saved_, stream_);
    close(saved_);
  }

 private:
  int stream_, saved_;
};

}  // namespace

TEST_CASE("Every number of a run reads back from results.h5 exactly", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "a/new/run");
  Report report(facts, -1);
  std::vector<Step> steps;
  for (std::int64_t i = 1; i <= 5; ++i) report.step(steps.emplace_back(i).get());
  report.evaluation(evaluations_at(5));
  report.ranks({3, std::vector<double>(kPhases, 0.1), {1e12}});
  std::vector<double> seconds;
  for (int i = 0; i < 2 * kPhases; ++i) seconds.push_back(i / 3.0);
  report.ranks({5, seconds, {12345678901234, 7}});
  write_results(facts);

  const std::string path = facts.folder + "/results.h5";
  REQUIRE(check_seal(path).empty());
  const Hdf5File file = Hdf5File::open(path, ExitCode::data);
  CHECK(file.text("/", "filetype") == "results");
  CHECK(file.integer("/", "format_version") == 2);
  CHECK(file.text("/", "config_toml") == facts.config_toml);
  CHECK(file.text("/", "provenance") == facts.provenance_json);
  CHECK(file.text("history/step/wall_time", "units") == "s");
  CHECK(file.text("history/step/bytes_sent", "units") == "byte");
  CHECK(file.read_texts("jointspar/layer_name") == facts.layer_names);
  CHECK(integers(file, "jointspar/layer_elements") == facts.layer_sizes);
  CHECK(reals(file, "jointspar/layer_cost") == facts.layer_costs);

  const std::string group = "history/step/";
  for (const auto& [name, value] : std::map<std::string, double StepRecord::*>{{"wall_time", &StepRecord::wall_time},
                                                                               {"lr", &StepRecord::lr},
                                                                               {"eps", &StepRecord::eps},
                                                                               {"loss_adv", &StepRecord::loss_adv},
                                                                               {"loss_clean", &StepRecord::loss_clean},
                                                                               {"acc_adv", &StepRecord::acc_adv},
                                                                               {"acc_clean", &StepRecord::acc_clean}}) {
    INFO(name);
    const std::vector<double> values = reals(file, group + name);
    REQUIRE(values.size() == steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double expected = steps[i].record.*value;
      CHECK((std::isnan(expected) ? std::isnan(values[i]) : values[i] == expected));
    }
  }
  for (const auto& [name, value] :
       std::map<std::string, std::int64_t StepRecord::*>{{"step", &StepRecord::step},
                                                         {"images", &StepRecord::images},
                                                         {"bytes_sent", &StepRecord::bytes_sent},
                                                         {"bytes_statistics", &StepRecord::bytes_statistics},
                                                         {"active_elements", &StepRecord::active_elements},
                                                         {"weight_gradients", &StepRecord::weight_gradients},
                                                         {"attack_passes", &StepRecord::attack_passes}}) {
    INFO(name);
    const std::vector<std::int64_t> values = integers(file, group + name);
    REQUIRE(values.size() == steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) CHECK(values[i] == steps[i].record.*value);
  }
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    const std::vector<double> values = reals(file, group + "t_" + kPhaseNames[phase]);
    REQUIRE(values.size() == steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) CHECK(values[i] == steps[i].record.seconds[phase]);
  }
  CHECK(integers(file, group + "epoch") == std::vector<std::int64_t>{0, 0, 0, 1, 1});
  CHECK(integers(file, group + "steps_per_epoch") == std::vector<std::int64_t>(5, 3));
  CHECK(integers(file, group + "n_active") == std::vector<std::int64_t>{2, 1, 2, 1, 2});

  Shape shape;
  const std::vector<float> p = file.read<float>("jointspar/p", shape);
  CHECK(shape == Shape{5, 3});
  const std::vector<float> norm = file.read<float>("jointspar/norm", shape);
  CHECK(shape == Shape{5, 3});
  const std::vector<std::uint8_t> active = file.read<std::uint8_t>("jointspar/active", shape);
  CHECK(shape == Shape{5, 3});
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t layer = 0; layer < 3; ++layer) {
      const std::size_t at = i * 3 + layer;
      CHECK(p[at] == static_cast<float>(steps[i].p[layer]));
      CHECK((active[at] == 1) == (steps[i].scale[layer] != 0));
      if (active[at] == 1)
        CHECK(norm[at] == static_cast<float>(steps[i].norms[layer]));
      else
        CHECK(std::isnan(norm[at]));
    }
  }

  CHECK(file.read_texts("history/evaluation/split") == std::vector<std::string>{"test", "test", "holdout"});
  CHECK(file.read_texts("history/evaluation/attack") == std::vector<std::string>{"pgd10", "pgd20", "pgd10"});
  CHECK(reals(file, "history/evaluation/clean_acc") == std::vector<double>{1.0 / 3, 1.0 / 3, 0.5});
  CHECK(reals(file, "history/evaluation/adv_acc") == std::vector<double>{2.0 / 7, 0.125, 0.25});
  CHECK(reals(file, "history/evaluation/eps") == std::vector<double>(3, 8.0 / 255));
  CHECK(reals(file, "history/evaluation/alpha") == std::vector<double>{2.0 / 255, 0.1 / 255, 2.0 / 255});
  CHECK(std::isnan(reals(file, "history/evaluation/adv_loss").at(0)));
  CHECK(integers(file, "history/evaluation/images") == std::vector<std::int64_t>{10000, 10000, 1000});
  CHECK(integers(file, "history/evaluation/restarts") == std::vector<std::int64_t>{1, 5, 1});
  CHECK(integers(file, "history/evaluation/epoch") == std::vector<std::int64_t>{1, 1, 1});

  CHECK(integers(file, "ranks/step") == std::vector<std::int64_t>{3, 5});
  const std::vector<double> update = file.read<double>("ranks/t_update", shape);
  CHECK(shape == Shape{2, 2});
  CHECK(update[0] == 0.1);
  CHECK(std::isnan(update[1]));  // there was one rank before the restart
  constexpr int kUpdate = static_cast<int>(Phase::update);
  CHECK(update[2] == kUpdate / 3.0);
  CHECK(update[3] == (kUpdate + kPhases) / 3.0);
  CHECK(reals(file, "ranks/bytes").at(2) == 12345678901234);
}

TEST_CASE("A step is one line of JSON and allocates nothing", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  RunFacts facts = facts_in(folder / "run");
  facts.progress_seconds = 0;  // a progress line at every step
  facts.quiet = false;
  Report report(facts, -1);
  Step first(1), second(2);
  report.step(first.get());
  const StepRecord& record = second.get();
  std::int64_t before = allocations;
  facts.folder.reserve(1000);
  REQUIRE(allocations == before + 1);  // the counter counts
  before = allocations;
  report.step(record);
  CHECK(allocations == before);

  const std::string text = contents(facts.folder + "/metrics.jsonl");
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  const std::string line = text.substr(text.rfind('\n', text.size() - 2) + 1);
  CHECK(line.starts_with("{\"kind\":\"step\",\"step\":2,\"epoch\":0,"));
  CHECK(line.find("\"loss_clean\":null,") != std::string::npos);
  CHECK(line.find("\"n_active\":1,\"active\":\"100\",\"p\":[1,0.32,0.1],\"norm\":[0.18181819,null,null]}") !=
        std::string::npos);
}

TEST_CASE("The summary's seconds are those of rank 0's records, which have what follows the last step", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  for (const bool with_ranks : {false, true}) {
    const RunFacts facts = facts_in(folder / (with_ranks ? "ranks" : "steps"));
    Report report(facts, -1);
    Step step(1);
    std::fill(step.record.seconds.begin(), step.record.seconds.end(), 1.25);
    report.step(step.get());
    if (with_ranks) {
      std::vector<double> seconds(2 * kPhases, 5);  // rank 1
      std::fill_n(seconds.begin(), kPhases, 2.0);
      report.ranks({1, seconds, {0, 0}});
      seconds[static_cast<std::size_t>(Phase::evaluate)] = 7;
      report.ranks({1, seconds, {0, 0}});
    }
    report.finish({});
    const std::string summary = contents(facts.folder + "/SUMMARY.txt");
    INFO(summary);
    CHECK(summary.find(with_ranks ? "attack              4.00     7.5 %" : "attack              1.25     8.3 %") !=
          std::string::npos);
    CHECK(summary.find(with_ranks ? "evaluate            9.00    17.0 %" : "evaluate            1.25     8.3 %") !=
          std::string::npos);
    CHECK(summary.find(with_ranks ? "sum, rank 0        53.00" : "sum, rank 0        15.00") != std::string::npos);
    // Not in the sum, nor in the time of the images.
    CHECK(summary.find(with_ranks ? "\nhidden              4.00  of comm" : "\nhidden              1.25  of comm") !=
          std::string::npos);
    // 128 images in the seconds of ten phases.
    CHECK(summary.find(with_ranks ? "3.2 images/s" : "10.2 images/s") != std::string::npos);
  }
}

TEST_CASE(
    "An event is a line, a sentence, a part of the summary and of a table, and stays behind a rollback if it lasts",
    "[report]") {
  std::vector<EventKind> kinds = event_kinds();
  kinds.push_back(kind_of<FloodRecord>());
  const std::vector<Example> examples = {
      example(
          StragglerRecord{20, 1, true, 2.125, "node0"}, R"("step":20,"rank":1,"slow":true,"ratio":2.125)",
          "rank 1 on node0 is slow: its part of a step takes 2.1 times as long as the others', in the last steps up "
          "to 20"),
      example(
          StragglerRecord{25, 0, true, 1.5, "node1"}, R"("step":25,"rank":0,"slow":true,"ratio":1.5)",
          "rank 0 on node1 is slow: its part of a step takes 1.5 times as long as the others', in the last steps up "
          "to 25"),
      example(StragglerRecord{40, 1, false, kNaN, "node0"}, R"("step":40,"rank":1,"slow":false,"ratio":null)",
              "rank 1 on node0 keeps up with the others again, at step 40"),
      example(CorruptionRecord{20, 1, "weights", "copied from rank 0", "all of it"},
              R"("step":20,"rank":1,"what":"weights","done":"copied from rank 0")", "warning: all of it"),
      example(CorruptionRecord{40, -1, "a gradient", "the step was left out", "and that"},
              R"("step":40,"rank":-1,"what":"a gradient","done":"the step was left out")", "warning: and that"),
      example(LeftRecord{1, 40, "is \"not\" its own", "node1", 2, 3},
              R"("step":40,"rank":1,"why":"is \"not\" its own")",
              "rank 1 on node1 has left after step 40: is \"not\" its own; the run goes on with 2 of 3 ranks", true),
      example(AccusationRecord{2, 1, 3, "norm", true}, R"("step":2,"by":1,"rank":3,"rule":"norm","upheld":true)", "",
              true),
      example(BanRecord{2, 3, 1, "norm"}, R"("step":2,"rank":3,"by":1,"rule":"norm")", "", true),
      example(BanRecord{4, 2, -1, "copy"}, R"("step":4,"rank":2,"by":null,"rule":"copy")", "", true),
      example(SetbackRecord{2, "rollback", "why", 1, 0.5},
              R"("step":2,"event":"rollback","cause":"why","to_step":1,"lr_factor":0.5)",
              "warning: back to the checkpoint of step 1, with 0.5 times the learning rate: why", true),
      example(SetbackRecord{3, "skipped", "no number"}, R"("step":3,"event":"skipped","cause":"no number")",
              "warning: no number: the step is skipped"),
      example(SetbackRecord{5, "skipped", "none"}, R"("step":5,"event":"skipped","cause":"none")",
              "warning: none: the step is skipped"),
      example(SetbackRecord{4, "overfitting", "it fell"}, R"("step":4,"event":"overfitting","cause":"it fell")",
              "warning: it fell"),
      example(AttacksRecord{1, true, {{1, 1, 0, 0.5, 0.75}}}, R"("step":1,"first":true,"spans":[[1,1,0,0.5,0.75]])",
              ""),
      example(FloodRecord{7, 0.25}, R"("step":7,"depth":0.25)", "the water stands at 0.25", true)};
  const Folder folder;
  CapturedOutput output(folder / "output"), errors(folder / "errors", STDERR_FILENO);
  const RunFacts facts = facts_in(folder / "run");
  Report report(facts, -1, "", kinds);
  const SetbackRecord rollback{9, "rollback", "another", 0, 1};
  std::set<std::string> shown;
  for (const Example& one : examples) {
    INFO(one.line);
    const std::int64_t before = report.metrics_bytes();
    one.tell(report);
    shown.insert(one.kind);
    CHECK(contents(facts.folder + "/metrics.jsonl").substr(static_cast<std::size_t>(before)) == one.line);
    CHECK(report.behind_rollback(before, rollback) == (one.lasts ? one.line : "") + line_of(rollback));
    CHECK(one.read_again() == one.line);
    if (!one.said.empty()) CHECK(contents(facts.folder + "/run.log").ends_with("Z " + one.said + "\n"));
  }
  for (const EventKind& kind : kinds) CHECK(shown.count(kind.name) == 1);

  report.finish({});
  CHECK(contents(facts.folder + "/SUMMARY.txt")
            .find("\nslow            rank 1, 2.1 times as long as the others, from about step 20 to 40\n"
                  "slow            rank 0, 1.5 times as long as the others, from about step 25\n"
                  "corruption      1 of 2: step 20, rank 1, weights; copied from rank 0\n"
                  "corruption      2 of 2: step 40, a gradient; the step was left out\n"
                  "left            rank 1, after step 40: is \"not\" its own\n"
                  "banned          rank 3, in step 2, by rank 1: norm\n"
                  "banned          rank 2, in step 4, by all: copy\n"
                  "skipped steps   3, 5: numbers that are not finite\n"
                  "rollback        from step 2 to 1, 0.5 times the learning rate: why\n"
                  "overfitting     it fell\n"
                  "floods          1\n") != std::string::npos);
  const Hdf5File file = Hdf5File::open(facts.folder + "/results.h5", ExitCode::data);
  CHECK(integers(file, "bans/by") == std::vector<std::int64_t>{1, -1});
  CHECK(file.read_texts("bans/rule") == std::vector<std::string>{"norm", "copy"});
  CHECK(integers(file, "accusations/upheld") == std::vector<std::int64_t>{1});
  CHECK(reals(file, "floods/depth") == std::vector<double>{0.25});
}

TEST_CASE("Tables of events are all there, or none", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  Report report(facts, -1);
  report.tell(StragglerRecord{});
  const auto bans = [&] {
    write_results(facts);
    return integers(Hdf5File::open(facts.folder + "/results.h5", ExitCode::data), "bans/step").size();
  };
  CHECK_THROWS_AS(bans(), Error);
  report.tell(AccusationRecord{});
  CHECK(bans() == 0);
}

TEST_CASE("The manual has every kind of event", "[report]") {
  const std::string manual = contents(DAT_TEST_DATA "/../docs/manual/files.md");
  for (const EventKind& kind : event_kinds()) {
    INFO(kind.name);
    CHECK(manual.find("`" + std::string(kind.name) + "`") != std::string::npos);
  }
}

TEST_CASE("A rollback cuts the record; what lasts stands behind the cut, in its order, once", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  Report report(facts, -1);
  Step one(1), two(2), three(3);
  report.step(one.get());
  const std::int64_t kept = report.metrics_bytes();
  report.step(two.get());
  report.tell(SetbackRecord{2, "skipped", "the loss is not \"finite\""});
  const SetbackRecord before{2, "rollback", "what was before", 0, 0.5}, now{2, "rollback", "why", 1, 0.125};
  report.roll_back(kept, report.behind_rollback(kept, before), before);
  report.step(two.get());
  report.tell(LeftRecord{3, 2, "banned: norm"});
  report.tell(AccusationRecord{2, 1, 3, "norm", true});
  report.tell(BanRecord{2, 3, 1, "norm"});
  const std::string behind = report.behind_rollback(kept, now);
  CHECK_THROWS_AS(report.roll_back(report.metrics_bytes() + 1, behind, now), Error);
  report.roll_back(kept, behind, now);
  report.step(two.get());
  report.step(three.get());
  report.tell(SetbackRecord{3, "overfitting", "it fell"});
  const std::string metrics = contents(facts.folder + "/metrics.jsonl"), log = contents(facts.folder + "/run.log");
  CHECK(metrics.find("not \\\"finite") == std::string::npos);
  std::vector<std::string> kinds;
  for (std::size_t at = 0; (at = metrics.find("{\"kind\":\"", at)) != std::string::npos; ++at)
    kinds.push_back(metrics.substr(at + 9, metrics.find('"', at + 9) - at - 9));
  CHECK(kinds == std::vector<std::string>{"run", "step", "setback", "left", "accusation", "ban", "setback", "step",
                                          "step", "setback"});
  CHECK(log.find("warning: back to the checkpoint of step 1, with 0.125 times the learning rate: why") !=
        std::string::npos);
}

TEST_CASE("Spans of attacks behind a rollback are of another part than those before", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  Report report(facts, -1);
  const std::vector<AttackSpan> spans{{1, 1, 0, 0.5, 0.75}};
  const GeneratorRecord generators{.spans = &spans};
  Step one(1), two(2);
  one.record.generators = two.record.generators = &generators;
  const std::int64_t begin = report.metrics_bytes();
  report.step(one.get());
  report.step(two.get());
  const SetbackRecord rollback{2, "rollback", "why", 0, 0.5};
  report.roll_back(begin, report.behind_rollback(begin, rollback), rollback);
  report.step(one.get());
  report.step(two.get());
  const std::string metrics = contents(facts.folder + "/metrics.jsonl");
  CHECK(metrics.find("{\"kind\":\"attacks\",\"step\":1,\"first\":true,") != std::string::npos);
  CHECK(metrics.find("{\"kind\":\"attacks\",\"step\":2,\"first\":false,") != std::string::npos);
}

TEST_CASE("Seconds of ranks that have left are those of nobody", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  Report report(facts, -1);
  RankRecord record{.step = 41, .seconds = std::vector<double>(2 * kPhases, std::nan("")), .bytes = {8, std::nan("")}};
  std::fill_n(record.seconds.begin(), kPhases, 0.5);
  report.ranks(record);
  report.finish({});
  const std::string metrics = contents(facts.folder + "/metrics.jsonl");
  CHECK(metrics.find("\"t_data\":[0.5,null],") != std::string::npos);
  CHECK(metrics.find("\"bytes\":[8,null]}") != std::string::npos);
}

TEST_CASE("A resumed run has the records up to the checkpoint once, then its own", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  std::int64_t at_checkpoint = 0;
  {
    Report report(facts, -1);
    report.step(Step(1).get());
    report.step(Step(2).get());
    at_checkpoint = report.metrics_bytes();
    report.step(Step(3).get());
    report.step(Step(4).get());
    CHECK(report.metrics_bytes() == static_cast<std::int64_t>(fs::file_size(facts.folder + "/metrics.jsonl")));
  }
  {
    Report report(facts, at_checkpoint);
    report.step(Step(3).get());
  }
  write_results(facts);
  CHECK(integers(Hdf5File::open(facts.folder + "/results.h5", ExitCode::data), "history/step/step") ==
        std::vector<std::int64_t>{1, 2, 3});

  const auto [code, what] = error_of([&] { Report(facts, 1000000); });
  CHECK(code == ExitCode::checkpoint);
  CHECK(what.find("metrics.jsonl") != std::string::npos);
  fs::remove(facts.folder + "/metrics.jsonl");
  CHECK(error_of([&] { Report(facts, at_checkpoint); }).first == ExitCode::checkpoint);
}

TEST_CASE("A new run in an old folder starts with empty records and without the old results", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  {
    Report report(facts, -1);
    report.step(Step(1).get());
    report.finish({});
  }
  REQUIRE(fs::exists(facts.folder + "/SUMMARY.txt"));
  Report report(facts, -1);
  CHECK(!fs::exists(facts.folder + "/SUMMARY.txt"));
  CHECK(!fs::exists(facts.folder + "/results.h5"));
  write_results(facts);
  CHECK(integers(Hdf5File::open(facts.folder + "/results.h5", ExitCode::data), "history/step/step").empty());
}

TEST_CASE("A damaged record is named by its line; a line that a killed writer left is not read", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  {
    Report report(facts, -1);
    for (std::int64_t i = 1; i <= 3; ++i) report.step(Step(i).get());
  }
  const std::string path = facts.folder + "/metrics.jsonl";
  const std::string whole = contents(path);
  const std::size_t second = whole.find('\n') + 1;

  std::ofstream(path) << whole.substr(0, whole.size() - 1);
  write_results(facts);
  CHECK(integers(Hdf5File::open(facts.folder + "/results.h5", ExitCode::data), "history/step/step") ==
        std::vector<std::int64_t>{1, 2});

  const std::vector<std::pair<std::string, std::string>> damages = {{"\"epoch\":0", "\"epoch\":"},  // no JSON
                                                                    {"\"epoch\":0,", ""},  // a field is missing
                                                                    {"\"epoch\":0", "\"epoch\":\"0\""},  // another type
                                                                    {"\"p\":[1,", "\"p\":["},  // a layer is missing
                                                                    {"\"kind\":\"step\"", "\"kind\":\"stop\""}};
  for (const auto& [from, to] : damages) {
    std::string text = whole;
    const std::size_t at = text.find(from, second);
    REQUIRE(at != std::string::npos);
    std::ofstream(path) << text.replace(at, from.size(), to);
    const auto [code, what] = error_of([&] { write_results(facts); });
    INFO(to << ": " << what);
    CHECK(code == ExitCode::data);
    CHECK(what.find("metrics.jsonl, line 2 is damaged") != std::string::npos);
  }
  CHECK(error_of([&] { write_results(facts_in(folder / "nowhere")); }).first == ExitCode::data);
}

TEST_CASE("SUMMARY.txt ends in one line for grep, and the terminal shows the same", "[report]") {
  const Folder folder;
  const RunFacts facts = facts_in(folder / "run");
  FinalResult result;
  result.evaluations = {evaluation_at(2), evaluations_at(2)[1]};
  result.evaluations[0].clean_acc = 0.52344;
  result.evaluations[0].adv_acc = 0.34116;
  result.time_s = 123.44;
  result.comm_s = 1.21;
  result.weights_hash = "0123abcd";
  result.remarks = {"a remark"};
  std::string last;
  {
    CapturedOutput output(folder / "output");
    Report report(facts, -1);
    report.step(Step(1).get());
    report.step(Step(2).get());
    report.evaluation(evaluations_at(2));
    report.evaluation({evaluation_at(3)});  // without pgd20
    last = report.finish(result);
  }
  CHECK(last == "Final: clean_acc=0.5234 pgd10_acc=0.3412 pgd20_acc=0.1250 time_s=123.4 comm_s=1.2 VALID");
  const std::string summary = contents(facts.folder + "/SUMMARY.txt");
  CHECK(summary.ends_with("a remark\n" + last + "\n"));
  CHECK(summary.find("Final:") == summary.rfind("Final:"));
  CHECK(summary.find("0123abcd") != std::string::npos);
  CHECK(summary.find(
            "Evaluations on 10000 test images\n"
            "  pgd10: eps 8/255, alpha 2/255, 1 restart\n"
            "  pgd20: eps 8/255, alpha 0.1/255, 5 restarts\n"
            "  epochs      step     seconds     clean %     pgd10 %     pgd20 %  clean loss  pgd10 loss  pgd20 "
            "loss\n"
            "       0         2         0.7       33.33       28.57       12.50      1.1000         nan         "
            "nan\n"
            "       1         3         1.0       33.33       28.57           -      1.1000         nan           "
            "-\n") != std::string::npos);
  CHECK(summary.find("Evaluations on 1000 held-out training images\n"
                     "  pgd10: eps 8/255, alpha 2/255, 1 restart\n"
                     "  epochs      step     seconds     clean %     pgd10 %  clean loss  pgd10 loss\n"
                     "       0         2         0.7       50.00       25.00      1.1000      1.7500\n") !=
        std::string::npos);
  CHECK(summary.find("1.5 of 3 in the mean") != std::string::npos);
  CHECK(summary.find("0.006336 MB per step") != std::string::npos);  // 4 * (432 + 2304 + 432) / 2 bytes
  CHECK(contents(folder / "output").ends_with(summary));
  const std::string log = contents(facts.folder + "/run.log");
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, end = 0;
  const std::string logged = log.substr(log.rfind('\n', log.size() - 2) + 1);
  CHECK(std::sscanf(logged.c_str(), "%4d-%2d-%2dT%2d:%2d:%2dZ %n", &year, &month, &day, &hour, &minute, &second,
                    &end) == 6);
  CHECK(logged.substr(static_cast<std::size_t>(end)) == last + "\n");

  CapturedOutput output(folder / "output");
  result.verdict = Validity::invalid;
  result.evaluations.resize(1);
  result.evaluations[0].clean_acc = -kNaN;
  Report report(facts, -1);
  CHECK(report.finish(result) == "Final: clean_acc=nan pgd10_acc=0.3412 time_s=123.4 comm_s=1.2 INVALID");
}

TEST_CASE("A radius is written as people write it, and reads back as the same number", "[report]") {
  for (const char* text : {"8/255", "2/255", "0.1/255", "2.5/255", "0.03", "0.3", "0.5", "1", "0", "16/255", "1e-05"}) {
    const std::string word = text;
    const std::size_t slash = word.find('/');
    double value = std::stod(word);
    if (slash != std::string::npos) value /= std::stod(word.substr(slash + 1));
    CHECK(radius_text(value) == word);
  }
  CHECK(radius_text(1.25 * (8.0 / 255)) == "10/255");
  CHECK(std::stod(radius_text(1.0 / 7)) == 1.0 / 7);
  CHECK(radius_text(0.5, BallNorm::l2) == "0.5");
  CHECK(std::stod(radius_text(8.0 / 255, BallNorm::l2)) == 8.0 / 255);
  CHECK(radius_text(8.0 / 255, BallNorm::l2).find('/') == std::string::npos);
  CHECK(ball_text(BallNorm::linf, 8.0 / 255) == "eps 8/255");
  CHECK(ball_text(BallNorm::l2, 0.5) == "l2 eps 0.5");
}

TEST_CASE("Attacks of one name and another radius have columns of their own", "[report]") {
  const Folder folder;
  const RunFacts facts = facts_in(folder / "run");
  CapturedOutput output(folder / "output");
  Report report(facts, -1);
  EvaluationRecord small = evaluation_at(1), large = evaluation_at(3), none = evaluation_at(3);
  large.eps = 16.0 / 255;
  none.attack = "none";
  none.attack_steps = 0;
  report.evaluation({small});
  report.evaluation({large, none});
  report.finish({});
  const std::string summary = contents(facts.folder + "/SUMMARY.txt");
  CHECK(summary.find("test images\n"
                     "  pgd10: eps 8/255, alpha 2/255, 1 restart\n"
                     "  pgd10#2: eps 16/255, alpha 2/255, 1 restart\n"
                     "  epochs      step     seconds     clean %     pgd10 %   pgd10#2 %      none %") !=
        std::string::npos);
  CHECK(summary.find("33.33           -       28.57       28.57      1.1000           -         nan         nan\n") !=
        std::string::npos);
}

TEST_CASE("Evaluations in L2 say so, and have columns and rows of their own", "[report]") {
  const Folder folder;
  const RunFacts facts = facts_in(folder / "run");
  CapturedOutput output(folder / "output");
  Report report(facts, -1);
  EvaluationRecord linf = evaluation_at(1), l2 = linf;
  l2.norm = "l2";
  l2.eps = 0.5;
  l2.alpha = 0.125;
  CHECK(attack_text(l2) == "l2 eps 0.5, alpha 0.125, 1 restart");
  EvaluationRecord same_radius = l2;
  same_radius.norm = "linf";
  report.evaluation({linf, l2, same_radius});
  report.finish({});
  const std::string summary = contents(facts.folder + "/SUMMARY.txt");
  CHECK(summary.find("  pgd10#2: l2 eps 0.5, alpha 0.125, 1 restart\n") != std::string::npos);
  CHECK(summary.find("  pgd10#3: eps 0.5, alpha 0.125, 1 restart\n") != std::string::npos);
  const Hdf5File file = Hdf5File::open(facts.folder + "/results.h5", ExitCode::data);
  CHECK(file.read_texts("history/evaluation/norm") == std::vector<std::string>{"linf", "l2", "linf"});
}

TEST_CASE("Progress is plain lines without a terminal, and nothing where it is unwanted", "[report]") {
  const Folder folder;
  RunFacts facts = facts_in(folder / "run");
  facts.progress_seconds = 0;
  for (const bool quiet : {false, true}) {
    facts.quiet = quiet;
    {
      CapturedOutput output(folder / "output");
      Report report(facts, -1);
      for (std::int64_t i = 1; i <= 5; ++i) report.step(Step(i).get());
      report.evaluation(evaluations_at(5));
    }
    const std::string text = contents(folder / "output");
    CHECK(text.find_first_of("\r\033") == std::string::npos);
    CHECK(std::count(text.begin(), text.end(), '\n') == (quiet ? 2 : 7));
    CHECK(text.find("evaluation at step 5, 1 of 2 epochs done, 10000 test images: clean 33.33 %, loss 1.1000; "
                    "pgd10 28.57 %, loss nan (eps 8/255, alpha 2/255, 1 restart); "
                    "pgd20 12.50 %, loss nan (eps 8/255, alpha 0.1/255, 5 restarts)\n") != std::string::npos);
    CHECK(text.find("evaluation at step 5, 1 of 2 epochs done, 1000 held-out training images: clean 50.00 %, loss "
                    "1.1000; pgd10 25.00 %, loss 1.7500 (eps 8/255, alpha 2/255, 1 restart)\n") != std::string::npos);
    const std::size_t progress = text.find("step 5/5  epoch 2 of 2 (1 warm-up)  loss 2.0427  acc 16.67 %  ");
    CHECK((progress == std::string::npos) == quiet);
    CHECK((text.find(" images/s  ETA 0 s\n", progress) == std::string::npos) == quiet);
  }
}

TEST_CASE("Figures of averaged weights stand beside those of the raw ones", "[report]") {
  const Folder folder;
  const RunFacts facts = facts_in(folder / "run");
  std::vector<EvaluationRecord> records(2, evaluation_at(5));
  records[1].weights = "average";
  records[1].clean_acc = 0.75;
  records[1].adv_acc = 0.5;
  FinalResult result;
  result.evaluations = records;
  std::string last;
  {
    CapturedOutput output(folder / "output");
    Report report(facts, -1);
    for (std::int64_t i = 1; i <= 5; ++i) report.step(Step(i).get());
    report.evaluation(records);
    last = report.finish(result);
  }
  CHECK(
      last.starts_with("Final: clean_acc=0.3333 pgd10_acc=0.2857 average_clean_acc=0.7500 average_pgd10_acc=0.5000 "));
  const std::string text = contents(folder / "output");
  CHECK(text.find(" 10000 test images: clean 33.33 %") != std::string::npos);
  CHECK(text.find(" 10000 test images, averaged weights: clean 75.00 %") != std::string::npos);
  const std::string summary = contents(facts.folder + "/SUMMARY.txt");
  CHECK(summary.find("\nEvaluations on 10000 test images\n") != std::string::npos);
  CHECK(summary.find("\nEvaluations on 10000 test images, averaged weights\n") != std::string::npos);
  const Hdf5File file = Hdf5File::open(facts.folder + "/results.h5", ExitCode::data);
  CHECK(file.read_texts("history/evaluation/weights") == std::vector<std::string>{"raw", "average"});
}

TEST_CASE("Epochs are counted from 1 and with the warm-up where people read", "[report]") {
  CHECK(plan_text(512, 32, 16, 1) == "512 steps, 16 epochs of 32 steps (1 warm-up)");
  CHECK(plan_text(480, 32, 15, 7.5) == "480 steps, 15 epochs of 32 steps (7.5 warm-up)");
  CHECK(plan_text(40, 32, 16, 0) == "40 of 512 steps, 16 epochs of 32 steps");
  CHECK(plan_text(1, 1, 1, 0) == "1 step, 1 epoch of 1 step");
}

TEST_CASE("A warning is on standard error and in run.log", "[report]") {
  const Folder folder;
  const RunFacts facts = facts_in(folder / "run");
  {
    CapturedOutput output(folder / "output"), errors(folder / "errors", STDERR_FILENO);
    Report report(facts, -1);
    report.warning("step-1.h5 is damaged");
  }
  CHECK(contents(folder / "output").empty());
  CHECK(contents(folder / "errors") == "dat_hpc: warning: step-1.h5 is damaged\n");
  CHECK(contents(facts.folder + "/run.log").ends_with("Z warning: step-1.h5 is damaged\n"));
}

TEST_CASE("What a file says moves no cursor, on the terminal, in the log and in the summary", "[report]") {
  const Folder folder;
  const RunFacts facts = facts_in(folder / "run");
  const std::string evil =
                        "a\033]0;b\a\r\x7f\xc2\x9b"
                        "2J\nFinal: VALID \xff\xe9",
                    tame = "a?]0;b????2J Final: VALID ??";
  {
    CapturedOutput output(folder / "output"), errors(folder / "errors", STDERR_FILENO);
    Report report(facts, -1);
    report.message("says " + evil);
    report.warning(evil);
    report.tell(LeftRecord{3, 2, evil});
    report.tell(SetbackRecord{1, "skipped", evil});
    report.finish({});
  }
  CHECK(contents(folder / "output").starts_with("says " + tame + "\n"));
  CHECK(contents(folder / "errors") ==
        "dat_hpc: warning: " + tame + "\ndat_hpc: warning: " + tame + ": the step is skipped\n");
  for (const std::string& name :
       {facts.folder + "/run.log", facts.folder + "/SUMMARY.txt", facts.folder + "/metrics.jsonl", folder / "output"}) {
    INFO(name);
    const std::string text = contents(name);
    CHECK(!text.empty());
    CHECK(text == without_controls(text));
    CHECK(text.find("\nFinal: VALID") == std::string::npos);
  }
}

TEST_CASE("Of two processes that write one record one ends", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  Step one(1), two(2);
  Report first(facts, -1);
  first.step(one.get());
  const std::int64_t bytes = first.metrics_bytes();
  first.step(two.get());
  Report second(facts, bytes);
  const auto [code, what] = error_of([&] { first.step(two.get()); });
  CHECK(code == ExitCode::usage);
  CHECK(what.starts_with("another process is writing into " + facts.folder + "/metrics.jsonl, which has "));
  CHECK(error_of([&] { static_cast<void>(first.metrics_bytes()); }).first == ExitCode::usage);  // no checkpoint of it
  const SetbackRecord rollback{2, "rollback", "why", 0, 0.5};
  CHECK(error_of([&] { first.roll_back(bytes, "", rollback); }).first == ExitCode::usage);
  second.step(two.get());
  CHECK(second.metrics_bytes() == static_cast<std::int64_t>(fs::file_size(facts.folder + "/metrics.jsonl")));
  fs::remove_all(facts.folder);
  const Report third(facts, -1);
  CHECK(error_of([&] { second.step(one.get()); }).second.find("was removed") != std::string::npos);
}

TEST_CASE("A record that a rollback has not cut yet is cut behind its checkpoint, too", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  Step one(1), two(2);
  std::int64_t kept = 0;
  std::string behind, whole;
  const SetbackRecord rollback{2, "rollback", "why", 1, 0.5};
  {
    Report report(facts, -1);
    report.step(one.get());
    kept = report.metrics_bytes();
    report.step(two.get());
    report.tell(BanRecord{2, 3, 1, "norm"});
    behind = report.behind_rollback(kept, rollback);
    fs::copy(facts.folder, folder / "killed", fs::copy_options::recursive);
    report.roll_back(kept, behind, rollback);
    whole = contents(facts.folder + "/metrics.jsonl");
  }
  CHECK(
      whole.ends_with("\"kind\":\"ban\",\"step\":2,\"rank\":3,\"by\":1,\"rule\":\"norm\"}\n"
                      "{\"kind\":\"setback\",\"step\":2,\"event\":\"rollback\",\"cause\":\"why\",\"to_step\":1,"
                      "\"lr_factor\":0.5}\n"));
  const Report again(facts_in(folder / "killed"), kept, behind);
  CHECK(contents(folder / "killed/metrics.jsonl") == whole);
}

TEST_CASE("A full disk ends in an error of the right kind", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  fs::create_directories(facts.folder);
  fs::create_symlink("/dev/full", facts.folder + "/metrics.jsonl");
  const auto [code, what] = error_of([&] { Report(facts, -1); });
  CHECK(code == ExitCode::io);
  CHECK(what.find("disk full") != std::string::npos);
  CHECK(error_of([&] { Report(facts_in("/dev/null/run"), -1); }).first == ExitCode::io);
}

TEST_CASE("A run that was stopped early is drawn as far as it got", "[report]") {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) return;
  const Folder folder;
  CapturedOutput output(folder / "output");
  Report report(facts_in(folder / "run"), -1);
  CHECK(error_of([&] { (void)plot_run(folder / "run", "svg"); }).first == ExitCode::data);
  report.step(Step(1).get());
  CHECK(plot_run(folder / "run", "svg").size() == 3);
  report.evaluation({evaluation_at(1)});
  report.step(Step(2).get());
  CHECK(plot_run(folder / "run", "svg").size() == 4);
}

TEST_CASE("A run is drawn with scripts and data, wherever its folder is", "[report]") {
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "it's a \"run\" `false` $(false)");
  {
    Report report(facts, -1);
    for (std::int64_t i = 1; i <= 5; ++i) report.step(Step(i).get());
    report.evaluation(evaluations_at(3));
    report.evaluation(evaluations_at(5));
  }
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) {
    CHECK(error_of([&] { (void)plot_run(facts.folder, "svg"); }).first == ExitCode::device);
  } else {
    for (const std::string format : {"svg", "png"}) {
      const std::vector<std::string> pictures = plot_run(facts.folder, format);
      REQUIRE(pictures.size() == 4);
      for (const std::string& picture : pictures) {
        const std::string text = contents(picture);
        CHECK((format == "svg" ? text.find("</svg>") != std::string::npos : text.substr(1, 3) == "PNG"));
      }
    }
    CHECK(contents(facts.folder + "/plots/layers.svg").find("layer1.0.conv1.weight") != std::string::npos);
  }
  for (const std::string name : {"accuracy", "losses", "phases", "layers"})
    for (const std::string kind : {".gp", ".csv"}) CHECK(fs::exists(facts.folder + "/plots/" + name + kind));
  CHECK(contents(facts.folder + "/plots/layers.csv")
            .starts_with("step,conv1.weight,layer1.0.conv1.weight,linear.bias\n1,1,0.31,0.1\n"));
  // A line per split and attack, named by what tells it apart; what they share is in the title. Against epochs.
  const std::string plots = facts.folder + "/plots/";
  CHECK(contents(plots + "accuracy.csv")
            .starts_with("epochs,step,seconds,\"test, clean (%)\",\"test, pgd10 (alpha 2/255, 1 restart) (%)\","
                         "\"test, pgd20 (alpha 0.1/255, 5 restarts) (%)\",\"held out, clean (%)\","
                         "\"held out, pgd10 (alpha 2/255, 1 restart) (%)\"\n"
                         "1,3,1,33.333333,28.571429,12.5,50,25\n"
                         "1.6666667,5,1.6666667,33.333333,28.571429,12.5,50,25\n"));
  CHECK(contents(plots + "losses.csv").ends_with("\n1.6666667,5,1.6666667,1.1,,,1.1,1.75\n"));  // NaN: empty
  CHECK(contents(plots + "training.csv").ends_with("\n1.6666667,5,1.6666667,16.666667,25,2.0427271,2.236068,0.5\n"));
  CHECK(contents(plots + "accuracy.gp").find("title 'test, pgd20 (alpha 0.1/255, 5 restarts)'") != std::string::npos);
  CHECK(contents(plots + "accuracy.gp").find("average") == std::string::npos);
  CHECK(contents(plots + "losses.gp").find("title 'test, pgd20") == std::string::npos);  // none is a number
  for (const std::string name : {"accuracy", "losses"}) {
    const std::string script = contents(plots + name + ".gp");
    CHECK(script.find("(evaluations: eps 8/255)'\n") != std::string::npos);
    CHECK(script.find("title 'training batches, own attack'") != std::string::npos);
    CHECK(script.find("set object 1 rectangle from first 0, graph 0 to first 1, graph 1 behind") != std::string::npos);
    CHECK(script.find("title 'held out, pgd10 (alpha 2/255, 1 restart)'") != std::string::npos);
    CHECK(script.find("set key outside") != std::string::npos);
    CHECK(script.find("set xlabel 'epochs") != std::string::npos);
    CHECK(script.find("set x2tics nomirror ('0' 0, ") != std::string::npos);
    CHECK(script.find("'1' 1, ") != std::string::npos);  // the first epoch was done after 1 s
  }
  CHECK(error_of([&] { (void)plot_run(folder / "nowhere", "svg"); }).first == ExitCode::data);
  CHECK(error_of([&] { (void)plot_run(facts.folder, "bmp"); }).first == ExitCode::usage);
}

TEST_CASE("Runs are drawn side by side", "[report]") {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) return;
  const Folder folder;
  CapturedOutput output(folder / "output");
  std::vector<std::string> runs;
  for (const std::string name : {"a/one", "a/two", "b/one"}) {
    runs.push_back(folder / name);
    Report report(facts_in(runs.back()), -1);
    for (std::int64_t i = 1; i <= 5; ++i) report.step(Step(i).get());
    if (name != "a/two") report.evaluation(evaluations_at(3));
    report.ranks({3, std::vector<double>(2 * kPhases, name == "a/two" ? 3.0 : 6.0), {1, 1}});
  }
  const std::string out = folder / "a new/folder";
  const std::vector<std::string> pictures = compare_runs({runs[0], runs[1]}, out, "png");
  REQUIRE(pictures.size() == 3);
  for (const std::string& picture : pictures) CHECK(contents(picture).substr(1, 3) == "PNG");
  CHECK(contents(out + "/accuracy.csv") ==
        "run,epochs,step,seconds,\"one: clean (%)\",\"one: pgd10 (alpha 2/255, 1 restart) (%)\","
        "\"one: pgd20 (alpha 0.1/255, 5 restarts) (%)\"\none,1,3,1,33.333333,28.571429,12.5\n");
  // Seconds of an epoch, which has 3 steps: as many as the ranks' record spans.
  CHECK(
      contents(out + "/phases.csv").ends_with("\none,6,6,6,6,6,6,6,6,6,6,6,6,6,0\ntwo,3,3,3,3,3,3,3,3,3,3,3,3,3,0\n"));
  // Megabytes per step: 4 * (432 + 3 / 5 * 2304) and 4 * (432 + 2304 + 10) bytes.
  CHECK(contents(out + "/communication.csv").find("\none,0.0072576,0.010984,") != std::string::npos);

  // Runs of one name are told apart by their paths.
  CHECK(compare_runs({runs[0], runs[2]}, out, "svg").size() == 3);
  CHECK(contents(out + "/accuracy.csv").find("\n\"" + runs[2] + "\",1,3,1,,,,33.333333,") != std::string::npos);
  CHECK(error_of([&] { (void)compare_runs({runs[0], folder / "nowhere"}, out, "svg"); }).first == ExitCode::data);
}

TEST_CASE("A huge first loss does not press the others together, and the picture says what it leaves out", "[report]") {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) return;
  const Folder folder;
  CapturedOutput output(folder / "output");
  for (const bool huge : {false, true}) {
    const RunFacts facts = facts_in(folder / (huge ? "huge" : "usual"));
    {
      Report report(facts, -1);
      for (std::int64_t i = 1; i <= 41; ++i) {
        Step step(i);
        step.record.loss_adv = huge && i == 1 ? 371 : 3 - 0.04 * static_cast<double>(i);
        step.record.loss_clean = std::numeric_limits<double>::quiet_NaN();
        report.step(step.get());
      }
    }
    REQUIRE(!plot_run(facts.folder, "svg").empty());
    const std::string script = contents(facts.folder + "/plots/losses.gp");
    CHECK((script.find("cut off: values up to 371") != std::string::npos) == huge);
    // 2.92 ... 1.36, of which the first tenth may be higher: 2.8 is the first behind it.
    if (huge) {
      const std::string axis =
          "set ylabel 'loss'\nset origin 0,0\nset size 1,0.68\nset tmargin 1\nunset bmargin\nunset label 1\n";
      const std::size_t at = script.find("set yrange [*:", script.find(axis)) + std::string("set yrange [*:").size();
      CHECK(std::stod(script.substr(at)) == Approx(2.8 + 0.15 * (2.8 - 1.36)));
    }
  }
}

TEST_CASE("Phases below a hundredth of every bar are one, and the picture names them", "[report]") {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) return;
  const Folder folder;
  CapturedOutput output(folder / "output");
  const RunFacts facts = facts_in(folder / "run");
  std::vector<double> seconds(2 * kPhases, 0);
  const auto at = [&](int rank, Phase phase) -> double& {
    return seconds[static_cast<std::size_t>(rank * kPhases + static_cast<int>(phase))];
  };
  for (const int rank : {0, 1}) {
    at(rank, Phase::attack) = 90;
    at(rank, Phase::forward) = 9;
    at(rank, Phase::select) = 0.5;
    at(rank, Phase::update) = 0.25;
    at(rank, Phase::data) = rank == 0 ? 0.25 : 5;  // not everywhere
    at(rank, Phase::hidden) = 50;
  }
  {
    Report report(facts, -1);
    report.step(Step(1).get());
    report.ranks({1, seconds, {1, 1}});
  }
  REQUIRE(!plot_run(facts.folder, "svg").empty());
  const std::string script = contents(facts.folder + "/plots/phases.gp"),
                    csv = contents(facts.folder + "/plots/phases.csv");
  CHECK(csv.starts_with("rank,data_seconds,attack_seconds,"));
  CHECK(csv.find("hidden_seconds,others_seconds\n0,0.25,90,9,0,0,0,0,0.5,0.25,0,0,0,50,0.75\n1,5,90,") !=
        std::string::npos);
  CHECK(script.find("title 'others, each < 1 % (0.8 %)'") != std::string::npos);
  CHECK(script.find("'others: select (0.5 %), update (0.2 %)'") != std::string::npos);
  CHECK(script.find("title 'data (0.2 %)'") != std::string::npos);
  CHECK(script.find("title 'select") == std::string::npos);
}
