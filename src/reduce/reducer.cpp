#include "dat/reducer.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <utility>

#include "codec.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {

constexpr Transport kTransports[] = {Transport::sum, Transport::gather, Transport::two_sided};

/// One of so many runs of a segment's elements, about equally long, as a tensor of its own. Runs begin at groups of
/// four elements, which share their random numbers.
[[nodiscard]] Segment share_of(const Segment& segment, int shares, int share) {
  if (shares == 1) return segment;
  constexpr std::int64_t kGroup = 4;
  const std::int64_t groups = (segment.size + kGroup - 1) / kGroup;
  const auto begin = [&](std::int64_t k) { return std::min(segment.size, groups * k / shares * kGroup); };
  Segment part = segment;
  part.begin = segment.begin + begin(share);
  part.size = begin(share + 1) - begin(share);
  part.shape = {static_cast<int>(part.size)};
  part.layer = segment.layer * shares + share;
  return part;
}

[[nodiscard]] Parameters cut(const Parameters& parameters, int shares) {
  Parameters result;
  result.layer_names.resize(parameters.layer_names.size() * static_cast<std::size_t>(shares));
  result.size = parameters.size;
  for (const Segment& segment : parameters.segments)
    for (int share = 0; share < shares; ++share) result.segments.push_back(share_of(segment, shares, share));
  return result;
}

[[nodiscard]] std::int64_t bytes_of(const Codec& codec, const Segment& tensor, int round) {
  return tensor.size > 0 ? codec.bytes(tensor, round) : 0;
}

}  // namespace

const char* name_of(Transport transport) {
  switch (transport) {
    case Transport::sum:
      return "sum";
    case Transport::gather:
      return "gather";
    default:
      return "two_sided";
  }
}

