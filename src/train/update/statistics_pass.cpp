#include "train/update/statistics_pass.hpp"

#include "train/examples/example_source.hpp"
#include "train/plan/goal.hpp"

namespace dat {

namespace {

[[nodiscard]] LoaderOptions reading(const TrainOptions& options, const Plan& plan) {
  LoaderOptions all = loader_options(options, plan);
  all.everyone = false;
  all.sizes = {};
  return all;
}

}  // namespace

StatisticsPass::StatisticsPass(Communicator& ranks, const Dataset& images, const TrainOptions& options,
                               const Plan& plan, Replica& replica, const SummationTree* order)
    : ranks_(ranks),
      plan_(plan),
      replica_(replica),
      seed_(options.seed),
      reader_(images, ranks.size(), reading(options, plan)),
      batch_(reader_.batch()),
      statistics_(ranks, replica.model(), 1, false, order),
      message_(ranks, replica.backend(), order) {
  message_.add(statistics_);
}

void StatisticsPass::run() {
  const CallLabel label("statistics of the averaged weights");
  Images& images = replica_.images();
  double seen = 0;
  for (std::int64_t step = 0; step < plan_.steps_per_epoch; ++step) {
    reader_.fill(batch_, step, ranks_.rank());
    Examples part{.count = batch_.count / plan_.micro_batches_of(ranks_.rank()),
                  .batch = batch_.count,
                  .elsewhere = plan_.ordered ? batch_.elsewhere : 0,
                  .whole = plan_.ordered};
    for (; part.first < part.batch; part.first += part.count) {
      images.load(batch_, part.first, part.count, pixels_);
      TrainingProgram& network = replica_.training(part.count * replica_.copies());
      NoisyCopies* const noise = replica_.noise();
      network.forward(noise == nullptr ? images.clean
                                       : noise->of(images.clean, images.ids, images.layout, part.count, seed_, 0));
      part.unit = plan_.ordered ? part.first / part.count : 0;
      statistics_.add(network, 0, {.unit = part.unit, .first = part.begins_unit(), .share = part.share()});
    }
    message_.sum();
    const double here = batch_.count + batch_.elsewhere;
    seen += here;
    statistics_.enter_model(static_cast<float>(here / seen));
  }
}

}  // namespace dat
