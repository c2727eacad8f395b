#include <unistd.h>

#include "allocations.hpp"
#include "catch.hpp"
#include "dat/file.hpp"
#include "dat/report.hpp"
#include "hdf5/hdf5.hpp"
#include "recorded.hpp"

using namespace dat;
namespace fs = std::filesystem;

namespace {

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
  std::tie(all[1].attack, all[1].attack_steps, all[1].restarts) = std::tuple("pgd20", 20, 5);
  std::tie(all[1].alpha, all[1].adv_acc) = std::tuple(0.1 / 255, 0.125);
  std::tie(all[2].split, all[2].images) = std::tuple("holdout", 1000);
  std::tie(all[2].clean_acc, all[2].adv_acc, all[2].adv_loss) = std::tuple(0.5, 0.25, 1.75);
  return all;
}

}  // namespace

TEST_CASE_METHOD(Recorded, "Every number of a run reads back from results.h5 exactly", "[report]") {
  Report report(facts, -1);
  std::vector<RecordedStep> steps;
  const std::vector<double> distances{0.5, 0.25}, fewer{0.75};
  for (std::int64_t i = 1; i <= 5; ++i) {
    steps.emplace_back(i).record.distances = i == 1 ? &distances : i == 4 ? &fewer : nullptr;
    report.step(steps.back().get());
  }
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
  CHECK(file.integer("/", "format_version") == 3);
  CHECK(file.text("/", "config_toml") == facts.config_toml);
  CHECK(file.text("/", "provenance") == facts.provenance_json);
  CHECK(file.text("history/step/wall_time", "units") == "s");
  CHECK(file.text("history/step/bytes_sent", "units") == "byte");
  CHECK(!file.text("history/step/lr", "units"));
  CHECK(file.read_texts("jointspar/layer_name") == facts.layer_names);
  CHECK(integers(file, "jointspar/layer_elements") == facts.layer_sizes);
  CHECK(reals(file, "jointspar/layer_cost") == facts.layer_costs);
  CHECK(integers(file, "jointspar/step") == std::vector<std::int64_t>{1, 2, 3, 4, 5});

  const std::string group = "history/step/";
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    const std::vector<double> values = reals(file, group + "t_" + kPhaseNames[phase]);
    REQUIRE(values.size() == steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) CHECK(values[i] == steps[i].record.seconds[phase]);
    CHECK(reals(file, std::string("ranks/t_") + kPhaseNames[phase]).at(2) == static_cast<double>(phase) / 3);
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
  CHECK((update[0] == 0.1 && std::isnan(update[1])));  // there was one rank before the restart
  constexpr int kUpdate = static_cast<int>(Phase::update);
  CHECK((update[2] == kUpdate / 3.0 && update[3] == (kUpdate + kPhases) / 3.0));
  CHECK(reals(file, "ranks/bytes").at(2) == 12345678901234);
  const std::vector<double> away = file.read<double>("history/step/distance", shape);
  CHECK(shape == Shape{5, 2});
  CHECK((away[0] == 0.5 && away[1] == 0.25 && std::isnan(away[2]) && std::isnan(away[5])));
  CHECK((away[6] == 0.75 && std::isnan(away[7])));
}

TEST_CASE_METHOD(Recorded, "A step is one line of JSON and allocates nothing", "[report]") {
  facts.progress_seconds = 0;  // a progress line at every step
  facts.quiet = false;
  facts.tensorboard = true;
  Report report(facts, -1);
  RecordedStep first(1), second(2);
  report.step(first.get());
  const StepRecord& record = second.get();
  std::int64_t before = allocations;
  facts.folder.reserve(1000);
  REQUIRE(allocations == before + 1);  // the counter counts
  before = allocations;
  report.step(record);
  CHECK(allocations == before);

  const std::string text = read("metrics.jsonl");
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK(contains(text, ",\"warmup_epochs\":1}\n"));
  const std::string line = text.substr(text.rfind('\n', text.size() - 2) + 1);
  CHECK(line.starts_with("{\"kind\":\"step\",\"step\":2,\"epoch\":0,"));
  CHECK(contains(line, "\"loss_clean\":null,"));
  CHECK(contains(line, "\"n_active\":1,\"active\":\"100\",\"p\":[1,0.32,0.1],\"norm\":[0.18181819,null,null]}"));
}

TEST_CASE_METHOD(Recorded, "Seconds of ranks that have left are those of nobody", "[report]") {
  Report report(facts, -1);
  RankRecord record{.step = 41, .seconds = std::vector<double>(2 * kPhases, std::nan("")), .bytes = {8, std::nan("")}};
  std::fill_n(record.seconds.begin(), kPhases, 0.5);
  record.seconds[static_cast<std::size_t>(Phase::hidden)] = 0;
  report.ranks(record);
  report.finish({});
  CHECK(read_history(facts.folder).phase_seconds()[1][0] == 0);
  for (const char* none : {"active layers", "hidden", "weights"}) CHECK(!contains(read("SUMMARY.txt"), none));
  const std::string metrics = read("metrics.jsonl");
  CHECK((contains(metrics, "\"t_data\":[0.5,null],") && contains(metrics, "\"bytes\":[8,null]}")));
}

