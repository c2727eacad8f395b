#include "forecast/roles.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace dat {

namespace {

[[nodiscard]] std::int64_t ceil_of(std::int64_t all, std::int64_t parts) { return (all + parts - 1) / parts; }

/// Link of a rank, where all ranks of a node send at once.
[[nodiscard]] Link link_of(const Cluster& cluster) {
  if (cluster.ranks <= cluster.ranks_per_node) return cluster.within;
  return {.latency = cluster.between.latency, .bandwidth = cluster.between.bandwidth / cluster.ranks_per_node};
}

[[nodiscard]] std::array<std::pair<double, const char*>, 4> bounds_of(const RoleForecast& one) {
  return {{{one.training, "training"}, {one.attacking, "attacking"}, {one.link, "link"}, {one.round, "round"}}};
}

/// The calibration of a rank with so many images.
[[nodiscard]] Calibration with_images(Calibration calibration, double images) {
  const double factor = images / calibration.batch;
  for (double* seconds : {&calibration.data, &calibration.attack, &calibration.forward, &calibration.backward})
    *seconds *= factor;
  for (Calibration::Layer& layer : calibration.layers) {
    layer.backward *= factor;
    layer.weight_gradient *= factor;
  }
  return calibration;
}

}  // namespace

double RoleForecast::seconds() const { return std::ranges::max(bounds_of(*this)).first; }
const char* RoleForecast::bound() const { return std::ranges::max(bounds_of(*this)).second; }

RoleForecast forecast_roles(const Calibration& calibration, const Cluster& cluster, const StepChoice& choice,
                            const RoleChoice& roles) {
  const int generators = roles.generators, trainers = cluster.ranks - generators;
  const std::int64_t all = roles.all_images(trainers);
  const std::int64_t parts = ceil_of(all, roles.micro_batch);
  const auto images_of = [&](std::int64_t micro_batches) {
    return static_cast<double>(std::min(micro_batches * roles.micro_batch, all));
  };
  RoleForecast result{.generators = generators, .images = all};
  Calibration of_trainer = with_images(calibration, images_of(ceil_of(parts, trainers)));
  Cluster group = cluster;
  group.ranks = trainers;
  if (generators > 0) of_trainer.attack = 0;
  const StepForecast training = forecast_step(of_trainer, group, choice);
  result.training = training.seconds();
  if (generators == 0) return result;

  const double an_image = (calibration.data + calibration.attack) / calibration.batch / roles.speed;
  const auto images = static_cast<double>(all);
  result.attacking = images * an_image / generators;
  // Time of one step alone, whose micro-batches are whole.
  const double one_step = images_of(ceil_of(parts, generators)) * an_image;

  const Link link = link_of(cluster);
  const double weights =
      roles.weight_bytes * static_cast<double>(calibration.elements()) + static_cast<double>(calibration.step_message);
  const auto versions = static_cast<double>(ceil_of(generators, trainers));
  const double image = 4.0 * 3 * calibration.image_size * calibration.image_size;
  const double bytes = images * image;
  const double gradients = 2 * training.bytes * (trainers - 1) / trainers;
  const double version = versions * link.seconds(weights);
  const double back = link.seconds(roles.micro_batch * image);
  result.link = std::max({version + gradients / link.bandwidth, (bytes / trainers + gradients) / link.bandwidth,
                          bytes / generators / link.bandwidth});
  if (roles.staleness == 0)
    result.round = result.training + version + std::max(one_step, bytes / trainers / link.bandwidth) + back;
  else if (roles.refresh)
    result.round = version + one_step / roles.staleness + back;
  else
    result.round = (version + one_step + back) / roles.staleness;
  return result;
}

RoleForecast best_roles(const Calibration& calibration, const Cluster& cluster, const StepChoice& choice,
                        RoleChoice roles, int least) {
  const auto under_way = [&](int generators) {
    return (roles.staleness + 1) * ceil_of(roles.all_images(cluster.ranks - generators), roles.micro_batch);
  };
  roles.generators = least;
  RoleForecast best = forecast_roles(calibration, cluster, choice, roles);
  for (int generators = least + 1; generators < cluster.ranks && generators <= under_way(generators); ++generators) {
    roles.generators = generators;
    const RoleForecast one = forecast_roles(calibration, cluster, choice, roles);
    if (one.images_per_second() > best.images_per_second()) best = one;
  }
  return best;
}

}  // namespace dat
