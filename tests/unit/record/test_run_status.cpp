#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "catch.hpp"
#include "dat/error.hpp"
#include "record/history.hpp"
#include "record/status/run_status.hpp"
#include "recorded.hpp"
#include "temporary_folder.hpp"

using namespace dat;
namespace fs = std::filesystem;

namespace {

constexpr double kNow = 2e9;  // seconds since 1970

void touch(const std::string& path, double seconds_ago) {
  const double time = kNow - seconds_ago;
  const auto whole = static_cast<time_t>(time);
  const timespec at{whole, static_cast<long>(1e9 * (time - static_cast<double>(whole)))};
  const timespec times[] = {at, at};
  REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

EvaluationRecord evaluation(std::int64_t epoch, const std::string& split, const std::string& attack, double clean,
                            double robust) {
  EvaluationRecord record;
  record.step = 3 * epoch;
  record.epoch = epoch;
  record.split = split;
  record.attack = attack;
  record.clean_acc = clean;
  record.adv_acc = robust;
  return record;
}

/// A run of steps of 2 s (and of 1 s of evaluation in every step) in a folder.
struct Made {
  const TemporaryFolder temporary;
  const CapturedOutput output{temporary / "output"};
  const std::string folder = temporary / "runs/one";
  std::unique_ptr<Report> report;
  std::int64_t made = 0;

  Made() {
    RunFacts facts = facts_in(folder);
    facts.total_steps = 600;
    report = std::make_unique<Report>(facts, -1);
  }
  void steps(std::int64_t count, double seconds = 0.5) {
    for (; count > 0; --count) {
      RecordedStep step(++made);
      step.record.seconds.fill(0);
      step.record.seconds[static_cast<std::size_t>(Phase::attack)] = 3 * seconds;
      step.record.seconds[static_cast<std::size_t>(Phase::backward)] = seconds;
      step.record.seconds[static_cast<std::size_t>(Phase::evaluate)] = 1;
      step.record.images = 10 * made;
      step.record.loss_adv = made == 205 ? kNaN : static_cast<double>(made);
      step.record.acc_adv = made % 2 == 0 ? 0.5 : 0.25;
      step.record.lr = made > 240 ? 0.1 : 0.2;
      step.record.wall_time = 3 * static_cast<double>(made);
      report->step(step.get());
    }
  }
  [[nodiscard]] RunStatus status(double seconds_ago = 0, const std::string& here = "n01") const {
    for (const char* name : {"/metrics.jsonl", "/.lock"})
      if (fs::exists(folder + name)) touch(folder + name, seconds_ago);
    return status_of(folder, {200, 0}, here, kNow);
  }
};

void check_width(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }) <= 79);
  }
}

}  // namespace

