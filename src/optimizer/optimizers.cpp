#include "dat/optimizer.hpp"

namespace dat {

std::unique_ptr<Optimizer> make_sgd(Backend&, Parameters&, const OptimizerOptions&);
std::unique_ptr<Optimizer> make_lars(Backend&, Parameters&, const OptimizerOptions&);
std::unique_ptr<Optimizer> make_lars_sgd(Backend&, Parameters&, const OptimizerOptions&);
std::unique_ptr<Optimizer> make_lamb(Backend&, Parameters&, const OptimizerOptions&);

namespace {

using Make = std::unique_ptr<Optimizer>(Backend&, Parameters&, const OptimizerOptions&);

struct Member {
  const char* name;
  Make* make;
  double weight_decay;
};
constexpr Member kMembers[] = {
    {"sgd", make_sgd, 5e-4}, {"lars", make_lars, 1e-4}, {"lars_sgd", make_lars_sgd, 1e-4}, {"lamb", make_lamb, 1e-4}};

std::function<Make> checked(Make* make, double weight_decay) {
  return [make, weight_decay](Backend& backend, Parameters& parameters, OptimizerOptions options) {
    require(options.importance == "inside" || options.importance == "outside", ExitCode::usage, "unknown importance '",
            options.importance, "'; known: inside, outside");
    for (const double decay : {options.momentum, options.beta1, options.beta2})
      require(0 <= decay && decay < 1, ExitCode::usage, "momentum, beta1 and beta2 must be in [0, 1), not ", decay);
    require(options.clip_norm >= 0, ExitCode::usage, "the largest norm of the gradient must not be negative, but is ",
            options.clip_norm);
    if (options.weight_decay < 0) options.weight_decay = weight_decay;
    return make(backend, parameters, options);
  };
}

}  // namespace

const Registry<Make>& optimizers() {
  static const Registry<Make> registry("optimizer", [] {
    std::map<std::string, std::function<Make>> all;
    for (const Member& member : kMembers) all[member.name] = checked(member.make, member.weight_decay);
    return all;
  }());
  return registry;
}

double default_weight_decay(const std::string& optimizer) {
  (void)optimizers().at(optimizer);
  for (const Member& member : kMembers)
    if (optimizer == member.name) return member.weight_decay;
  return 0;
}

}  // namespace dat