Transport choose_transport(const std::vector<Transport>& allowed, bool mean, const ReducerOptions& options) {
  const bool separate = options.transport == "allgather", automatic = options.codec_transport == "auto";
  const auto* const named = std::find_if(std::begin(kTransports), std::end(kTransports),
                                         [&](Transport one) { return options.codec_transport == name_of(one); });
  require(automatic || named != std::end(kTransports), ExitCode::usage, "unknown --codec-transport '",
          options.codec_transport, "'; known: auto, sum, gather, two_sided");
  const Transport chosen = !automatic ? *named : mean && !separate ? allowed.front() : Transport::gather;
  const char* const why = separate ? "--mask-transport allgather" : "an aggregator that is not the mean";
  require(chosen == Transport::gather || (mean && !separate), ExitCode::usage, "--codec-transport ", name_of(chosen),
          " does not work with ", why, ", which wants the messages of all ranks: leave it off, or choose gather");
  std::string known;
  for (const Transport one : allowed) known += (known.empty() ? "" : ", ") + std::string(name_of(one));
  require(std::find(allowed.begin(), allowed.end(), chosen) != allowed.end(), ExitCode::usage,
          "the messages of this --codec do not meet by --codec-transport ", name_of(chosen), ", but by: ", known,
          automatic ? "; " : "; choose that, or another codec", automatic ? why : "",
          automatic ? " wants the messages of all ranks: leave that off, or choose another codec" : "");
  return chosen;
}

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
      transport_(choose_transport(codec_->transports(), aggregator_->is_mean(), options)),
      rounds_(transport_ == Transport::two_sided ? 2 : codec_->rounds()),
      shares_(transport_ == Transport::two_sided ? ranks.size() : 1),
      tensors_(cut(parameters, shares_)),
      unchanged_(ranks.size() == 1 && codec_->exact() && aggregator_->keeps_one()),
      staged_(backend.device().kind == DeviceKind::cuda && (options.overlap || !ranks.takes_device_memory())),
      any_(ActiveSet::all(parameters.layers())),
      absent_(any_),
      shared_(ActiveSet::all(tensors_.layers())) {
  require(options.bucket_elements >= 1, ExitCode::usage, "--bucket must be at least 1 element");
  const std::string& transport = options.transport;
  require(transport.empty() || transport == "dense" || transport == "union" || separate_, ExitCode::usage,
          "unknown transport '", transport, "'; known: dense, union, allgather");
  require(transport.empty() || aggregator_->is_mean(), ExitCode::usage,
          "masks per worker work with --aggregator mean alone: others take the zeros of ranks that have not drawn a "
          "layer for gradients; choose it, or --mask shared");
  require(transport != "dense" || codec_->state().empty(), ExitCode::usage,
          "--mask-transport dense does not work with a --codec that remembers what it has left out: of a layer that no rank "
          "has drawn, it would be sent, but the layer stands still; choose union");
  if (options.overlap && !unchanged_) (void)ranks.move_on_beside();
  const auto segments = parameters.segments.size(), tensors = tensors_.segments.size();
  part_of_.resize(segments);
  parts_.reserve(segments);
  std::vector<std::int64_t> element, size;
  for (const Segment& tensor : tensors_.segments) {
    element.push_back(tensor.begin);
    size.push_back(tensor.size);
  }
  const int codec_rounds = transport_ == Transport::sum ? rounds_ : 1;
  for (int round = 0; round < codec_rounds; ++round)
    for (const Segment& tensor : tensors_.segments) {
      tensor_bytes_.push_back(bytes_of(*codec_, tensor, round));
      assert(tensor_bytes_.back() % std::int64_t{sizeof(float)} == 0);
    }
  std::int64_t bytes = 0, share = 0;
  for (const Segment& segment : parameters.segments) {
    bytes += message_bytes(segment, shares_);
    share += share_bytes(segment, shares_);
  }
  const std::size_t all = static_cast<std::size_t>(ranks.size()), messages = separate_ ? all : 1;
  const auto message = [&] {
    return Message{ChunkTable(backend, tensors_), std::vector<std::int64_t>(tensor_bytes_.size())};
  };
  messages_.reserve(messages);
  for (std::size_t m = 0; m < messages; ++m) messages_.push_back(message());
  part_bytes_.resize(segments * std::max({messages, static_cast<std::size_t>(codec_rounds), tensors / segments}));
  if (unchanged_) return;
  const char* const purpose = "message tables";
  const auto memory = [&](std::int64_t count, std::byte*& device, std::byte*& host) {
    const auto needed = static_cast<std::size_t>(count);
    device = static_cast<std::byte*>(backend.allocate(needed, "gradient message"));
    host = staged_ ? static_cast<std::byte*>(backend.allocate_pinned(needed, "gradient message")) : device;
  };
  const auto numbers = [&](std::size_t count) {
    return static_cast<std::int64_t*>(backend.allocate(count * sizeof(std::int64_t), purpose));
  };
  const auto doubles = [&](std::int64_t count) {
    return static_cast<double*>(backend.allocate(static_cast<std::size_t>(count * kSums) * sizeof(double), purpose));
  };
  memory(bytes, message_, host_message_);
  device_element_ = numbers(tensors);
  device_size_ = numbers(tensors);
  if (transport_ == Transport::two_sided) share_.emplace(message());
  for (Message& one : messages_) one.device_byte = numbers(one.byte.size());
  if (share_) share_->device_byte = numbers(share_->byte.size());
  partial_ = doubles(messages_.front().table.largest());
  sums_ = doubles(std::ssize(tensors_.segments));
  backend.copy_to_device(device_element_, element.data(), tensors * sizeof(std::int64_t));
  backend.copy_to_device(device_size_, size.data(), tensors * sizeof(std::int64_t));
  if (!transport.empty())
    for (std::size_t m = 0; m < messages; ++m) zeros_.emplace_back(backend, parameters);
  if (separate_) result_.emplace(backend, parameters);
  if (separate_ || share_)
    blocks_.assign(segments,
                   {std::vector<int>(all), std::vector<int>(all), std::vector<int>(all), std::vector<int>(all)});
  if (transport_ == Transport::sum) return;
  memory((share_ ? share : bytes) * ranks.size(), everyone_, host_everyone_);
  decoded_ = backend.allocate_floats(parameters.size * (share_ ? 1 : ranks.size()), "gradients of all ranks");
}

