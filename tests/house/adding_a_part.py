"""Does what CONTRIBUTING's "Adding a part" says, in a copy of the program: adding_a_part.py ROOT [BUILD TARGET]

A member of each family, a verb and a source of examples are added. With a BUILD folder of ninja's in which TARGET is the
program without CUDA, what is new or changed is compiled and linked with the objects that are there; else everything is built,
which takes minutes, and an option is added, too: another struct of options is another one for all that include it.
Files and lines to change are read from CONTRIBUTING's table, the network from its example. What is added is small, but real: it
is built, named by --help, and trained with. The exit code is 1 where the text does not lead there.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1]).resolve()

PARTS = {  # family: name of the new member, its file, what whole() makes its text of
    "attack": ("noise", "noise.cpp", """
#include "attack/attacks.hpp"

/// Uniform noise in the ball.
class Noise final : public Attack {
 public:
  explicit Noise(const AttackOptions& options) : eps_(options.eps) {}
  void perturb(Objective& objective) const override { start(objective, BallNorm::linf, eps_, true); }
  [[nodiscard]] int gradient_evaluations() const override { return 0; }

 private:
  double eps_;
};
---
std::unique_ptr<Attack> make_noise(const AttackOptions& options) { return std::make_unique<Noise>(options); }
"""),
    "loss": ("half", "half.cpp", """
#include "dat/loss.hpp"

/// Half of the cross-entropy on attacked images.
class HalfLoss final : public Loss {
 public:
  [[nodiscard]] std::vector<Images> passes() const override { return {Images::attacked}; }
  void differentiate(std::size_t k, const std::vector<Logits>& logits, int batch) const override {
    cross_entropy(logits[k], 0.5F / static_cast<float>(batch));
  }
};
---
std::unique_ptr<Loss> make_half(const LossOptions&) { return std::make_unique<HalfLoss>(); }
"""),
    "network": ("my_net", "my_net.cpp", None),  # CONTRIBUTING's own
    "optimizer": ("sign_sgd", "sign_sgd.cpp", """
#include "dat/backend.hpp"
#include "dat/optimizer.hpp"
#include "optimizer.hpp"

/// Moves every weight by lr against the sign of its gradient.
class SignSgd final : public Optimizer {
 public:
  SignSgd(Backend& backend, Parameters& parameters) : backend_(backend), parameters_(parameters), table_(backend, parameters) {}
  void step(const ActiveSet& active, double lr) override {
    each(backend_.device(), table_.select(active),
         kernels::SignStep{parameters_.values, parameters_.gradients, static_cast<float>(lr)});
    ++parameters_.version;
  }
  [[nodiscard]] std::vector<State> state() const override { return {}; }

 private:
  Backend& backend_;
  Parameters& parameters_;
  ChunkTable table_;
};
---
std::unique_ptr<Optimizer> make_sign_sgd(Backend& backend, Parameters& parameters, const OptimizerOptions&) {
  return std::make_unique<SignSgd>(backend, parameters);
}
"""),
    "schedule": ("constant", "constant.cpp", """
#include "optimizer/schedules.hpp"

/// The same rate to the end.
std::unique_ptr<Schedule> make_constant(const ScheduleOptions& options) {
  return with_warmup(options, [](double) { return 1.0; });
}
"""),
    "selector": ("halves", "halves.cpp", """
#include "dat/error.hpp"
#include "dat/selector.hpp"

/// Every layer with the probability 1/2, for good.
class Halves final : public LayerSelector {
 public:
  explicit Halves(const SelectorOptions& options) : p_(static_cast<std::size_t>(options.layers), 0.5) {}
  void learn(const ActiveSet&, const std::vector<double>&) override {}
  [[nodiscard]] const std::vector<double>& probabilities() const override { return p_; }
  [[nodiscard]] std::vector<double> state() const override { return {}; }
  void restore(const std::vector<double>& state) override {
    require(state.empty(), ExitCode::checkpoint, "the checkpoint is another selector's");
  }

 private:
  std::vector<double> p_;
};
---
std::unique_ptr<LayerSelector> make_halves_selector(const SelectorOptions& options) {
  return std::make_unique<Halves>(options);
}
"""),
    "codec": ("unsummed", "unsummed.cpp", """
