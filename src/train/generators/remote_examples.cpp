#include "train/generators/remote_examples.hpp"

#include <algorithm>
#include <exception>

#include "dat/error.hpp"

namespace dat {

RemoteExamples::RemoteExamples(const ExampleParts& parts)
    : ranks_(parts.ranks),
      launch_(parts.ranks.launch()),
      dataset_(parts.images),
      loading_(loader_options(parts.options, parts.plan)),
      plan_(parts.plan),
      replica_(parts.replica),
      timer_(parts.timer),
      staleness_(staleness_of(parts.options, *parts.method.attack)),
      generators_(parts.options.generators),
      first_generator_(launch_.size() - generators_),
      under_way_{.steps = staleness_.versions + 1, .units = units()},
      dealing_(generators_, ranks_.rank() * generators_ / ranks_.size()),
      kept_(parts.options.deterministic && staleness_.versions > 0 ? std::make_unique<OldWeights>(staleness_, replica_)
                                                                   : nullptr),
      dealt_(static_cast<std::size_t>(under_way_.places())),
      free_packet_(dealt_.size()),
      ages_(static_cast<std::size_t>(staleness_.versions) + 1) {
  const Images& images = replica_.images();
  Backend& backend = replica_.backend();
  const auto floats = static_cast<std::size_t>(plan_.micro_batch * images.layout.elements());
  plain_.resize(floats);
  for (std::size_t k = 0; k <= dealt_.size(); ++k)
    packets_.emplace_back(backend, bytes_of_ages(staleness_.iterations) + floats * sizeof(float), "attacked images");
  for (std::size_t k = 0; k < dealt_.size(); ++k) dealt_[k].packet = k;
  for (int k = 0; k < 2; ++k)
    sending_.push_back({{backend, static_cast<std::size_t>(HeldWeights::memory(replica_.model())), "weights sent"}});
  examples_ = {.attacked = images.x_adv, .clean = images.clean, .labels = images.labels};
}

RemoteExamples::~RemoteExamples() {
  if (std::uncaught_exceptions() == 0) close();
}

void RemoteExamples::start(std::int64_t step) {
  loading_.pixels = pixels_ == nullptr;
  loading_.first_step = step;
  loader_ = std::make_unique<Loader>(dataset_, ranks_.size(), ranks_.rank(), loading_);
  const int there = kept_ ? kept_->there_before(step) : 0;
  first_version_ = step - there;
  next_dealt_ = step;
  published_ = 0;
  open_ = true;
  for (int generator = 0; generator < generators_; ++generator)
    order(generator, {.kind = Order::Kind::begin, .step = step, .versions = there});
  for (int age = there; age > 0; --age) publish(step - age, &kept_->before(step, age));
}

void RemoteExamples::order(int generator, const Order& order) {
  launch_.send(&order, sizeof order, launch_rank(generator), kOrderTag);
  bytes_sent_ += sizeof order;
}

void RemoteExamples::publish(std::int64_t version, const HeldWeights* from) {
  const CallLabel label("weights to generators");
  Sending& sending = sending_[static_cast<std::size_t>(published_++ % 2)];
  finish(sending);                           // two versions ago
  if (ranks_.rank() >= generators_) return;  // others have more
  sending.packet.header() = {.version = version};
  float* const to = reinterpret_cast<float*>(sending.packet.behind());
  if (from != nullptr)
    from->copy_to_host(to);
  else
    HeldWeights::copy_network_to_host(replica_, to);
  const auto behind = static_cast<std::size_t>(HeldWeights::memory(replica_.model()));
  sending.packet.seal(behind);
  for (int generator = ranks_.rank(); generator < generators_; generator += ranks_.size()) {
    sending.requests.push_back(
        launch_.start_send(sending.packet.data(), VersionPacket::bytes(behind), launch_rank(generator), kVersionTag));
    bytes_sent_ += static_cast<std::int64_t>(VersionPacket::bytes(behind));
  }
}

void RemoteExamples::finish(Sending& sending) {
  // Generators that have nowhere to put another answer take no version.
  for (int k = 0; k < static_cast<int>(std::ssize(sending.requests)); ++k)
    launch_.wait_for_message(launch_rank(ranks_.rank() + k * ranks_.size()), [&] {
      take_answers();
      return sending.requests[static_cast<std::size_t>(k)].test();
    });
  sending.requests.clear();
}

void RemoteExamples::begin(std::int64_t step) {
  step_ = step;
  bytes_sent_ = own_passes_ = again_ = 0;
  waited_ = idle_ = 0;
  std::fill(ages_.begin(), ages_.end(), 0);
  batch_ = &loader_->next();
  examples_.first = examples_.count = 0;
  examples_.batch = batch_->count;
  examples_.elsewhere = plan_.ordered ? batch_->elsewhere : 0;
  examples_.whole = plan_.ordered;
  timer_.lap(Phase::data);
  publish(step, kept_ ? &kept_->begin(step) : nullptr);
  for (; next_dealt_ <= std::min(step + staleness_.versions, plan_.steps - 1); ++next_dealt_) deal(next_dealt_);
  timer_.lap(Phase::attack);
}

void RemoteExamples::deal(std::int64_t step) {
  for (int unit = 0; unit < units(); ++unit) {
    Dealt& dealt = dealt_[under_way_.place(step, unit)];
    dealt = {.step = step, .unit = unit, .generator = dealing_.deal(), .packet = dealt.packet};
    order(dealt.generator, {.kind = Order::Kind::attack, .unit = unit, .step = step});
  }
}

const Examples* RemoteExamples::next() {
  Images& images = replica_.images();
  examples_.first += examples_.count;
  examples_.count = batch_->count / units();
  if (examples_.first >= examples_.batch) return nullptr;
  const int unit = examples_.first / examples_.count;
  examples_.unit = plan_.ordered ? unit : 0;
  images.load(*batch_, examples_.first, examples_.count, pixels_);
  timer_.lap(Phase::data);
  Dealt& dealt = dealt_[under_way_.place(step_, unit)];
  if (!dealt.answered) take_answers();
  if (!dealt.answered) wait_for(dealt);
  put(packets_[dealt.packet]);
  timer_.lap(Phase::attack);
  return &examples_;
}

void RemoteExamples::wait_for(Dealt& dealt) {
  const CallLabel label("attacked images");
  const double began = seconds_now();
  double since = began;
  launch_.wait_for_message(launch_rank(dealt.generator), [&] {
    take_answers();
    if (dealt.answered) return true;
    const int had = dealt.generator;
    deal_again(dealt, seconds_now() - since);
    if (dealt.generator != had) since = seconds_now();
    return false;
  });
  waited_ += seconds_now() - began;
}

void RemoteExamples::deal_again(Dealt& dealt, double waited) {
  const std::optional<int> other = dealing_.deal_again(dealt.generator, waited);
  if (!other) return;
  dealt.generator = *other;
  ++again_;
  order(*other, {.kind = Order::Kind::attack, .unit = dealt.unit, .step = dealt.step});
}

void RemoteExamples::take_answers() {
  while (const auto arrival = launch_.probe(Communicator::kAny, kAnswerTag)) take(*arrival);
}

void RemoteExamples::take(const Communicator::Arrival& arrival) {
  AnswerPacket& packet = packets_[free_packet_];
  require_sound(arrival.from >= first_generator_ && arrival.bytes <= packet.room(), arrival.from, "its length, ",
                arrival.bytes, " bytes");
  launch_.receive(packet.data(), arrival.bytes, arrival.from, kAnswerTag);
  require_sound(packet.whole(arrival.bytes), arrival.from, "its hash");
  const AnswerHeader& answer = packet.header();
  if (answer.step < 0) {
    ++paused_;
    return;
  }
  const int generator = arrival.from - first_generator_;
  dealing_.answered(generator, answer.seconds, answer.waiting);
  idle_ += answer.idle;
  require_sound(answer.step < next_dealt_ && answer.unit >= 0 && answer.unit < units(), arrival.from,
                "its number, micro-batch ", answer.unit, " of step ", answer.step);
  Dealt& dealt = dealt_[under_way_.place(answer.step, answer.unit)];
  // What came too late for its step, was given up, or is there from another generator.
  if (answer.count == 0 || dealt.step != answer.step || dealt.answered) return;
  require_right(answer, arrival.bytes, arrival.from);
  const auto* const ages = reinterpret_cast<const std::int32_t*>(packet.behind());
  for (int iteration = 0; iteration < answer.ages; ++iteration) {
    const std::int32_t age = ages[iteration];
    const bool right = kept_ ? age == answer.step - staleness_.version(answer.step, iteration, first_version_)
                             : age >= 0 && age <= staleness_.versions;
    require_sound(right, arrival.from, "its version, ", age, " steps old in iteration ", iteration, " of step ",
                  answer.step);
  }
  std::swap(dealt.packet, free_packet_);
  dealt.answered = true;
}

void RemoteExamples::require_right(const AnswerHeader& answer, std::size_t bytes, int rank) const {
  const Layout& layout = replica_.images().layout;
  const int count = micro_batch_of(answer.step);
  require_sound(
      answer.count == count && answer.ages == staleness_.iterations && answer.block > 0 && layout.c % answer.block == 0,
      rank, "its number, ", answer.count, " images of micro-batch ", answer.unit, " of step ", answer.step);
  const std::size_t behind =
      bytes_of_ages(answer.ages) + static_cast<std::size_t>(count * layout.elements()) * sizeof(float);
  require_sound(bytes == AnswerPacket::bytes(behind), rank, "its length, ", bytes, " bytes");
}

void RemoteExamples::put(AnswerPacket& packet) {
  const AnswerHeader& answer = packet.header();
  const auto* const ages = reinterpret_cast<const std::int32_t*>(packet.behind());
  for (int iteration = 0; iteration < answer.ages; ++iteration) ++ages_[static_cast<std::size_t>(ages[iteration])];
  own_passes_ += answer.passes;
  const auto* from = reinterpret_cast<const float*>(packet.behind() + bytes_of_ages(answer.ages));
  const Layout& mine = replica_.images().layout;
  const auto count = static_cast<std::size_t>(answer.count * mine.elements());
  if (answer.block != mine.block) {
    Layout theirs = mine;
    theirs.block = answer.block;
    for (std::int64_t n = 0; n < answer.count; ++n)
      for (int c = 0; c < mine.c; ++c)
        for (int y = 0; y < mine.h; ++y)
          for (int x = 0; x < mine.w; ++x)
            plain_[static_cast<std::size_t>(mine.offset(n, c, y, x))] = from[theirs.offset(n, c, y, x)];
    from = plain_.data();
  }
  replica_.backend().copy_to_device(replica_.images().x_adv, from, count * sizeof(float));
}

void RemoteExamples::close() {
  if (!open_) return;
  open_ = false;
  paused_ = 0;
  for (int generator = 0; generator < generators_; ++generator)
    order(generator, {.kind = Order::Kind::pause, .versions = published_});
  const CallLabel label("the last answers");
  launch_.wait_for_message(first_generator_, [&] {
    take_answers();
    return paused_ == generators_;
  });
  for (Sending& sending : sending_) finish(sending);
}

void RemoteExamples::write(double* to, int unit) {
  std::fill_n(to, places(), 0.0);
  if (unit != 0) return;
  to[0] = static_cast<double>(own_passes_);
  to[1] = static_cast<double>(again_);
  to[2] = idle_;
  std::copy(ages_.begin(), ages_.end(), to + kCounts);
}

void RemoteExamples::read(const double* from) {
  passes_ = static_cast<std::int64_t>(from[0]);
  record_ = {.waited = waited_, .idle = from[2], .dealt_again = static_cast<std::int64_t>(from[1])};
  double iterations = 0;
  for (int age = 0; age <= staleness_.versions; ++age) {
    const double those = from[kCounts + static_cast<std::size_t>(age)];
    iterations += those;
    record_.age_mean += age * those;
    if (those > 0) record_.age_max = age;
  }
  record_.age_mean /= std::max(iterations, 1.0);
}

void RemoteExamples::save(Checkpoint& checkpoint) {
  if (kept_) kept_->save(checkpoint);
}
void RemoteExamples::restore(const Checkpoint& checkpoint) {
  if (kept_) kept_->restore(checkpoint);
}
void RemoteExamples::share(Communicator& ranks) {
  if (kept_) kept_->share(ranks);
}

std::unique_ptr<ExampleSource> make_remote_examples(const ExampleParts& parts) {
  return std::make_unique<RemoteExamples>(parts);
}

}  // namespace dat
