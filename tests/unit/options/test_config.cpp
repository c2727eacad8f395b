#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "catch.hpp"
#include "dat/error.hpp"
#include "dat/network.hpp"
#include "dat/provenance.hpp"
#include "dat/sampler.hpp"
#include "errors.hpp"
#include "forecast/forecast.hpp"
#include "options/hints.hpp"
#include "options/recipes.hpp"
#include "options/value.hpp"
#include "parsed.hpp"

using namespace dat;
using dat::test::parse;
using dat::test::Parsed;

namespace {

/// The message of the Error(usage) that must be thrown.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
    return error.what();
  }
  FAIL("nothing was refused");
  return "";
}

std::string refusal(const std::vector<std::string>& arguments) {
  return refusal([&] { parse(arguments); });
}

/// A file that is gone after the test.
class File {
 public:
  explicit File(const std::string& text) {
    std::string name = (std::filesystem::temp_directory_path() / "dat_config_XXXXXX").string();
    const int descriptor = mkstemp(name.data());
    REQUIRE(descriptor >= 0);
    path = name;
    std::ofstream(path) << text;
  }
  ~File() { std::filesystem::remove(path); }
  std::string path;
};

Parsed parse_file(const std::string& text, std::vector<std::string> more = {}) {
  const File file(text);
  more.insert(more.end(), {"--config", file.path});
  return parse(more);
}

/// The message about a file, with FILE for its name.
std::string file_refusal(const std::string& text) {
  const File file(text);
  std::string message = refusal({"--config", file.path});
  const std::size_t at = message.find(file.path);
  return at == std::string::npos ? message : message.replace(at, file.path.size(), "FILE");
}

}  // namespace

TEST_CASE("the bare program trains with the defaults of the structure") {
  TrainOptions defaults;
  defaults.epochs = 3;
  defaults.warmup_epochs = 1;
  defaults.batch = 16;
  // What follows from other options is resolved.
  defaults.micro_batch = defaults.attack_batch = 16;
  defaults.alpha = defaults.eval_alpha = 2.0 / 255;
  defaults.eval_norm = "linf";
  defaults.eval_eps = 8.0 / 255;
  defaults.eval = {"pgd10"};
  defaults.attack_bn = "eval";
  defaults.width = 64;
  defaults.activation = "relu";
  defaults.attack_start = "uniform";
  defaults.start_box = "off";
  defaults.average_bn = "raw";
  defaults.lambda = 1;
  defaults.beta = 0;
  defaults.weight_decay = 1e-4;
  defaults.bandit_rate = 0.1;
  for (const auto& arguments : {std::vector<std::string>{}, {"train"}}) {
    const Parsed command = parse(arguments);
    CHECK(command.verb == "train");
    CHECK(command.train == defaults);
  }
}

TEST_CASE("with data of one's own the run is as long as in the papers, unless told otherwise") {
  CHECK(parse({"--data", "a.h5"}).train.epochs == 100);
  CHECK(parse({"--data", "a.h5"}).train.warmup_epochs == 5);
  CHECK(parse({"--data", "a.h5", "--epochs", "auto"}).train.epochs == 100);
  CHECK(parse({"--data", "a.h5", "--epochs", "0"}).train.epochs == 0);
  CHECK(parse_file("data = [\"a.h5\"]\n").train.epochs == 100);
}

TEST_CASE("the first word chooses the verb") {
  CHECK(parse({"validate", "--lr", "0.5"}).verb == "validate");
  CHECK(parse({"validate", "--lr", "0.5"}).train.lr == 0.5);
  CHECK(parse({"--lr", "0.5"}).verb == "train");
  const Parsed eval = parse({"eval", "--checkpoint", "runs/a", "--attack-steps", "20", "--split", "train"});
  CHECK(eval.verb == "eval");
  CHECK(eval.eval.checkpoint == "runs/a");
  CHECK(eval.eval.attack_steps == 20);
  CHECK(eval.eval.split == "train");
  const Parsed convert = parse({"data", "convert", "in", "out.h5", "--label-bytes", "2", "--classes", "100"});
  CHECK(convert.verb == "data convert");
  CHECK(convert.convert.source == "in");
  CHECK(convert.convert.output == "out.h5");
  CHECK(convert.convert.label_bytes == 2);
  CHECK(convert.convert.classes == 100);
  const Parsed synthetic = parse({"data", "synthetic", "set.h5", "--train", "123", "--size", "48"});
  CHECK(synthetic.verb == "data synthetic");
  CHECK(synthetic.synthetic.output == "set.h5");
  CHECK(synthetic.synthetic.train == 123);
  CHECK(synthetic.synthetic.size == 48);
  CHECK(parse({"data", "inspect", "a", "b"}).inspect.files == std::vector<std::string>{"a", "b"});
  CHECK(parse({"data", "inspect", "a", "--page", "a.png"}).inspect.page == "a.png");
  CHECK(parse({"eval", "runs/a", "--images", "list.txt"}).eval.images == "list.txt");
  const Parsed plot = parse({"plot", "a", "b", "--format", "png"});
  CHECK(plot.verb == "plot");
  CHECK(plot.plot.runs == std::vector<std::string>{"a", "b"});
  CHECK(plot.plot.format == "png");
  CHECK(plot.plot.out == "plots-compare");
  CHECK(parse({"plot", "a", "b", "--out", "c"}).plot.out == "c");
  CHECK(contains(refusal({"plot", "a", "--out", "c"}), "--out is for the comparison of several runs"));
  const Parsed bench = parse({"bench",
                              "--network",
                              "small_cnn",
                              "--width",
                              "16",
                              "--batch",
                              "8",
                              "--attack-steps",
                              "3",
                              "--device",
                              "cpu",
                              "--threads",
                              "2",
                              "--math",
                              "f32",
                              "--attack-precision",
                              "f16",
                              "--seconds",
                              "2.5",
                              "--out",
                              "b",
                              "--precision",
                              "bf16",
                              "--data",
                              "a.h5",
                              "b.h5",
                              "--size",
                              "20",
                              "--augment",
                              "crop",
                              "--decode",
                              "fast",
                              "--data-threads",
                              "3",
                              "--prefetch",
                              "4"});
  CHECK(bench.verb == "bench");
  CHECK(bench.bench == BenchOptions{.network = "small_cnn",
                                    .width = 16,
                                    .batch = 8,
                                    .data = {"a.h5", "b.h5"},
                                    .size = 20,
                                    .augment = "crop",
                                    .decode = "fast",
                                    .data_threads = 3,
                                    .prefetch = 4,
                                    .attack_steps = 3,
                                    .attack_precision = "f16",
                                    .precision = "bf16",
                                    .device = "cpu",
                                    .threads = 2,
                                    .math = "f32",
                                    .seconds = 2.5,
                                    .out = "b"});
  BenchOptions defaults;
  defaults.width = 64;
  CHECK(parse({"bench"}).bench == defaults);
  CHECK(contains(refusal({"bench", "--second", "3"}), "did you mean '--seconds'?"));
  CHECK(contains(refusal({"bench", "--seconds", "0"}), "'--seconds' must be a number"));
  CHECK(contains(refusal({"bench", "--config", "a.toml"}), "unknown option '--config'"));
  CHECK(contains(refusal({"bensh"}), "did you mean 'bench'?"));
  CHECK(parse({"--version"}).verb == "version");
  CHECK(parse({"plot", "--version"}).verb == "version");
}

TEST_CASE("export and import have their own options") {
  const Parsed out = parse(
      {"export", "runs/a", "--format", "robustbench", "--weights", "raw", "--evaluation", "eval.json", "--out", "b"});
  CHECK(out.verb == "export");
  CHECK(out.exported ==
        ExportOptions{
            .checkpoint = "runs/a", .format = "robustbench", .weights = "raw", .evaluation = "eval.json", .out = "b"});
  // The suffix says what is written, and nothing else may be said.
  const auto format = [](const std::string& path) {
    return parse({"export", "runs/a", "--out", path}).exported.format;
  };
  for (const char* none : {"b", "some.where/b", "b-0.5", ".hidden", "b/"}) CHECK(format(none) == "safetensors");
  CHECK(format("b.onnx") == "onnx");
  CHECK(format("b.onnx/b.safetensors") == "safetensors");
  for (const char* suffix : {".pt", ".h5", ".onnx2"})
    CHECK(contains(refusal({"export", "runs/a", "--out", std::string("b") + suffix}),
                   "name the file .safetensors or .onnx"));
  CHECK(parse({"export", "runs/a", "--out", "b.pt", "--format", "onnx"}).exported.format == "onnx");
  for (const char* wrong : {"safetensors", "robustbench"})
    CHECK(contains(refusal({"export", "runs/a", "--out", "b.onnx", "--format", wrong}), "leave --format off for onnx"));
  CHECK(contains(refusal({"export", "runs/a"}), "give --out PATH"));
  CHECK(contains(refusal({"export", "runs/a", "--format", "pt", "--out", "b"}), "safetensors, onnx, robustbench"));
  CHECK(contains(refusal({"export", "runs/a", "--evaluation", "c", "--out", "b"}), "works with --format robustbench"));
  const Parsed in = parse({"import",     "a.safetensors", "--network", "resnet18", "--width", "32",    "--activation",
                           "silu",       "--normalize",   "cifar10",   "--size",   "64",      "--eps", "4/255",
                           "--new-head", "100",           "--seed",    "7",        "--out",   "b.h5"});
  CHECK(in.verb == "import");
  CHECK(in.imported == ImportOptions{.file = "a.safetensors",
                                     .network = "resnet18",
                                     .width = 32,
                                     .activation = "silu",
                                     .normalize = "cifar10",
                                     .size = 64,
                                     .eps = 4.0 / 255,
                                     .new_head = 100,
                                     .seed = 7,
                                     .out = "b.h5"});
  CHECK(parse({"import", "a", "--out", "b"}).imported == ImportOptions{.file = "a", .out = "b"});
  CHECK(contains(refusal({"import", "a"}), "give --out PATH"));
  CHECK(contains(refusal({"import", "a", "--network", "vgg", "--out", "b"}), "must be one of auto, "));
  CHECK(contains(refusal({"import", "a", "--new-head", "1", "--out", "b"}),
                 "of at least 2 and at most 32767 or \"none\""));
  CHECK(contains(refusal({"imprt", "a"}), "did you mean 'import'?"));
}

TEST_CASE("forecast has its own options") {
  std::istringstream words(
      "forecast --calibration c.json --network small_cnn --width 16 --batch 8 --attack fgsm --attack-steps 3 "
      "--lambda 0.5 --attack-precision f16 --precision bf16 --device cpu --threads 2 --math f32 --seconds 5 --ranks "
      "2,4 --ranks 8 "
      "--ranks-per-node 2 --bandwidth 1gbit,2GB/s --latency 50,2.5 --codec float32 --budget 40,30.5 --budget-unit "
      "bytes "
      "--p-min 0.2 --algorithm tree --overlap --bucket 1000 --stale-attack 2 --jitter 0.1 --out dir");
  const Parsed all = parse({std::istream_iterator<std::string>(words), {}});
  CHECK(all.verb == "forecast");
  ForecastOptions expected;
  expected.network = "small_cnn";
  expected.width = 16;
  expected.batch = 8;
  expected.attack = "fgsm";
  expected.attack_steps = 3;
  expected.lambda = 0.5;
  expected.attack_precision = "f16";
  expected.precision = "bf16";
  expected.device = "cpu";
  expected.threads = 2;
  expected.math = "f32";
  expected.seconds = 5;
  expected.calibration = "c.json";
  expected.ranks = {2, 4, 8};
  expected.ranks_per_node = 2;
  expected.bandwidth = {"1gbit", "2GB/s"};
  expected.latency = {50, 2.5};
  expected.codec = {"float32"};
  expected.budget = {40, 30.5};
  expected.budget_unit = "bytes";
  expected.p_min = 0.2;
  expected.algorithm = "tree";
  expected.overlap = true;
  expected.bucket = 1000;
  expected.stale_attack = 2;
  expected.jitter = 0.1;
  expected.out = "dir";
  CHECK(all.forecast == expected);
  ForecastOptions plain;
  plain.width = 64;
  plain.lambda = 1;
  plain.bucket = 1 << 20;
  CHECK(parse({"forecast"}).forecast == plain);
  CHECK(parse({"forecast", "--overlap"}).forecast.bucket == 1 << 19);
  CHECK(parse({"forecast", "--attack", "none"}).forecast.lambda == 0);
  CHECK(parse({"help", "forecast"}).text == parse({"forecast", "--help"}).text);
  CHECK(contains(refusal({"forecast", "--latency", "1,2"}), "--latency takes one number, or one for each"));
  CHECK(contains(refusal({"forecast", "--algorithm", "star"}), "must be one of ring, tree"));
  CHECK(contains(refusal({"forecast", "--jitter", "2"}), "'--jitter' must be a number"));
  CHECK(contains(refusal({"forcast"}), "did you mean 'forecast'?"));
}

TEST_CASE("numbers may be fractions, on the command line and in the file") {
  CHECK(parse({"--eps", "4/255"}).train.eps == 4.0 / 255);
  CHECK(parse({"--eps=1/16"}).train.eps == 0.0625);
  CHECK(parse_file("eps = 4/255\nlr = \"1/8\"\n").train.eps == 4.0 / 255);
  CHECK(parse_file("eps = 4/255\nlr = \"1/8\"\n").train.lr == 0.125);
  CHECK(contains(refusal({"--lr", "1/0"}), "'1/0'"));
  CHECK(contains(refusal({"--lr", "1/2/3"}), "'1/2/3'"));
  CHECK(contains(refusal({"--lr", "nan"}), "'nan'"));
}

