#include "reduce/tree/tree_reducer.hpp"

#include <algorithm>
#include <cassert>

#include "codec.hpp"
#include "gradients.hpp"

namespace dat {

namespace {

/// MPI counts bytes in int.
constexpr std::int64_t kLongest = 1 << 28;

}  // namespace

TreeReducer::TreeReducer(Backend& backend, Communicator& ranks, const Parameters& parameters, float* gradients,
                         const SummationTree& tree, const ReducerOptions& options)
    : backend_(backend),
      ranks_(ranks),
      parameters_(parameters),
      tree_(tree),
      options_(options),
      piece_(std::clamp<std::int64_t>(options.bucket_elements, 1, kLongest)),
      staged_(backend.device().kind == DeviceKind::cuda),
      fold_(tree.leaves()),
      places_{gradients},
      sum_(ranks, tree, piece_),
      table_(backend, parameters),
      byte_(parameters.segments.size()) {
  while (std::ssize(places_) < tree.places(ranks.rank()))
    places_.push_back(backend.allocate_floats(parameters.size, "partial sums of gradients"));
  if (ranks.size() == 1) return;
  const char* const purpose = "gradient message";
  const auto nodes = std::ssize(tree.nodes(ranks.rank()));
  const auto pinned = [&](std::int64_t floats) {
    return static_cast<float*>(backend.allocate_pinned(static_cast<std::size_t>(floats) * sizeof(float), purpose));
  };
  message_ = backend.allocate_floats(nodes * parameters.size, purpose);
  host_message_ = staged_ ? pinned(nodes * parameters.size) : message_;
  result_ = pinned(parameters.size);
  sum_.reserve(parameters.size);
  const std::size_t bytes = byte_.size() * sizeof(std::int64_t);
  device_byte_ = static_cast<std::int64_t*>(backend.allocate(bytes, "message tables"));
  device_element_ = static_cast<std::int64_t*>(backend.allocate(bytes, "message tables"));
  std::vector<std::int64_t> element;
  for (const Segment& segment : parameters.segments) element.push_back(segment.begin);
  backend.copy_to_device(device_element_, element.data(), bytes);
}

void TreeReducer::begin(std::span<const ActiveSet> layers, std::int64_t) {
  assert(layers.size() == 1);
  chunks_ = table_.select(layers.front());
  elements_ = 0;
  for (std::size_t k = 0; k < byte_.size(); ++k) {
    byte_[k] = elements_ * std::int64_t{sizeof(float)};
    if (layers.front().active(parameters_.segments[k].layer)) elements_ += parameters_.segments[k].size;
  }
  if (device_byte_ != nullptr) backend_.copy_to_device(device_byte_, byte_.data(), byte_.size() * sizeof(std::int64_t));
  fold_.begin();
  unit_ = -1;
}

float* TreeReducer::place(int unit) {
  if (unit != unit_) complete();
  unit_ = unit;
  return places_[fold_.size()];
}

/// The gradient of the unit at hand is there: adds it to what waits for it.
void TreeReducer::complete() {
  if (unit_ < 0) return;
  fold_.push({0, tree_.first(ranks_.rank()) + unit_}, [this](std::size_t left) {
    each(backend_.device(), chunks_, kernels::AddRank{places_[left + 1], 1.0F, places_[left]});
  });
  unit_ = -1;
}

std::span<float* const> TreeReducer::own() {
  complete();
  return {places_.data(), fold_.size()};
}

void TreeReducer::finish() {
  complete();
  assert(fold_.waiting() == tree_.nodes(ranks_.rank()));
  bytes_sent_ = 0;
  if (ranks_.size() == 1) return;
  options_.ended(ReducerStage::outside);
  const auto nodes = static_cast<std::int64_t>(fold_.size());
  for (std::int64_t node = 0; node < nodes; ++node)
    each(backend_.device(), chunks_,
         kernels::Pack{places_[static_cast<std::size_t>(node)], message_ + node * elements_, device_element_,
                       device_byte_});
  const Backend::Ticket ticket =
      staged_ ? backend_.fetch(host_message_, message_, static_cast<std::size_t>(nodes * elements_) * sizeof(float))
              : backend_.mark();
  options_.ended(ReducerStage::encode);
  backend_.wait_for(ticket);
  const std::int64_t before = ranks_.bytes_given();
  sum_.sum(host_message_, elements_, elements_, result_);
  bytes_sent_ = ranks_.bytes_given() - before;
  options_.ended(ReducerStage::communicate);
  const float* sum = result_;
  if (staged_) {
    backend_.send(message_, result_, static_cast<std::size_t>(elements_) * sizeof(float));
    sum = message_;
  }
  each(backend_.device(), chunks_, kernels::Unpack{sum, places_.front(), device_element_, device_byte_, 1.0F});
  options_.ended(ReducerStage::decode);
}

double TreeReducer::bytes_sent(const std::vector<double>& probabilities, int ranks) const {
  double elements = 0;
  for (const Segment& segment : parameters_.segments)
    elements += probabilities[static_cast<std::size_t>(segment.layer)] * static_cast<double>(segment.size);
  const auto nodes = static_cast<double>(SummationTree(tree_.leaves(), ranks).all_nodes());
  return sizeof(float) * elements * (nodes / ranks * (1 - 1.0 / ranks) + (ranks > 1 ? 1.0 / ranks : 0));
}

std::int64_t TreeReducer::memory(int ranks) const {
  const SummationTree tree(tree_.leaves(), ranks);
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank)
    most = std::max(most, tree.places(rank) - 1 + (ranks > 1 ? std::ssize(tree.nodes(rank)) + 1 : 0));
  return most * parameters_.size * std::int64_t{sizeof(float)} + TreeSum<float>::memory(tree, parameters_.size, piece_);
}

}  // namespace dat
