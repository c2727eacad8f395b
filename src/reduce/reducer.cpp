#include "dat/reducer.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <utility>

#include "dat/error.hpp"
#include "gradients.hpp"

namespace dat {

GradientReducer::GradientReducer(Backend& backend, Communicator& ranks, const Parameters& parameters, float* gradients,
                                 std::unique_ptr<Codec> codec, std::unique_ptr<Aggregator> aggregator,
                                 const ReducerOptions& options)
    : backend_(backend),
      ranks_(ranks),
      parameters_(parameters),
      gradients_(gradients),
      codec_(std::move(codec)),
      aggregator_(std::move(aggregator)),
      options_(options),
      separate_(options.transport == "allgather"),
      own_(separate_ ? static_cast<std::size_t>(ranks.rank()) : 0),
      unchanged_(ranks.size() == 1 && codec_->exact() && aggregator_->keeps_one()),
      summed_(codec_->summable() && aggregator_->is_mean() && !separate_),
      staged_(backend.device().kind == DeviceKind::cuda && (options.overlap || !ranks.takes_device_memory())),
      any_(ActiveSet::all(parameters.layers())),
      absent_(any_) {
  require(options.bucket_elements >= 1, ExitCode::usage, "--bucket must be at least 1 element");
  const std::string& transport = options.transport;
  require(transport.empty() || transport == "dense" || transport == "union" || separate_, ExitCode::usage,
          "unknown transport '", transport, "'; known: dense, union, allgather");
  require(transport.empty() || aggregator_->is_mean(), ExitCode::usage,
          "masks per worker work with --aggregator mean alone: others take the zeros of ranks that have not drawn a "
          "layer for gradients; choose it, or --mask shared");
  if (options.overlap && !unchanged_) (void)ranks.move_on_beside();
  const auto segments = parameters.segments.size();
  part_of_.resize(segments);
  parts_.reserve(segments);
  std::vector<std::int64_t> element;
  std::size_t bytes = 0;
  for (const Segment& segment : parameters.segments) {
    element.push_back(segment.begin);
    segment_bytes_.push_back(codec_->bytes(segment.size));
    assert(segment_bytes_.back() % std::int64_t{sizeof(float)} == 0);
    bytes += static_cast<std::size_t>(segment_bytes_.back());
  }
  const std::size_t all = static_cast<std::size_t>(ranks.size()), messages = separate_ ? all : 1;
  messages_.reserve(messages);
  for (std::size_t m = 0; m < messages; ++m)
    messages_.push_back({.table = ChunkTable(backend, parameters), .byte = std::vector<std::int64_t>(segments)});
  part_bytes_.resize(segments * messages);
  if (unchanged_) return;
  const char* const purpose = "gradient message";
  const auto memory = [&](std::size_t size, std::byte*& device, std::byte*& host) {
    device = static_cast<std::byte*>(backend.allocate(size, purpose));
    host = staged_ ? static_cast<std::byte*>(backend.allocate_pinned(size, purpose)) : device;
  };
  const auto numbers = [&] {
    return static_cast<std::int64_t*>(backend.allocate(segments * sizeof(std::int64_t), purpose));
  };
  memory(bytes, message_, host_message_);
  device_element_ = numbers();
  for (Message& message : messages_) message.device_byte = numbers();
  backend.copy_to_device(device_element_, element.data(), segments * sizeof(std::int64_t));
  if (!transport.empty())
    for (std::size_t m = 0; m < messages; ++m) zeros_.emplace_back(backend, parameters);
  if (separate_) {
    result_.emplace(backend, parameters);
    blocks_.assign(segments, {std::vector<int>(all), std::vector<int>(all)});
  }
  if (summed_) return;
  memory(bytes * all, everyone_, host_everyone_);
  decoded_ = backend.allocate_floats(parameters.size * ranks.size(), "gradients of all ranks");
}

const ActiveSet& GradientReducer::layers_of(std::span<const ActiveSet> layers, std::size_t message) const {
  return separate_ ? layers[message] : any_;
}

void GradientReducer::begin(std::span<const ActiveSet> layers, std::int64_t step) {
  assert(std::ssize(layers) == (options_.transport.empty() ? 1 : ranks_.size()));
  step_ = step;
  under_way_before_ = ranks_.seconds_under_way();
  lay_out(layers);
  if (unchanged_) return;
  for (std::size_t m = 0; m < messages_.size(); ++m) {
    Message& message = messages_[m];
    chunks_ = message.table.select(layers_of(layers, m));
    backend_.copy_to_device(message.device_byte, message.byte.data(), message.byte.size() * sizeof(std::int64_t));
  }
  if (separate_) {
    chunks_ = result_->select(any_);
    lay_out_blocks();
  }
  set_zeros(layers);
  for (Part& part : parts_)
    if (part.missing == 0) encode(part);  // nobody will announce anything
}

void GradientReducer::lay_out(std::span<const ActiveSet> layers) {
  const ActiveSet& own = layers[layers.size() > 1 ? static_cast<std::size_t>(ranks_.rank()) : 0];
  for (int layer = 0; layer < parameters_.layers(); ++layer) {
    bool any = options_.transport == "dense";
    for (const ActiveSet& one : layers) any = any || one.active(layer);
    any_.scale[static_cast<std::size_t>(layer)] = any ? 1.0F : 0.0F;
  }
  const std::size_t messages = messages_.size();
  parts_.clear();
  std::fill(part_bytes_.begin(), part_bytes_.end(), 0);
  elements_ = 0;
  for (std::size_t k = parameters_.segments.size(); k-- > 0;) {
    const Segment& segment = parameters_.segments[k];
    part_of_[k] = -1;
    if (!any_.active(segment.layer)) continue;
    if (parts_.empty() || parts_.back().elements + segment.size > options_.bucket_elements) {
      Part& part = parts_.emplace_back();
      part.end = static_cast<int>(k) + 1;
      part.bytes = part_bytes_.data() + (parts_.size() - 1) * messages;
    }
    Part& part = parts_.back();
    part_of_[k] = static_cast<int>(parts_.size()) - 1;
    part.first = static_cast<int>(k);
    part.elements += segment.size;
    if (own.active(segment.layer)) {
      ++part.missing;
      elements_ += segment.size;
    }
    for (std::size_t m = 0; m < messages; ++m)
      if (layers_of(layers, m).active(segment.layer)) {
        messages_[m].byte[k] = part.bytes[m];
        part.bytes[m] += segment_bytes_[k];
      }
  }
  bytes_ = 0;
  std::int64_t everyone = 0;
  for (Part& part : parts_) {
    part.begin = bytes_;
    bytes_ += part.bytes[own_];
    part.everyone = everyone;
    part.bytes_of_everyone =
        separate_ ? std::accumulate(part.bytes, part.bytes + messages, std::int64_t{0}) : part.bytes[0] * ranks_.size();
    everyone += part.bytes_of_everyone;
  }
}

void GradientReducer::lay_out_blocks() {
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    Part& part = parts_[k];
    require(part.bytes_of_everyone <= std::numeric_limits<int>::max(), ExitCode::communication, "a bucket of ",
            part.elements, " gradients is ", part.bytes_of_everyone, " bytes of all ranks: 2^31 - 1 is the most that ",
            "goes at once; choose a smaller --bucket");
    int at = 0;
    for (std::size_t rank = 0; rank < messages_.size(); ++rank) {
      blocks_[k].bytes[rank] = static_cast<int>(part.bytes[rank]);
      blocks_[k].at[rank] = at;
      at += blocks_[k].bytes[rank];
    }
    part.blocks = &blocks_[k];
  }
}