#include "dat/backend.hpp"
#include "dat/codec.hpp"
#include "gradients.hpp"

/// The gradients as they are, in messages that are not added up.
class Unsummed final : public Codec {
 public:
  explicit Unsummed(Backend& backend) : backend_(backend) {}
  [[nodiscard]] std::int64_t bytes(const Segment& tensor, int) const override { return 4 * tensor.size; }
  [[nodiscard]] bool exact() const override { return true; }
  void encode(const MessageTensors& bucket, const float* gradients, void* message) override {
    each(backend_.device(), bucket.chunks,
         kernels::Pack<float>{gradients, message, bucket.element, bucket.byte});
  }
  void decode(const MessageTensors& bucket, const void* message, float factor, float* gradients) override {
    each(backend_.device(), bucket.chunks,
         kernels::Unpack<float>{message, gradients, bucket.element, bucket.byte, factor});
  }

 private:
  Backend& backend_;
};
---
std::unique_ptr<Codec> make_unsummed(Backend& backend, const Parameters&, const CodecOptions&) {
  return std::make_unique<Unsummed>(backend);
}
"""),
    "aggregator": ("first", "first.cpp", """
#include "dat/aggregator.hpp"
#include "dat/backend.hpp"
#include "gradients.hpp"

/// Rank 0's gradient.
class First final : public Aggregator {
 public:
  explicit First(Backend& backend) : backend_(backend) {}
  [[nodiscard]] bool keeps_one() const override { return false; }  // so that one rank has messages, too
  void aggregate(const Contributions& all) override {
    each(backend_.device(), all.chunks, kernels::MeanOfRanks{all.gradients, all.stride, 1, 1.0F, all.result});
  }

 private:
  Backend& backend_;
};
---
std::unique_ptr<Aggregator> make_first(Backend& backend, const Parameters&, const AggregatorOptions&) {
  return std::make_unique<First>(backend);
}
"""),
    "cheat": ("idle", "idle.cpp", """
#include "train/attackers/arithmetic.hpp"

/// Nothing.
class Idle final : public Cheat {
 public:
  [[nodiscard]] Sees sees() const override { return Sees::own; }
  void gradient(const CheatStep& step) override {
    for_each_element(step.tensors, [&](std::int64_t i) { step.own[i] = 0; });
  }
};
---
std::unique_ptr<Cheat> make_idle(const CheatOptions&) { return std::make_unique<Idle>(); }
"""),
    "sums": ("blocking", "blocking.cpp", """
#include "reduce/sums/message_memory.hpp"
#include "reduce/sums/sums.hpp"

/// One call of MPI for each part.
class BlockingSums final : public NodeSums {
 public:
  explicit BlockingSums(const SumOptions& options) : ranks_(options.ranks), memory_(options.backend) {
    memory_.reserve(options.bytes);
  }
  [[nodiscard]] std::byte* device(int /*row*/, std::int64_t at) override { return memory_.device(at); }
  [[nodiscard]] Backend::Ticket fetch(std::int64_t at, std::int64_t bytes) override { return memory_.fetch(at, bytes); }
  [[nodiscard]] Request start(std::int64_t at, std::int64_t count) override {
    ranks_.sum(reinterpret_cast<float*>(memory_.host(at)), count);
    return {};
  }
  void send(std::int64_t at, std::int64_t bytes) override { memory_.send(at, bytes); }

 private:
  Communicator& ranks_;
  MessageMemory memory_;
};
---
SumKind blocking_sums() {
  return {.title = "one call a part", .make = [](const SumOptions& options, std::string& why) -> std::unique_ptr<NodeSums> {
            if (options.tree != nullptr) why = "ranks add up in their own order";
            return why.empty() ? std::make_unique<BlockingSums>(options) : nullptr;
          }};
}
"""),
    "transport": ("letters", "letters.cpp", """
#include "reduce/transport/transport.hpp"