TEST_CASE("a number is written so that it is read back, whatever its size") {
  for (const double value : {0x1p100, 0x1p900, 1e15 + 1.0 / 3, 1e-300, 1.0 / 3, 8.0 / 255, 1234567.0 / 255, 0x1p-60}) {
    double read = 0;
    CAPTURE(value, number_text(value));
    CHECK(read_fraction(number_text(value), read));
    CHECK(read == value);
  }
}

TEST_CASE("the resolved configuration restores every option") {
  // Each option differs from its default, so that one that is left out or misread shows.
  const Parsed command = parse({"--data",
                                "a b.h5",
                                "quote\"back\\slash#,.h5",
                                "--mix",
                                "balanced:0.25",
                                "--limit-train",
                                "11",
                                "--limit-test",
                                "12",
                                "--augment",
                                "none",
                                "--size",
                                "20",
                                "--decode",
                                "fast",
                                "--data-threads",
                                "3",
                                "--prefetch",
                                "4",
                                "--network",
                                "small_cnn",
                                "--width",
                                "8",
                                "--activation",
                                "silu",
                                "--normalize",
                                "cifar10",
                                "--label-smoothing",
                                "0.1",
                                "--attack-start",
                                "gaussian",
                                "--average",
                                "ema",
                                "--average-decay",
                                "0.9",
                                "--average-from",
                                "1",
                                "--average-bn",
                                "rebuild",
                                "--patience",
                                "3",
                                "--awp-gamma",
                                "0.01",
                                "--awp",
                                "local",
                                "--awp-from",
                                "1",
                                "--bn-statistics",
                                "local",
                                "--attack",
                                "fgsm",
                                "--attack-steps",
                                "3",
                                "--eps",
                                "5/255",
                                "--alpha",
                                "0.0123456789012345678",
                                "--attack-bn",
                                "train",
                                "--warm-start",
                                "4",
                                "--lambda",
                                "1/3",
                                "--eval",
                                "pgd,fgsm",
                                "--eval-norm",
                                "l2",
                                "--eval-eps",
                                "4/255",
                                "--eval-alpha",
                                "1/255",
                                "--eval-attack-steps",
                                "20",
                                "--eval-restarts",
                                "3",
                                "--holdout",
                                "5",
                                "--train-size",
                                "24,32@6",
                                "--max-bad-steps",
                                "2",
                                "--on-bad-steps",
                                "rollback",
                                "--on-overfitting",
                                "rollback",
                                "--overfitting-margin",
                                "0.3",
                                "--rollback-lr",
                                "0.1",
                                "--max-rollbacks",
                                "7",
                                "--initialize",
                                "weights.h5",
                                "--new-head",
                                "10",
                                "--freeze",
                                "conv1",
                                "--head-lr",
                                "1e-3",
                                "--optimizer",
                                "lars",
                                "--lr",
                                "1e-5",
                                "--momentum",
                                "0.8",
                                "--peak-momentum",
                                "0.7",
                                "--weight-decay",
                                "0.002",
                                "--no-decay",
                                "norms",
                                "--clamp-low",
                                "0.5",
                                "--clamp-high",
                                "7",
                                "--clip-norm",
                                "0.5",
                                "--importance",
                                "outside",
                                "--schedule",
                                "cosine",
                                "--milestones",
                                "1,2",
                                "--lr-decay",
                                "0.2",
                                "--epochs",
                                "6.75",
                                "--warmup-epochs",
                                "0.25",
                                "--batch",
                                "64",
                                "--micro-batch",
                                "32",
                                "--attack-batch",
                                "8",
                                "--budget",
                                "20.5",
                                "--p-min",
                                "0.05",
                                "--granularity",
                                "block",
                                "--resample",
                                "17",
                                "--bandit-loss",
                                "paper",
                                "--bandit-rate",
                                "0.3",
                                "--out",
                                "runs/x",
                                "--max-steps",
                                "5000000000",
                                "--eval-every",
                                "2",
                                "--checkpoint-every",
                                "9",
                                "--resume",
                                "never",
                                "--seed",
                                "18446744073709551615",
                                "--device",
                                "cpu",
                                "--threads",
                                "3",
                                "--attack-precision",
                                "f16",
                                "--precision",
                                "bf16",
                                "--math",
                                "f32",
                                "--resident",
                                "off",
                                "--recompute",
                                "norms",
                                "--graphs",
                                "off",
                                "--codec",
                                "int8",
                                "--codec-transport",
                                "two_sided",
                                "--node-sums",
                                "mpi",
                                "--overlap",
                                "--bucket",
                                "1000",
                                "--check-every",
                                "0",
                                "--on-corruption",
                                "repair",
                                "--comm-timeout",
                                "7.5",
                                "--checkpoint-async",
                                "on",
                                "--planning-seconds",
                                "12.5",
                                "--on-full",
                                "continue",
                                "--progress",
                                "2.5",
                                "--verbose"});
  CHECK(parse_train_options(command.resolved_toml, "text") == command.train);
  CHECK(parse_file(command.resolved_toml).train == command.train);
  CHECK(parse_file(command.resolved_toml).resolved_toml == command.resolved_toml);
  CHECK(parse_train_options(parse({}).resolved_toml, "text") == parse({}).train);

  // The proof that each option took part: every line differs from the defaults' (quiet excludes verbose, fgsm
  // the early stop and the reuse of its last step, lars the options of the other optimizers, all those of other
  // selectors; some families have one member).
  const std::vector<std::string> excluded = {"quiet",
                                             "norm",
                                             "noise",
                                             "noise-samples",
                                             "start-radius",
                                             "start-box",
                                             "project",
                                             "attack-stop",
                                             "stale-attack",
                                             "staleness",
                                             "refresh",
                                             "attack-reuse",
                                             "nesterov",
                                             "beta1",
                                             "beta2",
                                             "epsilon",
                                             "bias-correction",
                                             "trust-coefficient",
                                             "loss",
                                             "beta",
                                             "detach-reference",
                                             "codec-rank",
                                             "codec-clip",
                                             "aggregator",
                                             "faults",
                                             "aggregator-mixing",
                                             "aggregator-tau",
                                             "aggregator-iterations",
                                             "generators",
                                             "calibration",
                                             "generator-weights",
                                             "attackers",
                                             "cheat",
                                             "cheat-from",
                                             "cheat-every",
                                             "cheat-delay",
                                             "mask",
                                             "selector",
                                             "mask-transport",
                                             "budget-unit",
                                             "freeze-epochs",
                                             "freeze-t0",
                                             "freeze-schedule",
                                             "freeze-lr",
                                             "freeze-percentile",
                                             "deterministic",
                                             "byzantine",
                                             "validators",
                                             "verify",
                                             "total-batch"};
  std::istringstream changed(command.resolved_toml), plain(parse({}).resolved_toml);
  int options = 0;
  for (std::string a, b; std::getline(changed, a) && std::getline(plain, b);) {
    if (a.empty() || a[0] == '#' ||
        std::find(excluded.begin(), excluded.end(), a.substr(0, a.find(' '))) != excluded.end())
      continue;
    INFO(a);
    CHECK(a != b);
    ++options;
  }
  CHECK(options >= 44);
}

TEST_CASE("noise settles what follows from it, and refuses what attack and update would not share") {
  const Parsed command = parse({"--noise", "0.25", "--noise-samples", "4", "--attack", "smooth-pgd", "--norm", "l2",
                                "--eps", "0.5", "--attack-steps", "2"});
  CHECK(parse_train_options(command.resolved_toml, "text") == command.train);
  CHECK(command.train.noise == 0.25);
  CHECK(command.train.noise_samples == 4);
  CHECK(command.train.alpha == 0.5);
  CHECK(command.train.lambda == 0);
  CHECK(parse({"--noise", "0.1"}).train.lambda == 0);
  CHECK(parse({"--noise", "0.1", "--attack", "fgsm"}).train.attack_bn == "eval");
  CHECK(parse({"--noise", "0.1", "--attack", "none", "--loss", "kl"}).train.noise_samples == 1);
  CHECK(contains(refusal({"--noise-samples", "2"}), "--noise-samples works with --noise"));
  CHECK(contains(refusal({"--noise", "-1"}), "of at least 0, not '-1'"));
  for (const std::vector<std::string>& other :
       std::vector<std::vector<std::string>>{{"--warm-start", "4"},
                                             {"--attack-stop", "1"},
                                             {"--warm-start", "4", "--attack-reuse", "--attack-bn", "train"},
                                             {"--attack-bn", "train"},
                                             {"--stale-attack", "1"},
                                             {"--staleness", "2"},
                                             {"--generators", "1"},
                                             {"--loss", "mart"},
                                             {"--loss", "gat"},
                                             {"--loss", "pgi"},
                                             {"--loss", "nuat"}}) {
    CHECK_NOTHROW(parse(other));
    std::vector<std::string> both = other;
    both.insert(both.end(), {"--noise", "0.1"});
    INFO(other[0] << " " << other.back());
    CHECK(contains(refusal(both), "--noise does not go with "));
  }
  const char* const ball = "--attack smooth-pgd steps in the L2 ball, and --norm is linf";
  CHECK(contains(refusal({"--attack", "smooth-pgd"}), ball));
  CHECK(contains(refusal({"--attack", "pgd,smooth-pgd@2", "--noise", "0.1"}), ball));
  CHECK(contains(refusal({"--eval", "smooth-pgd5"}), "smooth-pgd steps along the gradient in the L2 ball"));
}

TEST_CASE("what lets one rank decide does not go with an aggregator that withstands false ranks") {
  const Parsed command = parse({"--aggregator", "centered_clip", "--faults", "2", "--aggregator-mixing",
                                "--aggregator-tau", "3.5", "--aggregator-iterations", "20"});
  CHECK(parse_train_options(command.resolved_toml, "text") == command.train);
  CHECK(command.train.faults == 2);
  CHECK(ranks_may_be_false(command.train));
  CHECK_FALSE(ranks_may_be_false(parse({}).train));
  // What follows from other options keeps to that, too: a configuration that was written can be read.
  const Parsed averaged = parse({"--aggregator", "median", "--average", "ema"});
  CHECK(averaged.train.average_bn == "raw");
  CHECK(parse_train_options(averaged.resolved_toml, "text") == averaged.train);
  CHECK(parse({"--average", "ema"}).train.average_bn == "rebuild");
  for (const std::vector<std::string>& other :
       std::vector<std::vector<std::string>>{{"--warm-start", "4"},
                                             {"--average", "ema", "--average-bn", "rebuild"},
                                             {"--budget-unit", "seconds"},
                                             {"--verify", "10"},
                                             {"--awp-gamma", "0.01"}}) {
    CHECK_NOTHROW(parse(other));
    std::vector<std::string> both = other;
    both.insert(both.end(), {"--aggregator", "median"});
    INFO(other[0]);
    CHECK(contains(refusal(both), "an --aggregator that withstands false ranks does not go with "));
  }
  CHECK_NOTHROW(parse({"--awp-gamma", "0.01", "--awp", "local", "--aggregator", "median"}));
  // Each rank's gradient is asked for: how it comes there says nothing about its bits.
  for (const char* transport : {"gather", "butterfly"}) {
    CHECK_NOTHROW(parse({"--deterministic", "--aggregator", "median", "--codec-transport", transport}));
    CHECK(
        contains(refusal({"--deterministic", "--codec-transport", transport}), "--deterministic gives the same bits"));
  }
}

TEST_CASE("attackers are told how they cheat, all alike or each for itself") {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--deterministic", "--attackers", "1,4,7"});
    return more;
  };
  const Parsed command = parse(with({"--cheat", "leave,leave,leave", "--cheat-from", "5,0,9", "--cheat-every", "2"}));
  CHECK(command.train.attackers == std::vector<int>{1, 4, 7});
  CHECK(command.train.cheat == std::vector<std::string>(3, "leave"));
  CHECK(command.train.cheat_from == std::vector<int>{5, 0, 9});
  CHECK(command.train.cheat_every == 2);
  CHECK(parse_train_options(command.resolved_toml, "text") == command.train);
  CHECK(parse(with({"--cheat", "leave"})).train.cheat_from.empty());
  CHECK(contains(refusal(with({})), "say how: --cheat alie, "));
  CHECK(contains(refusal(with({"--cheat", "leave,leave"})), "--cheat has 2 values for 3 attackers"));
  CHECK(contains(refusal(with({"--cheat", "leave", "--cheat-from", "1,2"})), "--cheat-from has 2 values for 3"));
  CHECK(contains(refusal({"--attackers", "1", "--cheat", "leave"}), "--cheat leave wants --deterministic"));
  CHECK(contains(refusal({"--attackers", "0", "--cheat", "leave"}), "rank 0, which holds the run's folder"));
  CHECK(contains(refusal({"--attackers", "1,2,1", "--cheat", "leave"}), "names rank 1 twice"));
  for (const char* option : {"--cheat=leave", "--cheat-from=3", "--cheat-every=2", "--cheat-delay=7"})
    CHECK(contains(refusal({option}), "add --attackers RANK,..."));
  CHECK(contains(refusal(with({"--cheat", "leave", "--holdout", "8"})), "--attackers does not go with --holdout"));
}