TEST_CASE_METHOD(Recorded, "A resumed run has the records up to the checkpoint once, then its own", "[report]") {
  std::int64_t at_checkpoint = 0;
  {
    Report report(facts, -1);
    report.message("begun");
    report.step(RecordedStep(1).get());
    report.step(RecordedStep(2).get());
    at_checkpoint = report.metrics_bytes();
    report.step(RecordedStep(3).get());
    report.step(RecordedStep(4).get());
    CHECK(report.metrics_bytes() == static_cast<std::int64_t>(fs::file_size(facts.folder + "/metrics.jsonl")));
  }
  {
    Report report(facts, at_checkpoint);
    report.step(RecordedStep(3).get());
  }
  for (const std::string& path : entries_in(facts.folder)) CHECK(!contains(path, "tfevents"));
  write_results(facts);
  CHECK(integers(results(), "history/step/step") == std::vector<std::int64_t>{1, 2, 3});
  facts.warmup_epochs = 7.5;
  { const Report report(facts, 0); }  // from before the first line
  CHECK(contains(read("metrics.jsonl"), ",\"warmup_epochs\":7.5}\n"));
  CHECK(read("run.log").substr(20).starts_with(" begun\n"));

  CHECK(contains(message_of([&] { Report(facts, 1000000); }, ExitCode::checkpoint), "metrics.jsonl"));
  fs::remove(facts.folder + "/metrics.jsonl");
  CHECK(code_of([&] { Report(facts, at_checkpoint); }) == ExitCode::checkpoint);
}

TEST_CASE_METHOD(Recorded, "A new run in an old folder starts with empty records and without the old results",
                 "[report]") {
  {
    Report report(facts, -1);
    report.step(RecordedStep(1).get());
    report.finish({});
  }
  REQUIRE(fs::exists(facts.folder + "/SUMMARY.txt"));
  write_bytes(facts.folder + "/events.out.tfevents.1234567890.dat_hpc", "");
  Report report(facts, -1);
  for (const std::string& path : entries_in(facts.folder)) CHECK(!contains(path, "tfevents"));
  CHECK(!fs::exists(facts.folder + "/SUMMARY.txt"));
  CHECK((!fs::exists(facts.folder + "/results.h5") && read("run.log").empty()));
  write_results(facts);
  const Hdf5File file = results();
  CHECK((integers(file, "history/step/step").empty() && !file.has("history/step/distance")));
  CHECK(!file.has("history/step/age_max"));
  CHECK(file.info("ranks/bytes").shape == Shape{0, 0});
}

TEST_CASE_METHOD(Recorded, "A damaged record is named by its line; a line that a killed writer left is not read",
                 "[report]") {
  {
    Report report(facts, -1);
    for (std::int64_t i = 1; i <= 3; ++i) report.step(RecordedStep(i).get());
  }
  const std::string path = facts.folder + "/metrics.jsonl";
  const std::string whole = read_bytes(path);
  const std::size_t second = whole.find('\n') + 1;

  std::ofstream(path) << whole.substr(0, whole.size() - 1);
  write_results(facts);
  CHECK(integers(results(), "history/step/step") == std::vector<std::int64_t>{1, 2});

  const std::vector<std::pair<std::string, std::string>> damages = {{"\"epoch\":0", "\"epoch\":"},  // no JSON
                                                                    {"\"epoch\":0,", ""},  // a field is missing
                                                                    {"\"epoch\":0", "\"epoch\":\"0\""},  // another type
                                                                    {"\"steps_per_epoch\":3", "\"steps_per_epoch\":0"},
                                                                    {"\"p\":[1,", "\"p\":["},  // a layer is missing
                                                                    {"\"kind\":\"step\"", "\"kind\":\"stop\""}};
  for (const auto& [from, to] : damages) {
    std::string text = whole;
    const std::size_t at = text.find(from, second);
    REQUIRE(at != std::string::npos);
    std::ofstream(path) << text.replace(at, from.size(), to);
    INFO(to);
    CHECK(contains(message_of([&] { write_results(facts); }, ExitCode::data), "metrics.jsonl, line 2 is damaged"));
  }
  std::string other = whole;
  std::ofstream(path) << other.replace(other.find("\"format_version\":3,"), 19, "");
  CHECK(contains(message_of([&] { write_results(facts); }, ExitCode::data),
                 "is of another version of the program: it has format 0,"));
  std::ofstream(path) << "{\"kind\":\"run\",\"format_version\":2}\n";
  CHECK(contains(message_of([&] { write_results(facts); }, ExitCode::data), "it has format 2,"));
  CHECK(code_of([&] { write_results(facts_in(folder / "nowhere")); }) == ExitCode::data);
}

