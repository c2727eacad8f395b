#include <any>
#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "record/event_kind.hpp"
#include "recorded.hpp"

using namespace dat;
namespace fs = std::filesystem;

namespace {

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

}  // namespace

TEST_CASE_METHOD(
    Recorded,
    "An event is a line, a sentence, a part of the summary and of a table, and stays after a rollback if it lasts",
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
      example(AccusationRecord{2, 0, 3, "norm", true}, R"("step":2,"by":0,"rank":3,"rule":"norm","upheld":true)", "",
              true),
      example(BanRecord{2, 3, 0, "norm"}, R"("step":2,"rank":3,"by":0,"rule":"norm")", "", true),
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
      example(OverflowRecord{6, 512, "it was large"}, R"("step":6,"scale":512.0,"cause":"it was large")",
              "it was large: the step is skipped, and the loss scale is 512 from here on"),
      example(AttacksRecord{1, true, {{3, 1, 7, 0.5, 0.75}}}, R"("step":1,"first":true,"spans":[[3,1,7,0.5,0.75]])",
              ""),
      example(FloodRecord{7, 0.25}, R"("step":7,"depth":0.25)", "the water stands at 0.25", true)};
  CapturedOutput errors(folder / "errors", STDERR_FILENO);
  Report report(facts, -1, "", kinds);
  const SetbackRecord rollback{9, "rollback", "another", 0, 1};
  std::set<std::string> shown;
  for (const Example& one : examples) {
    INFO(one.line);
    const std::int64_t before = report.metrics_bytes();
    one.tell(report);
    shown.insert(one.kind);
    CHECK(read("metrics.jsonl").substr(static_cast<std::size_t>(before)) == one.line);
    CHECK(report.behind_rollback(before, rollback) == (one.lasts ? one.line : "") + line_of(rollback));
    CHECK(one.read_again() == one.line);
    if (!one.said.empty()) CHECK(read("run.log").ends_with("Z " + one.said + "\n"));
  }
  for (const EventKind& kind : kinds) CHECK(shown.count(kind.name) == 1);

  report.finish({});
  CHECK(contains(read("SUMMARY.txt"),
                 "\nslow            rank 1, 2.1 times as long as the others, from about step 20 to 40\n"
                 "slow            rank 0, 1.5 times as long as the others, from about step 25\n"
                 "corruption      1 of 2: step 20, rank 1, weights; copied from rank 0\n"
                 "corruption      2 of 2: step 40, a gradient; the step was left out\n"
                 "left            rank 1, after step 40: is \"not\" its own\n"
                 "banned          rank 3, in step 2, by rank 0: norm\n"
                 "banned          rank 2, in step 4, by all: copy\n"
                 "skipped steps   3, 5: numbers that are not finite\n"
                 "rollback        from step 2 to 1, 0.5 times the learning rate: why\n"
                 "overfitting     it fell\n"
                 "overflows       1 in f16, the last one in step 6; the loss scale was 512 from there on\n"
                 "floods          1\n"));
  const Hdf5File file = results();
  CHECK(integers(file, "bans/by") == std::vector<std::int64_t>{0, -1});
  CHECK(file.read_texts("bans/rule") == std::vector<std::string>{"norm", "copy"});
  CHECK(integers(file, "accusations/upheld") == std::vector<std::int64_t>{1});
  CHECK(reals(file, "floods/depth") == std::vector<double>{0.25});
}

TEST_CASE_METHOD(Recorded, "Tables of events are all there, or none", "[report]") {
  Report report(facts, -1);
  report.tell(StragglerRecord{});
  const auto bans = [&] {
    write_results(facts);
    return integers(results(), "bans/step").size();
  };
  CHECK_THROWS_AS(bans(), Error);
  report.tell(AccusationRecord{});
  CHECK(bans() == 0);
}

TEST_CASE("The manual has every kind of event", "[report]") {
  const std::string manual = read_bytes(DAT_TEST_DATA "/../docs/manual/files.md");
  for (const EventKind& kind : event_kinds()) {
    INFO(kind.name);
    CHECK(contains(manual, "`" + std::string(kind.name) + "`"));
  }
}

TEST_CASE_METHOD(Recorded, "A rollback cuts the record; what lasts stands after the cut, in its order, once",
                 "[report]") {
  Report report(facts, -1);
  RecordedStep one(1), two(2), three(3);
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
  const std::string metrics = read("metrics.jsonl"), log = read("run.log");
  CHECK(!contains(metrics, "not \\\"finite"));
  std::vector<std::string> kinds;
  for (std::size_t at = 0; (at = metrics.find("{\"kind\":\"", at)) != std::string::npos; ++at)
    kinds.push_back(metrics.substr(at + 9, metrics.find('"', at + 9) - at - 9));
  CHECK(kinds == std::vector<std::string>{"run", "step", "setback", "left", "accusation", "ban", "setback", "step",
                                          "step", "setback"});
  CHECK(contains(log, "warning: back to the checkpoint of step 1, with 0.125 times the learning rate: why"));
}

TEST_CASE_METHOD(Recorded, "A record that a rollback has not cut yet is cut after its checkpoint, too", "[report]") {
  RecordedStep one(1), two(2);
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
    whole = read("metrics.jsonl");
  }
  CHECK(
      whole.ends_with("\"kind\":\"ban\",\"step\":2,\"rank\":3,\"by\":1,\"rule\":\"norm\"}\n"
                      "{\"kind\":\"setback\",\"step\":2,\"event\":\"rollback\",\"cause\":\"why\",\"to_step\":1,"
                      "\"lr_factor\":0.5}\n"));
  const Report again(facts_in(folder / "killed"), kept, behind);
  CHECK(read_bytes(folder / "killed/metrics.jsonl") == whole);
}

TEST_CASE_METHOD(Recorded, "Spans of attacks after a rollback are of another part than those before", "[report]") {
  Report report(facts, -1);
  const std::vector<AttackSpan> spans{{1, 1, 0, 0.5, 0.75}};
  const GeneratorRecord generators{.spans = &spans};
  RecordedStep one(1), two(2);
  one.record.generators = two.record.generators = &generators;
  const std::int64_t begin = report.metrics_bytes();
  report.step(one.get());
  report.step(two.get());
  const SetbackRecord rollback{2, "rollback", "why", 0, 0.5};
  report.roll_back(begin, report.behind_rollback(begin, rollback), rollback);
  report.step(one.get());
  report.step(two.get());
  const std::string metrics = read("metrics.jsonl");
  CHECK(contains(metrics, "{\"kind\":\"attacks\",\"step\":1,\"first\":true,"));
  CHECK(contains(metrics, "{\"kind\":\"attacks\",\"step\":2,\"first\":false,"));
}
