#include "by_epoch.hpp"
#include "environment.hpp"
#include "run/advice.hpp"
#include "run/begin/beginning.hpp"
#include "run/begin/folder.hpp"
#include "run/opening.hpp"
#include "small_run.hpp"

using namespace dat;

namespace {

constexpr std::int64_t kImages = 64;  // 4 steps of 16
const std::map<std::string, std::string> kHashes = {{"test", "b"}, {"train", "a"}};

[[nodiscard]] TrainOptions planned() {
  TrainOptions options = test::small_run();
  options.out = "run";
  options.epochs = 2;
  settle(options);
  put_back_unused(options);
  return options;
}

[[nodiscard]] Checkpoint checkpoint_of(const TrainOptions& options, std::int64_t step) {
  Checkpoint checkpoint;
  checkpoint.integers = {
      {"step", step}, {"steps_per_epoch", 4}, {"ranks", 1}, {"train_images", kImages}, {"metrics_bytes", 700}};
  checkpoint.texts = {{"config_toml", toml_of(options)}, {"hash_test", "b"}, {"hash_train", "a"}};
  return checkpoint;
}

/// A run that has stopped, or has come to its end.
[[nodiscard]] Found run_of(const TrainOptions& options, std::int64_t step) {
  Found found{.folder = "run", .config = toml_of(options), .occupied = true, .own = true};
  if (step == 8) found.summary = "Final";
  found.checkpoint = checkpoint_of(options, step);
  return found;
}

/// An empty folder, beside the checkpoint that `options` name.
[[nodiscard]] Found branch_of(const TrainOptions& options) {
  Found found{.folder = "run"};
  found.checkpoint = checkpoint_of(options, 4);
  return found;
}

[[nodiscard]] Found weights_of(const std::string& config) {
  Found found{.folder = "run"};
  found.weights.config = config;
  found.weights.checkpoint.emplace();
  return found;
}

[[nodiscard]] Beginning decision(const Found& found, const TrainOptions& options, int ranks = 1,
                                 const std::map<std::string, std::string>& hashes = kHashes) {
  return decide(found, options, {Plan(options, kImages, ranks), kImages, hashes});
}

/// What is decided, in a word and the words for people; or the refusal.
[[nodiscard]] std::string told(const Found& found, const TrainOptions& options, int ranks = 1,
                               const std::map<std::string, std::string>& hashes = kHashes) {
  std::string text;
  const std::string refusal = error_of([&] {
    const Beginning beginning = decision(found, options, ranks, hashes);
    text = std::map<Beginning::Way, std::string>{{Beginning::Way::fresh, "fresh"},
                                                 {Beginning::Way::weights, "weights"},
                                                 {Beginning::Way::go_on, "go_on"},
                                                 {Beginning::Way::branch, "branch"}}[beginning.way] +
           beginning.what + (beginning.finished ? "; finished: " + beginning.summary : "");
    for (const std::string& warning : beginning.warnings) text += "; warning: " + warning;
    CHECK(beginning.own() == (beginning.way == Beginning::Way::go_on));
  });
  return refusal == "none" ? text : refusal;
}

}  // namespace