TEST_CASE("A run's status has the means of its last steps, and all else of its whole record", "[report][status]") {
  Made run;
  run.steps(3);
  run.report->evaluation({evaluation(1, "test", "pgd10", 0.5, 0.25), evaluation(1, "test", "pgd20", 0.5, 0.125)});
  run.steps(3);
  run.report->evaluation({evaluation(2, "test", "pgd10", 0.4, 0.2), evaluation(2, "test", "pgd20", 0.4, 0.15)});
  run.report->tell(SetbackRecord{7, "skipped", "why"});
  run.report->tell(StragglerRecord{8, 1, true, 2.5});
  run.report->tell(StragglerRecord{8, 2, true, 1.5});
  run.report->tell(StragglerRecord{9, 1, false, 1});
  for (int k = 0; k < 2; ++k) run.report->tell(OverflowRecord{7, 512, "why"});
  for (int k = 0; k < 2; ++k) run.report->tell(SetbackRecord{7, "rollback", "why", 6, 0.5});
  run.report->tell(BanRecord{7, 3, 1, "norm"});
  run.report->tell(LeftRecord{3, 7, "banned"});
  run.steps(244);
  run.report->evaluation({evaluation(83, "test", "pgd10", 0.6, 0.3), evaluation(83, "test", "pgd20", 0.6, 0.1)});
  fs::create_directory(run.folder + "/ckpt");
  for (const char* name : {"step-000000000.h5", "step-000000006.h5", "step-000000249.h5", "step-000000250.h5.part",
                           "step-x.h5", "step-.h5", "step--2.h5", "best.h5"})
    write_bytes(run.folder + "/ckpt/" + name, "");
  touch(run.folder + "/ckpt/step-000000249.h5", 30);
  CHECK(kept_checkpoints(run.folder) == std::map<std::int64_t, std::string>{{0, "step-000000000.h5"},
                                                                            {6, "step-000000006.h5"},
                                                                            {249, "step-000000249.h5"}});
  const RunStatus s = run.status();
  CHECK((s.step == 250 && s.steps == 600 && s.epoch == 84 && s.epochs == 200));
  // Lengths: epochs, and steps at most; of fewer than there are already, those.
  const double none = -1;
  for (const auto& [length, epochs, steps, eta] : {std::tuple(RunLength{0, 0}, 0, 0, none),
                                                   {RunLength{0, 300}, 0, 300, 150.0},
                                                   {RunLength{200, 300}, 200, 300, 150.0},
                                                   {RunLength{200, 1000}, 200, 600, 1050.0},
                                                   {RunLength{1, 0}, 84, 250, 0.0},
                                                   {RunLength{200, 1}, 200, 250, 0.0},
                                                   {RunLength{std::int64_t{1} << 62, 0}, 0, 0, none}}) {
    const RunStatus one = status_of(run.folder, length, "n01", kNow);
    INFO(length.epochs << ", " << length.most_steps);
    CHECK(one.steps == steps);
    CHECK(contains(status_page(one), "\nstep            250, epoch 84") == (steps == 0));
    if (epochs > 0 || length.epochs == 0) CHECK(one.epochs == epochs);
    CHECK((eta == none ? std::isnan(one.eta) : one.eta == Approx(eta)));
  }
  double images = 0, finite = 0, loss = 0, right = 0;
  for (int step = 151; step <= 250; ++step) {
    images += 10 * step;
    if (step == 205) continue;
    finite += 10 * step;
    loss += 10.0 * step * step;
    right += 10 * step * (step % 2 == 0 ? 0.5 : 0.25);
  }
  CHECK(s.last.steps == 100);
  CHECK(s.last.loss == Approx(loss / finite));
  CHECK(s.last.accuracy == Approx(right / finite));
  CHECK(s.last.images_per_second == Approx(images / 200));
  CHECK(s.last.lr == Approx(0.19));
  CHECK(s.last.seconds == Approx(2));
  CHECK(s.eta == Approx(350 * 3));  // evaluations as they have come
  REQUIRE((s.evaluated.size() == 2 && s.best.size() == 2));
  CHECK((s.evaluated[1].step == 249 && s.evaluated[1].adv_acc == 0.1));
  CHECK((s.best[0].step == 6 && s.best[0].adv_acc == 0.2));  // by the worst of its attacks
  CHECK((s.slow.size() == 1 && s.slow[0].rank == 2));
  const std::string page = status_page(s);
  INFO(page);
  for (const char* line :
       {"\nstep            250 of 600 (41.7 %), epoch 84 of 200\n",
        "\ntime            12 min 30 s, 2 s a step, ETA 17 min 30 s\n", "\nlast 100 steps  loss 204.6",
        "\nshares          attack 50 %, evaluate 33 %, backward 17 %\n",
        "\nevaluation      step 249, test: clean 60.00 %, pgd10 30.00 %, pgd20 10.00 %\n",
        "\nbest            step 6, test: clean 40.00 %, pgd10 20.00 %, pgd20 15.00 %\n",
        "\ncheckpoint      step 249, 30 s old\n", "\nslow            rank 2, 1.5 times as long as the others\n",
        "\nsetbacks        2 rollbacks, 3 skipped steps, 1 ban, 1 rank that has left\n"})
    CHECK(page.find(line) != std::string::npos);
  check_width(page);
  auto json = nlohmann::json::parse(status_json(s));
  CHECK(json.at("recent").at("loss") == s.last.loss);
  CHECK((json.at("shares").at("attack") == 0.5 && json.at("shares").size() == kPhasesInSum));
  CHECK(json.at("best").at(1).at("adv_acc") == 0.15);
  CHECK(json.at("slow") == nlohmann::json::parse(R"([{"rank": 2, "ratio": 1.5, "step": 8}])"));
  for (const char* part : {"recent", "shares", "best", "slow", "evaluation"}) json.erase(part);
  CHECK(json == nlohmann::json::parse(R"({"bans": 1, "checkpoint": 249, "checkpoint_age_seconds": 30.0, "code": null,
    "damaged_lines": 0, "epoch": 84, "epochs": 200, "eta_seconds": )" +
                                      nlohmann::json(s.eta).dump() + R"(,
    "evaluating": null, "exit_code": 75, "host": null, "left": 1, "process": null, "restarts": 0, "rollbacks": 2,
    "run": )" + nlohmann::json(s.folder).dump() +
                                      R"(, "seconds": 750.0, "silent_seconds": 0.0, "skipped": 3,
    "state": "STOPPED", "step": 250, "steps": 600})"));
  touch(run.folder + "/ckpt/step-000000249.h5", -1);  // by a clock that is ahead
  CHECK(run.status().checkpoint_age == 0);
}