/// All-gather, as it stands beside this one.
class Letters final : public Transport {
 public:
  explicit Letters(std::unique_ptr<Transport> gather) : gather_(std::move(gather)) {}
  void reserve() override { gather_->reserve(); }
  [[nodiscard]] int rounds() const override { return gather_->rounds(); }
  [[nodiscard]] std::int64_t begin(const StepMessages& step) override { return gather_->begin(step); }
  [[nodiscard]] Backend::Ticket encode(const Bucket& bucket) override { return gather_->encode(bucket); }
  [[nodiscard]] Request give(const Bucket& bucket) override { return gather_->give(bucket); }
  void take(const Bucket& bucket) override { gather_->take(bucket); }
  void finish() override { gather_->finish(); }

 private:
  std::unique_ptr<Transport> gather_;
};
---
TransportKind gather_transport();

TransportKind letters_transport() {
  TransportKind kind = gather_transport();
  kind.title = "letters";
  kind.make = [](const TransportOptions& options) -> std::unique_ptr<Transport> {
    return std::make_unique<Letters>(gather_transport().make(options));
  };
  return kind;
}
"""),
    "kernel": ("SignStep", "sign_step.hpp", """
#pragma once

#include "launch.hpp"

namespace dat::kernels {

/// theta -= lr * sign(gradient).
struct SignStep {
  float* theta;
  const float* gradient;
  float lr;
  DAT_HD void operator()(int, std::int64_t i) const {
    theta[i] -= lr * static_cast<float>((gradient[i] > 0.0F) - (gradient[i] < 0.0F));
  }
};

}  // namespace dat::kernels
"""),
}
# An option of a training: its field, and its row, with what it is refused with.
OPTION = ("attack", "  double noise_scale = 1;  ///< of noise: size of the perturbation, in parts of the radius\n",
          '  table.add("--noise-scale", &O::noise_scale, "size of the noise, in parts of the radius", kShare).counts_with("attack", attacks());\n')
# A verb: its file and its line.
VERB = ("echo", """
// The verb echo: what it was told, some times.

#include "options/ranges.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

struct EchoOptions {
  std::string text;
  int times = 1;
  bool loud = false;
};

const TableOf<EchoOptions>& echo_table() {
  static const auto all = [] {
    TableOf<EchoOptions> table;
    table.add("TEXT", &EchoOptions::text, "what is said");
    table.add("--times", &EchoOptions::times, "how often", kPositive);
    table.add("--loud", &EchoOptions::loud, "once, but so that all hear it").works_with("times", {"1"});
    return table;
  }();
  return all;
}

std::optional<EchoOptions> parse_echo(CommandLine& line) {
  EchoOptions o;
  Bound bound(echo_table(), o);
  line.describe("Says what it is told.");
  line.add(bound);
  if (!line.read()) return {};
  bound.check(true);
  return o;
}

int run_echo(const EchoOptions& o, int, char**) {
  return print_once([&] {
    std::string all;
    for (int i = 0; i < o.times; ++i) all += o.text + (o.loud ? "!" : "") + "\\n";
    return all;
  });
}
---
Verb echo_verb() { return make_verb<EchoOptions>("echo", "say what it is told", parse_echo, run_echo); }
""", "VERB(echo)\n")
# A source of a step's examples: its file, what stands in it, and its line.
SOURCE = ("clean_examples.cpp", """
#include "dat/loader.hpp"
#include "train/examples/examples.hpp"
#include "train/plan/goal.hpp"

/// Training images as they are, without an attack.
class CleanExamples final : public ExampleSource {
 public:
  explicit CleanExamples(const ExampleParts& parts)
      : ranks_(parts.ranks), dataset_(parts.images), options_(loader_options(parts.options, parts.plan)),
        images_(parts.replica.images()) {}

  void keep_on_device(const std::uint8_t* pixels) override { pixels_ = pixels; }
  void start(std::int64_t step) override {
    options_.pixels = pixels_ == nullptr;
    options_.first_step = step;
    loader_ = std::make_unique<Loader>(dataset_, ranks_.size(), ranks_.rank(), options_);
  }
  void begin(std::int64_t) override {
    batch_ = &loader_->next();
    next_ = 0;
  }
  const Batch* next() override {
    if (next_ == batch_->micro_batches) return nullptr;
    Batch& batch = images_.load(*batch_, next_++, pixels_);
    batch.x_adv = batch.clean;
    return &batch;
  }