TEST_CASE("A run begins by what there is and by what is asked", "[beginning]") {
  using Change = std::function<void(Found&, TrainOptions&)>;
  const auto nothing = [](Found&, TrainOptions&) {};
  const TrainOptions options = planned();
  TrainOptions elsewhere = options, given = options, held = options;
  held.holdout = 8;
  elsewhere.resume = "other";
  given.initialize = "w.h5";
  const Found empty{.folder = "run"}, stopped = run_of(options, 4), ended = run_of(options, 8);
  Found record = empty;  // of a run that was killed before its first checkpoint
  record.occupied = true;
  record.config = toml_of(options);
  const auto resume = [](const char* what) { return [what](Found&, TrainOptions& o) { o.resume = what; }; };
  const auto longer = [](Found&, TrainOptions& o) { o.epochs = 3; };
  const auto other_eval = [](Found&, TrainOptions& o) { o.eval = {"pgd1"}; };
  const auto faster = [](Found&, TrainOptions& o) { o.lr = 0.5; };
  const std::string holds = "2: --out run holds a run already: choose another folder, or --resume auto to go on";
  const auto made_with = [](const std::string& others) {
    return "2: run was made with other options: " + others +
           "; repeat them, or choose another --out (there, --resume run goes on from it with other options)";
  };
  const std::string other_lr = made_with("lr (was 0.01, is 0.5)");
  struct Case {
    Found found;
    TrainOptions options;
    Change change;
    std::string expected;
  };
  for (const auto& [there, asked, change, expected] : std::vector<Case>{
           {empty, options, nothing, "fresh"},
           {empty, options, resume("never"), "fresh"},
           {record, options, nothing, "fresh"},
           {record, options, faster, other_lr},
           {record, options, resume("never"), holds},
           {record, elsewhere, nothing, holds},
           {stopped, options, nothing, "go_on, going on after step 4"},
           {run_of(options, 0), options, nothing, "go_on, going on after step 0"},
           {stopped, options, faster, other_lr},
           {stopped, options, longer, "go_on, going on after step 4"},
           {stopped, options, other_eval, "go_on, going on after step 4"},
           {run_of(held, 4), held, other_eval, made_with(R"(eval (was ["pgd2"], is ["pgd1"]))")},
           {stopped, options, resume("never"), holds},
           {stopped, options, resume("other"), holds},
           {stopped, options, [](Found& f, TrainOptions&) { f.warnings = {"one is damaged"}; },
            "go_on, going on after step 4; warning: one is damaged"},
           {stopped, options, [](Found& f, TrainOptions&) { f.failure = Error(ExitCode::checkpoint, "none is whole"); },
            "4: none is whole"},
           {stopped, options,
            [](Found& f, TrainOptions& o) {
              f.failure = Error(ExitCode::checkpoint, "none is whole");
              o.resume = "never";
            },
            holds},
           {stopped, options, [](Found& f, TrainOptions&) { f.checkpoint->integers["train_images"] = 65; },
            "2: the checkpoint was trained on 65 images, --data and --limit-train give 64"},
           {stopped, options, [](Found& f, TrainOptions&) { f.checkpoint->integers["steps_per_epoch"] = 0; },
            "4: the checkpoint has epochs of 0 steps"},
           {stopped, options, [](Found& f, TrainOptions&) { f.checkpoint->integers["steps_per_epoch"] = 1; },
            "2: run has 16 steps done, and the options end the run after 8; raise --epochs or --max-steps"},
           {stopped, options, [](Found& f, TrainOptions&) { f.checkpoint->texts["hash_train"] = "c"; },
            "2: run was made with other images: --data has other training images now, under whatever name; give the "
            "files that the run began with, or choose another --out (there, --resume run goes on from it with these)"},
           {stopped, options, [](Found& f, TrainOptions&) { f.checkpoint->texts.erase("hash_test"); },
            "go_on, going on after step 4"},
           {ended, options, nothing, "go_on, going on after step 8; finished: Final"},
           {ended, options, [](Found&, TrainOptions& o) { o.verbose = true; }, "go_on, going on after step 8"},
           {ended, options, longer, "go_on, going on after step 8"},
           {ended, options, [](Found& f, TrainOptions&) { f.summary = ""; }, "go_on, going on after step 8"},
           {ended, options, [](Found&, TrainOptions& o) { o.epochs = 1; },
            "2: run has 8 steps done, and the options end the run after 4; raise --epochs or --max-steps"},
           {stopped, options,
            [](Found& f, TrainOptions&) {
              f.checkpoint->integers["stopped_early"] = 1;
              f.summary = "Early";
            },
            "go_on, going on after step 4; finished: Early"},
           {branch_of(options), elsewhere, nothing, "branch, going on after step 4 of other"},
           {branch_of(options), elsewhere, faster,
            "branch, going on after step 4 of other with other options: lr (was 0.01, is 0.5)"},
           {branch_of(options), elsewhere, [](Found& f, TrainOptions&) { f.checkpoint->texts["hash_test"] = "c"; },
            "branch, going on after step 4 of other with other options: other test images"},
           {branch_of(options), elsewhere,
            [](Found& f, TrainOptions&) { f.checkpoint->integers["train_images"] = 65; },
            "2: other: the checkpoint was trained on 65 images, --data and --limit-train give 64 (--initialize takes "
            "the weights alone)"},
           // The same command goes on with what it has begun.
           {run_of(elsewhere, 4), elsewhere, nothing, "go_on, going on after step 4"},
           {run_of(elsewhere, 4), elsewhere, resume("third"), holds},
           {weights_of(""), given, nothing, "weights, beginning with the weights of w.h5"},
           {weights_of("network = \"small_cnn\"\n"), given,
            [](Found& f, TrainOptions&) { f.weights.warnings = {"one is damaged"}; },
            "weights, beginning with the weights of w.h5; warning: one is damaged"},
           {weights_of("activation = \"silu\"\n"), given, nothing,
            "2: --initialize w.h5: the network there was trained with --activation silu, this run has --activation "
            "relu; give --activation silu or leave it off"},
           {weights_of(""), given,
            [](Found& f, TrainOptions&) { f.weights.failure = Error(ExitCode::checkpoint, "cannot be opened"); },
            "4: cannot be opened"},
           {run_of(given, 4), given, nothing, "go_on, going on after step 4"}}) {
    Found found = there;
    TrainOptions now = asked;
    change(found, now);
    CHECK(told(found, now) == expected);
  }
}