TEST_CASE("cheats are refused where there is nothing to cheat with") {
  const auto with = [](const std::string& cheat, std::vector<std::string> more) {
    more.insert(more.begin(), {"--attackers", "1", "--cheat", cheat});
    return more;
  };
  CHECK(parse(with("delayed", {"--cheat-delay", "100"})).train.cheat_delay == 100);
  CHECK(contains(refusal(with("alie", {"--cheat-delay", "100"})), "--cheat-delay works with --cheat delayed"));
  for (const char* name : {"sign_flip", "constant", "delayed", "ipm01", "alie", "mimic", "history", "bit_flip"}) {
    CHECK(contains(refusal(with(name, {"--deterministic"})), "the sum is one of micro-batches"));
    (void)parse(with(name, {"--deterministic", "--aggregator", "median"}));
    (void)parse(with(name, {}));
  }
  for (const char* name : {"label_flip", "weak", "bn_poison"}) (void)parse(with(name, {"--deterministic"}));
  CHECK(contains(refusal(with("alie", {"--overlap"})), "--attackers does not go with --overlap"));
  CHECK(contains(refusal(with("alie", {"--mask", "per_worker"})), "--attackers does not go with --mask per_worker"));
  CHECK(contains(refusal(with("bn_poison", {"--bn-statistics", "local"})), "they share none"));
  for (const char* name : {"weak", "weak1"}) {
    CHECK(contains(refusal(with(name, {"--attack", "none"})), "makes less of an --attack, and there is none"));
    CHECK(contains(refusal(with(name, {"--warm-start", "4"})), "does not go with --warm-start"));
    CHECK(contains(refusal(with(name, {"--stale-attack", "1"})), "does not go with --stale-attack"));
  }
}

TEST_CASE("--precision tf32 is f32, multiplied in TF32, on a GPU, in other words") {
  const std::vector<std::string> tf32 = {"--precision", "tf32"};
  const TrainOptions train = parse(tf32).train;
  CHECK(train == parse({"--precision", "f32", "--math", "tf32", "--device", "cuda"}).train);
  CHECK(parse({"--precision", "tf32", "--verify", "4"}).train.precision == "f32");
  CHECK(contains(parse(tf32).resolved_toml, "precision = \"f32\"\n"));
  CHECK(parse_train_options("precision = \"tf32\"", "text") == train);
  CHECK(parse({"bench", "--precision", "tf32"}).bench.device == "cuda");
  CHECK(parse({"forecast", "--precision", "tf32"}).forecast.precision == "f32");
  for (const char* verb : {"train", "validate", "bench", "forecast", "certify"}) {
    INFO(verb);
    CHECK(contains(refusal({verb, "--precision", "tf32", "--math", "f32"}),
                   "--precision tf32 multiplies in TF32, and not as --math f32 says; leave one of them off"));
    CHECK(contains(refusal({verb, "--precision", "tf32", "--device", "cpu"}),
                   "--precision tf32 is for GPUs: a CPU has no TF32; take --precision f32, or --device cuda"));
  }
}

TEST_CASE("--verify is refused with what another rank cannot recompute") {
  CHECK(parse({"--verify", "100"}).train.verify == 100);
  CHECK(parse_train_options(parse({"--verify", "100"}).resolved_toml, "text").verify == 100);
  const std::vector<std::vector<std::string>> refused = {{"--warm-start", "4"},         {"--stale-attack", "1"},
                                                         {"--mask", "per_worker"},      {"--bn-statistics", "local"},
                                                         {"--attack-precision", "f16"}, {"--precision", "bf16"}};
  for (const std::vector<std::string>& other : refused) {
    CHECK_NOTHROW(parse(other));
    INFO(other[0]);
    const std::string message = refusal({"--verify", "100", other[0], other[1]});
    CHECK(message.find("--verify recomputes") != std::string::npos);
    CHECK(message.find(other[0]) != std::string::npos);
  }
  CHECK_NOTHROW(parse({"--verify", "100", "--attack-precision", "f16", "--precision", "f16", "--deterministic"}));
}

TEST_CASE("the resolved configuration of eval restores every option") {
  const Parsed command = parse({"eval",
                                "--checkpoint",
                                "c.h5",
                                "--data",
                                "d.h5",
                                "--split",
                                "train",
                                "--limit",
                                "7",
                                "--attack",
                                "fgsm,pgd+fgsm",
                                "--attack-steps",
                                "3",
                                "--norm",
                                "l2",
                                "--eps",
                                "1/255",
                                "--alpha",
                                "0.1",
                                "--batch",
                                "9",
                                "--seed",
                                "4",
                                "--device",
                                "cpu",
                                "--threads",
                                "2",
                                "--quiet",
                                "--restarts",
                                "2",
                                "--out",
                                "folder",
                                "--save-adversarial",
                                "--progress",
                                "3",
                                "--comm-timeout=9"});
  CHECK(parse_file(command.resolved_toml, {"eval"}).eval == command.eval);
  CHECK(!(command.eval == EvalOptions{}));
}

TEST_CASE("the norm decides about radii and step sizes") {
  const TrainOptions plain = parse({}).train;
  CHECK((plain.norm == "linf" && plain.eval_norm == "linf"));
  const TrainOptions l2 = parse({"--norm", "l2", "--eps", "0.5", "--attack-steps", "5", "--eval", "pgd20"}).train;
  CHECK((l2.norm == "l2" && l2.eval_norm == "l2" && l2.eval_eps == 0.5));
  CHECK(l2.alpha == 2.5 * 0.5 / 5);  // MadryLab/robustness
  CHECK(l2.eval_alpha == 2.5 * 0.5 / 20);
  CHECK(parse({"--norm", "l2", "--eps", "3", "--alpha", "1.5"}).train.alpha == 1.5);
  CHECK(parse({"--norm", "l2", "--eps", "128/255", "--attack", "fgsm"}).train.alpha == 1.25 * (128.0 / 255));
  // Attacks of other numbers of steps have other sizes: none is written down.
  CHECK(parse({"--norm", "l2", "--eps", "0.5", "--eval", "pgd10,pgd20"}).train.eval_alpha == 0);
  CHECK(parse({"--eval", "pgd10,pgd20"}).train.eval_alpha == 2.0 / 255);
  const TrainOptions other = parse({"--eval-norm", "l2", "--eval-eps", "0.5"}).train;
  CHECK((other.norm == "linf" && other.eval_norm == "l2" && other.eps == 8.0 / 255 && other.eval_alpha == 0.125));
  CHECK(parse({"eval", "--checkpoint", "a", "--eval-norm", "l2", "--eps", "0.5"}).eval.norm == "l2");
  CHECK(parse({"eval", "--checkpoint", "a"}).eval.norm == "auto");
  CHECK(parse_file("norm = \"l2\"\neps = 0.5\n").train.norm == "l2");

  CHECK(contains(refusal({"--norm", "l2"}), "give its radius, such as --eps 0.5"));
  CHECK(contains(refusal({"--eval-norm", "l2"}), "give --eval-eps"));
  CHECK(contains(refusal({"--eps", "8"}), "--eps 8 is more than 1"));
  CHECK(contains(refusal({"--alpha", "2"}), "--alpha 2 is more than 1"));
  CHECK(contains(refusal({"--eval-eps", "8"}), "--eval-eps 8 is more than 1"));
  CHECK(contains(refusal({"--norm", "l2", "--eps", "0.5", "--eval-norm", "linf", "--eval-eps", "2"}), "--eval-eps 2"));
  CHECK(contains(refusal({"--norm", "l2", "--eps", "0.5", "--attack-stop", "1"}),
                 "--attack-stop works with --norm linf"));
  CHECK(
      contains(refusal({"--norm", "l2", "--eps", "0.5", "--warm-start", "2"}), "--warm-start keeps a byte per pixel"));
}

TEST_CASE("evaluations have settings of their own, of which only eps follows the training's") {
  const TrainOptions plain = parse({"--alpha", "0.1/255", "--eps", "4/255", "--attack-steps", "3"}).train;
  CHECK(plain.eval == std::vector<std::string>{"pgd10"});
  CHECK(plain.eval_eps == 4.0 / 255);
  CHECK(plain.eval_alpha == 1.0 / 255);
  CHECK(plain.eval_restarts == 1);
  const TrainOptions own = parse({"--eval", "pgd10,pgd20", "--eval-eps", "2/255", "--eval-restarts", "5"}).train;
  CHECK(own.eval == std::vector<std::string>{"pgd10", "pgd20"});
  CHECK(own.eval_alpha == 0.5 / 255);
  CHECK(parse_file("eval = [\"pgd\", \"fgsm\"]\neval-attack-steps = 7\n").train.eval ==
        std::vector<std::string>{"pgd7", "fgsm"});
  CHECK(parse({"eval", "--checkpoint", "a", "--eval", "pgd20,pgd"}).eval.eval ==
        std::vector<std::string>{"pgd20", "pgd10"});
  CHECK(parse({"--eval", "apgd-ce,fab-t,square,pgd50-margin,pgd-cw"}).train.eval ==
        std::vector<std::string>{"apgd-ce", "fab-t", "square", "pgd50-margin", "pgd10-cw"});
  CHECK(contains(refusal({"--eval", "fgsm-margin"}), "fgsm climbs a loss of its own"));
  CHECK(parse({"eval", "--checkpoint", "a", "--eval", "fgsm,pgd+fgsm"}).eval.eval ==
        std::vector<std::string>{"fgsm", "pgd10+fgsm"});
  CHECK(parse({"eval", "--checkpoint", "a", "--eval", "aa-standard"}).eval.eval ==
        std::vector<std::string>{"aa-standard"});
  CHECK(contains(refusal({"eval", "--checkpoint", "a", "--eval", "aa-quick,pgd+fgsm"}), "two sequences"));
  CHECK(contains(refusal({"--eval", "aa-quick"}), "which the verb eval runs"));
  CHECK(contains(refusal({"eval", "--checkpoint", "a", "--save-adversarial", "--out", "b"}), "add aa-quick"));
  CHECK(contains(refusal({"eval", "--checkpoint", "a", "--eval", "aa-quick", "--save-adversarial"}), "give --out"));
  CHECK(contains(refusal({"eval", "--checkpoint", "a", "--eval", "aa-quick", "--save-adversarial", "--out", "b.json"}),
                 "give --out"));
  CHECK(contains(refusal({"--eval", "pgd10,pgd"}), "pgd10 twice"));
  CHECK(contains(refusal({"--eval", "pdg10"}), "unknown attack 'pdg'"));
  CHECK(contains(refusal({"--eval", "pgd0"}), "no number of steps"));
  CHECK(contains(refusal({"--eval", "fgsm3"}), "fgsm takes no number of steps"));
}

TEST_CASE("the weight of the clean loss is DAT's with pgd, and nothing with its fast form") {
  CHECK(parse({"--attack", "pgd"}).train.lambda == 1);
  CHECK(parse({"--attack", "fgsm"}).train.lambda == 0);
  CHECK(parse({"--attack", "none"}).train.lambda == 0);
  CHECK(parse({"--attack", "fgsm", "--lambda", "0.5"}).train.lambda == 0.5);
  CHECK(parse({"--attack", "pgd", "--lambda", "0"}).train.lambda == 0);
}

TEST_CASE("each loss has its own weight of the divergence and its own start of the attack") {
  for (const auto& [loss, beta, start] : {std::tuple{"cross_entropy", 0.0, "uniform"},
                                          {"trades", 6.0, "gaussian"},
                                          {"kl", 1.0, "gaussian"},
                                          {"mart", 5.0, "gaussian"},
                                          {"pgi", 10.0, "uniform"},
                                          {"gat", 10.0, "uniform"},
                                          {"nuat", 4.0, "uniform"}}) {
    const TrainOptions options = parse({"--loss", loss}).train;
    CHECK(options.beta == beta);
    CHECK(options.attack_start == start);
    CHECK(options.lambda == (beta == 0 ? 1 : 0));
    CHECK(parse_train_options(toml_of(options), "again") == options);
  }
  CHECK(parse({"--loss", "trades", "--beta", "0"}).train.beta == 0);
  CHECK(parse({"--loss", "mart", "--attack-start", "uniform"}).train.attack_start == "uniform");
  // What is taken against the clean images' predictions does not run with batch statistics, fgsm neither.
  CHECK(parse({"--loss", "trades", "--attack", "fgsm"}).train.attack_bn == "eval");
  CHECK(parse({"--loss", "mart", "--attack", "fgsm"}).train.attack_bn == "train");
  CHECK(contains(refusal({"--loss", "trades", "--attack-bn", "train"}), "climbs the divergence"));
  CHECK(contains(refusal({"--loss", "kl", "--attack-stop", "1"}), "climbs the divergence"));
  CHECK(contains(refusal({"--beta", "1"}), "--beta works with --loss gat, kl, mart, nuat, pgi or trades"));
  CHECK(contains(refusal({"--loss", "mart", "--lambda", "1"}), "--lambda works with --loss cross_entropy"));
  CHECK(contains(refusal({"--loss", "mart", "--label-smoothing", "0.1"}), "not with mart"));
  CHECK(contains(refusal({"--label-smoothing", "1"}), "below 1"));
}

TEST_CASE("a loss against where the attack began wants an attack that keeps it") {
  for (const char* loss : {"pgi", "gat", "nuat"}) {
    const TrainOptions options = parse({"--loss", loss, "--detach-reference", "--attack", "fgsm"}).train;
    CHECK(options.detach_reference);
    CHECK(options.attack_bn == "train");
    CHECK(parse_train_options(toml_of(options), "again") == options);
  }
  CHECK(parse({"--loss", "pgi", "--warm-start", "2"}).train.warm_start == 2);
  CHECK(parse({"--loss", "pgi", "--attack-stop", "1"}).train.attack_stop == 1);
  CHECK(parse({"--loss", "gat", "--attack", "none"}).train.attack == "none");
  CHECK(contains(refusal({"--loss", "trades", "--detach-reference"}),
                 "--detach-reference works with --loss gat, nuat or pgi"));
  const auto refused = [](std::vector<std::string> options) {
    options.insert(options.begin(), {"--loss", "pgi"});
    return refusal(options);
  };
  CHECK(contains(refused({"--attack", "none"}), "compares attacked images with those where the attack began"));
  CHECK(contains(refused({"--attack", "apgd-ce"}), "compares attacked images with those where the attack began"));
  CHECK(contains(refused({"--stale-attack", "1"}), "does not go with --stale-attack"));
  CHECK(contains(refused({"--awp-gamma", "0.01"}), "does not go with --awp-gamma"));
  CHECK(contains(refused({"--generators", "1", "--staleness", "1"}), "does not go with --generators"));
  CHECK(contains(refused({"--detach-reference", "--attack-stop", "1"}), "does not go with --attack-stop"));
  CHECK(contains(refused({"--detach-reference", "--staleness", "1"}), "does not go with --staleness"));
  CHECK(contains(refused({"--attackers", "1", "--cheat", "weak"}), "does not go with --loss pgi"));
}

