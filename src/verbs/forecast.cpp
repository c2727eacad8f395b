// The verb forecast: what a step will take with other ranks, networks, codecs and budgets, as a table for a person.

#include <iostream>

#include "dat/provenance.hpp"
#include "measure/calibrate.hpp"
#include "measure/forecast_table.hpp"
#include "replica/device_notices.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

namespace dat {

namespace {

int measure_and_forecast(Communicator& world, const ForecastOptions& o, int argc, char** argv) {
  const StepOptions step_options{.network = o.network,
                                 .width = o.width,
                                 .batch = o.batch,
                                 .attack = o.attack,
                                 .attack_steps = o.attack_steps,
                                 .lambda = o.lambda,
                                 .overlap = o.overlap,
                                 .bucket = o.bucket,
                                 .device = o.device,
                                 .threads = choose_threads(o.threads, world.node_size()),
                                 .math = o.math,
                                 .attack_precision = o.attack_precision};
  std::unique_ptr<TrainingStep> step;
  together(world, [&] {
    if (world.root()) make_forecast_folder(o);
    require_known_words(o);
    step = std::make_unique<TrainingStep>(world, step_options);
  });
  for (const std::string& notice : device_notices(world, step->backend(), o.device))
    std::cerr << "dat_hpc: " + notice + "\n";
  const std::vector<std::string> hosts = world.gather(host_name());
  static_cast<void>(step->check());
  Calibration calibration = calibrate(world, *step, o.seconds);
  together(world, [&] {
    if (!world.root()) return;
    calibration.about["provenance"] =
        nlohmann::ordered_json::parse(provenance_json(hosts, argc, argv, step->backend().description()));
    write_calibration(o, calibration);
    std::cout << forecast_table(o, calibration) << std::flush;
    require_printed();
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace

int run_forecast(const Command& command, int argc, char** argv) {
  const ForecastOptions& o = command.forecast;
  if (o.calibration.empty())
    return with_ranks([&](Communicator& world) { return measure_and_forecast(world, o, argc, argv); });
  return print_once([&] {
    const Calibration calibration = read_calibration(o.calibration);
    make_forecast_folder(o);
    return forecast_table(o, calibration);
  });
}

}  // namespace dat