std::int64_t GradientReducer::message_bytes(const Segment& segment, int shares) const {
  std::int64_t most = 0;
  for (int round = 0; round < (transport_ == Transport::sum ? rounds_ : 1); ++round) {
    std::int64_t bytes = 0;
    for (int share = 0; share < shares; ++share) bytes += bytes_of(*codec_, share_of(segment, shares, share), round);
    most = std::max(most, bytes);
  }
  return most;
}

std::int64_t GradientReducer::share_bytes(const Segment& segment, int shares) const {
  std::int64_t most = 0;
  for (int share = 0; share < shares; ++share)
    most = std::max(most, bytes_of(*codec_, share_of(segment, shares, share), 0));
  return most;
}

std::int64_t GradientReducer::memory(int ranks) const {
  if (ranks == 1 && codec_->exact() && aggregator_->keeps_one()) return 0;
  const int shares = transport_ == Transport::two_sided ? ranks : 1;
  const std::int64_t decoded = parameters_.size * std::int64_t{sizeof(float)};
  std::int64_t bytes = 0, share = 0;
  for (const Segment& segment : parameters_.segments) {
    bytes += message_bytes(segment, shares);
    share += share_bytes(segment, shares);
  }
  return transport_ == Transport::sum      ? bytes
         : transport_ == Transport::gather ? bytes + ranks * (bytes + decoded)
                                           : bytes + ranks * share + decoded;
}

double GradientReducer::bytes_sent(const std::vector<double>& probabilities, int ranks) const {
  const int shares = transport_ == Transport::two_sided ? ranks : 1;
  double bytes = 0;
  for (const Segment& segment : parameters_.segments) {
    std::int64_t of_segment = 0;
    for (int round = 0; round < (transport_ == Transport::sum ? rounds_ : 1); ++round)
      for (int share = 0; share < shares; ++share)
        of_segment += bytes_of(*codec_, share_of(segment, shares, share), round);
    bytes += probabilities[static_cast<std::size_t>(segment.layer)] * static_cast<double>(of_segment);
  }
  return bytes;
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
    chunks_ = messages_[m].table.select(share_ ? of_shares(any_, 0, shares_) : layers_of(layers, m));
    upload(messages_[m]);
  }
  if (share_) {
    (void)share_->table.select(of_shares(any_, ranks_.rank(), ranks_.rank() + 1));
    upload(*share_);
  }
  if (separate_) chunks_ = result_->select(any_);
  set_zeros(layers);
  for (Part& part : parts_)
    if (part.missing == 0) encode(part);  // nobody will announce anything
}

void GradientReducer::upload(Message& message) {
  backend_.copy_to_device(message.device_byte, message.byte.data(), message.byte.size() * sizeof(std::int64_t));
}

const ActiveSet& GradientReducer::of_shares(const ActiveSet& layers, int first, int end) {
  for (std::size_t k = 0; k < shared_.scale.size(); ++k) {
    const auto shares = static_cast<std::size_t>(shares_);
    const int share = static_cast<int>(k % shares);
    shared_.scale[k] = share >= first && share < end ? layers.scale[k / shares] : 0.0F;
  }
  return shared_;
}