TEST_CASE("the start of an attack and the ball of its steps are those of the papers, unless told otherwise") {
  const std::vector<std::string> n_fgsm = {"--attack",  "fgsm", "--start-radius", "2",
                                           "--project", "off",  "--alpha",        "8/255"};
  const TrainOptions options = parse(n_fgsm).train;
  CHECK(options.start_radius == 2);
  CHECK(options.project == "off");
  CHECK(options.start_box == "on");
  CHECK(options.attack_bn == "train");
  CHECK(parse_train_options(toml_of(options), "again") == options);
  CHECK(parse({"--start-radius", "2", "--start-box", "off"}).train.start_box == "off");
  CHECK(parse({"--attack", "fgsm"}).train.start_box == "off");
  CHECK(parse({"--warm-start", "2", "--start-box", "off"}).train.start_box == "off");
  CHECK(parse({"--attack", "fgsm", "--start-radius", "0"}).train.start_radius == 0);
  CHECK(parse({"--loss", "mart", "--project", "off"}).train.start_box == "off");
  CHECK(contains(refusal({"--start-radius", "-1"}), "at least 0"));
  CHECK(contains(refusal({"--attack", "apgd-ce", "--start-radius", "2"}),
                 "--start-radius works with --attack pgd or fgsm"));
  CHECK(contains(refusal({"--attack", "none", "--project", "off"}), "--project works with --attack pgd or fgsm"));
  CHECK(contains(refusal({"--norm", "l2", "--eps", "0.5", "--start-box", "on"}), "--start-box works with --norm linf"));
  CHECK(contains(refusal({"--loss", "mart", "--start-radius", "2"}), "say more of a uniform start"));
  CHECK(contains(refusal({"--attack-start", "gaussian", "--start-box", "on"}), "say more of a uniform start"));
  for (const auto& option :
       {std::vector<std::string>{"--start-radius", "2"}, {"--start-box", "on"}, {"--project", "off"}})
    CHECK(contains(refusal({"--warm-start", "2", option[0], option[1]}), "--warm-start does not go with " + option[0]));
}

TEST_CASE("weights are perturbed the same way on all ranks, or the option says so") {
  const TrainOptions options = parse({"--awp-gamma", "0.01", "--awp-from", "10", "--awp", "local"}).train;
  CHECK(options.awp_gamma == 0.01);
  CHECK(options.awp_from == 10);
  CHECK(options.awp == "local");
  CHECK(contains(refusal({"--awp", "local"}), "add that"));
  CHECK(contains(refusal({"--awp-from", "3"}), "add that"));
  CHECK(contains(refusal({"--awp-gamma", "0.01", "--awp", "local", "--deterministic"}), "which --awp local"));
  CHECK(parse({"--awp-gamma", "0.01", "--deterministic"}).train.deterministic);
  for (const std::vector<std::string>& other :
       {std::vector<std::string>{"--stale-attack", "2"}, {"--mask", "per_worker"}}) {
    std::vector<std::string> all = {"--awp-gamma", "0.01"};
    all.insert(all.end(), other.begin(), other.end());
    CHECK(contains(refusal(all), "leave one of them off"));
  }
  CHECK(contains(refusal({"--awp-gamma", "0.01", "--verify", "5"}), "have been put back"));
}

TEST_CASE("the resolved configuration has no 'auto' in the place of a number that is known") {
  for (const auto& arguments : {std::vector<std::string>{}, {"--attack", "fgsm"}, {"--optimizer", "sgd"}}) {
    std::istringstream lines(parse(arguments).resolved_toml);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      // The rest depends on the machine, the images, the network or the codec, or is a mode.
      const std::string key = line.substr(0, line.find(' '));
      const std::vector<std::string> later = {
          "resume", "device",       "threads",         "resident",       "checkpoint-async", "budget",
          "bucket", "codec-rank",   "codec-transport", "node-sums",      "total-batch",      "faults",
          "size",   "data-threads", "train-size",      "aggregator-tau", "head-lr"};
      CHECK((!contains(line, "\"auto\"") || std::find(later.begin(), later.end(), key) != later.end()));
    }
  }
}

TEST_CASE("what is frozen goes with selectors that know it") {
  const TrainOptions all = parse({"--freeze", "conv2", "--freeze-epochs", "2", "--selector", "all"}).train;
  CHECK(all.freeze == "conv2");
  CHECK(all.freeze_epochs == 2);
  CHECK(parse({"--freeze", "all-but-head", "--selector", "oracle"}).train.freeze == "all-but-head");
  CHECK(contains(refusal({"--freeze-epochs", "2"}), "add that"));
  CHECK(contains(refusal({"--freeze", "conv2", "--freeze-epochs", "2"}), "works with --selector all, not with exp3"));
  CHECK(contains(refusal({"--freeze", "conv2", "--mask", "per_worker"}), "leave one of them off"));
  CHECK(contains(refusal({"--new-head", "10"}), "add --initialize PATH"));
}

TEST_CASE("options of one optimizer restore, and are refused with another") {
  struct Row {
    std::string optimizer;
    std::vector<std::string> option;
    std::string line;
  };
  for (const Row& row :
       {Row{"sgd", {"--nesterov"}, "nesterov = true\n"}, Row{"lamb", {"--beta1", "0.8"}, "beta1 = 0.8\n"},
        Row{"lamb", {"--beta2", "0.99"}, "beta2 = 0.99\n"}, Row{"lamb", {"--epsilon", "1e-8"}, "epsilon = 1e-08\n"},
        Row{"lamb", {"--bias-correction"}, "bias-correction = true\n"},
        Row{"lars_sgd", {"--trust-coefficient", "0.02"}, "trust-coefficient = 0.02\n"}}) {
    for (const std::string optimizer : {"sgd", "lars", "lars_sgd", "lamb"}) {
      std::vector<std::string> arguments = row.option;
      arguments.insert(arguments.end(), {"--optimizer", optimizer});
      if (optimizer == row.optimizer) {
        const Parsed command = parse(arguments);
        CHECK(contains(command.resolved_toml, row.line));
        CHECK(parse_file(command.resolved_toml).train == command.train);
        CHECK(!(command.train == parse({"--optimizer", optimizer}).train));
      } else {
        CHECK(refusal(arguments) == row.option[0] + " works with --optimizer " + row.optimizer + ", not with " +
                                        optimizer + "; leave it off");
      }
    }
  }
  const TrainOptions o =
      parse({"--beta1", "0.8", "--beta2", "0.99", "--epsilon", "1e-8", "--bias-correction", "--clip-norm", "2"}).train;
  CHECK(o.beta1 == 0.8);
  CHECK(o.beta2 == 0.99);
  CHECK(o.epsilon == 1e-8);
  CHECK(o.bias_correction);
  CHECK(o.clip_norm == 2);
  CHECK(parse({"--optimizer", "sgd", "--nesterov"}).train.nesterov);
  CHECK(parse({"--optimizer", "lars_sgd", "--trust-coefficient", "1"}).train.trust_coefficient == 1);
  CHECK(contains(refusal({"--optimizer", "sgd", "--nesterov", "--momentum", "0"}), "--nesterov without --momentum"));
  // Other programs call the radius so.
  CHECK(contains(refusal({"--epsilon", "8/255"}), "the radius of the attack is --eps"));
  CHECK(contains(refusal({"--epsilon", "8/255", "--optimizer", "sgd"}), "the radius of the attack is --eps"));
}

TEST_CASE("options of an aggregator go with those that look at them, and tau may be automatic") {
  const std::vector<std::string> mean = {"--faults", "0"}, mixing = {"--aggregator-mixing"};
  for (const std::vector<std::string>& option : {mean, mixing})
    CHECK(contains(refusal(option), "krum, median, multi_krum or trimmed_mean, not with mean; leave it off"));
  CHECK(contains(refusal({"--aggregator", "krum", "--aggregator-tau", "3"}), "works with --aggregator centered_clip"));
  CHECK(contains(refusal({"--aggregator", "krum", "--aggregator-iterations", "3"}),
                 "works with --aggregator centered_clip or geometric_median"));
  CHECK(contains(refusal({"--aggregator", "centered_clip", "--aggregator-tau", "0"}), "above 0 or \"auto\""));
  CHECK(contains(refusal({"--aggregator", "krum", "--faults", "65"}), "at most 64"));
  const Parsed command = parse({"--aggregator", "centered_clip", "--aggregator-tau", "auto", "--faults", "0"});
  CHECK(command.train.aggregator_tau == 0);
  CHECK(command.train.faults == 0);
  CHECK(contains(command.resolved_toml, "\naggregator-tau = \"auto\"\n"));
  CHECK(parse_train_options(command.resolved_toml, "text") == command.train);
  CHECK(parse({"--aggregator", "krum"}).train.faults == -1);
}

TEST_CASE("codec and aggregator stand in the resolved configuration") {
  const std::string toml = parse({}).resolved_toml;
  CHECK(contains(toml, "\ncodec = \"float32\"\n"));
  CHECK(contains(toml, "\naggregator = \"mean\"\n"));
}

TEST_CASE("options of one codec are refused with another") {
  CHECK(parse({"--codec", "powersgd", "--codec-rank", "4"}).train.codec_rank == 4);
  CHECK(parse({"--codec", "atomo", "--codec-rank", "auto"}).train.codec_rank == 0);
  CHECK(parse({"--codec", "terngrad", "--codec-clip", "0"}).train.codec_clip == 0);
  CHECK(
      contains(refusal({"--codec", "int8", "--codec-rank", "4"}), "--codec-rank works with --codec powersgd or atomo"));
  CHECK(contains(refusal({"--codec-clip", "3"}), "--codec-clip works with --codec terngrad, not with float32"));
  CHECK(contains(refusal({"--codec-transport", "ring"}), "one of auto, sum, gather, two_sided"));
  CHECK(contains(refusal({"--codec-rank", "0"}), "--codec-rank"));
}

TEST_CASE("the early stop of the attack is off unless it is asked for, and restores") {
  CHECK(parse({}).train.attack_stop == -1);
  CHECK(parse({"--attack-stop", "off"}).train.attack_stop == -1);
  CHECK(contains(parse({}).resolved_toml, "attack-stop = \"off\"\n"));
  const Parsed command = parse({"--attack-stop", "0"});
  CHECK(command.train.attack_stop == 0);
  CHECK(parse_file(command.resolved_toml).train == command.train);
  CHECK(parse_file("attack-stop = \"off\"\n").train == parse({}).train);
}

TEST_CASE("the width is the network's own where it is not given") {
  CHECK(parse({}).train.width == 64);
  CHECK(parse({"--network", "wrn_28_10"}).train.width == 160);
  CHECK(parse({"--network", "wrn_28_10", "--width", "32"}).train.width == 32);
  CHECK(parse({"--network", "dm_wrn_22_8"}).train.width == 128);
  CHECK(parse({"bench", "--network", "wrn_34_10"}).bench.width == 160);
  CHECK(parse({"forecast"}).forecast.width == 64);
}

TEST_CASE("a network's activation and normalization are kept as they are given, and checked") {
  CHECK(parse({}).train.activation == "relu");
  CHECK(parse({"--network", "dm_wrn_22_8"}).train.activation == "silu");
  CHECK(parse({"--network", "dm_wrn_22_8", "--activation", "relu"}).train.activation == "relu");
  CHECK(contains(refusal({"--network", "wrn_29_10"}), "resnet18, small_cnn, wrn_16_4, "));
  CHECK(contains(refusal({"--network", "wrn_29_10"}), "not 'wrn_29_10'; did you mean 'wrn_28_10'?"));
  CHECK(parse({}).train.normalize == "none");
  const Parsed command = parse({"--activation", "silu", "--normalize", "0.1307,0.3081"});
  CHECK(parse_file(command.resolved_toml).train == command.train);
  CHECK(command.train.normalize == "0.1307,0.3081");
  CHECK(
      contains(refusal({"--normalize", "0.5"}), "--normalize must be none, cifar10, cifar100, imagenet, or the means"));
  CHECK(contains(refusal({"--activation", "swish"}), "relu, silu"));
}

TEST_CASE("what --print-config prints is a configuration file with the same options") {
  const Parsed command = parse({"--lr", "0.3", "--data", "a.h5", "--print-config"});
  CHECK(command.verb == "print");
  CHECK(parse_file(command.text).train == parse({"--lr", "0.3", "--data", "a.h5"}).train);
  CHECK(parse({"eval", "--print-config"}).verb == "print");
}

TEST_CASE("the command line overrides the file") {
  const Parsed command = parse_file("lr = 0.3\nepochs = 9\ndata = [\"a\", \"b\"]\naugment = \"none\"\n",
                                    {"--lr", "0.4", "--data", "c", "--augment", "crop"});
  CHECK(command.train.lr == 0.4);
  CHECK(command.train.epochs == 9);
  CHECK(command.train.data == std::vector<std::string>{"c"});
  CHECK(command.train.augment == "crop");
}

TEST_CASE("a file may hold comments, lists over lines, quotes of both kinds and Windows line ends") {
  const TrainOptions o = parse_train_options(
      "# a comment = 1\r\n"
      "milestones = [5, # five\n  6,\n]   # end\n"
      "\tout=\"a#b \\\"c\\\"\"\n"
      "data = 'one\\file'\n"
      "epochs = \"auto\"\n"
      "overlap = true\r\n"
      "resample = 20",
      "text");
  CHECK(o.milestones == std::vector<int>{5, 6});
  CHECK(o.out == "a#b \"c\"");
  CHECK(o.data == std::vector<std::string>{"one\\file"});
  CHECK(o.epochs == 100);
  CHECK(o.overlap);
  CHECK(o.resample == "20");
  CHECK(parse_train_options("data = []\n", "text").data.empty());
  CHECK(parse_file("").train == parse({}).train);
}