/// For the layers of the result that a rank does not have.
void GradientReducer::set_zeros(std::span<const ActiveSet> layers) {
  for (std::size_t m = 0; m < zeros_.size(); ++m) {
    const ActiveSet& has = layers[separate_ ? m : static_cast<std::size_t>(ranks_.rank())];
    for (std::size_t d = 0; d < any_.scale.size(); ++d)
      absent_.scale[d] = any_.scale[d] != 0 && has.scale[d] == 0 ? 1.0F : 0.0F;
    each(backend_.device(), zeros_[m].select(absent_),
         kernels::Zero{separate_ ? decoded_ + parameters_.size * static_cast<std::int64_t>(m) : gradients_});
  }
}

Bucket GradientReducer::bucket(const Part& part, std::size_t message) const {
  const Message& of = messages_[message];
  return {.first = part.first,
          .end = part.end,
          .step = step_,
          .chunks = of.table.between(part.first, part.end),
          .element = device_element_,
          .byte = of.device_byte,
          .bytes = part.bytes[message]};
}

void GradientReducer::ready(int segment) {
  assert(part_of_[static_cast<std::size_t>(segment)] >= 0);
  Part& part = parts_[static_cast<std::size_t>(part_of_[static_cast<std::size_t>(segment)])];
  if (--part.missing > 0 || unchanged_) return;
  encode(part);
  if (!options_.overlap) return;
  for (Part& one : parts_)
    if (!one.sent) {
      if (one.missing > 0 || !backend_.arrived(one.ticket)) break;  // all ranks send in the same order
      give(one);
    }
  move_on();
  options_.ended(ReducerStage::communicate);
}