TEST_CASE("A run's best evaluation is that of what is held out, and of averaged weights", "[report][status]") {
  Made run;
  run.steps(6);
  for (const std::int64_t epoch : {1, 2}) {
    std::vector<EvaluationRecord> records;
    for (const char* weights : {"raw", "average"})
      for (const char* split : {"test", "holdout"}) {
        const bool own = std::string(weights) == "average" && std::string(split) == "holdout";
        records.push_back(evaluation(epoch, split, "pgd10", 0.5, own == (epoch == 1) ? 0.4 : 0.3));
        records.back().weights = weights;
      }
    run.report->evaluation(records);
  }
  const RunStatus s = run.status();
  CHECK(s.evaluated.size() == 4);
  REQUIRE(s.best.size() == 1);
  CHECK((s.best[0].step == 3 && s.best[0].split == "holdout" && s.best[0].weights == "average"));
}

TEST_CASE("A run's best evaluation may have nothing right, and one that is not finite is none", "[report][status]") {
  Made run;
  run.steps(9);
  run.report->evaluation({evaluation(1, "train", "pgd10", 0.5, 0.4)});
  CHECK(run.status().best.empty());
  run.report->evaluation({evaluation(2, "test", "pgd10", 0.5, 0)});
  run.report->evaluation({evaluation(3, "test", "pgd20", 0.5, 0.25), evaluation(3, "test", "pgd10", 0.5, kNaN)});
  run.report->evaluation({evaluation(4, "test", "pgd10", 0.5, kNaN), evaluation(4, "test", "pgd20", 0.5, 0.25)});
  const RunStatus s = run.status();
  REQUIRE(s.best.size() == 1);
  CHECK((s.best[0].step == 6 && s.evaluated.size() == 2));
}