TEST_CASE("A run takes up what its checkpoint says, and a branch does not", "[beginning]") {
  const TrainOptions options = planned();
  Found found = run_of(options, 4);
  Checkpoint& checkpoint = *found.checkpoint;
  BestRecord{.accuracy = 0.5, .step = 3, .bytes = 600}.save(checkpoint);
  for (const char* name : {"evaluation_due", "evaluation_recorded"}) checkpoint.integers[name] = 1;
  checkpoint.integers["since_best"] = 2;
  checkpoint.texts["metrics_behind"] = "line\n";
  Beginning own = decision(found, options);
  CHECK((own.step == 4 && own.metrics_bytes == 700 && own.behind == "line\n"));
  CHECK((own.evaluation_due == 1 && own.recorded && own.since_best == 2));
  CHECK((own.best == BestRecord{.accuracy = 0.5, .step = 3, .bytes = 600} && !own.counted_anew && !own.other_options));
  found.own = found.occupied = false;
  found.config = "";
  TrainOptions elsewhere = options;
  elsewhere.resume = "other";
  elsewhere.lr = 0.5;
  const Beginning branch = decision(found, elsewhere);
  CHECK((branch.step == -1 && branch.metrics_bytes == -1 && branch.behind.empty()));
  CHECK((branch.evaluation_due == 1 && !branch.recorded && branch.since_best == 0 && branch.other_options));
  CHECK(branch.best == BestRecord{});
  checkpoint.integers.erase("metrics_bytes");
  found.own = true;
  CHECK(error_of([&] { (void)decision(found, options); }).starts_with("4: "));
}

TEST_CASE("With other ranks a run goes on at the same place, and counts its steps anew", "[beginning]") {
  TrainOptions options = planned();
  Found found = run_of(options, 4);
  const Beginning two = decision(found, options, 2);
  CHECK((two.counted_anew && two.what == ", going on after step 2"));
  CHECK(two.step == 4);  // the file's name has this number
  options.max_steps = 6;
  found = run_of(options, 4);
  CHECK(told(found, options, 2) ==
        "2: --max-steps 6 was given for epochs of 4 steps, and with 2 ranks they have 2: give --max-steps 3 for the "
        "same end, or another number");
  for (const int ends_no_run : {8, 1000}) {
    options.max_steps = ends_no_run;
    CHECK(told(run_of(options, 4), options, 2) == "go_on, going on after step 2");
  }
  options.max_steps = 5;  // which somebody has given anew
  CHECK(told(found, options, 2) == "go_on, going on after step 2");
}

TEST_CASE("A later end is told where something depends on it", "[beginning]") {
  using Change = void (*)(TrainOptions&);
  const auto longer = [](TrainOptions& o) { o.epochs = 3; };
  const std::string epochs = "--epochs was 2 and is 3 from here on: ",
                    steps = "--max-steps was 6 and is 7 from here on: ",
                    rate = "the learning rate of --schedule linear",
                    end = " depends on it, and the run is not the one that would have been planned so from the start";
  for (const auto& [has, change, expected] : std::vector<std::tuple<Change, Change, std::string>>{
           {[](TrainOptions&) {}, longer, ""},
           {[](TrainOptions& o) { o.schedule = "linear"; }, [](TrainOptions&) {}, ""},
           {[](TrainOptions& o) { o.schedule = "linear"; }, longer, epochs + rate},
           {[](TrainOptions& o) { o.schedule = "linear", o.max_steps = 6; }, [](TrainOptions& o) { o.max_steps = 7; },
            steps + rate},
           {[](TrainOptions& o) { o.stale_attack = 1; }, longer,
            epochs + "the first attack after the earlier end, by --stale-attack,"},
           {[](TrainOptions& o) { o.selector = "freezeout"; }, longer, epochs + "what --selector freezeout freezes"},
           {[](TrainOptions& o) { o.selector = "autofreeze"; }, longer,
            epochs + "what --selector autofreeze freezes"}}) {
    TrainOptions options = planned();
    has(options);
    const Found found = run_of(options, 4);
    change(options);
    CHECK(told(found, options) ==
          "go_on, going on after step 4" + (expected.empty() ? "" : "; warning: " + expected + end));
  }
}

