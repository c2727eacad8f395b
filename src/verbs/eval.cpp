// The verb eval: how accurate the network of a checkpoint is, clean, under single attacks and under a sequence of them.

#include <filesystem>
#include <iostream>

#include "assess/broken_images.hpp"
#include "assess/journal.hpp"
#include "assess/progress_lines.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/provenance.hpp"
#include "measure/process_memory.hpp"
#include "options/machine.hpp"
#include "printed.hpp"
#include "replica/device_notices.hpp"
#include "run/evaluation_setting.hpp"
#include "verbs/parsers.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

void add_images(TableOf<EvalOptions>& table) {
  using O = EvalOptions;
  table.group("Data");
  add_trained(table);
  table.add("--limit", &O::limit, "the first N images only; 0: all", kCount);
  add_weights(table);
}

void add_attacks(TableOf<EvalOptions>& table) {
  using O = EvalOptions;
  table.group("Attack");
  table.add("--eval", &O::eval,
            "attacks, e.g. pgd10,pgd20x5 (PGD of 10 steps; of 20 from 5 random starts, the worst of which counts), "
            "each on all images; and one sequence, each of whose attacks takes what those before it left right: "
            "aa-standard, aa-plus or aa-rand (AutoAttack), aa-quick (its first two attacks), or words like pgd20+fgsm",
            kSequenceWords);
  table.add("--norm", &O::norm,
            "size of a perturbation: its largest entry (linf), or the root of its sum of squares (l2); auto: that of "
            "the training",
            auto_or(norm_names()));
  table.add("--eps", &O::eps, "radius of the ball of perturbations; pixels are in [0, 1]; auto: that of the training",
            kAutoRadius);
  table.add("--alpha", &O::alpha, "step size; auto: " + own_values(attacks(), "eval-alpha"), kAutoRadius);
  table.add("--noise", &O::noise,
            "standard deviation of Gaussian noise on images: the smoothed network is evaluated; auto: that of the "
            "training; 0: none",
            kAutoWeight);
  table.add("--noise-samples", &O::noise_samples,
            "copies of each image under noise, whose mean prediction counts; auto: as in the training, or 1",
            {.low = 1, .high = 4096, .automatic = 0});
}

const TableOf<EvalOptions>& eval_table() {
  static const TableOf<EvalOptions> all([](auto& table) {
    using O = EvalOptions;
    add_images(table);
    add_attacks(table);
    table.group("Run");
    table.add("--out", &O::out, "FILE.json, or a folder for eval.json: results by class and image; none: not written",
              kPath);
    table.add("--save-adversarial", &O::save_adversarial,
              "the images that attacks have broken, too: adversarial.h5 in --out, which has to be a folder");
    table.add("--batch", &O::batch, "images per rank and step", kPositive);
    table.add("--dry-run", &O::dry_run, "say what memory each rank takes, and evaluate nothing");
    table.add_switch("DAT_PROGRESS", "progress", &O::progress, "seconds between progress lines", kSomeSeconds)
        .may_change();
    add_machine(table);
    add_planning(table);
  });
  return all;
}

/// "eval --eval pgd20 runs/a", "eval --data a.h5 runs/a": options that take several words have taken the run, too.
void take_run_back(EvalOptions& o) {
  const auto take = [&](std::vector<std::string>& words) {
    o.checkpoint = words.back();
    words.pop_back();
  };
  std::error_code unreadable;
  if (o.checkpoint.empty() && o.eval.size() > 1 && !may_be_attack(o.eval.back())) take(o.eval);
  if (o.checkpoint.empty() && o.data.size() > 1 && std::filesystem::is_directory(o.data.back(), unreadable))
    take(o.data);
}

Bound bound_to(const EvalOptions& options) { return {eval_table(), const_cast<EvalOptions&>(options)}; }

void warn(const std::string& warning) { say("warning: " + warning); }

/// The file for the results; empty without --out. On rank 0, where it takes the folder, too.
[[nodiscard]] std::string open_output(const EvalOptions& options, EvaluationSetting& s) {
  if (options.out.empty()) return "";
  if (evaluation_file(options.out) == options.out) return prepare_evaluation_file(options.out);
  // First the lock, which removes the folder that it has made where nothing is written there.
  if (s.sequence)
    s.sequence->open(options.out, s.training);
  else
    s.lock = take_folder(options.out, "evaluation without a sequence", "attacked");
  if (s.lock && options.save_adversarial) s.attacked = std::make_unique<KeptImages>(options.out, *s.data);
  return prepare_evaluation_file(options.out);
}

void print_notices(Communicator& world, const EvalOptions& options, const EvaluationSetting& s) {
  if (world.root())
    for (const std::string& warning : s.attacks->notices()) warn(warning);
  for (const std::string& one : device_notices(world, s.replica->backend(), options.device, options.quiet)) say(one);
}

/// Prints the results, and writes them where `write` says, which returns a line for people. A user who cannot write has
/// the figures all the same.
void tell(const EvaluationReport& report, const std::function<std::string()>& write) {
  for (const Alarm& alarm : report.alarms())
    if (alarm.state == Alarm::State::raised) warn(alarm.name + ": " + alarm.text);
  std::cout << report.text();
  try {
    std::cout << write();
  } catch (const Error&) {
    std::cout << report.final_line() << "\n" << std::flush;
    throw;
  }
  std::cout << report.final_line() << "\n";
  require_printed();
}