TEST_CASE_METHOD(Recorded, "SUMMARY.txt ends in one line for grep, and the terminal shows the same", "[report]") {
  FinalResult result;
  result.evaluations = {evaluation_at(2), evaluations_at(2)[1]};
  result.evaluations[0].clean_acc = 0.52344;
  result.evaluations[0].adv_acc = 0.34116;
  result.time_s = 123.44;
  result.comm_s = 1.21;
  result.weights_hash = "0123abcd";
  result.remarks = {"a remark"};
  std::tie(facts.generators, facts.attackers, facts.attack_steps) = std::tuple(3, "rank 1: copy", 10);
  facts.layer_sizes.back() = 20;
  std::string last;
  {
    Report report(facts, -1);
    const GeneratorRecord first{.5, 1.5, 1, 2, 3}, second{.25, .5, 2, 1, 4};
    RecordedStep one(1), two(2);
    std::tie(one.record.generators, two.record.generators) = std::tuple(&first, &second);
    std::tie(one.record.images, one.record.bytes_other, two.record.bytes_other) = std::tuple(127, 999, 1000);
    report.step(one.get());
    report.step(two.get());
    report.evaluation(evaluations_at(2));
    report.evaluation({evaluation_at(3)});  // without pgd20
    last = report.finish(result);
  }
  CHECK(last == "Final: clean_acc=0.5234 pgd10_acc=0.3412 pgd20_acc=0.1250 time_s=123.4 comm_s=1.2 VALID");
  const std::string summary = read("SUMMARY.txt");
  // Bytes: 4 * (432 + 2304 + 432) / 2, of all layers 4 * (432 + 2304 + 20), others 1999 / 2; passes: (10 + 20) / 255.
  CHECK(summary == "Run " + facts.folder +
                       R"(

steps           2 of 5
ranks           2
generators      3; 0.75 s waited for them, 2.00 s that they were without work; weights of attacks )"
                       R"(1.50 steps old in the mean, 2 at most; 7 micro-batches dealt again
made to cheat   rank 1: copy, simulated
speed           1.2 images/s, all ranks, without evaluation
attack passes   0.12 per image of at most 10: 98.8 % saved
gradients sent  0.006336 MB per step and rank (0.01102 MB with all layers), other messages 0.9995 kB
active layers   1.5 of 3 in the mean

Evaluations on 10000 test images
  pgd10: eps 8/255, alpha 2/255, 1 restart
  pgd20: eps 8/255, alpha 0.1/255, 5 restarts
  epochs      step     seconds     clean %     pgd10 %     pgd20 %  clean loss  pgd10 loss  pgd20 loss
       0         2         0.7       33.33       28.57       12.50      1.1000         nan         nan
       1         3         1.0       33.33       28.57           -      1.1000         nan           -

Evaluations on 1000 held-out training images
  pgd10: eps 8/255, alpha 2/255, 1 restart
  epochs      step     seconds     clean %     pgd10 %  clean loss  pgd10 loss
       0         2         0.7       50.00       25.00      1.1000      1.7500

phase            seconds     share
data               22.52     9.4 %
attack             22.73     9.5 %
forward            20.42     8.5 %
backward           17.73     7.4 %
encode             17.12     7.1 %
exposed            19.16     8.0 %
decode             21.97     9.2 %
select             22.97     9.6 %
update             21.24     8.9 %
other              18.37     7.7 %
evaluate           17.00     7.1 %
checkpoint         18.39     7.7 %
sum, rank 0       239.62
hidden             21.26  of communication beside them

weights         0123abcd
a remark
)" + last + "\n");
  CHECK(shown().ends_with(summary));
  CHECK(integers(results(), "history/step/age_max") == std::vector<std::int64_t>{2, 1});
  const std::string log = read("run.log");
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, end = 0;
  const std::string logged = log.substr(log.rfind('\n', log.size() - 2) + 1);
  CHECK(std::sscanf(logged.c_str(), "%4d-%2d-%2dT%2d:%2d:%2dZ %n", &year, &month, &day, &hour, &minute, &second,
                    &end) == 6);
  CHECK(logged.substr(static_cast<std::size_t>(end)) == last + "\n");

  result.verdict = Validity::invalid;
  result.evaluations.resize(1);
  result.evaluations[0].clean_acc = -kNaN;
  std::tie(facts.attackers, facts.ranks) = std::tuple("", 1);
  for (const auto& [passes, told] : {std::pair(0, ""),
                                     {2000, "attack passes   10.00 per image\n"},
                                     {1990, "attack passes   9.95 per image of at most 10: 0.5 % saved\n"}}) {
    Report report(facts, -1);
    RecordedStep nothing(1);  // which has taken no time and sent nothing
    nothing.record.seconds = {};
    nothing.record.bytes_sent = 0;
    nothing.record.steps_per_epoch = 1;
    std::tie(nothing.record.images, nothing.record.attack_passes) = std::tuple(200, passes);
    report.step(nothing.get());
    last = report.finish(result);
    CHECK(last == "Final: clean_acc=nan pgd10_acc=0.3412 time_s=123.4 comm_s=1.2 INVALID");
    CHECK(read("SUMMARY.txt") == "Run " + facts.folder + "\n\nsteps           1 of 5\nranks           1\n" + told +
                                     "gradients sent  nothing: one rank\nactive layers   2.0 of 3 in the mean\n\n"
                                     "weights         0123abcd\na remark\n" +
                                     last + "\n");
  }
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
  for (const double value : {1.0 / 7, 1.0000001e-5}) CHECK(std::stod(radius_text(value)) == value);
  CHECK(radius_text(0.5, BallNorm::l2) == "0.5");
  CHECK(std::stod(radius_text(8.0 / 255, BallNorm::l2)) == 8.0 / 255);
  CHECK(radius_text(8.0 / 255, BallNorm::l2).find('/') == std::string::npos);
  CHECK(ball_text(BallNorm::linf, 8.0 / 255) == "eps 8/255");
  CHECK(ball_text(BallNorm::l2, 0.5) == "l2 eps 0.5");
}

