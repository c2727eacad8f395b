#include "reduce/tree/mean_of_units.hpp"

#include <cassert>
#include <ranges>
#include <utility>

#include "codec.hpp"
#include "gradients.hpp"

namespace dat {

MeanOfUnits::MeanOfUnits(Backend& backend, const Parameters& parameters, float* gradients, const SummationTree& order,
                         int rank, std::unique_ptr<Reducer> of_ranks)
    : WrappedReducer(std::move(of_ranks)),
      backend_(backend),
      parameters_(parameters),
      gradients_(gradients),
      order_(order),
      factor_(static_cast<float>(order.leaves()) / static_cast<float>(order.leaves_of(rank))),
      table_(backend, parameters),
      active_(ActiveSet::all(parameters.layers())) {
  if (order.leaves_of(rank) > 1) more_ = backend.allocate_floats(parameters.size, "gradient of a micro-batch");
}

void MeanOfUnits::begin(std::span<const ActiveSet> layers, std::int64_t step) {
  assert(layers.size() == 1);
  active_ = layers.front();
  chunks_ = table_.select(active_);
  of_ranks().begin(layers, step);
}

float* MeanOfUnits::place(int unit) {
  if (unit != unit_) complete();
  unit_ = unit;
  return unit == 0 ? gradients_ : more_;
}

/// The gradient of the unit at hand is there: adds it to those before.
void MeanOfUnits::complete() {
  if (unit_ > 0) each(backend_.device(), chunks_, kernels::AddRank{more_, 1.0F, gradients_});
}

void MeanOfUnits::make_mean() {
  if (unit_ < 0) return;
  complete();
  if (factor_ != 1)
    each(backend_.device(), chunks_, kernels::MeanOfRanks{gradients_, parameters_.size, 1, factor_, gradients_});
  unit_ = -1;
}

std::span<float* const> MeanOfUnits::own() {
  make_mean();
  return of_ranks().own();
}

void MeanOfUnits::finish() {
  make_mean();
  for (const Segment& segment : parameters_.segments | std::views::reverse)
    if (active_.active(segment.layer)) of_ranks().ready(static_cast<int>(&segment - parameters_.segments.data()));
  of_ranks().finish();
}

std::int64_t MeanOfUnits::memory(int ranks) const {
  const bool several = order_.leaves() > ranks;
  return WrappedReducer::memory(ranks) + (several ? parameters_.size * std::int64_t{sizeof(float)} : 0);
}

}  // namespace dat