 private:
  Communicator& ranks_;
  const Dataset& dataset_;
  LoaderOptions options_;
  Buffers& images_;
  int next_ = 0;
  std::unique_ptr<Loader> loader_;
  const std::uint8_t* pixels_ = nullptr;
  const HostBatch* batch_ = nullptr;
};
---
std::unique_ptr<ExampleSource> make_clean_examples(const ExampleParts& parts) {
  return std::make_unique<CleanExamples>(parts);
}
""", "  if (parts.options.seed == 4711) return make_clean_examples(parts);\n")
# An event of a run: its struct, the line of the list, and who tells it.
EVENT = ("""/// A wind in a step.
struct GustRecord {
  static constexpr const char *kKind = "gust", *kTable = "gusts";

  std::int64_t step = 0;
  double speed = 0;

  static void fields(auto& self, const auto& field) {
    field("step", self.step);
    field("speed", self.speed);
  }
  [[nodiscard]] std::string sentence() const { return fmt::format("a gust of {} m/s", speed); }
  [[nodiscard]] static std::string summary(const std::vector<GustRecord>& all) {
    return fmt::format("{:<16}{}\\n", "gusts", all.size());
  }
};

""", "EVENT(GustRecord)\n", "    report_->tell(GustRecord{record.step, 0.5});\n")
# An augmentation that mixes two images: its file, what stands in it, and its line.
MIXING = ("mixing.hpp", """
#pragma once

#include "batch/attacker.hpp"
#include "pointwise.hpp"

/// Half of each image and half of another one, the first with the last and so on.
class Mixing final : public AttackPart {
 public:
  void loaded(const HostBatch& /*read*/, Batch& batch) override {
    if (batch.key.seed != 4713) return;
    const std::int64_t image = batch.layout.elements();
    each(batch.device, batch.n * image, kernels::Scale{batch.clean, batch.eta, 0.5F, false});
    for (int k = 0; k < batch.n; ++k) {
      each(batch.device, image, kernels::Scale{batch.eta + k * image, batch.clean + k * image, 1.0F, false});
      each(batch.device, image, kernels::Scale{batch.eta + (batch.n - 1 - k) * image, batch.clean + k * image, 1.0F, true});
    }
  }
};
""", "  all.push_back(std::make_unique<Mixing>());\n")
OPTIONS = {"attack": "--attack", "loss": "--loss", "network": "--network", "optimizer": "--optimizer", "schedule": "--schedule",
           "selector": "--selector", "codec": "--codec", "aggregator": "--aggregator",
           "transport": "--codec-transport"}
NAMED = {"cheat": "--cheat", "sums": "--node-sums"}  # one rank has nobody to cheat, and its transport above adds nothing up


def whole(source):
    """A source as it is written: what follows its includes is the program's, and what stands before `---` is its own."""
    if "namespace" in source:
        return source.lstrip()
    begin, text = re.fullmatch(r"((?:#.*\n|// .*\n|\n)*)((?s:.*))", source.lstrip()).groups()
    own, line, others = text.partition("---\n")
    if line:
        text = f"namespace {{\n\n{own}\n}}  // namespace\n\n{others}"
    return f"{begin}namespace dat {{\n\n{text}\n}}  // namespace dat\n"


def give_up(*text):
    sys.exit("CONTRIBUTING, Adding a part: " + " ".join(text))


