#include "run/certification_setting.hpp"

#include <algorithm>
#include <utility>

#include "assess/certification/certificate_attack.hpp"
#include "assess/sequence.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "replica/model_state.hpp"
#include "run/trained.hpp"
#include "train/plan/replica_of.hpp"

namespace dat {

namespace {

[[nodiscard]] CertificationPlan plan_of(const CertifyOptions& options, const TrainOptions& trained) {
  const double sigma = options.sigma > 0 ? options.sigma : trained.noise;
  require(sigma > 0, ExitCode::usage, options.checkpoint, " was trained without noise; give --sigma, such as 0.25");
  return {.sigma = sigma,
          .grid = options.noise_kind == "grid",
          .predicts = options.predict,
          .n0 = options.n0,
          .n = options.n,
          .alpha = options.alpha,
          .radii = options.radii,
          .seed = options.seed};
}

[[nodiscard]] std::vector<std::int64_t> chosen_images(const CertifyOptions& options, std::int64_t all) {
  std::vector<std::int64_t> images;
  for (std::int64_t image = 0; image < all && (options.limit == 0 || std::ssize(images) < options.limit);
       image += options.every)
    images.push_back(image);
  return images;
}

[[nodiscard]] std::unique_ptr<Replica> certified_replica(const Communicator& world, const CertifyOptions& options,
                                                         const Trained& from, const DatasetInfo& of, double sigma) {
  const bool attacks = options.attack_steps > 0;
  DatasetInfo images = of;
  images.classes = from.classes.count;
  BackendOptions backend = backend_of(options, world.node_size(), world);
  backend.deterministic = true;
  ReplicaOptions of_it{.backend = backend,
                       .network = from.options.network,
                       .width = from.options.width,
                       .activation = from.options.activation,
                       .normalize = from.options.normalize,
                       .images = images,
                       .attack_batch = attacks ? 1 : 0,
                       .attack_storage = storage_from(options.precision),
                       .needs = attacks ? certificate_attack_needs(options.attack_steps) : Needs{},
                       .training_batches = {},
                       .noise = attacks ? sigma : 0,
                       .noise_samples = options.noise_samples,
                       .evaluations = false};
  of_it.micro_batch =
      attacks ? options.noise_samples : sequence_micro_batch(takes_gpu(options.device), graph_of(of_it, images.size));
  return std::make_unique<Replica>(of_it);
}

}  // namespace

CertificationSetting prepare_certification(Communicator& world, const CertifyOptions& options) {
  CertificationSetting s;
  const Trained from = read_trained(world, options.checkpoint, options.data);
  ChosenSplit chosen = open_chosen(from, options.data, options.split, 0, options.images);
  s.data = std::move(chosen.images);
  require_apart_from(from, chosen, files_in(options.out, {"certify.json", "certify.tsv", "results.h5"}));
  s.images = chosen_images(options, s.data->size());
  s.subject = {.plan = plan_of(options, from.options),
               .checkpoint = options.checkpoint,
               .step = from.step(),
               .precision = options.precision,
               .data = options.data,
               .split = options.split,
               .list = options.images,
               .split_images = chosen.size,
               .every = options.every,
               .attack_steps = options.attack_steps,
               .noise_samples = options.noise_samples};
  s.replica = certified_replica(world, options, from, s.data->info(), s.subject.plan.sigma);
  Model& model = s.replica->model();
  s.subject.weights = load_weights(world, from, options.weights, model);
  s.subject.weights_hash = weights_hash(model);
  const int blocks = std::max(1, static_cast<int>(options.batch / CertificationPlan::kBlock));
  s.certifier = std::make_unique<Certifier>(world, *s.replica, s.subject.plan.sigma, s.subject.plan.grid, blocks);
  s.replica->commit();
  s.facts = facts_with(facts_of(s.subject, s.images), *s.replica, from.options_hash, *s.data);
  return s;
}

}  // namespace dat
