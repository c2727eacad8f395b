#include "reduce/tree/tree_reducer.hpp"

#include <algorithm>
#include <array>
#include <cassert>

#include "codec.hpp"
#include "gradients.hpp"

namespace dat {

namespace {

/// MPI counts bytes in int.
constexpr std::int64_t kLongest = 1 << 28;

/// Pieces of which something is under way, and those of them that are fetched.
constexpr int kSlots = 8, kAhead = kSlots / 2;

}  // namespace

TreeReducer::TreeReducer(Backend& backend, Communicator& ranks, const Parameters& parameters, float* gradients,
                         const SummationTree& tree, const ReducerOptions& options)
    : backend_(backend),
      ranks_(ranks),
      parameters_(parameters),
      tree_(tree),
      options_(options),
      piece_(std::min(options.bucket_elements, kLongest)),
      fold_(tree.leaves()),
      places_{gradients},
      table_(backend, parameters),
      byte_(parameters.segments.size()) {
  while (std::ssize(places_) < tree.places(ranks.rank()))
    places_.push_back(backend.allocate_floats(parameters.size, "partial sums of gradients"));
  if (ranks.size() == 1) return;
  sums_ = make_sums(options.node_sums, {.backend = backend,
                                        .ranks = ranks,
                                        .tree = &tree,
                                        .bytes = parameters.size * std::int64_t{sizeof(float)},
                                        .longest = std::min(piece_, parameters.size),
                                        .parts = kSlots});
  device_byte_ = backend.allocate_array<std::int64_t>(std::ssize(byte_), "message tables");
  device_element_ = backend.allocate_array<std::int64_t>(std::ssize(byte_), "message tables");
  std::vector<std::int64_t> element;
  for (const Segment& segment : parameters.segments) element.push_back(segment.begin);
  backend.copy_to_device(device_element_, element.data(), element.size() * sizeof(std::int64_t));
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
  for (std::size_t node = 0; node < fold_.size(); ++node)
    each(backend_.device(), chunks_,
         kernels::Pack<float>{places_[node], message(static_cast<int>(node)), device_element_, device_byte_});
  options_.ended(ReducerStage::encode);
  exchange();
  options_.ended(ReducerStage::communicate);
  each(backend_.device(), chunks_,
       kernels::Unpack<float>{message(0), places_.front(), device_element_, device_byte_, 1.0F});
  options_.ended(ReducerStage::decode);
}

/// A few pieces at a time are fetched, as many are added up, and the sums of others are on their backward pass. Bytes
/// are counted whatever the messages meet in: each rank gets a run of all partial sums of the numbers, adds it up, and
/// all get the sum.
void TreeReducer::exchange() {
  const CallLabel label("gradients");
  constexpr std::int64_t kFloat = sizeof(float);
  std::array<Backend::Ticket, kSlots> tickets{};
  std::array<Request, kSlots> requests;
  const std::int64_t pieces = (elements_ + piece_ - 1) / piece_, nodes = std::ssize(fold_.waiting());
  const auto length = [&](std::int64_t k) { return std::min(piece_, elements_ - k * piece_); };
  const auto slot = [](std::int64_t k) { return static_cast<std::size_t>(k % kSlots); };
  for (std::int64_t k = 0; k < pieces + kSlots; ++k) {
    if (const std::int64_t last = k - kSlots; last >= 0) {
      requests[slot(last)].wait();
      sums_->send(last * piece_ * kFloat, length(last) * kFloat);
    }
    if (const std::int64_t next = k - kAhead; next >= 0 && next < pieces) {
      backend_.wait_for(tickets[slot(next)]);
      requests[slot(next)] = sums_->start(next * piece_ * kFloat, length(next));
    }
    if (k >= pieces) continue;
    tickets[slot(k)] = sums_->fetch(k * piece_ * kFloat, length(k) * kFloat);
    const std::int64_t n = length(k), own = n * (ranks_.rank() + 1) / ranks_.size() - n * ranks_.rank() / ranks_.size();
    bytes_sent_ += kFloat * (nodes * (n - own) + own);
  }
}

double TreeReducer::bytes_sent(const std::vector<double>& probabilities, int ranks) const {
  double elements = 0;
  for (const Segment& segment : parameters_.segments)
    elements += probabilities[static_cast<std::size_t>(segment.layer)] * static_cast<double>(segment.size);
  const auto nodes = static_cast<double>(SummationTree(tree_.leaves(), ranks).all_nodes());
  return sizeof(float) * elements * (nodes / ranks * (1 - 1.0 / ranks) + (ranks > 1 ? 1.0 / ranks : 0));
}

std::int64_t TreeReducer::added_up(int ranks) const {
  const SummationTree tree(tree_.leaves(), ranks);
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks && ranks > 1; ++rank) most = std::max(most, std::ssize(tree.nodes(rank)));
  return most * parameters_.size * std::int64_t{sizeof(float)};
}

std::int64_t TreeReducer::memory(int ranks) const {
  const SummationTree tree(tree_.leaves(), ranks);
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank)
    most = std::max(most, tree.places(rank) - 1 + (ranks > 1 ? std::ssize(tree.nodes(rank)) : 0));
  return most * parameters_.size * std::int64_t{sizeof(float)} + TreeSum<float>::memory(tree, parameters_.size, piece_);
}

}  // namespace dat