TEST_CASE("names that other programs use are refused with ours") {
  const std::vector<std::pair<std::string, std::string>> options = {
      {"learning-rate", "lr"}, {"learning_rate", "lr"}, {"model", "network"},     {"max_grad_norm", "clip-norm"},
      {"batch-size", "batch"}, {"step-size", "alpha"},  {"workers", "threads"},   {"num_workers", "threads"},
      {"arch", "network"},     {"gpu", "device"},       {"output-dir", "out"},    {"dataset", "data"},
      {"wd", "weight-decay"},  {"steps", "max-steps"},  {"weights", "initialize"}};
  for (const auto& [theirs, ours] : options)
    CHECK(refusal({"--" + theirs, "1"}) == "unknown option '--" + theirs + "'; did you mean '--" + ours + "'?");
  CHECK(contains(refusal({"eval", "--model", "a.h5"}), "did you mean '--checkpoint'?"));
  CHECK(contains(refusal({"eval", "--epsilon", "8/255"}), "did you mean '--eps'?"));
  CHECK(contains(refusal({"eval", "--steps", "20"}), "did you mean '--attack-steps'?"));
  CHECK(contains(file_refusal("learning_rate = 0.1\n"), "did you mean 'lr'?"));
  for (const std::string verb : {"test", "evaluate"})
    CHECK(refusal({verb}) == "unknown verb '" + verb + "'; did you mean 'eval'?");
}

TEST_CASE("averaging is described by options that fit together") {
  CHECK(parse({}).train.average == "none");
  CHECK(parse({}).train.average_bn == "raw");
  CHECK(parse({"--average", "ema"}).train.average_bn == "rebuild");
  CHECK(parse({"--average", "ema"}).train.average_decay == 0.995);
  CHECK(parse({"--average", "swa", "--average-from", "55"}).train.average_bn == "rebuild");
  CHECK(parse({"--average", "swa", "--average-bn", "ema"}).train.average_bn == "ema");
  // What is printed is read again, also where nothing is averaged.
  CHECK(parse_file(parse({}).resolved_toml).train.average_bn == "raw");
  CHECK(contains(refusal({"--average", "mean"}), "none, ema, swa"));
  for (const auto& [option, value] :
       std::vector<std::pair<std::string, std::string>>{{"decay", "0.9"}, {"from", "1"}, {"bn", "rebuild"}})
    CHECK(contains(refusal({"--average-" + option, value}), "work with --average ema or swa"));
  CHECK(contains(refusal({"--average", "swa", "--average-decay", "0.9"}), "works with --average ema, not with swa"));
  CHECK(contains(refusal({"--average", "ema", "--average-decay", "1"}), "below 1"));
  CHECK(contains(refusal({"--average", "ema", "--average-bn", "ema", "--bn-statistics", "local"}), "raw or rebuild"));
  CHECK(contains(refusal({"--swa-start", "3"}), "did you mean '--average-from'?"));
  CHECK(contains(refusal({"--patience", "3"}), "add --holdout N"));
  CHECK(contains(refusal({"--patience", "3", "--holdout", "10", "--eval-every", "0"}), "--eval-every at least 1"));
  CHECK(parse({"--patience", "3", "--holdout", "10"}).train.patience == 3);
  CHECK(parse({"eval", "--checkpoint", "a.h5"}).eval.weights == "auto");
  CHECK(contains(refusal({"eval", "--checkpoint", "a.h5", "--weights", "swa"}), "auto, raw, average"));
}

TEST_CASE("help VERB is VERB --help") {
  for (const std::vector<std::string>& verb : std::vector<std::vector<std::string>>{
           {}, {"train"}, {"eval"}, {"validate"}, {"data"}, {"data", "convert"}, {"plot"}, {"bench"}, {"doctor"}}) {
    std::vector<std::string> help = verb, other = {"help"};
    help.push_back("--help");
    other.insert(other.end(), verb.begin(), verb.end());
    CHECK(parse(other).verb == "print");
    CHECK(parse(other).text == parse(help).text);
  }
  CHECK(refusal({"help", "tarin"}) == "no verb or option is called 'tarin' or speaks of it; did you mean 'train'?");
  CHECK(refusal({"halp"}) == "unknown verb 'halp'; did you mean 'help'?");
}

TEST_CASE("misspelt options and keys are refused with the nearest name") {
  CHECK(refusal({"--ltr", "0.1"}) == "unknown option '--ltr'; did you mean '--lr'?");
  CHECK(contains(refusal({"--micro_batch=3"}), "did you mean '--micro-batch'?"));
  CHECK(contains(refusal({"--batch-size", "3"}), "did you mean '--batch'?"));
  CHECK(contains(refusal({"-x"}), "unknown option '-x'; see 'dat_hpc train --help'"));
  CHECK(contains(refusal({"tarin"}), "did you mean 'train'?"));
  CHECK(contains(refusal({"data", "convrt"}), "did you mean 'convert'?"));
  CHECK(contains(refusal({"--attack", "pgdd"}), ", not 'pgdd'; did you mean 'pgd'?"));
  CHECK(file_refusal("lr = 0.1\n\n# a comment\nepoch = 3\n") ==
        "FILE:4: 'epoch' is no option of 'dat_hpc train'; did you mean 'epochs'?");
  CHECK(contains(file_refusal("checkpoint = 'a'\n"), "FILE:1: 'checkpoint' is no option"));
  CHECK(contains(file_refusal("config = 'a'\n"), "FILE:1: 'config' is no option"));
}

TEST_CASE("wrong types and values out of range are refused by name, with the range") {
  const std::vector<std::vector<std::string>> refused = {{"--batch", "-1"},
                                                         {"--batch", "1.5"},
                                                         {"--batch", "12abc"},
                                                         {"--batch", "99999999999"},
                                                         {"--width", "-1"},
                                                         {"--eps", "0"},
                                                         {"--eps", "-1"},
                                                         {"--alpha", "-0.1"},
                                                         {"--attack-steps", "0"},
                                                         {"--lr", "0"},
                                                         {"--lr", "fast"},
                                                         {"--momentum", "1"},
                                                         {"--weight-decay", "-2"},
                                                         {"--lambda", "-2"},
                                                         {"--clamp-high", "0"},
                                                         {"--p-min", "0"},
                                                         {"--p-min", "1.01"},
                                                         {"--budget", "-1"},
                                                         {"--resample", "0"},
                                                         {"--resample", "week"},
                                                         {"--seed", "-1"},
                                                         {"--epochs", "-2"},
                                                         {"--device", "tpu"},
                                                         {"--milestones", "a,b"},
                                                         {"--progress", "0"},
                                                         {"--bucket", "0"},
                                                         {"--max-steps", "-1"},
                                                         {"--network", "vgg"},
                                                         {"--importance", "on"},
                                                         {"--bandit-loss", "x"},
                                                         {"--granularity", "net"},
                                                         {"--lr", "--batch"},
                                                         {"--codec", "int4"},
                                                         {"--aggregator", "largest"},
                                                         {"--attackers", "-1"},
                                                         {"--cheat", "lie"},
                                                         {"--cheat-from", "-1"},
                                                         {"--cheat-every", "0"},
                                                         {"--cheat-delay", "0"},
                                                         {"--attack-stop", "-2"},
                                                         {"--attack-stop", "auto"},
                                                         {"--warm-start", "-1"},
                                                         {"--beta1", "1"},
                                                         {"--beta2", "-0.1"},
                                                         {"--epsilon", "0"},
                                                         {"--clip-norm", "-1"},
                                                         {"--max-bad-steps", "-1"},
                                                         {"--on-bad-steps", "skip"},
                                                         {"--on-overfitting", "ignore"},
                                                         {"--overfitting-margin", "0"},
                                                         {"--rollback-lr", "0"},
                                                         {"--max-rollbacks", "0"},
                                                         {"--trust-coefficient", "0"},
                                                         {"--optimizer", "adam"},
                                                         {"--selector", "best"},
                                                         {"--batch", "0"},
                                                         {"--threads", "0"},
                                                         {"--micro-batch", "0"},
                                                         {"--epochs", "-1"},
                                                         {"--warmup-epochs", "-1"},
                                                         {"--alpha", "0"},
                                                         {"--eval-eps", "0"},
                                                         {"--norm", "l1"},
                                                         {"--eval-norm", "inf"},
                                                         {"--lambda", "-1"},
                                                         {"--weight-decay", "-1"},
                                                         {"--budget", "0"},
                                                         {"--attack-stop", "-1"}};
  for (const auto& arguments : refused) {
    const std::string message = refusal(arguments);
    INFO(message);
    CHECK(contains(message, "option '" + arguments[0] + "' must be "));
    CHECK(contains(message, "not '"));
  }
  CHECK(file_refusal("lr = 0.1\neps = -2\n").starts_with("FILE:2: 'eps' must be a number"));
  CHECK(file_refusal("overlap = 1\n").starts_with("FILE:1: 'overlap' must be true or false"));
  CHECK(file_refusal("batch = \"128\"\n") == "FILE:1: 'batch' must stand without quotes");
  CHECK(file_refusal("network = small_cnn\n") == "FILE:1: 'network' must stand in quotes");
  CHECK(file_refusal("lr = [0.1]\n") == "FILE:1: 'lr' takes one value, not a list");
  CHECK(contains(refusal({"--lr"}), "--lr"));
  CHECK(contains(refusal({"train", "extra"}), "unexpected argument 'extra'"));
  CHECK(contains(refusal({"data", "convert", "in"}), "OUTPUT is required"));
  CHECK(contains(refusal({"data"}), "convert, index, synthetic, inspect"));
  CHECK(contains(refusal({"eval"}), "dat_hpc eval RUN"));
  CHECK(contains(refusal({"--config", "/no/such/file"}), "'/no/such/file'"));
  CHECK(contains(refusal({"--config", "/"}), "cannot read the configuration file '/'"));
}

TEST_CASE("a file that is not plain key = value lines is refused with the line") {
  CHECK(file_refusal("lr = 0.1\n[train]\n").starts_with("FILE:2: there are no sections"));
  CHECK(file_refusal("lr = 0.1\nlr = 0.2\n") == "FILE:2: 'lr' is set a second time; keep one of the lines");
  CHECK(file_refusal("lr\n").starts_with("FILE:1: expected 'key = value'"));
  CHECK(file_refusal("lr =\n").starts_with("FILE:1: a value is missing"));
  CHECK(file_refusal("lr = 1 2\n").starts_with("FILE:1: unexpected text"));
  CHECK(file_refusal("milestones = [1, 2\nlr = 3\n").starts_with("FILE:2: expected ',' or ']'"));
  CHECK(file_refusal("\nout = \"a\nlr = 1\n").starts_with("FILE:2: a string is not closed"));
  CHECK(file_refusal("out = \"a\\q\"\n").starts_with("FILE:1: unknown escape"));
}

TEST_CASE("a batch of all ranks has an order of its micro-batches, and nothing that is bound to ranks") {
  const Parsed command = parse({"--deterministic", "--total-batch", "96", "--micro-batch", "12"});
  CHECK(command.train.total_batch == 96);
  CHECK(command.train.batch == 0);
  CHECK(sums_are_ordered(command.train));
  CHECK(parse_train_options(command.resolved_toml, "text") == command.train);
  const TrainOptions of_ranks = parse({"--deterministic", "--batch", "24"}).train;
  CHECK(of_ranks.total_batch == 0);
  CHECK(sums_are_ordered(of_ranks));
  CHECK(!sums_are_ordered(parse({"--batch", "24"}).train));
  CHECK(sums_are_ordered(parse({"--deterministic", "--aggregator", "median"}).train));
  const TrainOptions shared = parse({"--total-batch", "96"}).train;  // an equal share for each rank
  CHECK(shared.total_batch == 96);
  CHECK(shared.batch == 0);
  CHECK(shared.micro_batch == 0);
  CHECK(parse_train_options(toml_of(shared), "text") == shared);
  CHECK(parse({"--total-batch", "96", "--micro-batch", "12"}).train.micro_batch == 12);
  CHECK(contains(refusal({"--total-batch", "96", "--mix", "balanced:0.5", "--data", "a.h5", "--data", "b.h5"}),
                 "add --micro-batch N"));
  // A recipe's batch gives way, and one that is as near to the user does not.
  const TrainOptions of_recipe = parse({"--recipe", "madry", "--total-batch", "256"}).train;
  CHECK(of_recipe.total_batch == 256);
  CHECK(of_recipe.batch == 0);
  CHECK(parse_file("batch = 8\n", {"--total-batch", "96"}).train.batch == 0);
  CHECK(parse_file("total-batch = 96\n", {"--batch", "8"}).train.total_batch == 0);
  CHECK(contains(refusal({"--deterministic", "--total-batch", "96"}), "--micro-batch N"));
  CHECK(contains(refusal({"--deterministic", "--total-batch", "96", "--micro-batch", "10"}), "choose a divisor of it"));
  CHECK(contains(refusal({"--deterministic", "--total-batch", "96", "--micro-batch", "12", "--batch", "12"}),
                 "give one of them"));
  for (const std::vector<std::string>& option : std::vector<std::vector<std::string>>{{"--codec", "bf16"},
                                                                                      {"--codec-transport", "gather"},
                                                                                      {"--mask", "per_worker"},
                                                                                      {"--bn-statistics", "local"},
                                                                                      {"--budget-unit", "seconds"},
                                                                                      {"--stale-attack", "1"},
                                                                                      {"--overlap"}}) {
    std::vector<std::string> arguments{"--deterministic"};
    arguments.insert(arguments.end(), option.begin(), option.end());
    std::string name = option.front();
    if (option.size() > 1) name += " " + option.back();
    CHECK(contains(refusal(arguments), "any number of ranks, which " + name + " does not allow"));
  }
}

