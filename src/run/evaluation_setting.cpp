#include "run/evaluation_setting.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "dat/attack_sequence.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "replica/model_state.hpp"
#include "run/trained.hpp"
#include "train/plan/replica_of.hpp"

namespace dat {

namespace {

/// The ball that is attacked in.
void choose_ball(const EvalOptions& options, const TrainOptions& trained, EvaluationSubject& subject) {
  const std::string norm = options.norm == "auto" ? trained.norm : options.norm;
  subject.eps_given = options.eps > 0;
  require(subject.eps_given || norm == trained.norm, ExitCode::usage, "--norm ", norm, " is not that of the training, ",
          trained.norm, ", whose eps says nothing there; give --eps");
  subject.norm = norm_from(norm);
  subject.eps = subject.eps_given ? options.eps : trained.eps.last();
  require_in_range("--eps", subject.norm, subject.eps);
  require_in_range("--alpha", subject.norm, options.alpha);
}

/// Chooses the noise under which the network is evaluated.
void choose_noise(const EvalOptions& options, const TrainOptions& trained, EvaluationSubject& subject) {
  subject.noise = options.noise < 0 ? trained.noise : options.noise;
  require(subject.noise > 0 || options.noise_samples == 0, ExitCode::usage,
          "--noise-samples are copies under noise, and there is none; give --noise, too");
  if (subject.noise > 0)
    subject.noise_samples = options.noise_samples != 0 ? options.noise_samples : trained.noise_samples;
}

/// The attacks of --eval: those on all images, and the sequence. gpu: the evaluation is going to use one.
void choose_attacks(const EvalOptions& options, bool gpu, EvaluationSetting& s) {
  const EvaluationSubject& subject = s.subject;
  std::vector<std::string> single;
  std::optional<AttackSequence> sequence;
  for (const std::string& word : options.eval)
    if (names_sequence(word))
      sequence = read_attack_sequence(word);
    else
      single.push_back(word);
  s.attacks = std::make_unique<EvaluationAttacks>(EvaluationOptions{.attacks = single,
                                                                    .norm = subject.norm,
                                                                    .eps = subject.eps,
                                                                    .alpha = options.alpha,
                                                                    .classes = subject.classes.count});
  if (!sequence) return;
  require(subject.noise == 0, ExitCode::usage, sequence->name, " is for networks as they are, and this one would see ",
          "noise, as in its training; add --noise 0, or take attacks one by one");
  require_f32(*sequence, gpu, options.math);
  s.sequence = std::make_unique<SequenceRun>(*sequence,
                                             SequenceRun::Options{.norm = subject.norm,
                                                                  .eps = subject.eps,
                                                                  .alpha = options.alpha,
                                                                  .seed = options.seed,
                                                                  .save_adversarial = options.save_adversarial,
                                                                  .quiet = options.quiet,
                                                                  .progress = options.progress},
                                             subject.classes.count);
}

[[nodiscard]] std::unique_ptr<Replica> make_replica(const Communicator& world, const EvalOptions& options,
                                                    const TrainOptions& trained, bool gpu, const EvaluationSetting& s) {
  DatasetInfo images = s.data->info();
  images.classes = s.subject.classes.count;
  BackendOptions backend = backend_of(options, world.node_size(), world);
  backend.deterministic = options.deterministic || s.sequence != nullptr;
  ReplicaOptions of_it{.backend = backend,
                       .network = trained.network,
                       .width = trained.width,
                       .activation = trained.activation,
                       .normalize = trained.normalize,
                       .images = images,
                       .needs = s.attacks->needs(),
                       .training_batches = {},
                       .noise = s.subject.noise,
                       .noise_samples = s.subject.noise_samples};
  // With --deterministic any number of ranks computes the same batches.
  std::int64_t batch = std::min<std::int64_t>(options.batch, options.deterministic ? s.data->size() : s.share);
  // A pass holds all copies of its images, of which there is one without noise.
  of_it.attack_batch =
      static_cast<int>(std::max<std::int64_t>(batch, s.subject.noise_samples) / s.subject.noise_samples);
  if (s.sequence) {
    const int pass = sequence_micro_batch(gpu, graph_of(of_it, images.size));
    of_it.attack_batch = pass;
    batch = (batch + pass - 1) / pass * pass;
    of_it.needs = of_it.needs | s.sequence->attacks().needs();
  }
  of_it.micro_batch = static_cast<int>(batch);
  return std::make_unique<Replica>(of_it);
}

}  // namespace

EvaluationSetting prepare_evaluation(Communicator& world, const EvalOptions& options) {
  EvaluationSetting s;
  EvaluationSubject& subject = s.subject;
  const Trained from = read_trained(world, options.checkpoint, options.data);
  ChosenSplit chosen = open_chosen(from, options.data, options.split, options.limit, options.images);
  s.data = std::move(chosen.images);
  s.share = (s.data->size() + world.size() - 1) / world.size();
  const bool file = std::filesystem::path(options.out).extension() == ".json";
  require_apart_from(
      from, chosen,
      file ? std::vector{options.out} : files_in(options.out, {"eval.json", "results.h5", "adversarial.h5"}));
  subject = {.checkpoint = options.checkpoint,
             .step = from.step(),
             .weights_hash = {},
             .classes = from.classes,
             .data = options.data,
             .split = options.split,
             .split_images = chosen.size,
             .list = options.images,
             .seed = options.seed};
  s.training = from.options_hash;
  choose_ball(options, from.options, subject);
  choose_noise(options, from.options, subject);
  const bool gpu = takes_gpu(options.device);
  choose_attacks(options, gpu, s);
  s.replica = make_replica(world, options, from.options, gpu, s);
  Model& model = s.replica->model();
  subject.weights = load_weights(world, from, options.weights, model);
  subject.weights_hash = weights_hash(model);
  s.evaluator =
      std::make_unique<Evaluator>(world, *s.data, nullptr, s.replica->images(), s.replica->evaluated(),
                                  options.deterministic ? Evaluator::Dealing::batches : Evaluator::Dealing::samples);
  if (s.sequence) s.sequence->plan(world, *s.data, *s.replica);
  s.replica->commit();
  return s;
}

}  // namespace dat