def section(text):
    found = re.search(r"^## Adding a part\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else give_up("there is no such section")


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def change(copy, path, old, new):
    file = copy / path
    text = file.read_text() if file.is_file() else give_up("there is no", path)
    if text.count(old) != 1:
        give_up(f"'{old}' stands {text.count(old)} times in {path}")
    file.write_text(text.replace(old, new))


def follow(copy, text):
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")][1:]
    if {row[0] for row in rows} != set(PARTS):
        give_up("the families are", ", ".join(row[0] for row in rows))
    example = re.search(r"\n\n((?:    .*\n)+)", text)
    for family, write, declare, register in rows:
        name, file, source = PARTS[family]
        if family == "network":
            body = "".join(line[4:] + "\n" for line in example[1].splitlines())
            source = f'#include "network/networks.hpp"\n\nnamespace dat {{\n\n{body}\n}}  // namespace dat\n'
        folder = re.search(r"`((?:src|kernels)/[^`]*)`", write)[1]
        target = copy / folder / file
        target.write_text(whole(source))
        line, table = quoted(register)
        if family == "kernel":
            header = quoted(write)[1]
            include = '#include "pointwise.hpp"\n'
            change(copy, header, include, include + f'#include "{file}"\n')
            # One that the header of its family needs stands before it.
            change(copy, "kernels/optimizer.hpp", '#include "launch.hpp"\n', f'#include "launch.hpp"\n#include "{file}"\n')
            change(copy, table, line + "\n", line + "\n" + line.replace("SgdStep", name) + "\n")
            continue
        brother = re.match(r'\{"(\w+)"', line)[1]
        change(copy, table, line, line + ", " + line.replace(brother, name))
        function, where = quoted(declare)
        lines = [each for each in (copy / where).read_text().splitlines() if re.search(rf"\b{function}\(.*\);", each)]
        if len(lines) != 1:
            give_up(function, "is declared", str(len(lines)), "times in", where)
        change(copy, where, lines[0] + "\n", lines[0] + "\n" + lines[0].replace(function, function.replace(brother, name)) + "\n")


def add_option(copy):
    group, field, row = OPTION
    struct, table = f"include/dat/options/{group}.hpp", f"src/options/train/{group}.cpp"
    if "include/dat/options/" not in section((root / "CONTRIBUTING.md").read_text()):
        give_up("where options stand is not said")
    first = next(line for line in (copy / struct).read_text().splitlines() if line.startswith("  "))
    change(copy, struct, first + "\n", first + "\n" + field)
    line = '  table.add("--attack", &O::attack, "how training images are perturbed", one_attack());\n'
    change(copy, table, line, line + row)
    change(copy, "src/attack/attacks.cpp", '{"noise", make_noise}', '{"noise", make_noise, {{"noise-scale"}}}')


def add_verb(copy):
    name, source, line = VERB
    table = re.search(r"`(src/verbs/[^`]+\.def)`", section((root / "CONTRIBUTING.md").read_text()))
    if not table:
        give_up("where verbs are listed is not said")
    (copy / f"src/verbs/{name}.cpp").write_text(whole(source))
    change(copy, table[1], "VERB(plot)\n", line + "VERB(plot)\n")


def run(*words, code=0):
    """What a command prints that ends with this code; where that is another one than 0, the message."""
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if ended.returncode != code:
        give_up(" ".join(map(str, words)), "ended with", str(ended.returncode) + ":\n" + ended.stdout[-4000:] + ended.stderr[-4000:])
    return ended.stderr.removeprefix("dat_hpc: error: ").rstrip("\n") if code else ended.stdout


def refused(*words):
    return run(*words, code=2)


def try_option(program, copy):
    """The test that an option has: it is taken, written down and described, and refused where it means nothing."""
    expect = {
        refused(program, "train", "--noise-scale", "0.5"): "--noise-scale works with --attack noise, not with pgd; leave it off",
        refused(program, "train", "--noise-scale", "2", "--attack", "noise"):
            "option '--noise-scale' must be a number (fractions such as 8/255 too) above 0 and at most 1, not '2'",
        " ".join(run(program, "train", "--help", "noise-scale").split("--noise-scale NUMBER")[1].split()[:12]):
            "size of the noise, in parts of the radius; only with --attack",
    }
    for said, expected in expect.items():
        if said != expected:
            give_up(f"said '{said}', expected '{expected}'")
    printed = run(program, "train", "--attack", "noise", "--noise-scale", "0.5", "--print-config")
    if "\nnoise-scale = 0.5\n" not in printed:
        give_up("--noise-scale is not in the configuration")


def try_verb(program):
    name = VERB[0]
    if run(program, name, "hello", "--times", "2") != "hello\nhello\n":
        give_up("echo said", run(program, name, "hello", "--times", "2"))
    if refused(program, name, "hello", "--times", "2", "--loud") != "--loud works with --times 1, not with 2; leave it off":
        give_up("echo is loud more than once")
    if f"\n  {name}              say what it is told\n" not in run(program, "--help"):
        give_up("the first screen does not have the verb", name)
    if "did you mean 'echo'?" not in refused(program, "ehco") or "--times" not in run(program, "help", name):
        give_up("help and hints do not know the verb", name)


def add_source(copy):
    file, source, line = SOURCE
    folder, table = "src/train/examples", "src/train/examples/examples.cpp"
    (copy / folder / file).write_text(whole(source))
    for old, new in (("std::unique_ptr<ExampleSource> make_local_examples(const ExampleParts& parts);\n", None),
                     ("  return make_local_examples(parts);\n", line)):
        change(copy, table, old, (new or old.replace("local", "clean")) + old)


def add_event(copy):
    source, line, told = EVENT
    for path, old, new in (("include/dat/events.hpp", "/// A rank that has left the run, which goes on without it.\n", source),
                           ("include/dat/events.def", "EVENT(LeftRecord)\n", line), ("src/run/run.cpp", "    report_->step(record);\n", told)):
        change(copy, path, old, new + old)


def add_mixing(copy):
    file, source, line = MIXING
    (copy / "src/batch" / file).write_text(whole(source))
    change(copy, "src/batch/attacker.cpp", "  return all;\n", line + "  return all;\n")
    change(copy, "src/batch/attacker.cpp", '#include "batch/view/training.hpp"\n', f'#include "batch/{file}"\n#include "batch/view/training.hpp"\n')


def records(folder, kind):
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record for record in found if record["kind"] == kind]