/// MPI gets the chance to move on what is under way.
void GradientReducer::move_on() {
  for (Part& part : parts_) (void)part.request.test();
}

void GradientReducer::encode(Part& part) {
  options_.ended(ReducerStage::outside);
  const Bucket mine = bucket(part, own_);
  if (mine.bytes > 0) codec_->encode(mine, gradients_, message_ + part.begin);
  part.ticket = staged_ && mine.bytes > 0 ? backend_.fetch(host_message_ + part.begin, message_ + part.begin,
                                                           static_cast<std::size_t>(mine.bytes))
                                          : backend_.mark();
  options_.ended(ReducerStage::encode);
}

void GradientReducer::give(Part& part) {
  part.sent = true;
  std::byte* const mine = host_message_ + part.begin;
  if (summed_) {
    auto* const numbers = reinterpret_cast<float*>(mine);
    const std::int64_t count = part.bytes[own_] / std::int64_t{sizeof(float)};
    if (options_.overlap)
      part.request = ranks_.start_sum(numbers, count);
    else
      ranks_.sum(numbers, count);
    return;
  }
  std::byte* const all = host_everyone_ + part.everyone;
  const auto bytes = static_cast<std::size_t>(part.bytes[own_]);
  if (part.blocks == nullptr && options_.overlap)
    part.request = ranks_.start_all_gather(mine, all, bytes);
  else if (part.blocks == nullptr)
    ranks_.all_gather(mine, all, bytes);
  else if (options_.overlap)
    part.request = ranks_.start_all_gather(mine, all, part.blocks->bytes, part.blocks->at);
  else
    ranks_.all_gather(mine, all, part.blocks->bytes);
}

void GradientReducer::decode(const Part& part) {
  if (summed_) {
    if (staged_)
      backend_.send(message_ + part.begin, host_message_ + part.begin, static_cast<std::size_t>(part.bytes[own_]));
    codec_->decode(bucket(part, own_), message_ + part.begin, 1.0F / static_cast<float>(ranks_.size()), gradients_);
    return;
  }
  const std::byte* next = everyone_ + part.everyone;
  if (staged_)
    backend_.send(everyone_ + part.everyone, host_everyone_ + part.everyone,
                  static_cast<std::size_t>(part.bytes_of_everyone));
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const Bucket of = bucket(part, separate_ ? static_cast<std::size_t>(rank) : 0);
    if (of.bytes > 0) codec_->decode(of, next, 1.0F, decoded_ + parameters_.size * rank);
    next += of.bytes;
  }
}

void GradientReducer::finish() {
  if (unchanged_) return;
  for (Part& part : parts_) {
    if (part.sent) continue;
    while (options_.overlap && !backend_.arrived(part.ticket)) move_on();
    backend_.wait_for(part.ticket);
    give(part);
  }
  for (Part& part : parts_) part.request.wait();
  options_.ended(ReducerStage::communicate);
  for (const Part& part : parts_) decode(part);
  if (!summed_) aggregator_->aggregate(chunks_, decoded_, parameters_.size, gradients_);
  options_.ended(ReducerStage::decode);
}

}  // namespace dat