TEST_CASE("attack, steps, radius and step size may change by epoch") {
  const TrainOptions o = parse({"--attack", "none,fgsm@3,pgd@6", "--attack-steps", "1,2@12", "--eps", "0..8/255@0-10",
                                "--alpha", "auto,2/255@8", "--attack-bn", "eval"})
                             .train;
  CHECK(o.attack.at(2) == "none");
  CHECK(o.attack.at(3) == "fgsm");
  CHECK(o.attack == "pgd");
  CHECK(o.attack_steps.at(11) == 1);
  CHECK(o.attack_steps.at(12) == 2);
  CHECK(o.attack_steps == 2);
  CHECK(o.eps.at(0) == 0);
  CHECK(o.eps.at(4) == 8.0 / 255 * 4 / 10);
  CHECK(o.eps.at(10) == 8.0 / 255);
  CHECK(o.eps.at(1000) == 8.0 / 255);
  CHECK(o.alpha.at(7) == 0);
  CHECK(o.alpha == 2.0 / 255);
  CHECK(o.eval_eps == 8.0 / 255);
  CHECK(o.in_epoch(3).attack.last() == "fgsm");
  CHECK(!o.in_epoch(3).eps.changes());
  CHECK(o.epochs_of_change() == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12});
  const TrainOptions grown = parse({"--eps", "2/255..4/255@3-5,8/255@7"}).train;
  CHECK(grown.eps.at(0) == 2.0 / 255);
  CHECK(grown.eps.at(4) == 3.0 / 255);
  CHECK(grown.eps.at(6) == 4.0 / 255);
  CHECK(grown.eps.at(7) == 8.0 / 255);
  CHECK(grown.alpha == 0);  // the attack's own follows
  CHECK(parse({"--attack", "fgsm", "--eps", "2/255..8/255@0-2"}).train.attack_bn == "train");
  CHECK(parse({"--attack", "none,fgsm@2"}).train.attack_bn == "eval");
  // What works with both works with one after the other.
  CHECK(parse({"--attack", "pgd,fgsm@2", "--start-radius", "0"}).train.start_radius == 0);
  CHECK(contains(refusal({"--attack", "none,fgsm@2", "--start-radius", "0"}), "--start-radius works with"));
  CHECK(contains(refusal({"--attack", "pgd,fgsm@2", "--attack-stop", "1"}), "--attack-stop works with"));
  for (const TrainOptions& options : {o, grown}) CHECK(options.epochs_of_change().front() == 0);
  const Parsed written = parse({"--eps", "2/255..4/255@3-5,8/255@7", "--attack-steps", "1,2@12"});
  CHECK(contains(written.resolved_toml, "eps = \"2/255..4/255@3-5,8/255@7\""));
  CHECK(contains(written.resolved_toml, "attack-steps = \"1,2@12\""));
  CHECK(parse_train_options(written.resolved_toml, "text") == written.train);
  const ByEpoch<int> sizes = parse({"--train-size", "24,28@2,auto@6"}).train.train_size;
  std::vector<int> by_epoch;
  for (int epoch = 0; epoch < 8; ++epoch) by_epoch.push_back(sizes.at(epoch));
  CHECK(by_epoch == std::vector{24, 24, 28, 28, 28, 28, 0, 0});
  CHECK(parse({}).train.train_size == 0);
  CHECK(parse({"--train-size", "auto"}).train.train_size == 0);
  CHECK(parse_file("eps = \"4/255..8/255@0-10\"\n").train.eps.at(5) == 6.0 / 255);
  CHECK(file_refusal("attack-steps = 1@2\n") == "FILE:1: 'attack-steps' must stand in quotes");
}

TEST_CASE("what changes by epoch is refused where it is not written so, or cannot be") {
  for (const auto& [option, text] : std::vector<std::pair<std::string, std::string>>{
           {"--attack-steps", "1,2@"},    {"--attack-steps", "1@0,2@0"},     {"--attack-steps", "1,2@5,3@4"},
           {"--attack-steps", "2@3"},     {"--attack-steps", "1,0@3"},       {"--attack-steps", "1..3@0-2"},
           {"--attack-steps", "1,2@3,"},  {"--attack-steps", "1,2@1000000"}, {"--train-size", "7,32@1"},
           {"--train-size", "24,5000@1"}, {"--train-size", "24,@6"},         {"--train-size", "24,32@-1"},
           {"--attack", "none,best@3"},   {"--eps", "1/255..8/255"},         {"--eps", "1/255..8/255@5"},
           {"--eps", "1/255..8/255@5-5"}, {"--eps", "1/255..8/255@5-3"},     {"--eps", "1/255..4/255@0-5,8/255@5"},
           {"--eps", "8/255..0@0-5"},     {"--eps", "..8/255@0-5"},          {"--alpha", "auto..2/255@0-5"}}) {
    const std::string message = refusal({option, text});
    INFO(message);
    CHECK(contains(message, "option '" + option + "' may change by epoch as in "));
    CHECK(contains(message, "'" + text + "' is not so"));
  }
  CHECK(contains(refusal({"--eps", "1..8@0-3"}), "grey levels are written as 8/255"));
  CHECK(contains(refusal({"--attack", "pgd,none@3"}), "but not end with it"));
  CHECK(contains(refusal({"--eps", "0..8/255@0-3", "--warm-start", "2"}), "does not go with --warm-start"));
  CHECK(contains(refusal({"--attack", "none,pgd@3", "--staleness", "2"}), "does not go with --warm-start"));
  CHECK(contains(refusal({"--attack-steps", "1,2@3", "--staleness", "2"}), "not --attack and --attack-steps"));
  CHECK(contains(refusal({"--attack-steps", "1,4@3", "--stale-attack", "2"}), "more than the 1 iterations"));
  const Parsed batches = parse({"--batch", "512,128@12", "--micro-batch", "32"});
  CHECK(batches.train.batch.at(11) == 512);
  CHECK(batches.train.batch == 128);
  CHECK(contains(batches.resolved_toml, "batch = \"512,128@12\""));
  CHECK(parse_train_options(batches.resolved_toml, "text") == batches.train);
  CHECK(parse({"--batch", "512,128@12"}).train.micro_batch == 0);
  const auto refused = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--batch", "512,128@12"});
    return refusal(more);
  };
  CHECK(contains(refused({"--micro-batch", "256"}), "--batch 128 is no multiple of --micro-batch 256"));
  CHECK(contains(refused({"--max-steps", "9"}), "does not go with --max-steps"));
  CHECK(contains(refused({"--deterministic"}), "add --micro-batch N"));
  CHECK(contains(refusal({"--batch", "512,auto@3"}), "a number in each of them"));
  CHECK(contains(refusal({"--attack", "fgsm,pgd@3", "--attack-stop", "1"}), "works with --attack pgd"));
  CHECK(parse({"--eps", "2/255..8/255@0-3", "--staleness", "2"}).train.staleness == 2);
}

TEST_CASE("options that do not fit together are refused") {
  CHECK(contains(refusal({"--batch", "128", "--micro-batch", "100"}), "--micro-batch 100"));
  CHECK(contains(refusal({"--micro-batch", "8", "--attack-batch", "9"}), "--attack-batch 9"));
  CHECK(contains(refusal({"--milestones", "90,75"}), "--milestones must increase"));
  CHECK(contains(refusal({"--milestones", "75,75"}), "--milestones must increase"));
  CHECK(contains(refusal({"--clamp-low", "11"}), "--clamp-high 10"));
  CHECK(contains(refusal({"--epochs", "0", "--warmup-epochs", "0"}), "nothing to train"));
  CHECK(contains(refusal({"--epochs", "8", "--warmup-epochs", "7.5"}), "together are 15.5 epochs"));
  CHECK(contains(refusal({"--epochs", "8", "--warmup-epochs", "7.5"}), "choose --epochs 8.5"));
  CHECK(parse({"--epochs", "7.7", "--warmup-epochs", "7.3"}).train.warmup_epochs == 7.3);
  CHECK(contains(refusal({"--no-decay", "norms", "--weight-decay", "0"}), "a weight decay that is 0"));
  CHECK(contains(refusal({"--no-decay", "biases"}), "'--no-decay' must be "));
  CHECK(contains(refusal({"--peak-momentum", "0.8"}), "--peak-momentum works with --optimizer sgd, lars or lars_sgd"));
  CHECK(contains(refusal({"--optimizer", "sgd", "--peak-momentum", "1"}), "'--peak-momentum' must be "));
  CHECK(contains(refusal({"--warm-start", "5", "--attack", "none"}), "--warm-start 5 has no perturbation"));
  CHECK(parse({"--warm-start", "5", "--attack", "fgsm"}).train.warm_start == 5);
  CHECK(parse({"--attack", "none"}).train.warm_start == 0);
  CHECK(contains(refusal({"-q", "-v"}), "--quiet and --verbose"));
  CHECK(contains(refusal({"--rollback-lr", "0.1"}), "--on-bad-steps rollback"));
  CHECK(contains(refusal({"--max-rollbacks", "1", "--max-bad-steps", "5"}), "--on-bad-steps rollback"));
  CHECK(
      contains(refusal({"--on-bad-steps", "rollback", "--rollback-lr", "1"}), "--rollback-lr 1 would go the same way"));
  for (const char* action : {"stop", "rollback"})
    CHECK(contains(refusal({"--on-overfitting", action}), "add --holdout N"));
  CHECK(contains(refusal({"--overfitting-margin", "0.1"}), "add --holdout N"));
  CHECK(parse({"--on-overfitting", "stop", "--holdout", "5"}).train.overfitting_margin == 0.2);
  const TrainOptions plain = parse({}).train;
  CHECK(plain.mask == "shared");
  CHECK(plain.mask_transport == "union");
  for (const std::string transport : {"dense", "union", "allgather"}) {
    const Parsed command = parse({"--mask", "per_worker", "--mask-transport", transport});
    CHECK(command.train.mask == "per_worker");
    CHECK(command.train.mask_transport == transport);
    CHECK(parse_file(command.resolved_toml).train == command.train);
    if (transport != "union")
      CHECK(contains(refusal({"--mask-transport", transport}), "--mask-transport works with --mask per_worker"));
  }
  CHECK(contains(refusal({"--mask", "per_worker", "--importance", "outside"}), "have different 1/p"));
  CHECK(contains(refusal({"--mask", "per_worker", "--selector", "all"}), "which draws no layers"));
  for (const std::string selector : {"freezeout", "autofreeze"})
    CHECK(contains(refusal({"--mask", "per_worker", "--selector", selector}), "which draws no layers"));
  for (const std::string selector : {"all", "freezeout", "autofreeze"})
    CHECK(contains(refusal({"--budget-unit", "bytes", "--selector", selector}),
                   "--budget-unit works with --selector exp3, oracle or uniform, not with " + selector));
  for (const std::string unit : {"layers", "bytes", "seconds"})
    CHECK(parse({"--budget-unit", unit}).train.budget_unit == unit);
  CHECK(contains(refusal({"--budget-unit", "dollars"}), "seconds"));
  CHECK(contains(refusal({"--freeze-t0", "0.5"}), "--freeze-t0 works with --selector freezeout"));
  CHECK(contains(refusal({"--freeze-schedule", "linear"}), "works with --selector freezeout"));
  CHECK(contains(refusal({"--freeze-lr", "constant"}), "works with --selector freezeout"));
  CHECK(contains(refusal({"--freeze-percentile", "20"}), "works with --selector autofreeze"));
  CHECK(contains(refusal({"--selector", "freezeout", "--freeze-t0", "0"}), "above 0"));
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--budget-unit", "bytes"},
           {"--selector", "freezeout", "--freeze-t0", "0.5", "--freeze-schedule", "squared", "--freeze-lr", "unscaled"},
           {"--selector", "autofreeze", "--freeze-percentile", "20"}}) {
    const Parsed command = parse(words);
    CHECK(parse_file(command.resolved_toml).train == command.train);
    CHECK(command.train != plain);
  }
  const TrainOptions freezeout =
      parse({"--selector", "freezeout", "--freeze-t0", "0.5", "--freeze-schedule", "squared"}).train;
  CHECK(freezeout.freeze_t0 == 0.5);
  CHECK(freezeout.freeze_schedule == "squared");
  CHECK(freezeout.importance == "outside");
  CHECK(parse({"--selector", "freezeout", "--freeze-lr", "constant"}).train.importance == "inside");
  CHECK(parse({"--selector", "autofreeze", "--freeze-percentile", "20"}).train.freeze_percentile == 20);
  CHECK(contains(refusal({"--mask", "own"}), "shared"));
  CHECK(contains(refusal({"--mask-transport", "ring"}), "allgather"));
  CHECK(contains(refusal({"--attack-stop", "1", "--attack", "fgsm"}), "--attack-stop works with --attack pgd"));
  CHECK(contains(refusal({"--attack-stop", "1", "--attack-bn", "train"}), "take --attack-bn eval"));
  CHECK(parse({"--attack-stop", "1", "--attack-bn", "eval"}).train.attack_stop == 1);
  CHECK(parse({}).train.stale_attack == 0);
  CHECK(parse({"--stale-attack", "3"}).train.stale_attack == 3);
  CHECK(parse({"--staleness", "4", "--refresh", "attack"}).train.staleness == 4);
  CHECK(contains(refusal({"--refresh", "attack"}), "--refresh works with --staleness"));
  CHECK(contains(refusal({"--staleness", "2", "--attack-stop", "1"}), "or --refresh attack"));
  CHECK(contains(refusal({"--staleness", "2", "--attack", "none"}), "--attack none makes none"));
  CHECK(contains(refusal({"--staleness", "2", "--verify", "5"}), "--staleness does not go with --verify"));
  CHECK(parse({"--generators", "3", "--staleness", "2"}).train.generators == 3);
  CHECK(parse({"--generators", "3", "--attack", "fgsm", "--attack-bn", "eval"}).train.generators == 3);
  CHECK(parse({"--generators", "auto", "--calibration", "c.json"}).train.generators == -1);
  CHECK(parse({"--generators", "2", "--generator-weights", "bf16"}).train.generator_weights == "bf16");
  CHECK(
      contains(refusal({"--generators", "2", "--generator-weights", "bf16", "--deterministic"}), "promises the bits"));
  CHECK(contains(refusal({"--generator-weights", "bf16"}), "--generator-weights works with --generators"));
  // A forecast may say that there are none.
  TrainOptions none = parse({"--generators", "auto", "--calibration", "c.json", "--generator-weights", "bf16"}).train;
  none.generators = 0;
  none.calibration.clear();
  put_back_unused(none);
  CHECK(none.generator_weights == "f32");
  CHECK(parse_train_options(toml_of(none), "text") == none);
  CHECK(contains(refusal({"--generators", "1", "--attack-precision", "f16", "--deterministic", "--verify", "4"}),
                 "does not work with --attack-precision of 16 bits and --generators"));
  CHECK(contains(refusal({"--generators", "auto"}), "is forecast from --calibration FILE"));
  CHECK(contains(refusal({"--generators", "1", "--calibration", "c.json"}),
                 "is what --generators auto is forecast from"));
  CHECK(contains(refusal({"--generators", "1", "--attack", "fgsm"}), "unless --attack-bn eval says otherwise"));
  for (const std::vector<std::string>& other :
       std::vector<std::vector<std::string>>{{"--attack", "none"},
                                             {"--attack-bn", "train"},
                                             {"--bn-statistics", "local"},
                                             {"--warm-start", "5"},
                                             {"--attack-reuse", "--attack-bn", "train", "--warm-start", "5"},
                                             {"--stale-attack", "3"},
                                             {"--attackers", "1", "--cheat", "sign_flip"},
                                             {"--deterministic", "--byzantine", "--aggregator", "centered_clip"}}) {
    std::vector<std::string> words{"--generators", "1"};
    words.insert(words.end(), other.begin(), other.end());
    INFO(other[0]);
    CHECK(contains(refusal(words), "--generators does not go with --"));
  }
  for (const std::vector<std::string>& some : std::vector<std::vector<std::string>>{
           {"--generators", "1"}, {"--generators", "auto", "--calibration", "c.json"}})
    for (const std::vector<std::string>& other : std::vector<std::vector<std::string>>{{"--loss", "pgi"},
                                                                                       {"--noise", "0.1"},
                                                                                       {"--eps", "0,8/255@2"},
                                                                                       {"--attack-steps", "1,2@2"},
                                                                                       {"--attack", "fgsm,pgd@2"}}) {
      std::vector<std::string> words = some;
      words.insert(words.end(), other.begin(), other.end());
      INFO(words[1] << " " << other[0]);
      CHECK(contains(refusal(words), "--generators"));
    }
  for (const std::vector<std::string>& other : std::vector<std::vector<std::string>>{{"--attack", "fgsm"},
                                                                                     {"--attack", "none"},
                                                                                     {"--attack-bn", "train"},
                                                                                     {"--attack-stop", "1"},
                                                                                     {"--warm-start", "5"}}) {
    std::vector<std::string> words{"--stale-attack", "3"};
    words.insert(words.end(), other.begin(), other.end());
    CHECK(contains(refusal(words), "--stale-attack works with --attack pgd"));
  }
  CHECK(parse({"--stale-attack", "10"}).train.stale_attack == 10);
  CHECK(contains(refusal({"--stale-attack", "11"}), "more than the 10 iterations"));
  CHECK(contains(refusal({"--attack-reuse", "--warm-start", "5"}),
                 "--attack-reuse works with --attack pgd, --attack-bn train"));
  CHECK(contains(refusal({"--attack-reuse", "--attack-bn", "train"}), "makes a step that nobody keeps"));
  for (const char* steps : {"1", "1,2@3"})
    CHECK(contains(refusal({"--attack-reuse", "--attack-bn", "train", "--warm-start", "5", "--attack-steps", steps}),
                   "at least 2 --attack-steps"));
  for (const char* other : {"--label-smoothing=0.1", "--loss=mart"})
    CHECK(contains(refusal({"--attack-reuse", "--attack-bn", "train", "--warm-start", "5", other}),
                   "--attack-reuse takes the gradient of the training pass"));
  // Steps of an attack's own may be longer than 1, and the resolved configuration says so.
  for (const std::vector<std::string>& own : {std::vector<std::string>{"--attack", "apgd-ce", "--eps", "0.6"},
                                              {"--attack", "fgsm", "--eps", "0.9"},
                                              {"--eval", "apgd-ce", "--eval-eps", "0.6"}})
    CHECK(parse_file(parse(own).resolved_toml).train == parse(own).train);
  CHECK(contains(refusal({"--alpha", "1.2"}), "--alpha 1.2 is more than 1"));
  CHECK(contains(refusal({"--eval-alpha", "1.2"}), "--eval-alpha 1.2 is more than 1"));
  const TrainOptions reuse = parse({"--attack-reuse", "--attack-bn", "train", "--warm-start", "5"}).train;
  CHECK(reuse.attack_reuse);
  CHECK(parse_file(parse({"--attack-reuse", "--attack-bn", "train", "--warm-start", "5"}).resolved_toml).train ==
        reuse);
  CHECK(parse({"--batch", "128", "--micro-batch", "32"}).train.micro_batch == 32);
}

