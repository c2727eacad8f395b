#include "dat/network.hpp"

#include "options/machine.hpp"
#include "options/train/groups.hpp"

namespace dat {

void add_network(TrainTable& table) {
  using O = TrainOptions;
  table.group("Network");
  table
      .add("--network", &O::network, "architecture; D: depth (6k + 4), W: widening factor; a wrong name lists all",
           one_network())
      .decides_function();
  table.add("--width", &O::width, kAboutWidth, kAutoWidth).decides_function();
  table
      .add("--activation", &O::activation,
           "what follows batch norms; silu: x/(1 + exp(-x)), Swish; auto: silu in dm_wrn_*, else relu",
           one_of({"auto", "relu", "silu"}))
      .decides_function();
  table
      .add("--normalize", &O::normalize,
           "(x - mean)/std of the images, inside the network: attacks stay in [0, 1]; none, known numbers, or the "
           "means of all channels and then their standard deviations",
           {.label = "none|cifar10|cifar100|imagenet|M,...,S,..."})
      .decides_function();
  table
      .add("--bn-statistics", &O::bn_statistics,
           "running statistics: averaged over ranks each step, or each rank its own (rank 0's count)",
           one_of({"average", "local"}))
      .bound_to_ranks();
}

void settle_network(TrainOptions& o) {
  if (o.width == 0) o.width = default_width(o.network);
  if (o.activation == "auto") o.activation = default_activation(o.network);
  (void)normalization_from(o.normalize);
}

}  // namespace dat