TEST_CASE_METHOD(Recorded, "Attacks of one name with other settings have columns of their own", "[report]") {
  Report report(facts, -1);
  std::vector<EvaluationRecord> all(5, evaluation_at(3));
  all[0].eps = 16.0 / 255;
  all[1].alpha = 0.5;
  all[2].restarts = 2;
  all[3].attack = "none";
  all[3].attack_steps = 0;
  report.evaluation({evaluation_at(1)});
  report.evaluation(all);
  report.finish({});
  CHECK(contains(
      read("SUMMARY.txt"),
      "test images\n"
      "  pgd10: eps 8/255, alpha 2/255, 1 restart\n"
      "  pgd10#2: eps 16/255, alpha 2/255, 1 restart\n"
      "  pgd10#3: eps 8/255, alpha 0.5, 1 restart\n"
      "  pgd10#4: eps 8/255, alpha 2/255, 2 restarts\n"
      "  epochs      step     seconds     clean %     pgd10 %   pgd10#2 %   pgd10#3 %   pgd10#4 %      none %"));
}

TEST_CASE_METHOD(Recorded, "Evaluations in L2 say so, and have columns and rows of their own", "[report]") {
  Report report(facts, -1);
  EvaluationRecord linf = evaluation_at(1), l2 = linf;
  l2.norm = "l2";
  l2.eps = 0.5;
  l2.alpha = 0.125;
  CHECK(attack_text(l2) == "l2 eps 0.5, alpha 0.125, 1 restart");
  for (const auto& [eps, steps, text] :
       {std::tuple(1.0, 1, "l2 eps 1, alpha 0.125, 1 restart"), {0.0, 1, ""}, {1.0, 0, ""}}) {
    EvaluationRecord one = l2;
    std::tie(one.eps, one.attack_steps) = std::tuple(eps, steps);
    CHECK(attack_text(one) == text);
  }
  EvaluationRecord same_radius = l2;
  same_radius.norm = "linf";
  report.evaluation({linf, l2, same_radius});
  report.finish({});
  const std::string summary = read("SUMMARY.txt");
  CHECK(contains(summary, "  pgd10#2: l2 eps 0.5, alpha 0.125, 1 restart\n"));
  CHECK(contains(summary, "  pgd10#3: eps 0.5, alpha 0.125, 1 restart\n"));
  const Hdf5File file = results();
  CHECK(file.read_texts("history/evaluation/norm") == std::vector<std::string>{"linf", "l2", "linf"});
}

TEST_CASE_METHOD(Recorded, "Progress is plain lines without a terminal, and nothing where it is unwanted", "[report]") {
  facts.progress_seconds = 0;
  for (const bool quiet : {false, true}) {
    facts.quiet = quiet;
    const std::size_t before = shown().size();
    {
      Report report(facts, -1);
      for (std::int64_t i = 1; i <= 5; ++i) report.step(RecordedStep(i).get());
      report.evaluation(evaluations_at(5));
    }
    const std::string text = shown().substr(before);
    CHECK(text.find_first_of("\r\033") == std::string::npos);
    CHECK(std::count(text.begin(), text.end(), '\n') == (quiet ? 2 : 7));
    CHECK(contains(text,
                   "evaluation at step 5, 1 of 2 epochs done, 10000 test images: clean 33.33 %, loss 1.1000; "
                   "pgd10 28.57 %, loss nan (eps 8/255, alpha 2/255, 1 restart); "
                   "pgd20 12.50 %, loss nan (eps 8/255, alpha 0.1/255, 5 restarts)\n"));
    CHECK(contains(text,
                   "evaluation at step 5, 1 of 2 epochs done, 1000 held-out training images: clean 50.00 %, loss "
                   "1.1000; pgd10 25.00 %, loss 1.7500 (eps 8/255, alpha 2/255, 1 restart)\n"));
    const std::size_t progress = text.find("step 5/5  epoch 2 of 2  loss 2.0427  acc 16.67 %  ");
    CHECK((progress == std::string::npos) == quiet);
    CHECK((text.find(" images/s  ETA 0 s\n", progress) == std::string::npos) == quiet);
  }
}

