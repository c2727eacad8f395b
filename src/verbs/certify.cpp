// The verb certify: within which radius no perturbation changes what the smoothed network of a checkpoint says.

#include "dat/options/certify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "assess/certification/certification_report.hpp"
#include "assess/progress_lines.hpp"
#include "dat/error.hpp"
#include "dat/provenance.hpp"
#include "options/command_line.hpp"
#include "options/machine.hpp"
#include "printed.hpp"
#include "replica/device_notices.hpp"
#include "run/certification_setting.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verb.hpp"

namespace dat {

namespace {

void add_certified_images(TableOf<CertifyOptions>& table) {
  using O = CertifyOptions;
  table.group("Data");
  add_trained(table);
  table.add("--every", &O::every, "takes images 0, N, 2 N, ... of the split", kManyImages);
  table.add("--limit", &O::limit, "of these the first N only; 0: all", kCount);
  add_weights(table);
}

void add_smoothing(TableOf<CertifyOptions>& table) {
  using O = CertifyOptions;
  table.group("Smoothing");
  table.add("--sigma", &O::sigma,
            "standard deviation of the noise in each pixel; pixels are in [0, 1]; auto: --noise of the training",
            kAutoRadius);
  table.add("--noise-kind", &O::noise_kind,
            "grid: on the grid of pixels, with exact probabilities, the same on every machine; float: 32-bit numbers",
            one_of({"grid", "float"}));
  table.add("--n0", &O::n0, "samples that choose the class", kSamples);
  table.add("--n", &O::n, "samples that bound its probability; with --radii the most of them", kSamples);
  table.add("--alpha", &O::alpha, "the chance that an answer is wrong",
            {.low = 0, .high = 1, .above = true, .below = true});
  table.add("--radii", &O::radii,
            "decides for each of these L2 radii, and takes no more samples than that needs; none: takes all --n",
            {.label = "R,...", .low = 0, .above = true, .commas = true});
  table.add("--predict", &O::predict, "says the class alone, or abstains, by --n samples");
  table.add("--attack-steps", &O::attack_steps,
            "attacks what is certified within its radius, by PGD of so many steps on the smoothed network, and "
            "predicts the class of what that leaves; 0: does not",
            {.low = 0, .high = kSteps.high});
  table.add("--noise-samples", &O::noise_samples, "copies of an image under noise that this attack sees",
            {.low = 1, .high = 4096});
  add_precision(table, "how the network keeps activations and weights; 16 bits need a GPU, and certify that network");
}

const TableOf<CertifyOptions>& certify_table() {
  static const TableOf<CertifyOptions> all([](auto& table) {
    using O = CertifyOptions;
    add_certified_images(table);
    add_smoothing(table);
    table.group("Run");
    table.add("--out", &O::out, "folder for certify.json, certify.tsv and results.h5; none: not written", kFolder);
    table.add("--batch", &O::batch, "samples per rank between two exchanges of votes", kBatch).may_change();
    table.add_switch("DAT_PROGRESS", "progress", &O::progress, "seconds between progress lines", kSomeSeconds)
        .may_change();
    add_machine(table);
  });
  return all;
}

/// Entries that a journal knows already, on all ranks, and the listener for new ones. journal: null without --out, and
/// on other ranks; name: its file's.
[[nodiscard]] Certifier::Options options_of(Communicator& world, const CertifyOptions& options, Journal* journal,
                                            const std::string& name) {
  Certifier::Options run;
  std::string found = journal != nullptr ? journal->found() : "";
  world.broadcast(found);
  together(world, [&] { run.found = read_certification_journal(found, options.out + "/" + name); });
  if (!world.root()) return run;
  if (journal != nullptr) run.entry = [journal](const CertificationEntry& entry) { journal->append(line_of(entry)); };
  if (options.quiet) return run;
  if (!run.found.empty())
    say("goes on after " + std::to_string(run.found.size()) + " groups of blocks in " + options.out + "/" + name);
  run.progress = [lines = ProgressLines(options.progress)](const Certifier::Progress& now) mutable {
    lines(fmt::format("{} of {} images, {} samples", now.finished, now.images, now.samples), now.part);
  };
  return run;
}

/// Looks for images within the certified radii that the smoothed network gives to other classes.
[[nodiscard]] AttackedCertificates attack(Communicator& world, const CertifyOptions& options, CertificationSetting& s,
                                          const CertificationResult& certified, Journal* journal) {
  std::function<void(std::int64_t, std::int64_t)> progress;
  if (world.root() && !options.quiet)
    progress = [lines = ProgressLines(options.progress)](std::int64_t done, std::int64_t images) mutable {
      lines(fmt::format("{} of {} certified images of a rank attacked", done, images),
            static_cast<double>(done) / static_cast<double>(images));
    };
  AttackedImages images =
      attack_certificates(world, *s.data, *s.replica, certified, options.attack_steps, options.seed, progress);
  const CertificationWork work{&images, images.images(), prediction_plan(s.subject.plan)};
  CertificationResult predicted = s.certifier->run(work, options_of(world, options, journal, "attacked.journal"));
  return {std::move(images), std::move(predicted)};
}

int certify(Communicator& world, const CertifyOptions& options, int argc, char** argv) {
  shake_hands(world, facts_of("certify", Bound(certify_table(), const_cast<CertifyOptions&>(options)).settings()));
  world.watch(options.comm_timeout);
  CertificationSetting s;
  together(world, [&] { s = prepare_certification(world, options); });
  shake_hands(world, s.facts);
  // Hashed before the work: the file may become another one.
  const std::string images =
      std::map<std::string, std::string>(s.facts.begin(), s.facts.end()).at("hash of the images");
  std::unique_ptr<CertificationFolder> folder;
  together(world, [&] {
    if (world.root() && !options.out.empty())
      folder = open_certification(options.out, s.facts, options.attack_steps > 0);
  });
  for (const std::string& one : device_notices(world, s.replica->backend(), options.device, options.quiet)) say(one);
  const CertificationResult result =
      s.certifier->run({s.data.get(), s.images, s.subject.plan},
                       options_of(world, options, folder ? &folder->journal : nullptr, "certify.journal"));
  std::optional<AttackedCertificates> attacked;
  if (options.attack_steps > 0) attacked = attack(world, options, s, result, folder ? folder->attacked.get() : nullptr);
  const CertificationReport report(s.subject, result, attacked ? &*attacked : nullptr);
  const std::vector<std::string> hosts = world.gather(host_name());
  together(world, [&] {
    if (folder)
      report.write(folder->path,
                   provenance_json(hosts, argc, argv, s.replica->backend().description(), {{options.split, images}}));
  });
  return print_of_root(world, [&] {
    return report.text() + (folder ? "wrote " + folder->path + "/certify.json, certify.tsv and results.h5\n" : "") +
           report.final_line() + "\n";
  });
}

int run_certification(const CertifyOptions& options, int argc, char** argv) {
  return with_ranks([&](Communicator& world) { return certify(world, options, argc, argv); });
}

std::optional<CertifyOptions> parse_certify(CommandLine& line) {
  CertifyOptions o;
  Bound bound(certify_table(), o);
  line.describe("L2 radii within which no perturbation changes what a network says, smoothed with normal noise.");
  line.add_configurable(bound, false);
  if (!line.read()) return {};
  bound.check();
  settle_precision(o);
  const bool runs = line.finish();
  require(!runs || !o.checkpoint.empty(), ExitCode::usage,
          "certify needs a network, a run or a checkpoint: dat_hpc certify RUN",
          o.data.size() > 1 ? "; give RUN in front of --data, which takes all words after it" : "");
  require(!o.predict || o.radii.empty(), ExitCode::usage, "--radii is for certificates, which --predict makes none of");
  require(!o.predict || o.attack_steps == 0, ExitCode::usage,
          "--attack-steps attacks certificates, which --predict makes none of");
  std::ranges::sort(o.radii);
  if (!runs) return {};
  return o;
}

}  // namespace

Verb certify_verb() {
  return make_verb("certify", "certified radii of a smoothed network", parse_certify, run_certification,
                   Launch::together);
}

}  // namespace dat