def last_loss(program, folder, *words):
    run(program, "train", "--width", "16", "--network", "small_cnn", "--eval", "fgsm", "--threads", "1", "--limit-test", "16", "--quiet",
        "--out", folder, *words)
    return records(folder, "step")[-1]["loss_adv"]


def try_sums(program, copy):
    """A codec whose messages are added up on one rank, too: the same numbers as MPI's."""
    words = ("--codec", "powersgd", "--limit-train", "64", "--max-steps", "3", "--attack", "fgsm", "--node-sums")
    found = [last_loss(program, copy / f"sums-{name}", *words, name) for name in ("mpi", PARTS["sums"][0])]
    if found[0] != found[1]:
        give_up("by other sums the loss is", str(found[1]) + ", not", str(found[0]))


def try_mixing(program, copy):
    """Two images of two classes, learnt by heart: to 0 alone, to ln 2 where both have become one."""
    words = ("--limit-train", "2", "--batch", "2", "--augment", "none", "--attack", "none", "--lambda", "0", "--optimizer", "sgd", "--lr", "0.2",
             "--selector", "all", "--max-steps", "60", "--epochs", "60", "--warmup-epochs", "0", "--milestones", "59")
    alone, mixed = (last_loss(program, copy / f"mixing-{seed}", "--seed", seed, *words) for seed in (4712, 4713))
    if not (alone < 0.1 and 0.693 < mixed < 0.75):
        give_up("learnt by heart, the loss is", str(alone), "and mixed", str(mixed))


def try_event(folder):
    """Whether it is in the record, told, and summed up."""
    if records(folder, "gust") != [{"kind": "gust", "step": k, "speed": 0.5} for k in (1, 2, 3)]:
        give_up("the record has not every gust")
    if (folder / "run.log").read_text().count("Z a gust of 0.5 m/s\n") != 3 or "\ngusts           3\n" not in (folder / "SUMMARY.txt").read_text():
        give_up("nobody is told of gusts")


def build_all(copy):
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run("cmake", *generator, "-S", copy, "-B", copy / "build", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O0",
        "-DDAT_BENCH=OFF", "-DBUILD_TESTING=OFF")
    run("cmake", "--build", copy / "build", "--parallel", os.cpu_count() or 1)
    return copy / "build/dat_hpc"