TEST_CASE_METHOD(Recorded, "TensorBoard has times of a run that has never stood still, and pictures that are whole",
                 "[report]") {
  facts.tensorboard = true;
  CHECK(History().seconds() == 0);
  write_bytes(facts.folder + "/events.out.tfevents.9999999999.dat_hpc", "");
  RecordedStep step(1);
  const GeneratorRecord generators{.age_max = 7};
  EvaluationRecord evaluation = evaluation_at(1);
  evaluation.picture = {.height = 32, .width = 64, .png = "picture"};
  const auto file = [](int number) { return "events.out.tfevents.1000000000" + std::to_string(number) + ".dat_hpc"; };
  for (const auto& [trained, evaluated, number] : {std::tuple(2e6, 1e6, 1), {1e6, 2e6, 3}}) {
    const bool first = number == 1;
    std::tie(step.record.wall_time, evaluation.wall_time) = std::pair(trained, evaluated);
    step.record.generators = first ? &generators : nullptr;
    if (!first) step.p.assign(3, 1.0);
    auto report = std::make_unique<Report>(facts, -1);
    report->step(step.get());
    report->evaluation({evaluation});
    std::string events = read(file(number - 1));
    if (!first) {  // the last letter of the picture, before a sum of four bytes
      events[events.size() - 5] = 'E';
      write_bytes(facts.folder + "/" + file(number - 1), events);
    }
    report = std::make_unique<Report>(facts, report->metrics_bytes());
    events = read(file(number));
    for (const char* part : {"step/age_max", "step/p", "pictur"}) CHECK(contains(events, part) == first);
    double began = 0;  // behind a frame's length and its sum, and a field's number
    std::memcpy(&began, events.data() + 13, sizeof began);
    CHECK(std::abs(static_cast<double>(std::time(nullptr)) - 2e6 - began) < 1000);
  }
}

TEST_CASE("Epochs are counted from 1 and with the warm-up where people read", "[report]") {
  CHECK(plan_text(512, 32, 16, 1) == "512 steps, 16 epochs of 32 steps (1 warm-up)");
  CHECK(plan_text(480, 32, 15, 7.5) == "480 steps, 15 epochs of 32 steps (7.5 warm-up)");
  CHECK(plan_text(40, 32, 16, 0) == "40 of 512 steps, 16 epochs of 32 steps");
  CHECK(plan_text(1, 1, 1, 0) == "1 step, 1 epoch of 1 step");
  CHECK(images_text("train") == "training images");
}

TEST_CASE_METHOD(Recorded, "A warning is on standard error and in run.log", "[report]") {
  {
    CapturedOutput errors(folder / "errors", STDERR_FILENO);
    Report report(facts, -1);
    report.warning("step-1.h5 is damaged");
  }
  CHECK((shown().empty() && read_bytes(folder / "errors") == "dat_hpc: warning: step-1.h5 is damaged\n"));
  CHECK(read("run.log").ends_with("Z warning: step-1.h5 is damaged\n"));
}

TEST_CASE_METHOD(Recorded, "What a file says moves no cursor, on the terminal, in the log and in the summary",
                 "[report]") {
  const std::string evil =
                        "a\033]0;b\a\r\x7f\xc2\x9b"
                        "2J\nFinal: VALID \xff\xe9",
                    tame = "a?]0;b????2J Final: VALID ??";
  {
    CapturedOutput errors(folder / "errors", STDERR_FILENO);
    Report report(facts, -1);
    report.message("says " + evil);
    report.warning(evil);
    report.tell(LeftRecord{3, 2, evil});
    report.tell(SetbackRecord{1, "skipped", evil});
    report.finish({});
  }
  CHECK(shown().starts_with("says " + tame + "\n"));
  CHECK(read_bytes(folder / "errors") ==
        "dat_hpc: warning: " + tame + "\ndat_hpc: warning: " + tame + ": the step is skipped\n");
  for (const std::string& name :
       {facts.folder + "/run.log", facts.folder + "/SUMMARY.txt", facts.folder + "/metrics.jsonl", folder / "output"}) {
    INFO(name);
    const std::string text = read_bytes(name);
    CHECK(!text.empty());
    CHECK(text == without_controls(text));
    CHECK(!contains(text, "\nFinal: VALID"));
  }
}