void GradientReducer::lay_out(std::span<const ActiveSet> layers) {
  const ActiveSet& own = layers[layers.size() > 1 ? static_cast<std::size_t>(ranks_.rank()) : 0];
  for (int layer = 0; layer < parameters_.layers(); ++layer) {
    bool any = options_.transport == "dense";
    for (const ActiveSet& one : layers) any = any || one.active(layer);
    any_.scale[static_cast<std::size_t>(layer)] = any ? 1.0F : 0.0F;
  }
  const std::size_t messages = messages_.size(), tensors = tensors_.segments.size();
  const auto shares = static_cast<std::size_t>(shares_), rounds = tensor_bytes_.size() / tensors;
  // One of the three is more than 1 at most.
  const std::size_t columns = std::max({messages, rounds, shares});
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
      part.bytes = part_bytes_.data() + (parts_.size() - 1) * columns;
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
      for (std::size_t at = 0; layers_of(layers, m).active(segment.layer) && at < rounds * shares; ++at) {
        const std::size_t tensor = at / shares * tensors + k * shares + at % shares;
        messages_[m].byte[tensor] = part.bytes[m + at];
        part.bytes[m + at] += tensor_bytes_[tensor];
      }
  }
  const auto ranks = static_cast<std::int64_t>(ranks_.size());
  std::int64_t begin = 0, everyone = 0;
  bytes_sent_ = bytes_received_ = 0;
  for (Part& part : parts_) {
    const std::int64_t total = std::accumulate(part.bytes, part.bytes + columns, std::int64_t{0});
    const std::int64_t mine = part.bytes[separate_ ? own_ : share_ ? static_cast<std::size_t>(ranks_.rank()) : 0];
    part.begin = begin;
    part.everyone = everyone;
    if (transport_ == Transport::sum) {
      begin += *std::max_element(part.bytes, part.bytes + columns);
      bytes_sent_ += total;
      bytes_received_ += total;
    } else if (transport_ == Transport::gather) {
      part.bytes_of_everyone = separate_ ? total : mine * ranks;
      begin += mine;
      bytes_sent_ += mine;
      bytes_received_ += part.bytes_of_everyone - mine;
    } else {
      part.bytes_of_everyone = mine * ranks;
      begin += total;
      bytes_sent_ += total;  // first the shares of the others, then the mean of its own
      bytes_received_ += part.bytes_of_everyone - mine + total - mine;
    }
    everyone += part.bytes_of_everyone;
  }
  if (separate_ && !unchanged_) lay_out_blocks();
  if (share_) lay_out_shares();
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

/// The shares of the ranks stand in a message one behind the other.
void GradientReducer::lay_out_shares() {
  const auto shares = static_cast<std::size_t>(shares_), me = static_cast<std::size_t>(ranks_.rank());
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    Part& part = parts_[p];
    Blocks& blocks = blocks_[p];
    std::int64_t at = 0;
    for (std::size_t rank = 0; rank < shares; ++rank) {
      blocks.bytes[rank] = static_cast<int>(part.bytes[rank]);
      blocks.at[rank] = static_cast<int>(at);
      blocks.own_bytes[rank] = static_cast<int>(part.bytes[me]);
      blocks.own_at[rank] = static_cast<int>(part.bytes[me] * static_cast<std::int64_t>(rank));
      at += part.bytes[rank];
    }
    require(std::max(at, part.bytes_of_everyone) <= std::numeric_limits<int>::max(), ExitCode::communication,
            "a bucket of ", part.elements, " gradients is a message of ", at, " bytes: 2^31 - 1 is the most that goes ",
            "at once; choose a smaller --bucket");
    part.blocks = &blocks;
    for (auto k = static_cast<std::size_t>(part.first) * shares; k < static_cast<std::size_t>(part.end) * shares; ++k) {
      if (part_of_[k / shares] < 0) continue;
      if (k % shares == me) share_->byte[k] = messages_[0].byte[k];
      messages_[0].byte[k] += blocks.at[k % shares];
    }
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

Bucket GradientReducer::bucket(const Part& part, const Message& message, std::int64_t bytes) const {
  const std::size_t round = transport_ == Transport::sum ? static_cast<std::size_t>(part.round) : 0;
  const int first = part.first * shares_, end = part.end * shares_;
  return {.first = first,
          .end = end,
          .step = step_,
          .round = part.round,
          .chunks = message.table.between(first, end),
          .element = device_element_,
          .size = device_size_,
          .byte = message.device_byte + round * tensors_.segments.size(),
          .bytes = bytes,
          .partial = partial_,
          .sums = sums_};
}

Bucket GradientReducer::bucket(const Part& part, std::size_t message) const {
  const std::int64_t bytes = share_                         ? part.blocks->at.back() + part.blocks->bytes.back()
                             : transport_ == Transport::sum ? part.bytes[part.round]
                                                            : part.bytes[message];
  return bucket(part, messages_[message], bytes);
}

Bucket GradientReducer::own_share(const Part& part) const { return bucket(part, *share_, part.bytes[ranks_.rank()]); }

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
  const bool mean = sends_mean(part);
  const Bucket mine = mean ? own_share(part) : bucket(part, own_);
  std::byte* const message = mean ? everyone_ + part.everyone : message_ + part.begin;
  std::byte* const host = mean ? host_everyone_ + part.everyone : host_message_ + part.begin;
  if (mine.bytes > 0) codec_->encode(mine, gradients_, message);
  part.ticket =
      staged_ && mine.bytes > 0 ? backend_.fetch(host, message, static_cast<std::size_t>(mine.bytes)) : backend_.mark();
  options_.ended(ReducerStage::encode);
}