TEST_CASE("the help of every verb names its options and defaults in at most 80 columns") {
  const std::vector<std::vector<std::string>> named = {{},
                                                       {"train"},
                                                       {"eval"},
                                                       {"validate"},
                                                       {"data"},
                                                       {"data", "convert"},
                                                       {"data", "synthetic"},
                                                       {"data", "inspect"},
                                                       {"export"},
                                                       {"import"},
                                                       {"plot"},
                                                       {"slurm"},
                                                       {"bench"},
                                                       {"forecast"},
                                                       {"doctor"}};
  for (const std::string topic : {"", "all"})
    for (std::vector<std::string> arguments : named) {
      arguments.emplace_back("--help");
      if (!topic.empty()) arguments.push_back(topic);
      const Parsed command = parse(arguments);
      CHECK(command.verb == "print");
      CHECK(command.text.size() > 200);
      std::istringstream lines(command.text);
      for (std::string line; std::getline(lines, line);) {
        INFO(line);
        CHECK(line.size() <= 80);
      }
    }
  for (const std::vector<std::string>& verb :
       std::vector<std::vector<std::string>>{{}, {"train"}, {"validate"}, {"slurm"}}) {
    std::vector<std::string> arguments = verb;
    arguments.insert(arguments.end(), {"--help", "all"});
    const std::string help = parse(arguments).text;
    std::istringstream lines(parse({}).resolved_toml);
    for (std::string line; std::getline(lines, line);) {
      if (line.empty() || line[0] == '#') continue;
      const std::string option = "--" + line.substr(0, line.find(' '));
      INFO(option);
      CHECK(contains(help, option));
    }
    for (const char* part : {"[8/255]", "[preact_resnet18]", "[75,90,95]", "[auto]", "Data:", "JointSpar:", "Run:"}) {
      CHECK(contains(help, part));
    }
  }
}

namespace {

std::int64_t lines_in(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

TEST_CASE("the first screen fits on a screen, and names every verb and the way to every option") {
  const std::string first = parse({"--help"}).text;
  CHECK(first == parse({"help"}).text);
  CHECK(first == parse({"-h"}).text);
  CHECK(lines_in(first) <= 45);
  for (const char* verb : {"train", "eval", "validate", "data convert", "data synthetic", "data inspect", "plot",
                           "bench", "doctor", "slurm", "forecast", "export", "import"})
    CHECK(contains(first, "\n  " + std::string(verb) + " "));
  for (const char* part : {"--help all", "--help WORD", "--recipe NAME", "Exit codes"}) CHECK(contains(first, part));
  CHECK(parse({"--help", "all"}).text == parse({"train", "--help", "all"}).text);
  CHECK(parse({"--help", "eval"}).text == parse({"eval", "--help"}).text);
}

TEST_CASE("the short help of train fits on two screens and says what a bare train is") {
  const std::string help = parse({"train", "--help"}).text;
  CHECK(lines_in(help) <= 80);
  CHECK(contains(help, "LAMB with JointSpar"));
  CHECK(contains(help, "--recipe madry"));
  CHECK(contains(help, "dat_hpc train --help all shows every one"));
  CHECK(!contains(help, "--bandit-rate"));
  CHECK(parse({"--lr", "0.3", "--help"}).text == help);
}

TEST_CASE("--help WORD shows the options in which the word occurs, of any verb") {
  const std::string milestones = parse({"train", "--help", "milestone"}).text;
  CHECK(contains(milestones, "--milestones"));
  CHECK(contains(milestones, "--lr-decay"));  // whose description speaks of them
  CHECK(!contains(milestones, "--momentum"));
  CHECK(parse({"train", "--help", "--MILESTONE"}).text == milestones);
  CHECK(parse({"train", "--help=milestone"}).text == milestones);
  CHECK(contains(parse({"train", "--help", "jointspar"}).text, "--bandit-loss"));  // by the group
  CHECK(contains(parse({"train", "--help", "trades"}).text, "--loss"));            // by the values
}

TEST_CASE("a word that the help does not know is refused with the nearest option") {
  CHECK(contains(refusal({"train", "--help", "milestnes"}), "did you mean '--milestones'?"));
  CHECK(contains(refusal({"bench", "--help", "budget"}), "no option of 'dat_hpc bench' has 'budget'"));
  // Without a verb, those of train, and who else has any.
  const std::string all = parse({"--help", "jitter"}).text;
  CHECK(contains(all, "Also: dat_hpc forecast --help jitter"));
  CHECK(contains(parse({"help", "milestones"}).text, "--milestones"));
  CHECK(contains(refusal({"--help", "milestnes"}), "did you mean '--milestones'?"));
  CHECK(contains(refusal({"--help", "xyzzy"}), "'dat_hpc train --help all' shows every option"));
}

TEST_CASE("recipes are options between the defaults and the file") {
  const TrainOptions madry = parse({"--recipe", "madry"}).train;
  CHECK(madry.optimizer == "sgd");
  CHECK(madry.selector == "all");
  CHECK(madry.weight_decay == 2e-4);
  CHECK(madry.max_steps == 80000);
  const File file("lr = 0.3\nselector = \"uniform\"\n");
  const TrainOptions all = parse({"--recipe", "madry", "--config", file.path, "--selector", "oracle"}).train;
  CHECK(all.lr == 0.3);             // the file over the recipe
  CHECK(all.selector == "oracle");  // the command line over both
  CHECK(all.weight_decay == 2e-4);
  CHECK(parse_file(parse({"--recipe", "trades"}).resolved_toml).train == parse({"--recipe", "trades"}).train);
  CHECK(parse({"validate", "--recipe", "fast_adversarial"}).train.lr == 0.2);
  CHECK(parse({"slurm", "--recipe", "fast_adversarial", "--lr", "0.1"}).slurm.train ==
        std::vector<std::string>{"--recipe", "fast_adversarial", "--lr", "0.1"});
  CHECK(refusal({"--recipe", "madri"}) == "there is no recipe 'madri'; did you mean 'madry'?");
  CHECK(contains(refusal({"--recipe", "jobs/madry.toml"}),
                 "--config takes a file, --recipe a name; did you mean 'madry'?"));
  CHECK(contains(refusal({"--recipe", "resnet"}), "--recipe list names all"));
  CHECK(contains(refusal({"--config", "madry"}), "did you mean --recipe madry?"));
  const Parsed list = parse({"--recipe", "list"});
  CHECK(list.verb == "print");
  CHECK(contains(list.text, "\nmadry "));
  CHECK(contains(list.text, "11 passes x 205 epochs"));
  CHECK(contains(list.text, "Madry et al., ICLR 2018"));
}

TEST_CASE("a selector over a recipe of another one drops its options; together they are refused") {
  const TrainOptions all = parse({"--recipe", "tudelft_jointspar", "--selector", "all"}).train;
  CHECK(all.p_min == TrainOptions{}.p_min);
  CHECK(all.resample == TrainOptions{}.resample);
  CHECK(parse_file(parse({"--recipe", "tudelft_jointspar", "--selector", "all"}).resolved_toml).train == all);
  for (const std::vector<std::string>& option : std::vector<std::vector<std::string>>{{"--budget", "9"},
                                                                                      {"--p-min", "0.3"},
                                                                                      {"--bandit-loss", "paper"},
                                                                                      {"--bandit-rate", "0.3"},
                                                                                      {"--resample", "epoch"},
                                                                                      {"--budget-unit", "bytes"}}) {
    const std::string message = refusal({"--selector", "all", option[0], option[1]});
    CHECK(contains(message, option[0] + " works with --selector "));
    CHECK(contains(message, "not with all; leave it off"));
    CHECK_NOTHROW(parse({option[0], option[1]}));
  }
  CHECK(contains(refusal({"--selector", "uniform", "--bandit-loss", "paper"}), "not with uniform"));
  CHECK(contains(refusal({"--recipe", "madry", "--budget", "9"}), "not with all"));
  CHECK(contains(file_refusal("selector = \"all\"\nbudget = 9\n"), "not with all"));
  // What an earlier version has written is read.
  CHECK(parse_train_options("selector = \"all\"\nbudget = 9\neval = [\"none\"]\n", "text").budget == 9);
}

TEST_CASE("an option that is given twice counts the last time, with a warning; lists go on") {
  const Parsed command = parse({"--lr", "0.1", "--batch", "7", "--lr", "0.2"});
  CHECK(command.train.lr == 0.2);
  REQUIRE(command.warnings.size() == 1);
  CHECK(command.warnings[0] == "option '--lr' is given twice; the last one counts, '0.2'");
  CHECK(parse({"--lr", "0.1"}).warnings.empty());
  const Parsed lists = parse(
      {"--data", "a", "--data", "b", "--eval", "pgd10", "--eval", "pgd20", "--milestones", "1", "--milestones", "2"});
  CHECK(lists.train.data == std::vector<std::string>{"a", "b"});
  CHECK(lists.train.eval == std::vector<std::string>{"pgd10", "pgd20"});
  CHECK(lists.train.milestones == std::vector<int>{1, 2});
  CHECK(lists.warnings.empty());
  CHECK(parse({"slurm", "--lr", "0.1", "--lr", "0.2"}).slurm.train == std::vector<std::string>{"--lr", "0.2"});
}

TEST_CASE("attacks are suggested as they must be written, and one that attacks nothing is refused") {
  CHECK(contains(refusal({"--attack", "PGD"}), "did you mean 'pgd'?"));
  CHECK(contains(refusal({"--network", "ResNet-18"}), "did you mean 'resnet18'?"));
  for (const std::string word : {"pgd-20", "pgd20", "PGD20", "pgd_20"})
    CHECK(contains(refusal({"--attack", word}), "did you mean '--attack pgd --attack-steps 20'?"));
  for (const std::string word : {"pgd-20", "PGD20", "PGD-20", "pgd_20"}) {
    CHECK(refusal({"--eval", word}) == "--eval has no attack '" + word + "'; did you mean 'pgd20'?");
    CHECK(refusal({"eval", "a", "--eval", word}) == "--eval has no attack '" + word + "'; did you mean 'pgd20'?");
  }
  CHECK(contains(refusal({"--eval", "pdg10"}), "; did you mean 'pgd10'?"));
  CHECK(contains(refusal({"eval", "a", "--eval", "AA-Quick"}), "did you mean 'aa-quick'?"));
  for (const std::string word : {"autoattack", "AutoAttack", "aa", "auto-attack"}) {
    const std::string here = refusal({"eval", "a", "--eval", word}), there = refusal({"--eval", word});
    for (const char* sequence : {"aa-standard", "aa-plus", "aa-rand", "aa-quick"}) CHECK(contains(here, sequence));
    CHECK(contains(there, "dat_hpc eval RUN --eval aa-standard"));
    CHECK(contains(there, "pgd20"));
  }
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--eval", "none"},
                                                {"eval", "a", "--eval", "none"},
                                                {"--eval", "pgd10,none"},
                                                {"slurm", "--eval", "none"}})
    CHECK(
        contains(refusal(words), "--eval none would attack nothing; the accuracy on clean images is told in any case"));
}