TEST_CASE("A run goes on in the epoch of its next step, or of the evaluation that it owes", "[beginning]") {
  for (const auto& [step, steps, due, epoch] : {std::tuple(0, 4, 0, 0),
                                                {3, 4, 0, 0},
                                                {4, 4, 0, 1},
                                                {4, 4, 1, 0},
                                                {9, 4, 0, 2},
                                                {0, 4, 1, 0},
                                                {0, 1, 0, 0},
                                                {1, 1, 0, 1},
                                                {0, 1, 1, 0},
                                                {5, 0, 0, 0}}) {
    Checkpoint checkpoint;
    checkpoint.integers = {{"step", step}, {"steps_per_epoch", steps}, {"evaluation_due", due}};
    CHECK(epoch_at(checkpoint) == epoch);
  }
}

TEST_CASE("Those who have left stay away in the same run on as many ranks", "[beginning]") {
  const TrainOptions options = planned();
  Found found = run_of(options, 2);
  found.checkpoint->integers["steps_per_epoch"] = 2;
  found.checkpoint->texts["left"] = "1 1 banned\n";  // 1 of 2 ranks
  CHECK(decision(found, options, 2).left == std::vector<LeftRecord>{{1, 1, "banned"}});
  CHECK(decision(found, options, 2).warnings.empty());
  CHECK(told(found, options, 4) ==
        "go_on, going on after step 1; warning: 1 of 2 ranks had left at the checkpoint; with 4 ranks all take part "
        "again");
  CHECK(decision(found, options, 4).left.empty());
  Found branch = branch_of(options);
  branch.checkpoint = found.checkpoint;
  TrainOptions elsewhere = options;
  elsewhere.resume = "other";
  CHECK(told(branch, elsewhere, 2) ==
        "branch, going on after step 2 of other; warning: 1 of 2 ranks had left at the checkpoint; in another run all "
        "take part again");
  for (const std::string rank : {"0", "2"}) {
    found.checkpoint->texts["left"] = rank + " 1 banned\n";
    CHECK(told(found, options, 2)
              .starts_with("4: run/ckpt: the checkpoint of step 2 says that rank " + rank + " of 2 has left"));
  }
}

TEST_CASE("A run without --out has its job's folder, or a new one, and says so where it goes on", "[beginning]") {
  const test::Environment job("SLURM_JOB_ID", "17");
  TrainOptions options;
  CHECK(folder_of(options) == "runs/slurm-17");
  ::unsetenv("SLURM_JOB_ID");
  CHECK(folder_of(options).empty());
  CHECK(same_command(options, "runs/it's") == R"(the same command with --out 'runs/it'\''s')");
  options.out = "run";
  CHECK((folder_of(options) == "run" && same_command(options, "run") == "the same command"));
  // What a run reads is not written over, but for its own options.
  const TemporaryFolder folder;
  options.out = folder.path();
  const std::string config = config_in(options.out), record = folder / "metrics.jsonl";
  for (const std::string& file : {config, record}) write_bytes(file, "");
  const auto told = [](const TrainOptions& o, const std::string& of_options) {
    return error_of([&] { require_apart_from_inputs(o, of_options); });
  };
  options.data = {"set.h5"};
  CHECK(told(options, config) == "none");
  CHECK(told(options, record).starts_with("2: " + record + ": would be written over "));
  for (const std::string& file : {config, record})
    for (const int input : {0, 1, 2, 3}) {
      TrainOptions o = options;
      (input == 0 ? o.data[0] : input == 1 ? o.calibration : input == 2 ? o.initialize : o.resume) = file;
      CHECK(told(o, "").starts_with("2: " + file + ": would be written over "));
    }
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  write_bytes("auto/metrics.jsonl", "");
  for (const auto& [out, input] : {std::pair("auto", "set.h5"), std::pair("", "metrics.jsonl")}) {
    options.out = out;
    options.data = {input};
    CHECK(told(options, "") == "none");
  }
  std::filesystem::current_path(here);
}

