#include "train/exchange/step_exchange.hpp"

#include <limits>
#include <utility>

#include "reduce/tree/mean_of_units.hpp"
#include "reduce/tree/tree_reducer.hpp"

namespace dat {

namespace {

/// None: all ranks are believed.
[[nodiscard]] std::optional<Tolerance> tolerance_of(const TrainOptions& options, const SummationTree* order,
                                                    int ranks) {
  if (!ranks_may_be_false(options)) return {};
  Tolerance tolerance{.faults = faults_of(options.aggregator, options.faults, ranks), .shares = {}};
  for (int rank = 0; rank < ranks; ++rank)
    tolerance.shares.push_back(order != nullptr ? static_cast<double>(order->leaves_of(rank)) / order->leaves()
                                                : 1.0 / ranks);
  return tolerance;
}

}  // namespace

std::int64_t bucket_of(const TrainOptions& options) {
  if (options.byzantine) return std::numeric_limits<std::int64_t>::max();  // all at once
  return options.bucket > 0 ? options.bucket : default_bucket(options.overlap);
}

StepExchange::StepExchange(const Parts& parts)
    : ranks_(parts.ranks),
      options_(parts.options),
      replica_(parts.replica),
      order_(parts.order),
      timer_(parts.timer),
      cheating_(parts.cheating),
      message_(ranks_, replica_.backend(), order_, tolerance_of(options_, order_, ranks_.size())) {}

void StepExchange::open() {
  reducer_ = make_reducer(replica_.model().parameters.gradients, options_.codec, options_.codec_transport,
                          options_.aggregator);
  codec_state_ = std::make_unique<CodecState>(ranks_, replica_.backend(), *reducer_, options_.steps_may_be_left_out());
}

std::unique_ptr<Reducer> StepExchange::make_reducer(float* gradients, const std::string& codec,
                                                    const std::string& codec_transport, const std::string& aggregator) {
  Backend& backend = replica_.backend();
  const Parameters& parameters = replica_.model().parameters;
  ReducerOptions reduction{.bucket_elements = bucket_of(options_),
                           .overlap = options_.overlap,
                           .mask_transport = options_.mask == "per_worker" ? options_.mask_transport : "",
                           .codec_transport = options_.byzantine ? "butterfly" : codec_transport,
                           .node_sums = options_.node_sums,
                           .watch = watch(),
                           .ended = [this](ReducerStage stage) { ended(stage); }};
  const bool of_ranks = repeats(aggregator) == Repeats::at_equal_ranks;
  if (order_ && !of_ranks)
    return std::make_unique<TreeReducer>(backend, ranks_, parameters, gradients, *order_, reduction);
  for (int rank = 0; order_ && rank < ranks_.size(); ++rank) reduction.weights.push_back(order_->leaves_of(rank));
  auto chosen = aggregators().at(aggregator)(
      backend, parameters,
      {.ranks = ranks_.size(), .faults = faults_of(aggregator, options_.faults, ranks_.size()), .settings = options_});
  use(*chosen);
  auto reducer = dat::make_reducer(
      backend, ranks_, parameters, gradients,
      codecs().at(codec)(backend, parameters, {.seed = options_.seed, .rank = ranks_.rank(), .settings = options_}),
      std::move(chosen), reduction);
  if (gradients == parameters.gradients)
    reducer = cheating_.falsify(std::move(reducer), backend, ranks_, parameters, gradients, reduction);
  if (!order_) return reducer;
  return std::make_unique<MeanOfUnits>(backend, parameters, gradients, *order_, ranks_.rank(), std::move(reducer));
}

void StepExchange::begin(std::span<const ActiveSet> layers, std::int64_t step) {
  around_reducer_ = Phase::select;
  codec_state_->keep();
  reducer_->begin(layers, step);
  timer_.lap(Phase::select);
  around_reducer_ = Phase::backward;
}

bool StepExchange::finish() {
  reducer_->finish();
  timer_.end_sum(reducer_->seconds_under_way());
  return true;
}

void StepExchange::ended(ReducerStage stage) {
  if (stage == ReducerStage::aside) return timer_.leave_out();
  timer_.lap(stage == ReducerStage::outside       ? around_reducer_
             : stage == ReducerStage::encode      ? Phase::encode
             : stage == ReducerStage::communicate ? Phase::exposed
                                                  : Phase::decode);
}

}  // namespace dat