void GradientReducer::give(Part& part) {
  const auto name = [&](int segment) { return parameters_.segments[static_cast<std::size_t>(segment)].name.c_str(); };
  const CallLabel label("gradients", name(part.first), part.first + 1 < part.end ? name(part.end - 1) : "");
  part.sent = true;
  std::byte* const mine = host_message_ + part.begin;
  if (transport_ == Transport::sum) {
    auto* const numbers = reinterpret_cast<float*>(mine);
    const std::int64_t count = part.bytes[part.round] / std::int64_t{sizeof(float)};
    if (options_.overlap)
      part.request = ranks_.start_sum(numbers, count);
    else
      ranks_.sum(numbers, count);
    return;
  }
  std::byte* const all = host_everyone_ + part.everyone;
  if (transport_ == Transport::two_sided) {
    const Blocks& of = *part.blocks;
    if (sends_mean(part) && options_.overlap)
      part.request = ranks_.start_all_gather(all, mine, of.bytes, of.at);
    else if (sends_mean(part))
      ranks_.all_gather(all, mine, of.bytes);
    else if (options_.overlap)
      part.request = ranks_.start_exchange(mine, of.bytes, of.at, all, of.own_bytes, of.own_at);
    else
      ranks_.exchange(mine, of.bytes, all, of.own_bytes);
    return;
  }
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

/// From what a round has brought to the message of the next one.
void GradientReducer::go_on(Part& part) {
  if (share_) {
    const Bucket share = own_share(part);
    const std::byte* next = everyone_ + part.everyone;
    if (staged_)
      backend_.send(everyone_ + part.everyone, host_everyone_ + part.everyone,
                    static_cast<std::size_t>(part.bytes_of_everyone));
    for (int rank = 0; rank < ranks_.size() && share.bytes > 0; ++rank, next += share.bytes) {
      codec_->decode(share, next, 1.0F, rank == 0 ? gradients_ : decoded_);
      const float factor = rank + 1 == ranks_.size() ? 1.0F / static_cast<float>(ranks_.size()) : 1.0F;
      if (rank > 0) each(backend_.device(), share.chunks, kernels::AddRank{decoded_, factor, gradients_});
    }
  } else {
    decode(part);
  }
  options_.ended(ReducerStage::decode);
  ++part.round;
  part.sent = false;
  encode(part);
}

void GradientReducer::decode(const Part& part) {
  if (transport_ != Transport::gather) {
    const Bucket of = bucket(part, own_);
    const float factor = share_ ? 1.0F : 1.0F / static_cast<float>(ranks_.size());
    if (staged_) backend_.send(message_ + part.begin, host_message_ + part.begin, static_cast<std::size_t>(of.bytes));
    codec_->decode(of, message_ + part.begin, factor, gradients_);
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
  for (int round = 0;; ++round) {
    for (Part& part : parts_) {
      if (part.sent) continue;
      while (options_.overlap && !backend_.arrived(part.ticket)) move_on();
      backend_.wait_for(part.ticket);
      give(part);
    }
    if (round + 1 == rounds_) break;
    for (Part& part : parts_) {
      part.request.wait();
      options_.ended(ReducerStage::communicate);
      go_on(part);
    }
  }
  for (Part& part : parts_) part.request.wait();
  options_.ended(ReducerStage::communicate);
  for (const Part& part : parts_) decode(part);
  if (transport_ == Transport::gather) aggregator_->aggregate(chunks_, decoded_, parameters_.size, gradients_);
  options_.ended(ReducerStage::decode);
}

}  // namespace dat