TEST_CASE("A run's state is that of its lock, of its signs of life and of its last word", "[report][status]") {
  Made run;
  const auto nobody = [](const std::string&) {};
  const auto is = [&](RunState state, int code, const RunStatus& found, const std::string& more = "") {
    const std::string page = status_page(found);
    INFO(page);
    CHECK(std::string(name_of(found.state)) == name_of(state));
    CHECK(found.exit_code() == code);
    CHECK(contains(page, "\nstate           " + std::string(name_of(state)) + more + (more.empty() ? "" : "\n")));
    CHECK((contains(page, "\nstep ") == (found.epoch > 0) && contains(page, "\ncheckpoint      none\n")));
    check_width(page);
  };
  const std::string me = "n01, process " + std::to_string(getpid());
  {
    RunLock lock(run.folder, nobody);
    is(RunState::running, 75, run.status(10'000), ", begins or ends at this moment");  // nobody has signed
    lock.sign("n01", false);
    is(RunState::running, 75, run.status(119), " on " + me + ", before its first step");
    is(RunState::stale, 75, run.status(121), ": no sign of life for 2 min 01 s; " + me);
    run.steps(1, 0.25);
    is(RunState::running, 75, run.status(4.9));
    is(RunState::stale, 75, run.status(5.1));
    CHECK(contains(status_page(run.status()), "\nlast step       loss 1.0000, acc 25.00 %, 10 images/s, lr 0.2\n"));
    run.steps(1);
    CHECK(run.status().last.steps == 1);  // the first one is left out
    run.steps(3);
    is(RunState::running, 75, run.status(9.5), " on " + me);  // steps of 2 s
    is(RunState::stale, 75, run.status(10.5));
    is(RunState::stale, 75, run.status(10.5, "n02"));
    lock.note_evaluation(0.25);
    is(RunState::running, 75, run.status(119), " on " + me + ", evaluation 25 % done");
    const auto told = nlohmann::json::parse(status_json(run.status()));
    CHECK(std::tuple(told["host"], told["process"], told["evaluating"], told["code"]) ==
          std::tuple("n01", getpid(), 0.25, nullptr));
    lock.note_evaluation(0);
    is(RunState::running, 75, run.status(119), " on " + me + ", evaluation 0 % done");
    CHECK(nlohmann::json::parse(status_json(run.status()))["evaluating"] == 0);
    lock.note_evaluation(1);
    is(RunState::stale, 75, run.status(119));
    run.report->ranks({5, std::vector<double>(kPhases, 500), {0}});  // a checkpoint, and evaluations of 500 s
    is(RunState::running, 75, run.status(499));
    is(RunState::stale, 75, run.status(501));
    // Who has signed is gone, on its own host.
    write_bytes(run.folder + "/.lock",
                R"({"host": "n01", "process": 999999999, "starts": 1, "evaluated": null, "code": null})");
    is(RunState::running, 75, run.status(10'000), ", begins or ends at this moment");
    is(RunState::stale, 75, run.status(10'000, "n02"));
  }
  is(RunState::stopped, 75, run.status(), " without a word (killed?); the same command goes on");
  is(RunState::running, 75, run.status(499, "n02"));  // the lock may be one that n02 does not see
  is(RunState::stopped, 75, run.status(501, "n02"));
  write_bytes(run.folder + "/hang-rank-1.txt", "");
  touch(run.folder + "/hang-rank-1.txt", 20);
  is(RunState::stopped, 75, run.status(10));  // of a start before
  is(RunState::failed, 6, run.status(30));
  for (const int code : {75, 7, 0}) {
    RunLock lock(run.folder, nobody);
    lock.sign("n01", true);
    lock.sign_off(code);
    sign_off(run.folder, 3);                        // too late
    is(RunState::running, 75, run.status(10'000));  // ends at this moment, or begins
  }
  is(RunState::done, 0, run.status());
  CHECK((run.status().writer.starts == 4 && std::isnan(run.status().eta)));
  CHECK(contains(status_page(run.status()), "\nsetbacks        3 restarts\n"));
  for (const int code : {75, 7}) {
    {
      RunLock lock(run.folder, nobody);
      lock.sign("n01", true);
      sign_off(run.folder, code);
    }
    is(code == 75 ? RunState::stopped : RunState::failed, code, run.status(),
       code == 75 ? "; the same command goes on" : " with code 7: numbers that are not finite");
    CHECK(std::isfinite(run.status().eta) == (code == 75));
  }
  fs::remove(run.folder + "/.lock");  // a copy of the folder
  is(RunState::stopped, 75, run.status());
  fs::create_symlink(".lock", run.folder + "/.lock");  // which cannot be read: nobody knows who holds it
  for (const auto& [silent, state] : {std::pair(499, RunState::running), {501, RunState::stale}}) {
    touch(run.folder + "/metrics.jsonl", silent);
    is(state, 75, status_of(run.folder, {200, 0}, "n01", kNow));
  }
  fs::remove(run.folder + "/.lock");
  write_bytes(run.folder + "/results.h5", "");
  is(RunState::done, 0, run.status());
  CHECK_THROWS_AS(status_of(run.temporary.path(), {}, "n01", kNow), Error);
}

TEST_CASE("A folder with a lock alone is that of a run that begins, or of an evaluation, which has signed",
          "[report][status]") {
  const TemporaryFolder folder;
  RunLock lock(folder.path(), [](const std::string&) {});
  CHECK(is_run(folder.path()));
  lock.sign("n01", false);
  CHECK(!is_run(folder.path()));
}

TEST_CASE("Runs have a line each, of at most 79 columns, whatever they are called", "[report][status]") {
  Made run;
  run.steps(4);
  run.report->evaluation({evaluation(1, "test", "pgd10", 0.5, 0.25)});
  RunStatus s = run.status();
  s.folder = "runs/one";
  RunStatus failed;
  std::tie(failed.folder, failed.state, failed.writer.code, failed.eta) =
      std::tuple("runs/\u00e9", RunState::failed, 9, kNaN);
  failed.last.accuracy = kNaN;
  CHECK(status_table({s, failed}) ==
        "run                  state                step  acc %  clean robust         ETA\n"
        "runs/one             STOPPED             4/600  41.67  50.00  25.00 29 min 48 s\n"
        "runs/\u00e9               FAILED 9                -      -      -      -           -\n");
  failed.phases[static_cast<std::size_t>(Phase::attack)] = 0.25;
  CHECK(nlohmann::json::parse(status_json(failed))["shares"]["attack"] == 1);
  s.phases[static_cast<std::size_t>(Phase::data)] = 0.12;  // of 12.15 s
  s.phases[static_cast<std::size_t>(Phase::select)] = 0.03;
  CHECK(contains(status_page(s), "\nshares          attack 49 %, evaluate 33 %, backward 16 %, data 1 %\n"));
  s.folder = std::string(300, 'x') + "\n\033[2J" + "\xc3\xa4\xc3\xb6" + std::string(30, 'y');
  s.step = s.steps = std::int64_t{1} << 60;
  s.evaluated.resize(40, s.evaluated[0]);
  CHECK(nlohmann::json::parse(status_json({})) == nlohmann::json::parse(R"({"run": "", "state": "STOPPED", "code": null,
    "exit_code": 75, "host": null, "process": null, "silent_seconds": 0, "step": 0, "steps": null, "epoch": 0,
    "epochs": null, "seconds": 0, "eta_seconds": 0, "recent": {"steps": 0, "loss": 0, "accuracy": 0,
    "images_per_second": 0, "lr": 0, "step_seconds": 0}, "shares": {}, "evaluating": null, "evaluation": [],
    "best": [], "checkpoint": null, "checkpoint_age_seconds": null, "restarts": 0, "rollbacks": 0, "skipped": 0,
    "bans": 0, "left": 0, "slow": [], "damaged_lines": 0})"));
  for (const std::string& text : {status_table({s, s}), status_page(s)}) {
    check_width(text);
    CHECK(text.find('\033') == std::string::npos);
    CHECK(text.find("...") != std::string::npos);
  }
  CHECK(
      contains(status_page(s), "\nevaluation      step 3, test: clean 50.00 %, pgd10 25.00 %, pgd10 25.00 %, p...\n"));
  const std::string json = status_json(s);  // ASCII, in one line
  CHECK((json.starts_with("{\"run\":\"xxx") && contains(json, "x\\n\\u001b[2J\\u00e4\\u00f6y")));
  s.folder = std::string(300, 'x') + std::string(17, 'y');  // the end that has room
  CHECK(contains(status_table({s}), "\n..." + std::string(17, 'y') + " STOPPED   115292150460... "));
  std::tie(s.step, s.steps) = std::tuple(7, 0);  // of a length that is not known
  CHECK(contains(status_table({s}), "STOPPED                 7 "));
  s.folder = std::string(20, 'y');  // what has just the room
  std::tie(s.step, s.steps) = std::tuple(1234567, 7654321);
  CHECK(contains(status_table({s}), "\n" + s.folder + " STOPPED   1234567/7654321 "));
}

TEST_CASE("A record can be read at any moment while it is written and cut back", "[report][status]") {
  Made run;
  run.steps(160);
  const std::string path = run.folder + "/metrics.jsonl", all = read_bytes(path);
  std::atomic<bool> over{false};
  std::jthread writer([&] {
    const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    for (std::size_t end = all.size(), piece = 997; !over; end += piece) {
      if (end + piece > all.size()) {
        end = all.find('\n', all.size() / 2) + 1;
        static_cast<void>(!ftruncate(file, static_cast<off_t>(end)));
      }
      static_cast<void>(!write(file, all.data() + end, piece));
    }
    close(file);
  });
  std::int64_t damaged = 0;
  for (int reads = 0; reads < 300; ++reads) {
    const RunStatus s = status_of(run.folder, {200, 0}, "n01", kNow);
    damaged += s.damaged > 0;
    CHECK((s.last.steps > 70 && s.last.steps <= 100));
    CHECK(s.step <= 160);
  }
  over = true;
  CHECK(damaged < 30);
}

TEST_CASE("A line that stays damaged is told, and one of another format is refused", "[report][status]") {
  Made run;
  run.steps(4);
  const std::string path = run.folder + "/metrics.jsonl", all = read_bytes(path);
  write_bytes(
      path,
      all + "{\"kind\":\"step\",\"step\":5,\"p\"\n{\"kind\":\"step\",\"step\":5}\n{\"kind\":3}\n{\"kind\":\"run\"}\n" +
          all.substr(all.rfind("{\"kind\"")) + "{\"kind\":\"st");
  const RunStatus s = run.status();
  CHECK((s.damaged == 4 && s.last.steps == 4 && s.step == 4));
  CHECK(status_page(s).find("4 lines of metrics.jsonl are damaged") != std::string::npos);
  for (const std::string step : {"1e300", "-5", "1e18", "1.5", "10000000000000000000"}) {  // no number of a step
    INFO(step);
    std::string line = all.substr(all.rfind("{\"kind\""));
    line.replace(line.find("\"step\":4"), 8, "\"step\":" + step);
    write_bytes(path, all + line);
    CHECK((run.status().damaged == 1 && run.status().step == 4));
    CHECK(contains(error_of([&] { static_cast<void>(read_history(run.folder)); }), "line 6 is damaged"));
  }
  write_bytes(path, "{\"kind\":\"run\",\"format_version\":2}\n");
  CHECK_THROWS_AS(run.status(), Error);
  write_bytes(path, "");
  CHECK((run.status().step == 0 && !read_recent(run.folder, 1).history.ends_in_step));
  fs::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0666) == 0);  // a pipe that nobody fills
  CHECK(read_recent(run.folder, 1).history.steps.empty());
}