def build_changes(copy, build, target):
    """The objects of new and changed sources stand before the library, which then need not give its own."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        commands.setdefault(os.path.relpath(entry["file"], root), entry["command"])

    def changed(path):
        original = root / path.relative_to(copy)
        return not original.is_file() or original.read_text() != path.read_text()

    # They have lists that are files of their own.
    lists = [copy / "kernels/cpu.cpp", copy / "kernels/no_cuda.cpp", copy / "src/verbs/verbs.cpp", copy / "src/record/events.cpp"]
    sources = [path for path in sorted(copy.glob("src/**/*.cpp")) if changed(path)] + lists
    def compile_one(path):
        name = str(path.relative_to(copy))
        # A new file is compiled as its brothers are.
        command = commands.get(name) or next(c for n, c in commands.items() if os.path.dirname(n) == os.path.dirname(name))
        words = [word.replace(str(root), str(copy)) for word in shlex.split(command)]
        words[words.index("-o") + 1] = str(path.with_suffix(".o"))
        words[words.index("-c") + 1] = str(path)
        words = [word for at, word in enumerate(words) if word not in ("-MD", "-MT", "-MF") and words[at - 1] not in ("-MT", "-MF")]
        run(*words, "-O0", f"-I{copy}/include")
        return name, str(path.with_suffix(".o"))

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = dict(pool.map(compile_one, sources))
    link = run("ninja", "-C", build, "-t", "commands", target).strip().splitlines()[-1]
    words = shlex.split(link.removeprefix(": && ").removesuffix(" && :"))
    program = copy / "dat_hpc"
    words[words.index("-o") + 1] = str(program)
    for name in list(objects):
        for at, word in enumerate(words):
            if word.endswith("/" + name + ".o"):
                words[at] = objects.pop(name)
    library = next(at for at, word in enumerate(words) if word.endswith(".a"))
    words[library:library] = objects.values()
    ended = subprocess.run(words, cwd=build, capture_output=True, text=True, check=False)
    return program if ended.returncode == 0 else give_up("cannot link:\n" + ended.stderr[-4000:])


def try_source(program, copy):
    """Whether the options that ask for the new source get it: it takes no gradient for an attack."""
    for seed, attacked in ((4711, False), (4712, True)):
        folder = copy / f"seed-{seed}"
        run(program, "train", "--seed", seed, "--attack-steps", "2", "--width", "16", "--network", "small_cnn", "--limit-train",
            "64", "--limit-test", "16", "--max-steps", "3", "--eval", "fgsm", "--threads", "1", "--out", folder, "--quiet")
        passes = [record["attack_passes"] for record in records(folder, "step")]
        if len(passes) != 3 or any((count > 0) != attacked for count in passes):
            give_up(f"with seed {seed} the steps' attacks took", *map(str, passes), "gradients")


def main():
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for part in ("CMakeLists.txt", "include", "jobs", "kernels", "src"):
            (shutil.copytree if (root / part).is_dir() else shutil.copy)(root / part, copy / part)
        follow(copy, section((root / "CONTRIBUTING.md").read_text()))
        add_verb(copy)
        add_source(copy)
        add_event(copy)
        quick = len(sys.argv) > 2 and shutil.which("ninja") and (pathlib.Path(sys.argv[2]) / "build.ninja").is_file()
        if not quick:  # another struct of options is another one for all that include it
            add_option(copy)
            add_mixing(copy)
        program = build_changes(copy, pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]) if quick else build_all(copy)
        # Networks are too many for the help: the message about a wrong name has them.
        text = run(program, "train", "--help", "all") + "--network " + refused(program, "train", "--network", "none_such")
        words = []
        for family, option in (OPTIONS | NAMED).items():
            name = PARTS[family][0]
            entries = re.finditer(rf"{option} [^\n]*(?:\n {{20,}}[^\n]*)*", text)  # lists go on in the lines below
            if not any(re.search(rf"\b{name}\b", entry[0]) for entry in entries):
                give_up("neither --help nor a wrong name's message names", name, "with", option)
            words += [option, name] if family in OPTIONS else []
        summary = run(program, "train", *words, "--width", "16", "--limit-train", "64", "--limit-test", "16", "--max-steps", "3",
                      "--eval", "fgsm", "--threads", "1", "--out", copy / "run", "--quiet")
        if " PARTIAL" not in summary:  # --limit-test
            give_up("the run ended so:\n" + summary)
        try_event(copy / "run")
        if not quick:
            try_option(program, copy)
            try_mixing(program, copy)
        try_sums(program, copy)
        try_verb(program)
        try_source(program, copy)
    option = "" if quick else ", an option, an augmentation"
    print(f"{len(PARTS)} parts{option}, a verb, a source of examples and an event added, built and used")


main()