TEST_CASE("eval takes a run as its first word, or wherever no list can have meant it") {
  CHECK(parse({"eval", "runs/a"}).eval.checkpoint == "runs/a");
  CHECK(parse({"eval", "runs/a", "--data", "b.h5"}).eval.checkpoint == "runs/a");
  CHECK(parse({"eval", "--split", "train", "runs/a"}).eval.checkpoint == "runs/a");
  const EvalOptions behind = parse({"eval", "--eval", "pgd20", "runs/a"}).eval;
  CHECK(behind.checkpoint == "runs/a");
  CHECK(behind.eval == std::vector<std::string>{"pgd20"});
  const EvalOptions data = parse({"eval", "--data", "b.h5", "/"}).eval;  // a folder
  CHECK(data.checkpoint == "/");
  CHECK(data.data == std::vector<std::string>{"b.h5"});
  CHECK(contains(refusal({"eval", "--data", "a.h5", "b.h5"}), "give it in front of --data"));
  CHECK(parse_file("checkpoint = \"runs/a\"\n", {"eval"}).eval.checkpoint == "runs/a");
  CHECK(parse({"eval", "runs/a", "--checkpoint", "runs/b"}).warnings.size() == 1);
}

TEST_CASE("a GPU may be called so") {
  CHECK(parse({"--device", "gpu"}).train.device == "cuda");
  CHECK(parse({"eval", "a", "--device", "gpu"}).eval.device == "cuda");
  CHECK(parse_file("device = \"gpu\"\n").train.device == "cuda");
  CHECK(contains(refusal({"--device", "GPU"}), "did you mean 'cuda'?"));
}

TEST_CASE("a time that Slurm would not read is refused with the right spelling") {
  for (const auto& [typed, right] : {std::pair{"24h", "24:00:00"},
                                     {"90m", "01:30:00"},
                                     {"2d", "2-00:00:00"},
                                     {"1d12h", "1-12:00:00"},
                                     {"1.5 hours", "01:30:00"},
                                     {"45min", "00:45:00"}})
    CHECK(refusal({"slurm", "--time", typed}) ==
          std::string("--time '") + typed + "' is written --time " + right + " for Slurm");
  for (const char* typed : {"soon", "24 o'clock", "h", "1e300h"})
    CHECK(contains(refusal({"slurm", "--time", typed}), "write [DAYS-]HOURS:MINUTES:SECONDS"));
  CHECK(parse({"slurm", "--time", "1-00:00:00"}).slurm.time == "1-00:00:00");
}

TEST_CASE("what differs from the defaults is told as it is resolved") {
  CHECK(differences_from_defaults(parse({}).train).empty());
  CHECK(differences_from_defaults(parse({"--data", "a.h5"}).train) ==
        std::vector<std::string>{"data = [\"a.h5\"] (default [])"});
  CHECK(differences_from_defaults(parse({"--lr", "0.1", "--data", "a.h5"}).train).at(1) == "lr = 0.1 (default 0.01)");
  const auto fgsm = differences_from_defaults(parse({"--attack", "fgsm"}).train);
  CHECK(fgsm == std::vector<std::string>{"attack = \"fgsm\" (default \"pgd\")",
                                         "alpha = \"10/255\" (default \"2/255\")",
                                         "attack-bn = \"train\" (default \"eval\")", "lambda = 0 (default 1)"});
}

TEST_CASE("what was given is known by name, whoever gave it") {
  CHECK(parse({"--lr", "0.1"}).given == std::set<std::string>{"lr"});
  CHECK(parse_file("width = 16\n", {"--lr", "0.1"}).given == std::set<std::string>{"lr", "width"});
  CHECK(parse({"--recipe", "madry"}).given.contains("network"));
  CHECK(parse({}).given.empty());
}

TEST_CASE("provenance is one JSON object that names build, libraries, hosts and the command line") {
  char program[] = "dat_hpc", option[] = "--out=\xff\"x\"";  // not UTF-8: must not break the file
  char* argv[] = {program, option};
  setenv("OMP_NUM_THREADS", "2", 1);
  const auto json = nlohmann::json::parse(provenance_json({"node1", "node2"}, 2, argv, "cpu: two threads"));
  CHECK(json["ranks"] == 2);
  CHECK(json["hosts"][1] == "node2");
  CHECK(json["backend"] == "cpu: two threads");
  CHECK(json["command_line"].size() == 2);
  CHECK(json["environment"]["OMP_NUM_THREADS"] == "2");
  for (const char* key : {"version", "git_sha1", "git_dirty", "build_type", "compiler", "started", "openmp_threads"}) {
    CHECK(json.contains(key));
  }
  for (const char* library : {"oneDNN", "HDF5", "MPI", "CUDA"}) {
    CHECK(!json["libraries"][library].get<std::string>().empty());
    CHECK(contains(version_text(), library));
  }
}

TEST_CASE("A recipe at another number of ranks than it is written for is another one, and is told what keeps it") {
  TrainOrder order{.options = parse({"--recipe", "madry"}).train, .batch_of_recipe = "madry"};
  CHECK(other_ranks(order, 1).empty());
  CHECK(other_ranks(order, 8) ==
        "recipe madry is written for 1 rank, 128 images a step; 8 ranks of --batch 128 make 1024, which is another "
        "training; --batch 16 keeps it, and so does --total-batch 128");
  CHECK(other_ranks(order, 3).ends_with("a number of ranks that divides 128 keeps it with --total-batch 128"));
  order.options.deterministic = true;  // takes no --total-batch without --micro-batch
  CHECK(other_ranks(order, 8).ends_with("; --batch 16 keeps it"));
  CHECK(other_ranks(order, 3).ends_with("that divides 128 keeps it with --batch 128 divided by it"));
  order.given = {"micro-batch"};
  order.options.micro_batch = 32;
  CHECK(other_ranks(order, 3).ends_with("; --total-batch 128 keeps it"));
  CHECK(other_ranks(order, 8).ends_with(
      "; --batch 16 --micro-batch 16 keeps it, and so does --total-batch 128 --micro-batch 16"));
  TrainOrder harvard{.options = parse({"--recipe", "harvard_mnist"}).train,
                     .given = {"micro-batch"},
                     .batch_of_recipe = "harvard_mnist"};
  CHECK(other_ranks(harvard, 8).ends_with("; --batch 8 keeps it, and so does --total-batch 64"));
  CHECK(other_ranks(harvard, 16)
            .ends_with("; --batch 4 --micro-batch 4 keeps it, and so does --total-batch 64 --micro-batch 4"));
  CHECK(other_ranks(harvard, 3).ends_with("a number of ranks that divides 8 keeps it with --total-batch 64"));
  order = {.options = parse({"--recipe", "madry"}).train, .batch_of_recipe = "madry"};
  order.batch_of_recipe = "dat_pgd";  // mpirun -np 12
  order.options.batch = 2048;
  CHECK(other_ranks(order, 12).empty());
  CHECK(contains(other_ranks(order, 8), "12 ranks, 24576 images a step; 8 ranks of --batch 2048 make 16384"));
  CHECK(recipe_named("harvard_mnist").ranks == 1);  // 8, of which 7 only attack
  CHECK(recipe_named("dat_fgsm_15").ranks == 2);
  // Whoever says the batch knows what it is.
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{{"--batch", "128"}, {}}) {
    std::vector<std::string> words = {"--recipe", "madry"};
    words.insert(words.end(), more.begin(), more.end());
    CommandLine line("train", words, {});
    CHECK(parse_training(line, "").value().batch_of_recipe == (more.empty() ? "madry" : ""));
  }
}

TEST_CASE("A file may begin with the mark of UTF-8, and one in UTF-16 is named as such") {
  CHECK(parse_file("\xEF\xBB\xBFlr = 0.3\n").train.lr == 0.3);
  CHECK(contains(file_refusal("\xFF\xFEl\n"), "UTF-16; save it as UTF-8"));
  CHECK(contains(file_refusal("\xEF\xBB\xBF\xEF\xBB\xBFlr = 0.3\n"), "is no option"));
}

TEST_CASE("Two dashes end the options") {
  CHECK(parse({"--lr", "0.3", "--"}).train.lr == 0.3);
  const ConvertOptions convert = parse({"data", "convert", "--", "-in", "--out.h5"}).convert;
  CHECK(convert.source == "-in");
  CHECK(convert.output == "--out.h5");
  CHECK(parse({"eval", "--data", "a.h5", "b.h5", "--", "run"}).eval.checkpoint == "run");
  CHECK(contains(refusal({"--", "x"}), "unexpected argument 'x'"));
}

TEST_CASE("Numbers are fractions wherever numbers are read") {
  CHECK(parse({"--lr", "1/8"}).train.lr == 0.125);
  CHECK(parse({"--epochs", "15/2", "--warmup-epochs", "15/2"}).train.epochs == 7.5);
  CHECK(parse_file("eps = 4/255\nlr = \"1/8\"\n").train.lr == 0.125);
  CHECK(parse({"--normalize", "125.3/255, 123/255,113.9/255,63/255,62.1/255,66.7/255"}).train.normalize ==
        "125.3/255, 123/255,113.9/255,63/255,62.1/255,66.7/255");
  const Normalization gray = normalization_from("1/4, 1/8");
  CHECK(gray.mean == std::vector<float>{0.25F});
  CHECK(gray.deviation == std::vector<float>{0.125F});
  CHECK(normalization_from("125.3/255,63/255").mean == std::vector<float>{static_cast<float>(125.3 / 255)});
  CHECK(normalization_from("0.4914,0.2471").mean == std::vector<float>{0.4914F});
  for (const char* wrong : {"1/0,1", "1/,1", "0.5", "0.5,0", "0.5,-1/2", "nan,1", "1e60,1"})
    CHECK_THROWS_AS(normalization_from(wrong), Error);
  CHECK(parse({"forecast", "--latency", "1/2, 3/2", "--bandwidth", "1gbit,10gbit"}).forecast.latency ==
        std::vector<double>{0.5, 1.5});
  CHECK(bandwidth_from("1/2GB/s") == 0.5e9);
  CHECK(read_mix("balanced:3/4") == 0.75);
}

TEST_CASE("A word for a value finds its own among those that look like it") {
  CHECK(nearest("resnet50", networks().names()) == "imagenet_resnet50");
  CHECK(nearest("resnet-50", networks().names()) == "imagenet_resnet50");
  CHECK(nearest("wrn_27_10", networks().names()) == "wrn_28_10");
  CHECK(nearest("resnet", networks().names()) == "resnet18");
  CHECK(nearest("trades-awp", {"trades", "trades_awp"}) == "trades_awp");
  CHECK(nearest("trades-x", {"trades", "trades_awp"}) == "trades");
  CHECK(contains(refusal({"--loss", "TRADES_AWP"}), "'--loss trades --awp-gamma 0.005'"));
}
