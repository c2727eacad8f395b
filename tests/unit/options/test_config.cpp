#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "dat/cheat.hpp"
#include "dat/network.hpp"
#include "dat/provenance.hpp"
#include "dat/sampler.hpp"
#include "environment.hpp"
#include "forecast/forecast.hpp"
#include "options/attack_words.hpp"
#include "options/recipes.hpp"
#include "options/train/citations.hpp"
#include "options/values/hints.hpp"
#include "options/values/value.hpp"
#include "parsed.hpp"

using namespace dat;
using dat::test::parse;
using dat::test::parse_line;
using dat::test::Parsed;
using dat::test::words_of;

namespace {

/// The message of the Error(usage) that must be thrown.
std::string refusal(const std::function<void()>& action) {
  return message_of([&] { action(); });
}

std::string refusal(const std::vector<std::string>& arguments) {
  return refusal([&] { parse(arguments); });
}
std::string refusal(const std::string& line) { return refusal(words_of(line)); }

/// Command lines, and a part of the message by which each one is refused.
using Refusals = std::vector<std::pair<std::string, std::string>>;
void check_refused(const Refusals& all) {
  for (const auto& [line, message] : all) {
    const std::string refused = refusal(line);
    INFO(line << ": " << refused);
    CHECK(contains(refused, message));
  }
}

/// The options of a training, which are written down and read again alike.
TrainOptions train(const std::string& line) {
  const Parsed command = parse_line(line);
  INFO(line);
  CHECK(parse_train_options(command.resolved_toml, "text") == command.train);
  return command.train;
}

/// A file that is gone after the test.
struct File : TemporaryFolder {
  explicit File(const std::string& text) { write_bytes(path, text); }
  const std::string path = *this / "config";
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
  const TrainOptions own = parse_line("--data a.h5").train;
  CHECK((own.epochs == 100 && own.warmup_epochs == 5 && own.batch == 128));
  CHECK(parse_line("--data a.h5 --epochs auto").train.epochs == 100);
  CHECK(parse_line("--data a.h5 --epochs 0").train.epochs == 0);
  CHECK(parse_file("data = [\"a.h5\"]\n").train.epochs == 100);
}

TEST_CASE("the first word chooses the verb") {
  const Parsed validate = parse_line("validate --lr 0.5");
  CHECK((validate.verb == "validate" && validate.train.lr == 0.5));
  CHECK(parse_line("--lr 0.5").verb == "train");
  const Parsed eval = parse_line("eval --checkpoint runs/a --eps 4/255 --split train");
  CHECK((eval.verb == "eval" && eval.eval.checkpoint == "runs/a"));
  CHECK((eval.eval.eps == 4.0 / 255 && eval.eval.split == "train"));
  const Parsed convert = parse_line("data convert in out.h5 --label-bytes 2 --classes 100");
  CHECK((convert.verb == "data convert" && convert.convert.source == "in" && convert.convert.output == "out.h5"));
  CHECK((convert.convert.label_bytes == 2 && convert.convert.classes == 100));
  const Parsed synthetic = parse_line("data synthetic set.h5 --train 123 --size 48");
  CHECK((synthetic.verb == "data synthetic" && synthetic.synthetic.output == "set.h5"));
  CHECK((synthetic.synthetic.train == 123 && synthetic.synthetic.size == 48));
  CHECK(parse_line("data inspect a b").inspect.files == std::vector<std::string>{"a", "b"});
  CHECK(parse_line("data inspect a --page a.png").inspect.page == "a.png");
  CHECK(parse_line("eval runs/a --images list.txt").eval.images == "list.txt");
  const Parsed plot = parse_line("plot a b --format png");
  CHECK((plot.verb == "plot" && plot.plot.runs == std::vector<std::string>{"a", "b"}));
  CHECK((plot.plot.format == "png" && plot.plot.out == "plots-compare"));
  CHECK((parse_line("plot a b --out c").plot.out == "c" && parse_line("plot a b --by lr").plot.by == "lr"));
  CHECK(parse_line("plot a --format png --dpi 200").plot.dpi == 200);
  const Parsed bench = parse_line(
      "bench --network small_cnn --width 16 --batch 8 --attack-steps 3 --device cpu --threads 2 --math f32 "
      "--attack-precision f16 --seconds 2.5 --out b --precision bf16 --data a.h5 b.h5 --size 20 --augment crop "
      "--decode fast --data-threads 3");
  CHECK(bench.verb == "bench");
  CHECK(bench.bench == BenchOptions{.network = "small_cnn",
                                    .width = 16,
                                    .batch = 8,
                                    .data = {"a.h5", "b.h5"},
                                    .size = 20,
                                    .augment = "crop",
                                    .decode = "fast",
                                    .data_threads = 3,
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
  CHECK(parse_line("bench").bench == defaults);
  check_refused({{"plot a --out c", "--out is for the comparison of several runs"},
                 {"plot a --by lr", "--by groups several runs"},
                 {"plot a --dpi 200", "--dpi works with --format png, not with svg"},
                 {"compare a --csv --latex", "--csv and --latex are two forms of the same"},
                 {"bench --second 3", "did you mean '--seconds'?"},
                 {"bench --seconds 0", "'--seconds' must be a number"},
                 {"bench --config a.toml", "unknown option '--config'"},
                 {"eval a --recipe madry", "unknown option '--recipe'"},
                 {"certify a --recipe madry", "unknown option '--recipe'"},
                 {"bensh", "did you mean 'bench'?"}});
  for (const std::string reading : {"--augment none", "--decode fast", "--data-threads 3"}) {
    check_refused({{"bench " + reading, "say how --data is read; add --data, or leave them off"}});
    CHECK_NOTHROW(parse_line("bench --data a.h5 " + reading));
  }
  CHECK(parse_line("certify runs/a --weights raw").verb == "certify");
  for (const std::string verb : {"", "plot ", "eval "}) CHECK(parse_line(verb + "--version").verb == "version");
}

TEST_CASE("export and import have their own options") {
  const Parsed out = parse_line("export runs/a --format robustbench --weights raw --evaluation eval.json --out b");
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
  for (const char* suffix : {".pt", ".h5", ".onnx2", ".z"})
    CHECK(contains(refusal({"export", "runs/a", "--out", std::string("b") + suffix}),
                   "name the file .safetensors or .onnx"));
  CHECK(parse_line("export runs/a --out b.pt --format onnx").exported.format == "onnx");
  for (const char* wrong : {"safetensors", "robustbench"})
    CHECK(contains(refusal({"export", "runs/a", "--out", "b.onnx", "--format", wrong}), "leave --format off for onnx"));
  const Parsed in = parse_line(
      "import a.safetensors --network resnet18 --width 32 --activation silu --normalize cifar10 --size 64 --eps 4/255 "
      "--new-head 100 --seed 7 --out b.h5");
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
  for (const auto& [verb, form] : {std::pair("import", "auto|NAME|"), {"bench", "NAME|"}})
    CHECK(contains(parse({verb, "--help", "all"}).text, std::string("  --network ") + form));
  CHECK(parse_line("import a --size auto --new-head none --out b").imported == ImportOptions{.file = "a", .out = "b"});
  check_refused({{"export runs/a", "give --out PATH"},
                 {"export runs/a --format pt --out b", "safetensors, onnx, robustbench"},
                 {"export runs/a --evaluation c --out b", "works with --format robustbench"},
                 {"import a", "give --out PATH"},
                 {"import a --network vgg --out b", "must be one of auto, "},
                 {"import a --normalize 0.5 --out b", "--normalize must be none, "},
                 {"import a --new-head 1 --out b", "of at least 2 and at most 32767 or \"none\""},
                 {"imprt a", "did you mean 'import'?"}});
}

TEST_CASE("forecast has its own options") {
  const Parsed all = parse_line(
      "forecast --calibration c.json --network small_cnn --width 16 --batch 8 --attack fgsm --attack-steps 3 "
      "--lambda 0.5 --attack-precision f16 --precision bf16 --device cpu --threads 2 --math f32 --seconds 5 --ranks "
      "2,4 --ranks 8 "
      "--ranks-per-node 2 --bandwidth 1gbit,2GB/s --latency 50,2.5 --codec float32,int8 --budget 40,30.5 --budget-unit "
      "bytes "
      "--p-min 0.2 --algorithm tree --overlap --bucket 1000 --stale-attack 2 --generators 3 --micro-batch 4 "
      "--staleness 0 --generator-weights bf16 --generator-speed 0.5 --jitter 0.1 --out dir");
  CHECK(all.verb == "forecast");
  ForecastOptions expected;
  std::tie(expected.network, expected.width, expected.batch) = std::tuple("small_cnn", 16, 8);
  std::tie(expected.attack, expected.attack_steps, expected.lambda) = std::tuple("fgsm", 3, 0.5);
  std::tie(expected.attack_precision, expected.precision, expected.math) = std::tuple("f16", "bf16", "f32");
  std::tie(expected.device, expected.threads, expected.seconds) = std::tuple("cpu", 2, 5);
  expected.calibration = "c.json";
  expected.ranks = {2, 4, 8};
  expected.ranks_per_node = 2;
  expected.bandwidth = {"1gbit", "2GB/s"};
  expected.latency = {50, 2.5};
  expected.codec = {"float32", "int8"};
  expected.budget = {40, 30.5};
  expected.budget_unit = "bytes";
  expected.p_min = 0.2;
  std::tie(expected.algorithm, expected.overlap, expected.bucket) = std::tuple("tree", true, 1000);
  std::tie(expected.stale_attack, expected.jitter) = std::tuple(2, 0.1);
  std::tie(expected.generators, expected.micro_batch, expected.staleness) = std::tuple(3, 4, 0);
  std::tie(expected.generator_weights, expected.generator_speed) = std::tuple("bf16", 0.5);
  expected.out = "dir";
  CHECK(all.forecast == expected);
  ForecastOptions plain;
  plain.width = 64;
  plain.lambda = 1;
  plain.bucket = 1 << 20;
  CHECK(parse_line("forecast").forecast == plain);
  CHECK(parse_line("forecast --overlap").forecast.bucket == 1 << 19);
  CHECK(parse_line("forecast --attack none").forecast.lambda == 0);
  CHECK(parse_line("forecast --lambda 0 --latency 30").forecast.lambda == 0);
  CHECK(parse_line("help forecast").text == parse_line("forecast --help").text);
  CHECK(contains(refusal({"forecast", "--ranks", ""}), "--ranks names no number"));
  check_refused({{"forecast --latency 1,2", "--latency takes one number, or one for each"},
                 {"forecast --algorithm star", "must be one of ring, tree"},
                 {"forecast --jitter 2", "'--jitter' must be a number"},
                 {"forecast --generator-speed 0", " above 0, not '0'"},
                 {"forcast", "did you mean 'forecast'?"}});
}

TEST_CASE("a number is written so that it is read back, whatever its size") {
  for (const double value : {0x1p100, 0x1p900, 1e15 + 1.0 / 3, 1e-300, 1.0 / 3, 8.0 / 255, 1234567.0 / 255, 0x1p-60}) {
    double read = 0;
    CAPTURE(value, number_text(value));
    CHECK(read_fraction(number_text(value), read));
    CHECK(read == value);
  }
  CHECK((number_text(123456.2) == "123456.2" && number_text(1234567.2) == "314814636/255"));  // of 8 and 9 characters
  CHECK(!contains(number_text(0x1p53 / 255), "/"));
}

TEST_CASE("noise settles what follows from it") {
  const TrainOptions options =
      train("--noise 0.25 --noise-samples 4 --attack smooth-pgd --norm l2 --eps 0.5 --attack-steps 2");
  CHECK((options.noise == 0.25 && options.noise_samples == 4 && options.alpha == 0.5 && options.lambda == 0));
  CHECK(train("--noise 0.1").lambda == 0);
  CHECK(train("--noise 0.1 --attack fgsm").attack_bn == "eval");
  CHECK(train("--noise 0.1 --attack none --loss kl").noise_samples == 1);
  const char* const ball = "--attack smooth-pgd steps in the L2 ball, and --norm is linf";
  check_refused({{"--attack smooth-pgd", ball},
                 {"--attack pgd,smooth-pgd@2 --noise 0.1", ball},
                 {"--eval smooth-pgd5", "smooth-pgd steps along the gradient in the L2 ball"}});
}

TEST_CASE("what lets one rank decide does not go with an aggregator that withstands false ranks") {
  const TrainOptions options = train("--aggregator centered_clip:mixing:tau=3.5:iterations=20 --faults 2");
  CHECK((options.faults == 2 && ranks_may_be_false(options) && !ranks_may_be_false(train(""))));
  // What follows from other options keeps to that, too: a configuration that was written can be read.
  CHECK(train("--aggregator median --average ema").average_bn == "raw");
  CHECK(contains(refusal("--awp-gamma 0.01 --aggregator median"), "choose --awp local"));
  CHECK_NOTHROW(train("--awp-gamma 0.01 --awp local --aggregator median"));
  // Each rank's gradient is asked for: how it comes there says nothing about its bits.
  for (const std::string transport : {"gather", "butterfly"})
    CHECK_NOTHROW(train("--deterministic --aggregator median --codec-transport " + transport));
  const TrainOptions automatic = train("--aggregator centered_clip:tau=auto --faults 0");
  CHECK((automatic.aggregator_tau == 0 && automatic.faults == 0));
  CHECK(train("--aggregator krum").faults == -1);
}

TEST_CASE("attackers are told how they cheat, all alike or each for itself") {
  const std::string with = "--deterministic --attackers 1,4,7 ";
  const TrainOptions options = train(with + "--cheat delayed:7@5/2,leave@0,leave@9 --aggregator median");
  CHECK(options.attackers == std::vector<int>{1, 4, 7});
  CHECK(options.cheat == std::vector<std::string>{"delayed:7@5/2", "leave@0", "leave@9"});
  CHECK(train(with + "--cheat leave").cheat == std::vector<std::string>{"leave"});
  check_refused({{with, "say how: --cheat alie, "},
                 {with + "--cheat leave,leave", "--cheat has 2 values for 3 attackers"},
                 {with + "--cheat leave@5/2", "who leaves does so once"},
                 {with + "--cheat leave@", "as in sign_flip@200/5"},
                 {with + "--cheat leav", "did you mean 'leave'?"},
                 {"--attackers 1 --cheat leave", "--cheat leave wants --deterministic"},
                 {"--attackers 0 --cheat leave", "rank 0, which holds the run's folder"},
                 {"--attackers 1,2,1 --cheat leave", "names rank 1 twice"}});
}

TEST_CASE("cheats are refused where there is nothing to cheat with") {
  const std::string with = "--attackers 1 --cheat ";
  CHECK(train(with + "delayed:100").cheat == std::vector<std::string>{"delayed:100"});
  for (const std::string name : {"sign_flip", "constant", "delayed", "ipm01", "alie", "mimic", "history", "bit_flip"}) {
    CHECK(contains(refusal(with + name + " --deterministic"), "the sum is one of micro-batches"));
    CHECK_NOTHROW(train(with + name + " --deterministic --aggregator median"));
    CHECK_NOTHROW(train(with + name));
  }
  for (const std::string name : {"label_flip", "weak", "bn_poison"})
    CHECK_NOTHROW(train(with + name + " --deterministic"));
  check_refused({{with + "alie:100", "only delayed has a delay"},
                 {with + "equivocate", "add --byzantine"},
                 {with + "bn_poison --bn-statistics local", "they share none"}});
  for (const std::string name : {"weak", "weak1"})
    check_refused(
        {{with + name + " --attack none", "makes less of an --attack, and there is none"},
         {with + name + " --attack-steps 1,2@3", "give --attack, --attack-steps, --eps and --alpha one value"},
         {with + name + " --warm-start 1", "does not go with --warm-start"},
         {with + name + " --stale-attack 1", "does not go with --stale-attack"},
         {with + name + " --loss pgi", "does not go with --loss pgi"}});
}

TEST_CASE("--precision tf32 is f32, multiplied in TF32, on a GPU, in other words") {
  const TrainOptions tf32 = train("--precision tf32");
  CHECK(tf32 == train("--precision f32 --math tf32 --device cuda"));
  CHECK(train("--precision tf32 --verify 4").precision == "f32");
  CHECK(contains(parse_line("--precision tf32").resolved_toml, "precision = \"f32\"\n"));
  CHECK(parse_train_options("precision = \"tf32\"", "text") == tf32);
  CHECK(parse_line("bench --precision tf32").bench.device == "cuda");
  CHECK(parse_line("forecast --precision tf32").forecast.precision == "f32");
  for (const std::string verb : {"train", "validate", "bench", "forecast", "certify"})
    check_refused({{verb + " --precision tf32 --math f32",
                    "--precision tf32 multiplies in TF32, and not as --math f32 says; leave one of them off"},
                   {verb + " --precision tf32 --device cpu",
                    "--precision tf32 is for GPUs: a CPU has no TF32; take --precision f32, or --device cuda"}});
}

TEST_CASE("--verify is refused with what another rank cannot recompute") {
  CHECK(train("--verify 100").verify == 100);
  for (const std::string option : {"--attack-precision f16", "--precision bf16"}) {
    CHECK_NOTHROW(train(option));
    CHECK(contains(refusal("--verify 100 " + option),
                   "--verify recomputes a micro-batch on another rank, which does not "
                   "work with " +
                       words_of(option)[0] + " of 16 bits"));
  }
  CHECK_NOTHROW(train("--verify 100 --attack-precision f16 --precision f16 --deterministic"));
  CHECK_NOTHROW(train("--generators 1 --attack-precision f16"));
  CHECK(contains(refusal("--generators 1 --attack-precision f16 --deterministic --verify 4"),
                 "does not work with --attack-precision of 16 bits and --generators"));
}

TEST_CASE("the resolved configuration of eval restores every option") {
  const Parsed command = parse_line(
      "eval --checkpoint c.h5 --data d.h5 --split train --limit 7 --eval fgsm,pgd3x2+fgsm --norm l2 "
      "--eps 1/255 --alpha 0.1 --batch 9 --seed 4 --device cpu --threads 2 --quiet --out folder "
      "--save-adversarial --comm-timeout=9");
  CHECK(parse_file(command.resolved_toml, {"eval"}).eval == command.eval);
  CHECK(!(command.eval == EvalOptions{}));
}

TEST_CASE("the norm decides about radii and step sizes") {
  CHECK(train("").norm == "linf");
  const TrainOptions l2 = train("--norm l2 --eps 0.5 --attack-steps 5 --eval pgd20");
  CHECK((l2.norm == "l2" && l2.eval_eps == 0.5));
  CHECK(l2.alpha == 2.5 * 0.5 / 5);  // MadryLab/robustness
  CHECK(l2.eval_alpha == 2.5 * 0.5 / 20);
  CHECK(train("--norm l2 --eps 3 --alpha 1.5").alpha == 1.5);
  CHECK(train("--eps 1").eps == 1);  // all that there is
  CHECK(train("--norm l2 --eps 128/255 --attack fgsm").alpha == 1.25 * (128.0 / 255));
  // Attacks of other numbers of steps have other sizes: none is written down.
  CHECK(train("--norm l2 --eps 0.5 --eval pgd10,pgd20").eval_alpha == 0);
  CHECK(train("--eval pgd10,pgd20").eval_alpha == 2.0 / 255);
  CHECK(parse_line("eval --checkpoint a --norm l2 --eps 0.5").eval.norm == "l2");
  CHECK(parse_line("eval --checkpoint a").eval.norm == "auto");
  check_refused({{"--norm l2", "give its radius, such as --eps 0.5"},
                 {"--eps 8", "--eps 8 is more than 1"},
                 {"--alpha 2", "--alpha 2 is more than 1"},
                 {"--eval-eps 8", "--eval-eps 8 is more than 1"},
                 {"--alpha 1.2", "--alpha 1.2 is more than 1"},
                 {"--eval-alpha 1.2", "--eval-alpha 1.2 is more than 1"}});
  // Steps of an attack's own may be longer than 1, and the resolved configuration says so.
  for (const char* own : {"--attack apgd-ce --eps 0.6", "--attack fgsm --eps 0.9", "--eval apgd-ce --eval-eps 0.6"})
    CHECK_NOTHROW(train(own));
}

TEST_CASE("evaluations have settings of their own, of which only eps follows the training's") {
  const TrainOptions plain = train("--alpha 0.1/255 --eps 4/255 --attack-steps 3");
  CHECK(plain.eval == std::vector<std::string>{"pgd10"});
  CHECK((plain.eval_eps == 4.0 / 255 && plain.eval_alpha == 1.0 / 255));
  CHECK(train("--eval pgd10,pgd20x5 --eval-eps 2/255").eval_alpha == 0.5 / 255);
  for (const auto& [words, resolved] : std::vector<std::pair<std::string, std::string>>{
           {"pgd20,pgd", "pgd20,pgd10"}, {"fgsm,pgd+fgsm", "fgsm,pgd10+fgsm"}, {"aa-standard", "aa-standard"}})
    CHECK(joined(parse_line("eval --checkpoint a --eval " + words).eval.eval, ",") == resolved);
  CHECK(joined(train("--eval apgd-ce,fab-t,square,pgd50-margin,pgd-cw").eval, ",") ==
        "apgd-ce,fab-t,square,pgd50-margin,pgd10-cw");
  check_refused({{"--eval fgsm-margin", "fgsm climbs a loss of its own"},
                 {"eval --checkpoint a --eval aa-quick,pgd+fgsm", "two sequences"},
                 {"--eval aa-quick", "which the verb eval runs"},
                 {"eval --checkpoint a --save-adversarial", "give --out"},
                 {"eval --checkpoint a --eval aa-quick --save-adversarial --out b.json", "give --out"},
                 {"--eval pgd10,pgd", "pgd10 twice"},
                 {"--eval pdg10", "unknown attack 'pdg'; known: apgd-ce, apgd-dlr"},
                 {"--eval pgd0", "no number of steps"},
                 {"--eval pgd20x0", "no number of restarts"},
                 {"--eval fgsm3", "fgsm takes no number of steps"}});
  CHECK(!contains(refusal("--eval pgd0"), "did you mean"));
}

TEST_CASE("the weight of the clean loss is DAT's with pgd, and nothing with its fast form") {
  for (const auto& [line, lambda] : std::vector<std::pair<std::string, double>>{{"--attack pgd", 1},
                                                                                {"--attack fgsm", 0},
                                                                                {"--attack none", 0},
                                                                                {"--attack fgsm --lambda 0.5", 0.5},
                                                                                {"--attack pgd --lambda 0", 0}})
    CHECK(train(line).lambda == lambda);
}

TEST_CASE("each loss has its own weight of the divergence and its own start of the attack") {
  for (const auto& [loss, beta, start] : {std::tuple{"cross_entropy", 0.0, "uniform"},
                                          {"trades", 6.0, "gaussian"},
                                          {"kl", 1.0, "gaussian"},
                                          {"mart", 5.0, "gaussian"},
                                          {"pgi", 10.0, "uniform"},
                                          {"gat", 10.0, "uniform"},
                                          {"nuat", 4.0, "uniform"}}) {
    const TrainOptions options = train(std::string("--loss ") + loss);
    CHECK(options.beta == beta);
    CHECK(options.attack_start == start);
    CHECK(options.lambda == (beta == 0 ? 1 : 0));
  }
  CHECK(train("--loss trades --beta 0").beta == 0);
  CHECK(train("--loss mart --attack-start uniform").attack_start == "uniform");
  // What is taken against the clean images' predictions does not run with batch statistics, fgsm neither.
  CHECK(train("--loss trades --attack fgsm").attack_bn == "eval");
  CHECK(train("--loss mart --attack fgsm").attack_bn == "train");
  check_refused({{"--loss trades --lambda 1", "not with trades, which has --beta; leave it off"},
                 {"--beta 1", "--beta works with --loss "},
                 {"--loss trades --attack-bn train", "climbs the divergence"},
                 {"--loss kl --attack-stop 0", "climbs the divergence"}});
}

TEST_CASE("a loss against where the attack began wants an attack that keeps it") {
  for (const std::string loss : {"pgi", "gat", "nuat"})
    CHECK(train("--attack fgsm --loss " + loss + ":detach").attack_bn == "train");
  CHECK(train("--loss pgi --warm-start 2").warm_start == 2);
  CHECK(train("--loss pgi --attack-stop 1").attack_stop == 1);
  CHECK(train("--loss gat --attack none").attack == "none");
  for (const auto& [options, message] :
       Refusals{{"pgi --attack none", "compares attacked images with those where the attack began"},
                {"pgi --attack apgd-ce", "compares attacked images with those where the attack began"},
                {"pgi --stale-attack 1", "does not go with --stale-attack"},
                {"pgi --awp-gamma 0.01", "does not go with --awp-gamma"},
                {"pgi --generators 1 --staleness 1", "does not go with --generators"},
                {"pgi --eps 0..8/255@0-3", "with an --eps above 0 have"},
                {"pgi:detach --attack-stop 0", "does not go with --attack-stop"},
                {"pgi:detach --staleness 1", "does not go with --staleness"}})
    check_refused({{"--loss " + options, message}});
}

TEST_CASE("the start of an attack and the ball of its steps are those of the papers, unless told otherwise") {
  const TrainOptions n_fgsm = train("--attack fgsm --attack-start uniform:radius=2 --project off --alpha 8/255");
  CHECK((n_fgsm.start_radius == 2 && n_fgsm.project == "off"));
  CHECK((n_fgsm.start_box == "on" && n_fgsm.attack_bn == "train"));
  for (const char* off : {"--attack-start uniform:radius=2:box=off", "--attack fgsm",
                          "--warm-start 2 --attack-start uniform:box=off", "--loss mart --project off"})
    CHECK(train(off).start_box == "off");
  CHECK(train("--attack fgsm --attack-start uniform:radius=0").start_radius == 0);
  for (const char* on : {"--attack-start uniform:radius=0", "--project off"}) CHECK(train(on).start_box == "on");
  check_refused({{"--attack-start gaussian:box=on", "gaussian has no settings"}});
}

TEST_CASE("weights are perturbed the same way on all ranks, or the option says so") {
  const TrainOptions options = train("--awp-gamma 0,0.01@10 --awp local");
  CHECK((options.awp_gamma == 0.01 && options.awp_gamma.at(9) == 0 && options.awp == "local"));
  CHECK(contains(refusal("--awp-gamma 0.01,0@10"), "may begin with 0, but not end with it"));
  CHECK(train("--awp-gamma 0.01 --deterministic").deterministic);
}

TEST_CASE("the resolved configuration has no 'auto' in the place of a number that is known") {
  for (const char* line_of : {"", "--attack fgsm", "--optimizer sgd"}) {
    std::istringstream lines(parse_line(line_of).resolved_toml);
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
  const TrainOptions all = train("--freeze conv2,none@2 --selector all");
  CHECK((all.frozen() == "conv2" && all.frozen_epochs() == 2));
  CHECK(train("--freeze all-but-head --selector oracle").frozen() == "all-but-head");
  for (const char* other : {"conv1,conv2@3", "none,conv1@3", "conv1,none@3,none@4"})
    CHECK(contains(refusal({"--selector", "all", "--freeze", other}), "--freeze may end, and nothing else"));
  CHECK(contains(refusal("--freeze conv2,none@2 --selector exp3"), "--freeze that ends works with --selector all"));
}

TEST_CASE("settings stand in the word of a member that has them") {
  check_refused({{"--optimizer sgd:beta1=0.8", "sgd has no setting 'beta1=0.8'; it has "},
                 {"--optimizer lamb:beta1=0.8:beta1=0.9", "has two values for beta1 of lamb"},
                 {"--average ema:decay=0.9,ema:decay=0.8@3", "has two values for decay of ema"},
                 {"--optimizer lamb:epsilon=8/255", "epsilon of lamb must be a number"},
                 {"--codec float32:4", "float32 has no settings"}});
  CHECK(train("--codec powersgd:4").codec_rank == 4);
  CHECK(train("--codec powersgd:rank=4").codec_rank == 4);
  CHECK(train("--codec powersgd:auto").codec_rank == 0);
  const TrainOptions lamb = train("--optimizer lamb:bias_correction:0.8:epsilon=1e-4:0.99");
  CHECK((lamb.bias_correction && lamb.beta1 == 0.8 && lamb.beta2 == 0.99 && lamb.epsilon == 1e-4));
}

TEST_CASE("the width is the network's own where it is not given") {
  CHECK((train("").width == 64 && train("--network wrn_28_10").width == 160));
  CHECK((train("--network wrn_28_10 --width 32").width == 32 && train("--network dm_wrn_22_8").width == 128));
  CHECK(parse_line("bench --network wrn_34_10").bench.width == 160);
  CHECK(parse_line("forecast").forecast.width == 64);
}

TEST_CASE("a network's activation and normalization are kept as they are given, and checked") {
  CHECK((train("").activation == "relu" && train("--network dm_wrn_22_8").activation == "silu"));
  CHECK(train("--network dm_wrn_22_8 --activation relu").activation == "relu");
  CHECK(train("").normalize == "none");
  CHECK(train("--activation silu --normalize 0.1307,0.3081").normalize == "0.1307,0.3081");
  check_refused({{"--network wrn_29_10", "resnet18, small_cnn, wrn_16_4, "},
                 {"--network wrn_29_10", "not 'wrn_29_10'; did you mean 'wrn_28_10'?"},
                 {"--normalize 0.5", "--normalize must be none, cifar10, cifar100, imagenet, or the means"}});
}

TEST_CASE("what --print-config prints is a configuration file with the same options") {
  const Parsed command = parse_line("--lr 0.3 --data a.h5 --print-config");
  CHECK(command.verb == "print");
  CHECK(parse_file(command.text).train == parse_line("--lr 0.3 --data a.h5").train);
  CHECK(
      command.text.starts_with("# Data\n# files made by 'dat_hpc data', together one pool; none: a built-in synthetic "
                               "set\ndata = [\"a.h5\"]\n# "));
  const std::string plain = parse_line("").resolved_toml;
  CHECK(plain.starts_with("# Data\ndata = []\nmix = \"pool\"\n"));
  CHECK(contains(plain, "\n\n# Network\nnetwork = \"preact_resnet18\"\nwidth = 64\n"));
  CHECK(!contains(plain, "prefetch"));  // a switch that nobody has set
  for (const std::string verb : {"eval", "certify"}) CHECK(parse_line(verb + " --print-config").verb == "print");
}

TEST_CASE("the command line overrides the file") {
  const Parsed command = parse_file("lr = 0.3\nepochs = 9\ndata = [\"a\", \"b\"]\naugment = \"none\"\n",
                                    {"--lr", "0.4", "--data", "c", "--augment", "crop"});
  CHECK((command.train.lr == 0.4 && command.train.epochs == 9 && command.train.augment == "crop"));
  CHECK(command.train.data == std::vector<std::string>{"c"});
  const test::Environment environment("DAT_BUCKET", "7");
  CHECK(parse_file("bucket = 1000\n").train.bucket == 7);
}

TEST_CASE("a file may hold comments, lists over lines, quotes of both kinds and Windows line ends") {
  const TrainOptions o = parse_train_options(
      "# a comment = 1\r\n"
      "milestones = [5, # five\n  6,\n]   # end\n"
      "\tout=\"a#b \\\"c\\\"\"\n"
      "data = 'one\\file'\n"
      "epochs = \"auto\"\n"
      "overlap = true\r\n"
      "resample = 1",
      "text");
  CHECK((o.milestones == std::vector<int>{5, 6} && o.out == "a#b \"c\""));
  CHECK(o.data == std::vector<std::string>{"one\\file"});
  CHECK((o.epochs == 100 && o.overlap && o.resample == "1"));
  const TrainOptions lines = parse_train_options("out = \"a\\tb\\nc\"\n", "text");
  CHECK((lines.out == "a\tb\nc" && parse_train_options(toml_of(lines), "text").out == lines.out));
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
  CHECK(contains(refusal("eval --model a.h5"), "did you mean '--checkpoint'?"));
  CHECK(contains(refusal("eval --epsilon 8/255"), "did you mean '--eps'?"));
  CHECK(contains(file_refusal("learning_rate = 0.1\n"), "did you mean 'lr'?"));
  for (const std::string verb : {"test", "evaluate"})
    CHECK(refusal({verb}) == "unknown verb '" + verb + "'; did you mean 'eval'?");
}

TEST_CASE("averaging is described by options that fit together") {
  const TrainOptions ema = train("--average ema"), swa = train("--average none,swa@55");
  CHECK((train("").average_bn == "raw" && ema.average_bn == "rebuild" && ema.average_decay == 0.995));
  CHECK((swa.average_bn == "rebuild" && swa.average_from() == 55));
  CHECK(train("--average none,ema:decay=0.9@55").average_decay == 0.9);
  CHECK(train("--average swa:bn=ema").average_bn == "ema");
  CHECK(parse_line("eval --checkpoint a.h5").eval.weights == "auto");
  for (const std::string rules : {"ema,none@3", "ema,swa@3", "none,ema@3,swa@9"})
    check_refused({{"--average " + rules, "one rule goes on to the end"}});
  check_refused({{"eval --checkpoint a.h5 --weights swa", "auto, raw, average"}});
}

TEST_CASE("help VERB is VERB --help") {
  for (const std::string verb : {"", "train", "eval", "validate", "data", "data convert", "plot", "bench", "doctor"}) {
    CHECK(parse_line("help " + verb).verb == "print");
    CHECK(parse_line("help " + verb).text == parse_line(verb + " --help").text);
  }
  CHECK(parse_line("help --train").text == parse_line("help train").text);
  CHECK(refusal("help tarin") == "no verb or option is called 'tarin' or speaks of it; did you mean 'train'?");
  CHECK(refusal("halp") == "unknown verb 'halp'; did you mean 'help'?");
}

TEST_CASE("misspelt options and keys are refused with the nearest name") {
  CHECK(refusal("--ltr 0.1") == "unknown option '--ltr'; did you mean '--lr'?");
  CHECK(contains(refusal("--micro_batch=3"), "did you mean '--micro-batch'?"));
  CHECK(contains(refusal("-x"), "unknown option '-x'; see 'dat_hpc train --help'"));
  CHECK(contains(refusal("data convrt"), "did you mean 'convert'?"));
  CHECK(parse_line("--out xlr").train.out == "xlr");  // a value is no name
  CHECK(contains(refusal("--lr -lr"), "not '-lr'"));
  CHECK(contains(refusal("train \u2014\u2013lr 0.1"), "; options begin with two plain dashes: --lr"));
  CHECK(contains(refusal("--overlap -quiet"), "did you mean '--quiet'?"));  // behind a switch, which has no value
  CHECK(contains(refusal("--attack pgdd"), ", not 'pgdd'; did you mean 'pgd'?"));
  CHECK(contains(refusal("--attack pdg"), ", not 'pdg'; did you mean 'pgd'?"));
  CHECK(file_refusal("lr = 0.1\n\n# a comment\nepoch = 3\n") ==
        "FILE:4: 'epoch' is no option of 'dat_hpc train'; did you mean 'epochs'?");
  CHECK(contains(file_refusal("checkpoint = 'a'\n"), "FILE:1: 'checkpoint' is no option"));
  CHECK(contains(file_refusal("config = 'a'\n"), "FILE:1: 'config' is no option"));
  CHECK(file_refusal("buckett = 7\n") == "FILE:1: 'buckett' is no option of 'dat_hpc train'; see its --help");
  // What is an option no more, or in other programs, and stands elsewhere here.
  const std::string setting = "it is a setting: --selector ";
  CHECK(refusal("--bucket 7") == "unknown option '--bucket'; set DAT_BUCKET in the environment");
  CHECK(refusal("--codec-rank 4") == "unknown option '--codec-rank'; it is a setting: --codec powersgd:rank=N");
  CHECK(refusal("--p-min 0.5").starts_with("unknown option '--p-min'; " + setting));
  CHECK(refusal("--p-min 0.5").ends_with(":p_min=NUMBER"));
  CHECK(file_refusal("p-min = 0.5\n").starts_with("FILE:1: 'p-min' is no option of 'dat_hpc train'; " + setting));
}

TEST_CASE("wrong types and values out of range are refused by name, with the range") {
  for (const char* line : {"--batch 1.5", "--batch 12abc", "--resample 0", "--seed -1", "--milestones a,b",
                           "--lr --batch", "--attack-stop auto", "--attackers -1"}) {
    const std::string message = refusal(line), name = words_of(line)[0];
    INFO(message);
    CHECK(contains(message, "option '" + name + "' must be "));
    CHECK(contains(message, "not '"));
  }
  for (const std::string number : {"1.5", "9e15"})  // no whole number, and more than is taken for one
    CHECK(refusal("--max-steps " + number).ends_with(", not '" + number + "'"));
  for (const auto& [text, message] : Refusals{{"lr = 0.1\neps = -2\n", "FILE:2: 'eps' must be a number"},
                                              {"overlap = 1\n", "FILE:1: 'overlap' must be true or false"},
                                              {"batch = \"128\"\n", "FILE:1: 'batch' must stand without quotes"},
                                              {"network = small_cnn\n", "FILE:1: 'network' must stand in quotes"},
                                              {"lr = [0.1]\n", "FILE:1: 'lr' takes one value, not a list"},
                                              {"attack-steps = 1@2\n", "FILE:1: 'attack-steps' must stand in quotes"}})
    CHECK(file_refusal(text).starts_with(message));
  check_refused({{"--lr", "--lr"},
                 {"--loss 5", "not '5'"},
                 {"--resample 0", "one of step, epoch or a whole number of at least 1, not '0'"},
                 {"--max-steps x", "of at least 0 below 2^63, not 'x'"},
                 {"train extra", "unexpected argument 'extra'; see 'dat_hpc train --help'"},
                 {"data convert in", "OUTPUT is required"},
                 {"data", "convert, index, synthetic, inspect"},
                 {"eval", "dat_hpc eval RUN"},
                 {"--config /no/such/file", "'/no/such/file'; check the path given to --config"},
                 {"--config /", "cannot read the configuration file '/'"}});
}

TEST_CASE("limits that were chosen are in force") {
  std::istringstream words(
      "validate size 4 validate train-size 8 validate new-head 2 validate attack-stop 0 validate staleness 0 validate "
      "attackers 0 validate generators 0 validate faults 0 validate noise-samples 1 validate validators 0 validate "
      "milestones 0 validate codec=powersgd:rank 1 forecast train-size 8 forecast ranks 1 forecast ranks-per-node 1 "
      "forecast latency 0 forecast micro-batch 1 forecast staleness 0 eval noise-samples 1 certify attack-steps 0 "
      "certify noise-samples 1 plot+a dpi 20 import+a size 8 data+convert+a+b size 4 data+convert+a+b label-bytes 1 "
      "data+convert+a+b classes 2 data+synthetic+a classes 2 data+synthetic+a size 4 data+index+a+b size 4 "
      "data+index+a+b shard-size 1 slurm gpus-per-node 0 slurm ranks-per-node 1 slurm cpus-per-rank 1");
  for (std::string verb, option, low; words >> verb >> option >> low;) {
    std::ranges::replace(verb, '+', ' ');
    check_refused({{verb + " --" + option + "=+", "of at least " + low + " "}});
  }
  check_refused({{"validate --selector=autofreeze:percentile=+", "of at least 0 and at most 100,"},
                 {"validate --optimizer=lamb:epsilon=+", "above 0 and at most 0.001,"},
                 {"validate --optimizer=sgd:peak_momentum=+", "of at least 0 and below 1 or"},
                 {"validate --on-bad-steps=rollback:lr=+", "above 0 and below 1,"},
                 {"forecast --ranks-per-node=+", "and at most 1048576,"},
                 {"forecast --budget=+", " above 0,"},
                 {"slurm --step-seconds=+", " above 0 and at most "},
                 {"data convert a b --label-bytes=+", "and at most 16 or"}});
  // What stands for the word auto is the default of an option that says what auto is.
  for (const Verb& verb : verbs())
    for (const OptionText& option : verb.parse(CommandLine::asking_for_descriptions()).descriptions.options) {
      INFO(verb.name << " " << option.names.back());
      const std::string about = option.about.substr(0, option.about.find('\n'));
      if (option.label == "PATH...") CHECK(option.several);
      if (option.names.back() != "--resume" && (option.names.back() != "--generators" || verb.name == "forecast"))
        CHECK(contains(about, "auto: ") == (option.standard == "auto"));
    }
}

TEST_CASE("a file that is not plain key = value lines is refused with the line") {
  for (const auto& [text, message] :
       Refusals{{"lr = 0.1\n[train]\n", "FILE:2: there are no sections"},
                {"lr = 0.1\nlr = 0.2\n", "FILE:2: 'lr' is set a second time; keep one of the lines"},
                {"lr\n", "FILE:1: expected 'key = value'"},
                {"lr =\n", "FILE:1: a value is missing"},
                {"lr = 1 2\n", "FILE:1: unexpected text"},
                {"milestones = [1, 2\nlr = 3\n", "FILE:2: expected ',' or ']'"},
                {"\nout = \"a\nlr = 1\n", "FILE:2: a string is not closed"},
                {"out = \"a\\q\"\n", "FILE:1: unknown escape"}})
    CHECK(file_refusal(text).starts_with(message));
}

TEST_CASE("a batch of all ranks has an order of its micro-batches, and nothing that is bound to ranks") {
  const TrainOptions ordered = train("--deterministic --total-batch 96 --micro-batch 12");
  CHECK((ordered.total_batch == 96 && ordered.batch == 0 && sums_are_ordered(ordered)));
  const TrainOptions of_ranks = train("--deterministic --batch 24");
  CHECK((of_ranks.total_batch == 0 && sums_are_ordered(of_ranks) && !sums_are_ordered(train("--batch 24"))));
  CHECK(sums_are_ordered(train("--deterministic --aggregator median")));
  const TrainOptions shared = train("--total-batch 96");  // an equal share for each rank
  CHECK((shared.total_batch == 96 && shared.batch == 0 && shared.micro_batch == 0));
  CHECK(train("--total-batch 96 --micro-batch 12").micro_batch == 12);
  // A recipe's batch gives way, and one that is as near to the user does not.
  const TrainOptions of_recipe = train("--recipe madry --total-batch 256");
  CHECK((of_recipe.total_batch == 256 && of_recipe.batch == 0));
  CHECK(parse_file("batch = 8\n", {"--total-batch", "96"}).train.batch == 0);
  CHECK(parse_file("total-batch = 96\n", {"--batch", "8"}).train.total_batch == 0);
  CHECK(train("--deterministic --total-batch 96").micro_batch == 96);
  CHECK(train("--total-batch 96 --mix balanced:0.5 --data a.h5 --data b.h5").micro_batch == 0);
  check_refused({{"--total-batch 96,48@2 --mix balanced:0.5 --data a.h5 --data b.h5", "add --micro-batch N"},
                 {"--mix balanced:0.5", "needs --data with the labelled file and at least one more"},
                 {"--micro-batch 1 --mix balanced:0.5 --data a.h5 --data b.h5", "cannot hold the share 0.5"},
                 {"--generators auto --calibration c.json --total-batch 96", "add --micro-batch N"},
                 {"--deterministic --total-batch 96 --micro-batch 10", "choose a divisor of it"},
                 {"--deterministic --total-batch 96 --micro-batch 12 --batch 12", "give one of them"}});
}

TEST_CASE("attack, steps, radius and step size may change by epoch") {
  const TrainOptions o = train(
      "--attack none,fgsm@3,pgd@6 --attack-steps 1,2@12 --eps 0..8/255@0-10 --alpha auto,2/255@11 --attack-bn eval");
  CHECK((o.attack.at(2) == "none" && o.attack.at(3) == "fgsm" && o.attack == "pgd"));
  CHECK((o.attack_steps.at(11) == 1 && o.attack_steps.at(12) == 2 && o.attack_steps == 2));
  CHECK((o.eps.at(0) == 0 && o.eps.at(4) == 8.0 / 255 * 4 / 10));
  CHECK((o.eps.at(10) == 8.0 / 255 && o.eps.at(1000) == 8.0 / 255));
  CHECK((o.alpha.at(7) == 0 && o.alpha == 2.0 / 255 && o.eval_eps == 8.0 / 255));
  CHECK((o.in_epoch(3).attack.last() == "fgsm" && !o.in_epoch(3).eps.changes()));
  CHECK(o.epochs_of_change() == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const TrainOptions grown = parse_line("--eps 2/255..4/255@3-5,8/255@7").train;
  CHECK((grown.eps.at(0) == 2.0 / 255 && grown.eps.at(4) == 3.0 / 255));
  CHECK((grown.eps.at(6) == 4.0 / 255 && grown.eps.at(7) == 8.0 / 255));
  CHECK(grown.alpha == 0);  // the attack's own follows
  CHECK(parse_line("--attack fgsm --eps 2/255..8/255@0-2").train.attack_bn == "train");
  CHECK(parse_line("--attack none,fgsm@2").train.attack_bn == "eval");
  // What works with both works with one after the other.
  CHECK(parse_line("--attack pgd,fgsm@2 --attack-start uniform:radius=0").train.start_radius == 0);
  check_refused(
      {{"--attack none,fgsm@2 --attack-start uniform:radius=0", "settings of --attack-start uniform work with"},
       {"--attack pgd,fgsm@2 --attack-stop 1", "--attack-stop works with"},
       {"--attack fgsm,pgd@3 --attack-stop 1", "works with --attack pgd"}});
  for (const TrainOptions& options : {o, grown}) CHECK(options.epochs_of_change().front() == 0);
  const std::string written = parse_line("--eps 2/255..4/255@3-5,8/255@7 --attack-steps 1,2@12").resolved_toml;
  CHECK((contains(written, "eps = \"2/255..4/255@3-5,8/255@7\"") && contains(written, "attack-steps = \"1,2@12\"")));
  const ByEpoch<int> sizes = parse_line("--train-size 24,28@2,auto@6").train.train_size;
  std::vector<int> by_epoch;
  for (int epoch = 0; epoch < 8; ++epoch) by_epoch.push_back(sizes.at(epoch));
  CHECK(by_epoch == std::vector{24, 24, 28, 28, 28, 28, 0, 0});
  CHECK((parse({}).train.train_size == 0 && parse_line("--train-size auto").train.train_size == 0));
  CHECK(parse_file("eps = \"4/255..8/255@0-10\"\n").train.eps.at(5) == 6.0 / 255);
  CHECK(parse_line("--eps 1/255..6/255@0-7").train.eps.at(7) == 6.0 / 255);  // not what the growth is rounded to
}

TEST_CASE("what changes by epoch is refused where it is not written so, or cannot be") {
  for (const std::string line :
       {"--attack-steps 1,2@",    "--attack-steps 1@0,2@0",     "--attack-steps 1,2@5,3@4",
        "--attack-steps 2@3",     "--attack-steps 1,0@3",       "--attack-steps 1..3@0-2",
        "--attack-steps 1,2@3,",  "--attack-steps 1,2@1000000", "--train-size 7,32@1",
        "--train-size 24,5000@1", "--train-size 24,@6",         "--train-size 24,32@-1",
        "--attack none,best@3",   "--eps 1/255..8/255",         "--eps 1/255..8/255@5",
        "--eps 1/255..8/255@5-5", "--eps 1/255..8/255@5-3",     "--eps 1/255..4/255@0-5,8/255@5",
        "--eps 8/255..0@0-5",     "--eps ..8/255@0-5",          "--alpha auto..2/255@0-5",
        "--eps 8/255,0@5",        "--alpha 1/255..auto@0-5"}) {
    const std::vector<std::string> words = words_of(line);
    check_refused(
        {{line, "option '" + words[0] + "' may change by epoch as in "}, {line, "'" + words[1] + "' is not so"}});
  }
  const TrainOptions batches = train("--batch 512,128@12 --micro-batch 32");
  CHECK((batches.batch.at(11) == 512 && batches.batch == 128));
  CHECK(contains(toml_of(batches), "batch = \"512,128@12\""));
  CHECK(train("--batch 512,128@12").micro_batch == 0);
  CHECK(train("--eps 2/255..8/255@0-3 --staleness 2").staleness == 2);
  CHECK(train("--attack pgd,fgsm@2 --warm-start 2").warm_start == 2);
  const std::string changing = "--batch 512,128@12 ";
  check_refused({{"--eps 1..8@0-3", "grey levels are written as 8/255"},
                 {"--eps 8..1@0-3", "grey levels are written as 8/255"},
                 {"--attack pgd,none@3", "but not end with it"},
                 {"--eps 0..8/255@0-3 --warm-start 2", "does not go with --warm-start"},
                 {"--attack none,pgd@3 --staleness 2", "does not go with --warm-start"},
                 {"--eps 0..8/255@0-3 --stale-attack 1", "does not go with --warm-start"},
                 {"--attack-steps 1,2@3 --staleness 2", "not --attack and --attack-steps"},
                 {"--attack-steps 1,4@3 --stale-attack 2", "more than the 1 iterations"},
                 {changing + "--micro-batch 256", "--batch 128 is no multiple of --micro-batch 256"},
                 {changing + "--max-steps 9", "does not go with --max-steps"},
                 {changing + "--generators 1 --attack pgd", "does not go with --generators"},
                 {changing + "--generators auto", "does not go with --generators"},
                 {changing + "--attackers 1 --cheat alie", "does not go with --attackers"},
                 {changing + "--deterministic", "add --micro-batch N"},
                 {changing + "--micro-batch 32 --byzantine --deterministic --aggregator centered_clip",
                  "--batch that changes by epoch does not go with --byzantine"},
                 {"--total-batch 96,48@2 --max-steps 9", "--total-batch that changes by epoch does not go with --max-"},
                 {"--total-batch 512,auto@3", "a number in each of them"},
                 {"--batch 512,auto@3", "a number in each of them"}});
}

TEST_CASE("options that do not fit together are refused") {
  check_refused({{"--batch 128 --micro-batch 100", "--micro-batch 100"},
                 {"--milestones 90,75", "--milestones must increase"},
                 {"--milestones 75,75", "--milestones must increase"},
                 {"--epochs 0 --warmup-epochs 0", "nothing to train"},
                 {"--epochs 8 --warmup-epochs 7.5", "together are 15.5 epochs"},
                 {"--epochs 8 --warmup-epochs 7.5", "choose --epochs 8.5"},
                 {"--epochs 1000000000.5", "together are 1000000001.5 epochs"},
                 {"--staleness 2 --attack none", "--attack none makes none"},
                 {"--generators auto", "is forecast from --calibration FILE"},
                 {"--generators 1 --attack fgsm", "unless --attack-bn eval says otherwise"},
                 {"--byzantine --aggregator centered_clip", "--byzantine wants --deterministic"},
                 {"--byzantine --deterministic --aggregator centered_clip --codec-transport gather",
                  "--codec-transport butterfly, and gather is asked for"},
                 {"--stale-attack 11", "more than the 10 iterations"}});
  for (const std::string some : {"--generators 1 ", "--generators auto --calibration c.json "})
    for (const char* other :
         {"--loss pgi", "--noise 0.1", "--eps 0,8/255@2", "--attack-steps 1,2@2", "--attack fgsm,pgd@2"})
      check_refused({{some + other, "--generators"}});
  // What is taken together.
  CHECK(train("--epochs 7.7 --warmup-epochs 7.3").warmup_epochs == 7.3);
  CHECK(train("--epochs 3.333333333 --warmup-epochs 1.666666666").epochs == 3.333333333);  // 5, but for digits
  CHECK((train("--warm-start 5 --attack fgsm").warm_start == 5 && train("--attack none").warm_start == 0));
  CHECK(train("--selector freezeout:t0=0.5:schedule=squared").importance == "outside");
  CHECK(train("--selector freezeout:lr=constant").importance == "inside");
  CHECK(train("--attack-stop 1 --attack-bn eval").attack_stop == 1);
  CHECK((train("--stale-attack 10").stale_attack == 10 && train("--staleness 4").staleness == 4));
  CHECK(train("--generators 3 --staleness 2").generators == 3);
  CHECK(train("--generators 3 --attack fgsm --attack-bn eval").generators == 3);
  CHECK(train("--generators auto --calibration c.json").generators == -1);
  CHECK(train("--generators 2 --generator-weights bf16").generator_weights == "bf16");
  CHECK(train("--batch 128 --micro-batch 32").micro_batch == 32);
  // A forecast may say that there are none.
  TrainOptions none = train("--generators auto --calibration c.json --generator-weights bf16");
  none.generators = 0;
  none.calibration.clear();
  put_back_unused(none);
  CHECK(none.generator_weights == "f32");
  CHECK(parse_train_options(toml_of(none), "text") == none);
  test::Environment passes("DAT_ATTACK_BATCH", "1");
  const TrainOptions single = train("--weight-decay 0");
  CHECK((single.attack_batch == 1 && single.weight_decay == 0));
  passes.set("DAT_ATTACK_BATCH", "17");
  check_refused({{"", "DAT_ATTACK_BATCH=17 is more than the micro-batch of 16 images"}});
  CHECK(train("--total-batch 96").attack_batch == 17);  // ranks have not been dealt their parts
}

TEST_CASE("the help of every verb names its options and defaults in at most 80 columns") {
  for (const std::string verb :
       {"", "train", "eval", "validate", "data", "data convert", "data synthetic", "data inspect", "export", "import",
        "status", "plot", "compare", "slurm", "bench", "forecast", "doctor"})
    for (const std::string topic : {"", " all"}) {
      const Parsed command = parse_line(verb + " --help" + topic);
      CHECK(command.verb == "print");
      CHECK((command.text.size() > 200 && !command.text.starts_with(' ')));
      std::istringstream lines(command.text);
      for (std::string line; std::getline(lines, line);) {
        INFO(line);
        CHECK(line.size() <= 80);
      }
      CHECK(!contains(command.text, "\n\n\n"));
    }
  CHECK(contains(parse_line("data synthetic --help").text, "\n  OUTPUT" + std::string(22, ' ') + "the file to write"));
  const std::string all = parse_line("--help all").text;
  for (const char* part : {"[8/255]", "[preact_resnet18]", "[75,90,95]", "[auto]", "Data:", "JointSpar:", "Run:"})
    CHECK(contains(all, part));
}

namespace {

std::int64_t lines_in(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

TEST_CASE("the first screen fits on a screen, and names every verb and the way to every option") {
  const std::string first = parse_line("--help").text;
  for (const char* line : {"help", "-h", "--help="}) CHECK(first == parse_line(line).text);
  CHECK(lines_in(first) <= 45);
  const std::string data = parse_line("data --help").text;
  for (const char* part : {"\nUsage: dat_hpc data convert ", "\n       dat_hpc data inspect ",
                           "\n  inspect      describe data files\n", "\ndat_hpc data convert --help and so on show"})
    CHECK(contains(data, part));
  for (const char* verb : {"train", "eval", "validate", "data convert", "data synthetic", "data inspect", "status",
                           "plot", "compare", "bench", "doctor", "slurm", "forecast", "export", "import"})
    CHECK(contains(first, "\n  " + std::string(verb) + " "));
  for (const char* part : {"--help all", "--help WORD", "--recipe NAME", "Exit codes", "\n  data synthetic    write a"})
    CHECK(contains(first, part));
  CHECK(parse_line("--help all").text == parse_line("train --help all").text);
  CHECK(parse_line("--help eval").text == parse_line("eval --help").text);
  CHECK(parse_line("help data").text == data);
}

TEST_CASE("the short help of train fits on two screens and says what a bare train is") {
  const std::string help = parse_line("train --help").text;
  CHECK(lines_in(help) <= 80);
  CHECK(contains(help, "LAMB with JointSpar"));
  CHECK(contains(help, "all layers in each step.\nUsage: dat_hpc train "));
  CHECK(contains(help, "--recipe madry"));
  CHECK(contains(help, "dat_hpc train --help all shows every one"));
  const auto options = verbs().front().parse(CommandLine::asking_for_descriptions()).descriptions.options;
  CHECK(contains(help, "\n\nThese are 23 of " + std::to_string(options.size()) + " options."));
  CHECK(contains(help, "\n  --lr NUMBER                 learning rate at the end of the warm-up [0.01]\n"));
  const auto option = [&](const std::string& name) {
    return *std::ranges::find_if(options, [&](const OptionText& one) { return one.names.back() == name; });
  };
  CHECK((option("--epochs").values == std::vector<std::string>{"auto"} && option("--lr").values.empty()));
  CHECK((option("--cheat").values == cheats().names() && option("--quiet").label.empty()));
  const std::string all = parse_line("train --help all").text;
  CHECK((contains(all, "--budget-unit") && !contains(all, "These are ")));
  std::istringstream lines(all);
  std::string groups;
  for (std::string line; std::getline(lines, line);)
    if (line.ends_with(':') && line[0] != ' ') groups += line;
  CHECK(groups ==
        "Options:Data:Network:Attack:Loss:Evaluation:Optimizer:Schedule:JointSpar:Reduction:Generators:"
        "Byzantine ranks, simulated:Run:Machine:Checks:");
  CHECK(!contains(help, "--budget-unit"));
  CHECK(parse_line("--lr 0.3 --help").text == help);
}

TEST_CASE("--help WORD shows the options in which the word occurs, of any verb") {
  const std::string milestones = parse_line("train --help milestone").text;
  CHECK((contains(milestones, "--milestones") && !contains(milestones, "--momentum")));
  CHECK(contains(milestones, "--schedule"));  // whose description speaks of them
  for (const char* line : {"train --help --MILESTONE", "train --help=milestone", "help train milestone",
                           "help milestone"})  // without those who take the options of train
    CHECK(parse_line(line).text == milestones);
  CHECK(parse_line("help data convert classes").text == parse_line("data convert --help classes").text);
  CHECK(contains(parse_line("train --help jointspar").text, "--selector"));  // by the group
  CHECK(contains(parse_line("train --help trades").text, "--loss"));         // by the values
}

TEST_CASE("a word that the help does not know is refused with the nearest option") {
  CHECK(contains(refusal("train --help milestnes"), "did you mean '--milestones'?"));
  CHECK(contains(refusal("bench --help budget"), "no option of 'dat_hpc bench' has 'budget'"));
  // Without a verb, those of train, and who else has any.
  const std::string all = parse_line("--help jitter").text;
  CHECK(all == "Also: dat_hpc forecast --help jitter\n");
  CHECK(parse_line("--help --jitter").text == all);
  CHECK(parse_line("help seconds")
            .text.ends_with(".\n\nAlso: dat_hpc eval --help seconds, dat_hpc certify --help seconds, dat_hpc bench\n"
                            "      --help seconds, dat_hpc forecast --help seconds\n"));
  CHECK(contains(parse_line("help milestones").text, "--milestones"));
  CHECK(contains(refusal("--help milestnes"), "did you mean '--milestones'?"));
  CHECK(contains(refusal("--help xyzzy"), "'dat_hpc train --help all' shows every option"));
}

TEST_CASE("recipes are options between the defaults and the file") {
  const TrainOptions madry = parse_line("--recipe madry").train;
  CHECK(
      (madry.optimizer == "sgd" && madry.selector == "all" && madry.weight_decay == 2e-4 && madry.max_steps == 80000));
  const File file("lr = 0.3\nselector = \"uniform\"\n");
  const TrainOptions all = parse({"--recipe", "madry", "--config", file.path, "--selector", "oracle"}).train;
  CHECK(all.lr == 0.3);             // the file over the recipe
  CHECK(all.selector == "oracle");  // the command line over both
  CHECK(all.weight_decay == 2e-4);
  CHECK(parse_file(parse_line("--recipe trades").resolved_toml).train == parse_line("--recipe trades").train);
  CHECK(parse_line("validate --recipe fast_adversarial").train.lr == 0.2);
  CHECK(parse_line("slurm --recipe fast_adversarial --lr 0.1").slurm.train ==
        std::vector<std::string>{"--recipe", "fast_adversarial", "--lr", "0.1"});
  CHECK(parse_line("slurm --cite").text == parse_line("train --cite").text);
  CHECK(refusal("--recipe madri") == "there is no recipe 'madri'; did you mean 'madry'?");
  CHECK(contains(refusal("--recipe jobs/madri.toml"), "--config takes a file, --recipe a name; did you mean 'madry'?"));
  CHECK(contains(refusal("--recipe resnet"), "--recipe list names all"));
  CHECK(contains(refusal("--config madry"), "did you mean --recipe madry?"));
  for (const std::string name : {"--config", "--recipe"})
    CHECK(refusal({name, ""}) == name + " '' names nothing; leave it off");
  const Parsed list = parse_line("--recipe list");
  CHECK(list.verb == "print");
  // Columns as wide as their longest words, and two blanks.
  std::size_t name = 0, cost = 0;
  for (const Recipe& one : recipes()) {
    name = std::max(name, one.name.size() + 2);
    cost = std::max(cost, one.cost.size() + 2);
  }
  std::string lines;
  for (const Recipe& one : recipes())
    lines += one.name + std::string(name - one.name.size(), ' ') + one.cost + std::string(cost - one.cost.size(), ' ') +
             one.about + "\n";
  CHECK(list.text.starts_with(lines + "\nPasses are "));
  CHECK(contains(list.text, "11 passes x 205 epochs"));
  CHECK(contains(list.text, "Madry et al., ICLR 2018"));
}

TEST_CASE("a selector over a recipe of another one drops its options; together they are refused") {
  const TrainOptions all = parse_line("--recipe tudelft_jointspar --selector all").train;
  CHECK((all.p_min == TrainOptions{}.p_min && all.resample == TrainOptions{}.resample));
  CHECK(parse_file(parse_line("--recipe tudelft_jointspar --selector all").resolved_toml).train == all);
  CHECK(contains(refusal("--selector uniform:loss=paper"), "uniform has no setting"));
  CHECK(contains(refusal("--recipe madry --budget 9"), "not with all"));
  CHECK(contains(file_refusal("selector = \"all\"\nbudget = 9\n"), "not with all"));
  CHECK(parse_train_options("selector = \"all\"\nbudget = 9\n", "a run").budget == 9);  // as it was written
  CHECK(contains(refusal([] { (void)parse_train_options("warm-start = 2\naugment = \"resized\"\n", "a run"); }),
                 "--warm-start keeps perturbations of pixels"));
}

TEST_CASE("an option that is given twice counts the last time, with a warning; lists go on") {
  const Parsed command = parse_line("--lr 0.1 --batch 7 --lr 0.2");
  CHECK(command.train.lr == 0.2);
  CHECK(command.warnings == std::vector<std::string>{"option '--lr' is given twice; the last one counts, '0.2'"});
  CHECK(parse_line("--lr 0.1").warnings.empty());
  CHECK(parse_line("--recipe trades --recipe madry").warnings.size() == 1);
  CHECK(parse_line("--recipe madry --recipe trades --recipe madry").warnings ==
        std::vector<std::string>{"option '--recipe' is given 3 times; the last one counts, 'madry'"});
  const Parsed lists = parse(
      {"--data", "a", "--data", "b", "--eval", "pgd10", "--eval", "pgd20", "--milestones", "1", "--milestones", "2"});
  CHECK(lists.train.data == std::vector<std::string>{"a", "b"});
  CHECK(lists.train.eval == std::vector<std::string>{"pgd10", "pgd20"});
  CHECK((lists.train.milestones == std::vector<int>{1, 2} && lists.warnings.empty()));
  CHECK(parse_line("slurm --lr 0.1 --lr 0.2").slurm.train == std::vector<std::string>{"--lr", "0.2"});
}

TEST_CASE("attacks are suggested as they must be written, and one that attacks nothing is refused") {
  CHECK(contains(refusal("--attack PGD"), "did you mean 'pgd'?"));
  CHECK(contains(refusal("--network ResNet-18"), "did you mean 'resnet18'?"));
  for (const std::string word : {"pgd-20", "pgd20", "PGD20", "pgd_20"})
    CHECK(contains(refusal({"--attack", word}), "did you mean '--attack pgd --attack-steps 20'?"));
  for (const std::string word : {"pgd-20", "PGD20", "PGD-20", "pgd_20"}) {
    CHECK(refusal({"--eval", word}) == "--eval has no attack '" + word + "'; did you mean 'pgd20'?");
    CHECK(refusal({"eval", "a", "--eval", word}) == "--eval has no attack '" + word + "'; did you mean 'pgd20'?");
  }
  CHECK(contains(refusal("--eval pdg10"), "; did you mean 'pgd10'?"));
  CHECK(!contains(refusal("--attack pgd20x5"), "--attack-steps"));
  CHECK(refusal("eval a --eval pgd-20+FGSM") == "--eval has no attack 'pgd-20+FGSM'; did you mean 'pgd20+fgsm'?");
  CHECK(contains(refusal("--eval pgd20+zzz"), " is a sequence of attacks, which the verb eval runs"));
  const std::string nobody = refusal("eval a --eval pgd-20+zzz");
  CHECK((nobody.starts_with("--eval: ") && !contains(nobody, "did you mean")));
  CHECK(contains(refusal("eval a --eval AA_Quick"), "did you mean 'aa-quick'?"));
  CHECK(contains(refusal("eval a --eval pgd20x-5"), "did you mean 'pgd20x5'?"));
  for (const std::string word : {"autoattack", "AutoAttack", "aa", "auto-attack"}) {
    const std::string here = refusal({"eval", "a", "--eval", word}), there = refusal({"--eval", word});
    for (const char* sequence : {"aa-standard", "aa-plus", "aa-rand", "aa-quick"}) CHECK(contains(here, sequence));
    CHECK(contains(there, "dat_hpc eval RUN --eval aa-standard"));
    CHECK(contains(there, "pgd20"));
  }
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--eval", "none"},
                                                {"eval", "a", "--eval", "none"},
                                                {"eval", "--eval", "none"},
                                                {"--eval", "pgd10,none"},
                                                {"slurm", "--eval", "none"}})
    CHECK(
        contains(refusal(words), "--eval none would attack nothing; the accuracy on clean images is told in any case"));
  CHECK(contains(refusal(std::vector<std::string>{"--eval", ""}), "--eval names no attack"));
  CHECK(!is_one_of("none", single_attacks()));
}

TEST_CASE("eval takes a run as its first word, or wherever no list can have meant it") {
  CHECK(parse_line("eval runs/a").eval.checkpoint == "runs/a");
  CHECK(parse_line("eval runs/a --data b.h5").eval.checkpoint == "runs/a");
  CHECK(parse_line("eval --split train runs/a").eval.checkpoint == "runs/a");
  const EvalOptions behind = parse_line("eval --eval pgd20 runs/a").eval;
  CHECK((behind.checkpoint == "runs/a" && behind.eval == std::vector<std::string>{"pgd20"}));
  const EvalOptions data = parse_line("eval --data b.h5 /").eval;  // a folder
  CHECK((data.checkpoint == "/" && data.data == std::vector<std::string>{"b.h5"}));
  check_refused({{"eval --data a.h5 b.h5", "give it in front of --data"}, {"eval --data /", "eval needs a network"}});
  CHECK(contains(refusal("eval --eval pgd20 fgsm"), "eval needs a network"));
  CHECK(parse_file("checkpoint = \"runs/a\"\n", {"eval"}).eval.checkpoint == "runs/a");
  CHECK(parse_line("eval runs/a --checkpoint runs/b").warnings.size() == 1);
}

TEST_CASE("a GPU may be called so") {
  CHECK((parse_line("--device gpu").train.device == "cuda" && parse_line("eval a --device gpu").eval.device == "cuda"));
  CHECK(parse_file("device = \"gpu\"\n").train.device == "cuda");
  CHECK(contains(refusal("--device GPU"), "did you mean 'cuda'?"));
}

TEST_CASE("a time that Slurm would not read is refused with the right spelling") {
  for (const auto& [typed, right] : {std::pair{"24h", "24:00:00"},
                                     {"90m", "01:30:00"},
                                     {"2d", "2-00:00:00"},
                                     {"1d12h", "1-12:00:00"},
                                     {"1.5 hours", "01:30:00"},
                                     {"45min", "00:45:00"},
                                     {"1 day 1s", "1-00:00:01"},
                                     {"23h59m0.5s", "23:59:01"},
                                     {"1s", "00:00:01"},
                                     {"90 seconds", "00:01:30"}})
    CHECK(refusal({"slurm", "--time", typed}) ==
          std::string("--time '") + typed + "' is written --time " + right + " for Slurm");
  for (const char* typed : {"soon", "24 o'clock", "3 weeks", "1h 3 weeks", "h", "1h m", "1e300h", "0.5s"})
    CHECK(contains(refusal({"slurm", "--time", typed}), "write [DAYS-]HOURS:MINUTES:SECONDS"));
  CHECK(parse_line("slurm --time 1-00:00:00").slurm.time == "1-00:00:00");
}

TEST_CASE("a script reserves GPUs, whose buffers are not the host's") {
  const Parsed parsed = parse_line("slurm --network small_cnn --width 16 --warm-start 5");
  SlurmOrder order{.job = parsed.slurm, .training = {.options = parsed.train}};
  order.job.gpus_per_node = order.job.ranks_per_node = 2;
  // 1,024 training images of 768 bytes, half of which a rank keeps, and the first one all of them twice; 256 others.
  CHECK(contains(script_of(order),
                 "# Memory of a rank: 1.0 MB of images, 0.4 MB of buffers, 6000.0 MB for the process "
                 "with CUDA; more on rank 0 while it reads a checkpoint.\n"
                 "# Of the GPU: what dat_hpc validate prints where the GPU is.\n#\n"));
  CHECK(contains(script_of(order), "#SBATCH --cpus-per-task=8\n#SBATCH --gpus-per-node=2\n#SBATCH --mem=11449M\n"));
}

TEST_CASE("what differs from the defaults is told as it is resolved") {
  CHECK(differences_from_defaults(parse({}).train).empty());
  CHECK(differences_from_defaults(parse_line("--data a.h5").train) ==
        std::vector<std::string>{"data = [\"a.h5\"] (default [])"});
  CHECK(differences_from_defaults(parse_line("--lr 0.1 --data a.h5").train).at(1) == "lr = 0.1 (default 0.01)");
  CHECK(differences_from_defaults(parse_line("--lr 0.1 --data a.h5 --out b --resume c").train, false) ==
        std::vector<std::string>{"lr = 0.1 (default 0.01)"});
  const auto fgsm = differences_from_defaults(parse_line("--attack fgsm").train);
  CHECK(fgsm == std::vector<std::string>{"attack = \"fgsm\" (default \"pgd\")",
                                         "alpha = \"10/255\" (default \"2/255\")",
                                         "attack-bn = \"train\" (default \"eval\")", "lambda = 0 (default 1)"});
  CHECK(differences_from_defaults(parse_line("--optimizer lamb:beta1=0.75").train) ==
        std::vector<std::string>{"optimizer = \"lamb:beta1=0.75\" (default \"lamb\")"});
}

TEST_CASE("publications are behind members of all families, and behind options that are asked for") {
  TrainOptions options =
      parse_line("--schedule one_cycle --warm-start 2 --average none,swa@1 --eval pgd10,pgd20,square").train;
  options.codec = "int8";
  options.aggregator = "krum";
  std::string all;
  for (const auto& [what, publication] : citations(options)) all += what + "; ";
  CHECK(all ==
        "distributed adversarial training; network preact_resnet18; attack pgd, eval pgd; optimizer lamb; schedule "
        "one_cycle; average swa; selector exp3; codec int8; aggregator krum; warm-start 2; eval square; ");
  CHECK(contains(citations_text(options), " Training to Robustify Deep Neural\n    Networks at Scale"));
}

TEST_CASE("what was given is known by name, whoever gave it") {
  CHECK(parse_line("--lr 0.1").given == std::set<std::string>{"lr"});
  CHECK(parse_file("width = 16\n", {"--lr", "0.1"}).given == std::set<std::string>{"lr", "width"});
  CHECK((parse_line("--recipe madry").given.contains("network") && parse({}).given.empty()));
}

TEST_CASE("provenance is one JSON object that names build, libraries, hosts and the command line") {
  char program[] = "dat_hpc", option[] = "--out=\xff\"x\"";  // not UTF-8: must not break the file
  char* argv[] = {program, option};
  setenv("OMP_NUM_THREADS", "2", 1);
  const auto json = nlohmann::json::parse(provenance_json({"node1", "node2"}, 2, argv, "cpu: two threads"));
  CHECK((json["ranks"] == 2 && json["hosts"][1] == "node2" && json["backend"] == "cpu: two threads"));
  CHECK(json["command_line"].size() == 2);
  CHECK(json["environment"]["OMP_NUM_THREADS"] == "2");
  CHECK((!json["environment"].contains("PATH") && !json.contains("hashes_of_images")));
  const std::string sha1 = json["git_sha1"];
  CHECK(commit() == sha1 + (json["git_dirty"] ? "-dirty" : ""));
  CHECK(json["started"].get<std::string>().size() == std::strlen("2026-11-29T13:00:00Z"));
  const auto told = [](const nlohmann::json& text) { return text.get<std::string>(); };
  std::string text = "dat_hpc " + told(json["version"]) + "\ncommit    " + sha1 +
                     (json["git_dirty"] ? " (with local changes)" : "") + "\nbuild     " + told(json["build_type"]) +
                     "\ncompiler  " + told(json["compiler"]);
  for (const std::string library : {"oneDNN", "HDF5", "MPI", "CUDA"}) {
    CHECK(!told(json["libraries"][library]).empty());
    text += "\n" + library + std::string(10 - library.size(), ' ') + told(json["libraries"][library]);
  }
  CHECK(version_text() == text + "\nOpenMP    " + json["openmp_threads"].dump() + " threads\n");
}

TEST_CASE("A recipe says how many images all ranks have in a step, and what differs from it is told") {
  for (const Recipe& recipe : recipes()) {
    INFO(recipe.name);
    const TrainOptions all = parse({"--recipe", recipe.name}).train;
    CHECK(!(all.total_batch == 0));
    CHECK(all.batch == 0);
  }
  CHECK(differences_from_recipe(parse_line("--recipe madry --data a.h5 --out b").train, "madry").empty());
  CHECK(differences_from_recipe(parse_line("--recipe madry --batch 64 --lr 0.3").train, "madry") ==
        std::vector<std::string>{"lr = 0.3 (recipe 0.1)", "batch = 64 (recipe \"auto\")",
                                 "total-batch = \"auto\" (recipe 128)", "micro-batch = 64 (recipe \"auto\")"});
  // One micro-batch is dealt with --deterministic: the same at any number of ranks that can be.
  CHECK(parse_line("--recipe madry --deterministic").train.micro_batch == 128);
}

TEST_CASE("A file may begin with the mark of UTF-8, and one in UTF-16 is named as such") {
  CHECK(parse_file("\xEF\xBB\xBFlr = 0.3\n").train.lr == 0.3);
  CHECK(contains(file_refusal("\xFF\xFEl\n"), "UTF-16; save it as UTF-8"));
  CHECK(contains(file_refusal("\xEF\xBB\xBF\xEF\xBB\xBFlr = 0.3\n"), "is no option"));
}

TEST_CASE("Who trains catches signals; of other ranks than the first, verbs alone speak of their command lines") {
  const test::Environment rank("OMPI_COMM_WORLD_RANK", "1");
  std::string found;
  for (const std::string line : {"", "-q eval", "train a", "eval", "eval -q", "data", "doctor data"}) {
    std::vector<const char*> argv = {"dat_hpc"};
    const std::vector<std::string> words = words_of(line);
    for (const std::string& word : words) argv.push_back(word.c_str());
    argv.push_back(nullptr);
    const auto argc = static_cast<int>(words.size()) + 1;
    found += std::string(trains(argc, argv.data()) ? "trains" : "") + (speaks(argc, argv.data()) ? "speaks " : " ");
  }
  CHECK(found == "trains trains trains   speaks  ");
}

TEST_CASE("Two dashes end the options") {
  CHECK(parse_line("--lr 0.3 --").train.lr == 0.3);
  CHECK(parse_line("--overlap --").train.overlap);
  const ConvertOptions convert = parse_line("data convert -- -in --out.h5").convert;
  CHECK((convert.source == "-in" && convert.output == "--out.h5"));
  for (const std::string before : {"--data a.h5 b.h5", "--limit 3", "-q"})
    CHECK(parse_line("eval " + before + " -- run").eval.checkpoint == "run");
  check_refused({{"-- x", "unexpected argument 'x'"},
                 {"--data a.h5 b.h5 -- --lr 0.77", "after '--' there are no options"},
                 {"--lr -- 3", "option '--lr' has no value after it"},
                 {"--zzz -- x", "unknown option '--zzz'"}});
}

TEST_CASE("Numbers are fractions wherever numbers are read") {
  CHECK(parse_line("--lr 1/8").train.lr == 0.125);
  CHECK(parse_line("--eps=4/255").train.eps == 4.0 / 255);
  for (const std::string wrong : {"1/0", "1/2/3", "nan"}) CHECK(contains(refusal("--lr " + wrong), "'" + wrong + "'"));
  CHECK(parse_line("--epochs 15/2 --warmup-epochs 15/2").train.epochs == 7.5);
  CHECK(parse_file("eps = 4/255\nlr = \"1/8\"\n").train.lr == 0.125);
  CHECK(parse({"--normalize", "125.3/255, 123/255,113.9/255,63/255,62.1/255,66.7/255"}).train.normalize ==
        "125.3/255, 123/255,113.9/255,63/255,62.1/255,66.7/255");
  const Normalization gray = normalization_from("1/4, 1/8");
  CHECK((gray.mean == std::vector<float>{0.25F} && gray.deviation == std::vector<float>{0.125F}));
  CHECK(normalization_from("125.3/255,63/255").mean == std::vector<float>{static_cast<float>(125.3 / 255)});
  CHECK(normalization_from("0.4914,0.2471").mean == std::vector<float>{0.4914F});
  for (const char* wrong : {"1/0,1", "1/,1", "0.5", "0.5,0", "0.5,-1/2", "nan,1", "1e60,1"})
    CHECK_THROWS_AS(normalization_from(wrong), Error);
  CHECK(parse({"forecast", "--latency", "1/2, 3/2", "--bandwidth", "1gbit,10gbit"}).forecast.latency ==
        std::vector<double>{0.5, 1.5});
  CHECK(bandwidth_from("1/2GB/s") == 0.5e9);
}

TEST_CASE("A word for a value finds its own among those that look like it") {
  CHECK(nearest("resnet50", networks().names()) == "imagenet_resnet50");
  CHECK(nearest("resnet-50", networks().names()) == "imagenet_resnet50");
  CHECK(nearest("wrn_27_10", networks().names()) == "wrn_28_10");
  CHECK(nearest("resnet", networks().names()) == "resnet18");
  CHECK(nearest("trades-awp", {"trades", "trades_awp"}) == "trades_awp");
  for (const char* longer : {"trades-x", "trades-of-somebody-else"})
    CHECK(nearest(longer, {"trades", "trades_awp"}) == "trades");
  CHECK(nearest("SIGN_FLIP", {"sign-flip", "sign_flip"}) == "sign_flip");
  CHECK(nearest("sign-flip", {"sign2flip", "sign_flip"}) == "sign_flip");
  // Of three letters one may be another one, of five two; a beginning is enough where one name has it.
  CHECK((nearest("pxd", {"pgd"}) == "pgd" && nearest("pxx", {"pgd"}).empty()));
  CHECK((nearest("abcxy", {"abcde"}) == "abcde" && nearest("abxyz", {"abcde"}).empty()));
  CHECK((nearest("res", {"resume", "lr"}) == "resume" && nearest("res", {"resume", "resample"}).empty()));
  for (const std::string loss : {"TRADES_AWP means trades", "mart-awp means mart", "awp means trades"})
    CHECK(contains(refusal("--loss " + words_of(loss)[0]), "'--loss " + words_of(loss)[2] + " --awp-gamma 0.005'"));
  CHECK(refusal("--loss tradez").ends_with("; did you mean 'trades'?"));
  CHECK(refusal("--loss 12345-awp").ends_with(", not '12345-awp'"));
}
