#include "reduce/masks.hpp"

#include <cassert>
#include <utility>

#include "dat/error.hpp"
#include "gradients.hpp"

namespace dat {

Masks::Masks(Backend& backend, Communicator& ranks, const Parameters& parameters, std::string how)
    : backend_(backend),
      ranks_(ranks),
      parameters_(parameters),
      how_(std::move(how)),
      any_(ActiveSet::all(parameters.layers())),
      absent_(any_) {
  require(how_.empty() || how_ == "dense" || how_ == "union" || separate(), ExitCode::usage,
          "unknown transport of --mask per_worker '", how_, "'; known: dense, union, allgather");
}

void Masks::reserve() {
  const int messages = !per_worker() ? 0 : separate() ? ranks_.size() : 1;
  zeros_.reserve(static_cast<std::size_t>(messages));
  for (int m = 0; m < messages; ++m) zeros_.emplace_back(backend_, parameters_);
}

void Masks::begin(std::span<const ActiveSet> layers) {
  assert(std::ssize(layers) == (per_worker() ? ranks_.size() : 1));
  layers_ = layers;
  for (int layer = 0; layer < parameters_.layers(); ++layer) {
    bool any = how_ == "dense";
    for (const ActiveSet& one : layers) any = any || one.active(layer);
    any_.scale[static_cast<std::size_t>(layer)] = any ? 1.0F : 0.0F;
  }
}

const ActiveSet& Masks::own() const { return layers_[per_worker() ? static_cast<std::size_t>(ranks_.rank()) : 0]; }

void Masks::set_zeros(float* gradients, float* of_ranks) {
  for (std::size_t m = 0; m < zeros_.size(); ++m) {
    const ActiveSet& has = separate() ? layers_[m] : own();
    for (std::size_t d = 0; d < any_.scale.size(); ++d)
      absent_.scale[d] = any_.scale[d] != 0 && has.scale[d] == 0 ? 1.0F : 0.0F;
    each(backend_.device(), zeros_[m].select(absent_),
         kernels::Zero{separate() ? of_ranks + parameters_.size * static_cast<std::int64_t>(m) : gradients});
  }
}

}  // namespace dat