TEST_CASE("A run takes the network of its weights, where nobody has set another one", "[beginning]") {
  const TemporaryFolder folder;
  const auto order = [&](const std::set<std::string>& given) {
    TrainOrder made;
    made.given = given;
    made.options.out = folder.path();
    made.options.initialize = folder / "w.h5";
    made.options.network = "small_cnn";
    made.options.width = 8;
    made.options.activation = "relu";
    return made;
  };
  // As the run in the folder wrote down when it began: the file of the weights need not be there any more.
  const std::string begun = "initialize = \"" + (folder / "w.h5") + "\"\n", wide = "network = \"dm_wrn_22_8\"\n";
  const std::string function = "activation = \"silu\"\nnormalize = \"cifar10\"\n";
  for (const auto& [written, given, expected] :
       std::vector<std::tuple<std::string, std::set<std::string>, std::string>>{
           {"", {}, "small_cnn 8 relu none"},
           {wide, {}, "dm_wrn_22_8 128 silu none"},
           {wide + "width = \"auto\"\n", {}, "dm_wrn_22_8 128 silu none"},
           {wide + "width = 24\n", {}, "dm_wrn_22_8 24 silu none"},
           {wide, {"width", "activation"}, "dm_wrn_22_8 8 relu none"},
           {wide + "width = 24\n", {"width", "activation"}, "dm_wrn_22_8 8 relu none"},
           {wide + "width = 24\n", {"network"}, "small_cnn 24 relu none"},
           {function, {}, "small_cnn 8 silu cifar10"},
           {function, {"activation", "normalize"}, "small_cnn 8 relu none"}}) {
    INFO(written);
    write_bytes(folder / "config.resolved.toml", begun + written);
    TrainOrder taken = order(given);
    take_network(taken);
    const TrainOptions& o = taken.options;
    CHECK(o.network + " " + std::to_string(o.width) + " " + o.activation + " " + o.normalize == expected);
  }
  write_bytes(folder / "config.resolved.toml", "initialize = \"other.h5\"\n" + wide);  // of another beginning
  TrainOrder other = order({});
  CHECK(contains(error_of([&] { take_network(other); }), ": --initialize " + (folder / "w.h5") + ": "));
  for (const char* file : {"SUMMARY.txt", "results.h5"}) {  // an end has both
    CHECK(look(planned(), folder.path(), {}).summary.empty());
    write_bytes(folder / file, "Final");
  }
  const Found ended = look(planned(), folder.path(), {});
  CHECK((ended.summary == "Final" && !ended.occupied && !ended.own && !ended.checkpoint && !ended.weights.read()));
  write_bytes(folder / "metrics.jsonl", "");
  CHECK((look(planned(), folder.path(), {}).occupied && !GivenWeights{}.read()));
  CHECK((weights_of("").weights.read() && GivenWeights{.state = StateDict{}}.read()));
  CHECK(GivenWeights{.failure = Error(ExitCode::checkpoint, "none")}.read());
  TrainOptions damaged = planned();
  damaged.initialize = folder / "other";
  CheckpointFolder(folder / "other/ckpt", false).save(4, checkpoint_of(planned(), 4));
  write_bytes(folder / "other/ckpt/step-000000005.h5", "");
  const GivenWeights weights = look(damaged, folder / "new", {}).weights;
  CHECK((weights.checkpoint && weights.warnings.size() == 1));
}

TEST_CASE("A run is opened with notices and warnings, and facts of all of its epochs", "[beginning][cpu]") {
  const TemporaryFolder folder;
  TrainOptions options = test::small_run();
  options.overlap = true;
  options.threads = 1;
  options.attack_steps = test::by_epoch({{2, 0}, {1, 1}});
  test::OneRank trainer(options);
  const Beginning beginning;
  const Opening opening{options, folder.path(), "", "{}", beginning, {"one thing", "warning: another one"}};
  const RunFacts facts = run_facts(opening, trainer, test::single());
  CHECK((facts.attack_steps == 0 && facts.ranks == 1 && facts.generators == 0));
  for (const bool more : {false, true}) {
    options.verbose = more;
    options.aggregator = more ? "krum" : "mean";
    options.verify = more ? 1 : 0;
    Report report(facts, -1);
    tell_opening(report, opening, trainer, test::single());
    const std::string log = read_bytes(folder / "run.log");
    CHECK((contains(log, "Z one thing\n") && contains(log, "Z warning: another one\n")));
    CHECK(contains(log, trainer.replica().backend().description() +
                            source_of_fewer_threads(options, cores_of_rank(1).count) + "; "));
    for (const char* extra :
         {"Z   ", "Z warning: --aggregator krum is proven for ", "Z warning: --verify has no other"})
      CHECK(contains(log, extra) == more);
    for (const char* none : {"--overlap", "warning: \n", "made to cheat"}) CHECK(!contains(log, none));
  }
  options.attack_steps = 2;
  CHECK(run_facts(opening, trainer, test::single()).attack_steps == 2);
}