TEST_CASE_METHOD(Recorded, "Of two processes that write one record one ends", "[report]") {
  RecordedStep one(1), two(2);
  Report first(facts, -1);
  first.step(one.get());
  const std::int64_t bytes = first.metrics_bytes();
  first.step(two.get());
  Report second(facts, bytes);
  CHECK(message_of([&] {
          first.step(two.get());
        }).starts_with("another process is writing into " + facts.folder + "/metrics.jsonl, which has "));
  CHECK(code_of([&] { static_cast<void>(first.metrics_bytes()); }) == ExitCode::usage);  // no checkpoint of it
  const SetbackRecord rollback{2, "rollback", "why", 0, 0.5};
  CHECK(code_of([&] { first.roll_back(bytes, "", rollback); }) == ExitCode::usage);
  second.step(two.get());
  CHECK(second.metrics_bytes() == static_cast<std::int64_t>(fs::file_size(facts.folder + "/metrics.jsonl")));
  fs::remove_all(facts.folder);
  const Report third(facts, -1);
  CHECK(contains(error_of([&] { second.step(one.get()); }), "was removed"));
}

TEST_CASE_METHOD(Recorded, "A full disk ends in an error of the right kind", "[report]") {
  fs::create_directories(facts.folder);
  fs::create_symlink("/dev/full", facts.folder + "/metrics.jsonl");
  CHECK(contains(message_of([&] { Report(facts, -1); }, ExitCode::io), "disk full"));
  CHECK(code_of([&] { Report(facts_in("/dev/null/run"), -1); }) == ExitCode::io);
  fs::remove(facts.folder + "/metrics.jsonl");
  fs::create_directory(facts.folder + "/metrics.jsonl");
  CHECK(contains(message_of([&] { Report(facts, -1); }, ExitCode::io), "cannot open "));
  for (const char* name : {"/metrics.jsonl", "/run.log"}) fs::remove(facts.folder + name);
  fs::create_symlink("/dev/full", facts.folder + "/run.log");
  Report begun(facts, 0);
  CHECK(contains(message_of([&] { begun.message("said"); }, ExitCode::io), "/run.log: disk full"));
}

TEST_CASE_METHOD(Recorded, "A run is drawn with scripts and data, wherever its folder is", "[report]") {
  {
    Report report(facts, -1);
    CHECK(code_of([&] { (void)plot_run(facts.folder, "svg"); }) == ExitCode::data);  // there is no step yet
    for (std::int64_t i = 1; i <= 5; ++i) report.step(RecordedStep(i).get());
    report.evaluation(evaluations_at(3));
    report.evaluation(evaluations_at(5));
  }
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) {
    CHECK(code_of([&] { (void)plot_run(facts.folder, "svg"); }) == ExitCode::device);
  } else {
    for (const std::string format : {"svg", "png", "pdf"}) {
      const std::vector<std::string> pictures = plot_run(facts.folder, format.c_str());
      REQUIRE(pictures.size() == 4);
      for (const std::string& picture : pictures) {
        const std::string text = read_bytes(picture);
        CHECK((format == "svg" ? contains(text, "</svg>") : text.substr(1, 3) == (format == "png" ? "PNG" : "PDF")));
      }
    }
    CHECK(contains(read("plots/layers.svg"), "layer1.0.conv1.weight"));
  }
  for (const std::string name : {"accuracy", "losses", "phases", "layers"})
    for (const std::string kind : {".gp", ".csv"}) CHECK(fs::exists(facts.folder + "/plots/" + name + kind));
  CHECK(read("plots/layers.csv")
            .starts_with("epochs,step,seconds,from,conv1.weight,layer1.0.conv1.weight,linear.bias\n"
                         "0.33333333,1,0.33333333,0,1,0.31,0.1\n"));
  // A line per split and attack, named by what tells it apart; what they share is in the title. Against epochs.
  const std::string plots = facts.folder + "/plots/";
  CHECK(read_bytes(plots + "accuracy.csv")
            .starts_with("epochs,step,seconds,\"test, clean (%)\",\"test, pgd10 (alpha 2/255, 1 restart) (%)\","
                         "\"test, pgd20 (alpha 0.1/255, 5 restarts) (%)\",\"held out, clean (%)\","
                         "\"held out, pgd10 (alpha 2/255, 1 restart) (%)\"\n"
                         "1,3,1,33.333333,28.571429,12.5,50,25\n"
                         "1.6666667,5,1.6666667,33.333333,28.571429,12.5,50,25\n"));
  CHECK(read_bytes(plots + "losses.csv").ends_with("\n1.6666667,5,1.6666667,1.1,,,1.1,1.75\n"));  // NaN: empty
  CHECK(read_bytes(plots + "training.csv")
            .ends_with("\n1.6666667,5,1.6666667,1.3333333,16.666667,25,2.0427271,2.236068,0.5\n"));
  CHECK(contains(read_bytes(plots + "accuracy.gp"), "title 'test, pgd20 (alpha 0.1/255, 5 restarts)'"));
  CHECK(!contains(read_bytes(plots + "accuracy.gp"), "average"));
  CHECK(!contains(read_bytes(plots + "losses.gp"), "title 'test, pgd20"));  // none is a number
  for (const std::string name : {"accuracy", "losses"}) {
    const std::string script = read_bytes(plots + name + ".gp");
    CHECK(contains(script,
                   name == "accuracy" ? ": accuracy'.\"\\n\".'evaluations: eps 8/255; " : "'evaluations: eps 8/255; "));
    for (const char* part :
         {" test images and ", "title 'training batches, own attack'",
          "set object 1 rectangle from first 0, graph 0 to first 1, graph 1 behind",
          "title 'held out, pgd10 (alpha 2/255, 1 restart)'", "set key outside", "set xlabel 'epochs",
          "set x2tics nomirror ('0' 0, ", "'1' 1, "})  // the first epoch was done after 1 s
      CHECK(contains(script, part));
  }
  CHECK(code_of([&] { (void)plot_run(folder / "nowhere", "svg"); }) == ExitCode::data);
  CHECK(code_of([&] { (void)plot_run(facts.folder, "bmp"); }) == ExitCode::usage);
}