/// Peak memory of rank 0's process, measured in this one, in which all is planned. saves: --save-adversarial.
[[nodiscard]] std::string memory_text(const EvaluationSetting& s, int ranks, bool saves) {
  const Buffers& batch = s.replica->images();
  const std::size_t batches = s.sequence ? 2 : saves ? 1 : 0;
  const std::size_t looked_at =
      batches * static_cast<std::size_t>(batch.capacity * batch.layout.elements()) * sizeof(float);
  return text_of(
      process_memory(s.replica->backend(),
                     {{"results", EvaluationResult::bytes(s.data->size(), s.attacks->members().size())},
                      {"images looked at", looked_at},
                      {"images handed over", saves ? bytes_handed_over(batch.layout, ranks, batch.capacity) : 0}}));
}

int evaluate(Communicator& world, const EvalOptions& options, int argc, char** argv) {
  shake_hands(world, facts_of("eval", settings_of(options)));
  world.watch(options.comm_timeout);
  EvaluationSetting s;
  Facts facts;
  std::string images;
  together(world, [&] {
    s = prepare_evaluation(world, options);
    images = content_hash(*s.data);
    facts = {{"device", s.replica->backend().arithmetic()},
             {"hash of the weights", s.subject.weights_hash},
             {"hash of the images", images}};
  });
  shake_hands(world, facts);
  if (options.dry_run)
    return print_of_root(world, [&] { return memory_text(s, world.size(), options.save_adversarial); });
  std::string output;
  together(world, [&] {
    if (world.root()) output = open_output(options, s);
  });
  print_notices(world, options, s);
  std::function<void(std::int64_t)> progress;
  if (world.root() && !options.quiet) progress = ProgressLines(options.progress, s.share);
  const BrokenImageSink broken = [&](std::int64_t image, const float* pixels, float confidence) {
    s.attacked->images().keep(image, pixels, confidence);
  };
  const bool kept = options.save_adversarial && !s.sequence;
  const EvaluationResult result = s.evaluator->run(*s.attacks, options.seed, progress, kept ? &broken : nullptr);
  std::optional<SequenceResult> sequence;
  if (s.sequence) sequence = s.sequence->run();
  const EvaluationReport report(s.subject, *s.data, *s.attacks, result, s.sequence.get(),
                                sequence ? &*sequence : nullptr);
  const std::vector<std::string> hosts = world.gather(host_name());
  const auto write = [&]() -> std::string {
    if (output.empty()) return "";
    const std::string provenance =
        provenance_json(hosts, argc, argv, s.replica->backend().description(), {{options.split, images}});
    if (s.lock) {  // images of an evaluation before are not this one's
      std::error_code error;
      std::filesystem::remove(std::filesystem::path(output).replace_filename("adversarial.h5"), error);
      require(!error, ExitCode::io, "cannot remove adversarial.h5 beside ", output, ": ", error.message());
    }
    report.write(output, provenance);
    const FileFacts told = {{"checkpoint", options.checkpoint},
                            {"weights_hash", s.subject.weights_hash},
                            {"split", options.split},
                            {"alarms", alarms_text(report.alarms())},
                            {"provenance", provenance}};
    if (s.attacked) s.attacked->write(*s.attacks, result, told);
    if (s.sequence && s.sequence->has_folder()) s.sequence->write(*sequence, told);
    const std::string more = s.attacked                               ? " and adversarial.h5 beside it"
                             : s.sequence && s.sequence->has_folder() ? " and results.h5 beside it"
                                                                      : "";
    return "wrote " + output + more + "\n";
  };
  together(world, [&] {
    if (world.root()) tell(report, write);
  });
  return static_cast<int>(ExitCode::done);
}

/// Accuracy of a checkpoint's network, clean and attacked. Returns the exit code. **Collective.**
int run_evaluation(const EvalOptions& options, int argc, char** argv) {
  return with_ranks([&](Communicator& world) { return evaluate(world, options, argc, argv); });
}

}  // namespace

std::string toml_of(const EvalOptions& options) { return bound_to(options).toml(); }

std::vector<std::pair<std::string, std::string>> settings_of(const EvalOptions& options) {
  return bound_to(options).settings();
}

std::optional<EvalOptions> parse_eval(CommandLine& line) {
  EvalOptions o;
  Bound bound(eval_table(), o);
  line.describe("Clean and robust accuracy of a trained network.");
  line.add_configurable(bound, false);
  if (!line.read()) return {};
  take_run_back(o);
  require_attacks(o.eval);
  name_steps(o.eval, AttackUse::evaluation);
  bound.check();
  const bool runs = line.finish();
  require(!runs || !o.checkpoint.empty(), ExitCode::usage, "eval needs a network, a run or a checkpoint: dat_hpc eval ",
          "RUN", o.data.size() > 1 ? "; give it in front of --data, which takes all words after it" : "");
  require(!o.save_adversarial || (!o.out.empty() && !o.out.ends_with(".json")), ExitCode::usage,
          "--save-adversarial needs a folder to write to; give --out FOLDER");
  if (!runs) return {};
  require_apart({o.out}, {line.config_file()});
  return o;
}

Verb eval_verb() {
  return make_verb("eval", "clean and robust accuracy of a run or checkpoint", parse_eval, run_evaluation,
                   Launch::together);
}

}  // namespace dat
