#include "dat/optimizer.hpp"

namespace dat {

std::unique_ptr<Optimizer> make_sgd(Backend&, Parameters&, const OptimizerOptions&);
std::unique_ptr<Optimizer> make_lars(Backend&, Parameters&, const OptimizerOptions&);
std::unique_ptr<Optimizer> make_lars_sgd(Backend&, Parameters&, const OptimizerOptions&);
std::unique_ptr<Optimizer> make_lamb(Backend&, Parameters&, const OptimizerOptions&);

namespace {

using Make = std::unique_ptr<Optimizer>(Backend&, Parameters&, const OptimizerOptions&);

using Optimizers = Registry<Make>;

/// The optimizers, with their own weight decay where none is asked for.
[[nodiscard]] Optimizers checked(std::vector<Optimizers::Row> rows) {
  for (Optimizers::Row& row : rows)
    row.make = [make = row.make, own = number_of(row.settings, "weight-decay").value_or(0)](
                   Backend& backend, Parameters& parameters, OptimizerOptions options) {
      require(options.importance == "inside" || options.importance == "outside", ExitCode::usage,
              "unknown importance '", options.importance, "'; known: inside, outside");
      for (const double decay : {options.momentum, options.beta1, options.beta2})
        require(0 <= decay && decay < 1, ExitCode::usage, "momentum, beta1 and beta2 must be in [0, 1), not ", decay);
      require(options.clip_norm >= 0, ExitCode::usage, "the largest norm of the gradient must not be negative, but is ",
              options.clip_norm);
      if (options.weight_decay < 0) options.weight_decay = own;
      return make(backend, parameters, options);
    };
  return {"optimizer", rows};
}

}  // namespace

const Optimizers& optimizers() {
  static const Optimizers all = checked(
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