TEST_CASE_METHOD(Recorded, "Runs are drawn side by side", "[report]") {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) return;
  std::vector<std::string> runs;
  for (const std::string name : {"a/one", "a/two", "b/one"}) {
    runs.push_back(folder / name);
    Report report(facts_in(runs.back()), -1);
    for (std::int64_t i = 1; i <= 5; ++i) report.step(RecordedStep(i).get());
    if (name != "a/two") report.evaluation(evaluations_at(3));
    report.ranks({3, std::vector<double>(2 * kPhases, name == "a/two" ? 3.0 : 6.0), {1, 1}});
  }
  const std::string out = folder / "a new/folder";
  const auto compared = [&](std::size_t one, std::size_t other, const char* format) {
    return compare_runs({{"", {runs[one]}}, {"", {runs[other]}}}, out, format);
  };
  const std::vector<std::string> pictures = compared(0, 1, "png");
  REQUIRE(pictures.size() == 3);
  for (const std::string& picture : pictures) CHECK(read_bytes(picture).substr(1, 3) == "PNG");
  CHECK(read_bytes(out + "/accuracy.csv") ==
        "run,epochs,step,seconds,\"one: clean (%)\",\"one: pgd10 (alpha 2/255, 1 restart) (%)\","
        "\"one: pgd20 (alpha 0.1/255, 5 restarts) (%)\"\none,1,3,1,33.333333,28.571429,12.5\n");
  // Seconds of an epoch, which has 3 steps: as many as the ranks' record spans.
  CHECK(read_bytes(out + "/phases.csv")
            .ends_with("\none,6,6,6,6,6,6,6,6,6,6,6,6,6,0\ntwo,3,3,3,3,3,3,3,3,3,3,3,3,3,0\n"));
  // Megabytes per step: 4 * (432 + 3 / 5 * 2304) and 4 * (432 + 2304 + 10) bytes.
  CHECK(contains(read_bytes(out + "/communication.csv"), "\none,0.0072576,0.010984,"));

  // Runs of one name are told apart by their paths.
  CHECK(compared(0, 2, "svg").size() == 3);
  CHECK(read_bytes(out + "/accuracy.csv").find("\n\"" + runs[2] + "\",1,3,1,,,,33.333333,") != std::string::npos);
  runs[1] = folder / "nowhere";
  CHECK(code_of([&] { (void)compared(0, 1, "svg"); }) == ExitCode::data);
}

TEST_CASE_METHOD(Recorded, "Points of training batches have as many images as the largest batch, the last one too",
                 "[report]") {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) return;
  {
    Report report(facts, -1);
    for (std::int64_t i = 1; i <= 12; ++i) {
      RecordedStep step(i);
      step.record.images = i % 3 == 0 ? 3 : 10;  // an epoch of 23 images
      step.record.acc_adv = i % 3 == 0 ? 0 : 0.5;
      report.step(step.get());
    }
  }
  REQUIRE(!plot_run(facts.folder, "png").empty());
  std::istringstream table(read_bytes(facts.folder + "/plots/training.csv"));
  std::vector<std::string> steps;
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    steps.push_back(cells[1]);
    const bool small = steps.size() > 2 && steps.size() % 2 == 1;  // with the small batch of the epoch before
    CHECK(std::stod(cells[4]) == Approx(100 * (small || steps.size() == 8 ? 0.5 * 10 / 13 : 0.5)));
  }
  CHECK(steps == std::vector<std::string>{"1", "2", "4", "5", "7", "8", "10", "12"});
  // Cells of one picture, without seams: an image, but polygons with sharp edges in an SVG.
  const std::string script = facts.folder + "/plots/layers.gp";
  CHECK(read_bytes(script).find("'layers-cells.csv' skip 1 using 1:2:3 with image notitle") != std::string::npos);
  REQUIRE(!plot_run(facts.folder, "svg").empty());
  CHECK(read_bytes(script).find("using 1:2:3 with image pixels notitle") != std::string::npos);
}

