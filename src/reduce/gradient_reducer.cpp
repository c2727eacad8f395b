#include "reduce/gradient_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
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

std::string choose_transport(const Codec& codec, const Aggregator& aggregator, const ReducerOptions& options) {
  const bool separate = options.mask_transport == "allgather", automatic = options.codec_transport == "auto";
  const auto serves = [&](const std::string& name) {
    const TransportKind kind = transports().at(name)();
    return kind.serves(aggregator) && (kind.separate || !separate);
  };
  const std::vector<std::string> names = transport_names();
  std::vector<std::string> allowed = transports_of(codec);
  const bool by_nccl = options.node_sums == "nccl";
  if (by_nccl && codec.sum_type() != DType::f32) allowed.insert(allowed.begin(), "sum");
  const auto known = [](const std::vector<std::string>& all, const std::string& name) {
    return std::ranges::find(all, name) != all.end();
  };
  require(automatic || known(names, options.codec_transport), ExitCode::usage, "unknown --codec-transport '",
          options.codec_transport, fmt::format("'; known: auto, {}", fmt::join(names, ", ")));
  const std::string chosen = !automatic                ? options.codec_transport
                             : serves(allowed.front()) ? allowed.front()
                                                       : *std::ranges::find_if(names, serves);
  const char* const why = separate ? "--mask per_worker:allgather" : "an aggregator that is not the mean";
  const bool cuts = !separate && transports().at(chosen)().cuts;
  require(serves(chosen), ExitCode::usage, "--codec-transport ", chosen, " does not work with ",
          cuts ? "an aggregator that measures whole gradients" : why,
          ", which wants the messages of all ranks: leave it off, or choose gather");
  require(known(allowed, chosen), ExitCode::usage, "the messages of this --codec do not meet by --codec-transport ",
          chosen, fmt::format(", but by: {}", fmt::join(allowed, ", ")),
          automatic ? "; " : "; choose that, or another codec", automatic ? why : "",
          automatic ? " wants the messages of all ranks: leave that off, or choose another codec" : "");
  require(!by_nccl || chosen == "sum", ExitCode::usage,
          "--node-sums nccl adds messages up, and those of this --codec, --aggregator or --mask meet by ",
          "--codec-transport ", chosen, "; leave it off, or take --codec float32, f16 or bf16 and the mean");
  return chosen;
}

GradientReducer::GradientReducer(Backend& backend, Communicator& ranks, const Parameters& parameters, float* gradients,
                                 std::unique_ptr<Codec> codec, std::unique_ptr<Aggregator> aggregator,
                                 const ReducerOptions& options)
    : ranks_(ranks),
      parameters_(parameters),
      gradients_(gradients),
      codec_(std::move(codec)),
      aggregator_(std::move(aggregator)),
      weights_(options.weights),
      ended_(options.ended),
      masks_(backend, ranks, parameters, options.mask_transport),
      name_(choose_transport(*codec_, *aggregator_, options)),
      kind_(transports().at(name_)()),
      transport_(kind_.make({.backend = backend,
                             .ranks = ranks,
                             .parameters = parameters,
                             .gradients = gradients,
                             .codec = *codec_,
                             .aggregator = *aggregator_,
                             .weights = weights_,
                             .separate = masks_.separate(),
                             .node_sums = options.node_sums,
                             .overlap = options.overlap,
                             .watch = options.watch})),
      overlap_(options.overlap),
      unchanged_(unchanged(ranks.size())),
      buckets_(backend, parameters, options, unchanged_ ? nullptr : transport_.get()) {
  require(!masks_.per_worker() || aggregator_->is_mean(), ExitCode::usage,
          "masks per worker work with --aggregator mean alone: others take the zeros of ranks that have not drawn a "
          "layer for gradients; choose it, or --mask shared");
  require(options.mask_transport != "dense" || codec_->state().empty(), ExitCode::usage,
          "--mask per_worker:dense does not work with a --codec that remembers what it has left out: of a layer that "
          "no rank has drawn, it would be sent, but the layer stands still; choose union");
  if (unchanged_) return;
  if (options.overlap) (void)ranks.move_on_beside();
  masks_.reserve();
  transport_->reserve();
}

void GradientReducer::begin(std::span<const ActiveSet> layers, std::int64_t step) {
  under_way_before_ = ranks_.seconds_under_way();
  masks_.begin(layers);
  buckets_.cut(masks_.any(), masks_.own());
  if (unchanged_) return;
  bytes_sent_ = transport_->begin({.step = step, .buckets = buckets_.buckets(), .any = masks_.any(), .layers = layers});
  masks_.set_zeros(gradients_, transport_->of_ranks());
  buckets_.begin();
}

void GradientReducer::finish() {
  if (unchanged_) return;
  buckets_.finish();
  transport_->finish();
  ended_(ReducerStage::decode);
}

double GradientReducer::bytes_sent(const std::vector<double>& probabilities, int ranks) const {
  double bytes = 0;
  for (const Segment& segment : parameters_.segments)
    bytes += probabilities[static_cast<std::size_t>(segment.layer)] *
             static_cast<double>(kind_.sent(*codec_, segment, ranks));
  return bytes;
}

std::int64_t GradientReducer::memory(int ranks) const {
  return aggregator_->memory(ranks) + (unchanged(ranks) ? 0 : kind_.memory(*codec_, parameters_, ranks));
}

std::int64_t GradientReducer::added_up(int ranks) const {
  return kind_.traffic(ranks).summed && !unchanged(ranks) ? kind_.memory(*codec_, parameters_, ranks) : 0;
}

std::vector<Reducer::State> GradientReducer::state() const {
  std::vector<State> all;
  for (const DeviceState& one : codec_->state()) all.push_back({one, "codec"});
  for (const DeviceState& one : aggregator_->state()) all.push_back({one, "aggregator"});
  return all;
}

std::unique_ptr<Reducer> make_reducer(Backend& backend, Communicator& ranks, const Parameters& parameters,
                                      float* gradients, std::unique_ptr<Codec> codec,
                                      std::unique_ptr<Aggregator> aggregator, const ReducerOptions& options) {
  return std::make_unique<GradientReducer>(backend, ranks, parameters, gradients, std::move(codec),
                                           std::move(aggregator), options);
}

}  // namespace dat
