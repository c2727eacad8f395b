#include "train/update/statistics_pass.hpp"

#include "train/plan/goal.hpp"

namespace dat {

namespace {

[[nodiscard]] LoaderOptions reading(const TrainOptions& options, const Plan& plan, int threads) {
  LoaderOptions all = loader_options(options, plan, threads);
  all.sizes = {};
  return all;
}

}  // namespace

StatisticsPass::StatisticsPass(Communicator& ranks, const Dataset& images, const TrainOptions& options,
                               const Plan& plan, Replica& replica, const SummationTree* order)
    : ranks_(ranks),
      plan_(plan),
      replica_(replica),
      reader_(images, ranks.size(), reading(options, plan, replica.backend().host_threads)),
      batch_(reader_.batch()),
      statistics_(ranks, replica.model(), {0}, order),
      message_(ranks, replica.backend(), order) {
  message_.add(statistics_);
}

void StatisticsPass::run() {
  const CallLabel label("statistics of the averaged weights");
  Buffers& images = replica_.images();
  double seen = 0;
  for (std::int64_t step = 0; step < plan_.steps_per_epoch; ++step) {
    reader_.fill(batch_, step, ranks_.rank());
    for (int index = 0; index < batch_.micro_batches; ++index) {
      const Batch& batch = images.load(batch_, index, nullptr);
      TrainingProgram& network = replica_.training(batch.n * replica_.copies());
      network.forward(images.shown(batch.clean, batch));
      statistics_.add(network, 0, batch.place());
    }
    message_.sum();
    const double here = batch_.count + batch_.elsewhere;
    seen += here;
    statistics_.enter_model(static_cast<float>(here / seen));
  }
}

}  // namespace dat