TEST_CASE_METHOD(Recorded, "Runs of a group are one line with a band, and many lines have their names at their ends",
                 "[report]") {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) return;
  std::vector<RunGroup> groups = {{"lr=0.1", {}}};
  for (int run = 0; run < 8; ++run) {
    const std::string path = folder / ("run" + std::to_string(run));
    Report report(facts_in(path), -1);
    report.step(RecordedStep(1).get());
    EvaluationRecord record = evaluation_at(1);
    record.clean_acc = 0.5 + 0.1 * run;
    report.evaluation({record});
    if (run < 3)
      groups[0].folders.push_back(path);
    else
      groups.push_back({"", {path}});
  }
  const std::string out = folder / "out";
  REQUIRE(compare_runs(groups, out, "svg").size() == 3);
  // Student's interval of 50, 60, 70 %: 60 +- 4.3026527 * 10 / sqrt(3).
  const std::string table = read_bytes(out + "/accuracy.csv"), script = read_bytes(out + "/accuracy.gp");
  CHECK(
      table.starts_with("run,epochs,step,seconds,\"lr=0.1 (3 runs): clean (%)\",\"lr=0.1 (3 runs): clean low (%)\","
                        "\"lr=0.1 (3 runs): clean high (%)\","));
  CHECK(table.find("\n\"lr=0.1 (3 runs)\",") != std::string::npos);
  CHECK(table.find(",60,35.158623,84.841377,") != std::string::npos);
  CHECK(script.find("using 2:6:7 with filledcurves") != std::string::npos);
  CHECK(script.find("set label 'run7: clean' at graph") != std::string::npos);
  CHECK(script.find(" title 'run7") == std::string::npos);
  groups.resize(2);
  REQUIRE(!compare_runs(groups, out, "svg").empty());
  CHECK(read_bytes(out + "/accuracy.gp").find(" title 'run3: clean'") != std::string::npos);
}

TEST_CASE_METHOD(Recorded,
                 "A huge first loss does not press the others together, and the picture says what it leaves out",
                 "[report]") {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) return;
  for (const bool huge : {false, true}) {
    facts = facts_in(folder / (huge ? "huge" : "usual"));
    {
      Report report(facts, -1);
      for (std::int64_t i = 1; i <= 41; ++i) {
        RecordedStep step(i);
        step.record.loss_adv = huge && i == 1 ? 371 : 3 - 0.04 * static_cast<double>(i);
        step.record.loss_clean = std::numeric_limits<double>::quiet_NaN();
        report.step(step.get());
      }
    }
    REQUIRE(!plot_run(facts.folder, "svg").empty());
    const std::string script = read("plots/losses.gp");
    CHECK(contains(script, "cut off: values up to 371") == huge);
    // 2.92 ... 1.36, of which the first tenth may be higher: 2.8 is the first after it.
    if (huge) {
      const std::string axis = "set ylabel 'loss'\nset yrange [*:";
      const std::size_t at = script.find(axis) + axis.size();
      CHECK(std::stod(script.substr(at)) == Approx(2.8 + 0.15 * (2.8 - 1.36)));
    }
  }
}

TEST_CASE_METHOD(Recorded, "Phases below a hundredth of every bar are one, and the picture names them", "[report]") {
  if (std::system("gnuplot --version > /dev/null 2>&1") != 0) return;
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
    report.step(RecordedStep(1).get());
    report.ranks({1, seconds, {1, 1}});
  }
  REQUIRE(!plot_run(facts.folder, "svg").empty());
  const std::string script = read("plots/phases.gp"), csv = read("plots/phases.csv");
  CHECK(csv.starts_with("rank,data_seconds,attack_seconds,"));
  CHECK(contains(csv, "hidden_seconds,others_seconds\n0,0.25,90,9,0,0,0,0,0.5,0.25,0,0,0,50,0.75\n1,5,90,"));
  CHECK(contains(script, "title 'others, each < 1 % (0.8 %)'"));
  CHECK(contains(script, "'others: select (0.5 %), update (0.2 %)'"));
  CHECK(contains(script, "title 'data (0.2 %)'"));
  CHECK(!contains(script, "title 'select"));
}
