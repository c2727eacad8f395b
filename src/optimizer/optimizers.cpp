#include "dat/optimizer.hpp"

namespace dat {

std::unique_ptr<Optimizer> make_sgd(Backend&, Parameters&, const OptimizerOptions&);
std::unique_ptr<Optimizer> make_lars(Backend&, Parameters&, const OptimizerOptions&);
std::unique_ptr<Optimizer> make_lars_sgd(Backend&, Parameters&, const OptimizerOptions&);
std::unique_ptr<Optimizer> make_lamb(Backend&, Parameters&, const OptimizerOptions&);

namespace {

using Optimizers = Registry<std::unique_ptr<Optimizer>(Backend&, Parameters&, const OptimizerOptions&)>;

/// The optimizers, with their own weight decay where none is asked for.
[[nodiscard]] Optimizers with_decay(std::vector<Optimizers::Row> rows) {
  for (Optimizers::Row& row : rows)
    row.make = [make = row.make, own = number_of(row.settings, "weight-decay").value_or(double{})](
                   Backend& backend, Parameters& parameters, OptimizerOptions options) {
      if (options.weight_decay < 0) options.weight_decay = own;
      return make(backend, parameters, options);
    };
  return {"optimizer", rows};
}

}  // namespace

const Optimizers& optimizers() {
  static const Optimizers all = with_decay(
      {{"sgd", make_sgd, {{"weight-decay", "5e-4"}, {"momentum"}, {"optimizer:peak_momentum"}, {"optimizer:nesterov"}}},
       {"lars",
        make_lars,
        {{"weight-decay", "1e-4"}, {"momentum"}, {"optimizer:peak_momentum"}, {"optimizer:clamp"}},
        "You, Gitman, Ginsburg, \"Large Batch Training of Convolutional Networks\", 2017"},
       {"lars_sgd",
        make_lars_sgd,
        {{"weight-decay", "1e-4"}, {"momentum"}, {"optimizer:peak_momentum"}, {"optimizer:trust"}},
        "You, Gitman, Ginsburg, \"Large Batch Training of Convolutional Networks\", 2017"},
       {"lamb",
        make_lamb,
        {{"weight-decay", "1e-4"},
         {"optimizer:beta1"},
         {"optimizer:beta2"},
         {"optimizer:epsilon"},
         {"optimizer:bias_correction"},
         {"optimizer:clamp"}},
        "You et al., \"Large Batch Optimization for Deep Learning\", ICLR 2020"}});
  return all;
}

}  // namespace dat
