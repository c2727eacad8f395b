#include "train/generators/orders.hpp"

#include <algorithm>
#include <utility>

namespace dat {

Orders::Orders(const Parts& parts)
    : ranks_(parts.ranks),
      launch_(parts.ranks.launch()),
      plan_(parts.plan),
      staleness_(parts.staleness),
      layout_(parts.replica.images().layout),
      generators_(parts.generators),
      first_generator_(launch_.size() - generators_),
      by_rule_(parts.by_rule),
      under_way_{.steps = staleness_.versions + 1, .units = units()},
      dealing_(generators_, ranks_.rank() * generators_ / ranks_.size()),
      dealt_(static_cast<std::size_t>(under_way_.places())),
      receiving_(static_cast<std::size_t>(generators_)) {
  const std::size_t most = bytes_of_ages(staleness_.iterations) +
                           static_cast<std::size_t>(plan_.micro_batch * layout_.elements()) * sizeof(float);
  const auto add_packet = [&] {
    packets_.emplace_back(parts.replica.backend(), most, "attacked images");
    return packets_.size() - 1;
  };
  for (Dealt& dealt : dealt_) dealt.packet = add_packet();
  constexpr int kSpare = 4;  // generators that may stop within a message before no other one's answer arrives
  for (int k = 0; k < std::min(generators_, kSpare); ++k) free_.push_back(add_packet());
  spans_.reserve(4 * dealt_.size());
}

void Orders::begin(std::int64_t step, std::int64_t first) {
  next_ = step;
  first_version_ = first;
  for (int generator = 0; generator < generators_; ++generator)
    send(generator, {.kind = Order::Kind::begin, .step = step, .versions = step - first});
}

void Orders::send(int generator, const Order& order) {
  launch_.send(&order, sizeof order, launch_rank(generator), kOrderTag);
  counts_.bytes += sizeof order;
}

void Orders::deal_up_to(std::int64_t step) {
  for (; next_ <= step; ++next_)
    for (int unit = 0; unit < units(); ++unit) {
      Dealt& dealt = dealt_[under_way_.place(next_, unit)];
      dealt = {.step = next_, .unit = unit, .generator = dealing_.deal(next_, seconds_now()), .packet = dealt.packet};
      send(dealt.generator, {.kind = Order::Kind::attack, .unit = unit, .step = next_});
    }
}

AnswerPacket& Orders::wait_for(std::int64_t step, int unit) {
  Dealt& dealt = dealt_[under_way_.place(step, unit)];
  take_answers();
  if (!dealt.answered) {
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
    const double end = seconds_now();
    counts_.waited += end - began;
    note({.step = step + 1, .unit = unit, .begin = began, .end = end});
  }
  return packets_[dealt.packet];
}

void Orders::note(const AttackSpan& span) {
  if (spans_.size() < spans_.capacity()) spans_.push_back(span);
}

void Orders::deal_again(Dealt& dealt, double waited) {
  const std::optional<int> other = dealing_.deal_again(dealt.generator, dealt.step, waited, seconds_now());
  if (!other) return;
  dealt.generator = *other;
  ++counts_.dealt_again;
  send(dealt.generator, {.kind = Order::Kind::attack, .unit = dealt.unit, .step = dealt.step});
}

void Orders::take_answers() {
  for (int generator = 0; generator < generators_; ++generator) {
    Receiving& from = receiving_[static_cast<std::size_t>(generator)];
    for (;;) {
      if (!from.arrival) receive_next(from, generator);
      if (!from.arrival || !from.request.test()) break;
      take(from);
      free_.push_back(from.packet);
    }
  }
}

void Orders::receive_next(Receiving& from, int generator) {
  if (!free_.empty()) from.arrival = launch_.probe(launch_rank(generator), kAnswerTag);
  if (!from.arrival) return;
  from.packet = free_.back();
  free_.pop_back();
  AnswerPacket& packet = packets_[from.packet];
  require_sound(from.arrival->bytes <= packet.room(), from.arrival->from, "its length, ", from.arrival->bytes,
                " bytes");
  from.request = launch_.start_receive(packet.data(), from.arrival->bytes, from.arrival->from, kAnswerTag);
}

void Orders::take(Receiving& from) {
  const Communicator::Arrival arrival = *std::exchange(from.arrival, std::nullopt);
  AnswerPacket& packet = packets_[from.packet];
  require_sound(packet.whole(arrival.bytes), arrival.from, "its hash");
  const AnswerHeader& answer = packet.header();
  if (answer.step == AnswerHeader::kStop) {
    stop_wanted_ = true;
    return;
  }
  if (answer.step == AnswerHeader::kPauses) {
    ++paused_;
    return;
  }
  const double now = seconds_now();
  dealing_.answered(arrival.from - first_generator_, answer.step, answer.seconds, answer.waiting, now);
  counts_.idle += answer.idle;
  require_sound(answer.step >= 0 && answer.step < next_ && answer.unit >= 0 && answer.unit < units(), arrival.from,
                "its number, micro-batch ", answer.unit, " of step ", answer.step);
  Dealt& dealt = dealt_[under_way_.place(answer.step, answer.unit)];
  // Answers may come too late for their step, or be given up, or already be there from another generator.
  if (answer.count == 0 || dealt.step != answer.step || dealt.answered) return;
  require_right(packet, arrival.bytes, arrival.from);
  note({arrival.from, answer.step + 1, answer.unit, now - answer.since, now});
  std::swap(dealt.packet, from.packet);
  dealt.answered = true;
}

void Orders::require_right(AnswerPacket& packet, std::size_t bytes, int rank) const {
  const AnswerHeader& answer = packet.header();
  const int count = plan_.micro_batch_in(answer.step);
  require_sound(answer.count == count && answer.ages == staleness_.iterations && answer.block > 0 &&
                    layout_.c % answer.block == 0,
                rank, "its number, ", answer.count, " images of micro-batch ", answer.unit, " of step ", answer.step);
  const int cut = plan_.size_of(answer.step);
  const std::int64_t size = cut != 0 ? cut : layout_.h;
  const std::size_t behind =
      bytes_of_ages(answer.ages) + static_cast<std::size_t>(count * layout_.c * size * size) * sizeof(float);
  require_sound(bytes == AnswerPacket::bytes(behind), rank, "its length, ", bytes, " bytes");
  const std::int32_t* const ages = ages_in(packet);
  for (int iteration = 0; iteration < answer.ages; ++iteration) {
    const std::int32_t age = ages[iteration];
    const bool right = by_rule_ ? age == answer.step - staleness_.version(answer.step, iteration, first_version_)
                                : age >= 0 && age <= staleness_.versions;
    require_sound(right, rank, "its version, ", age, " steps old in iteration ", iteration, " of step ", answer.step);
  }
}

void Orders::pause(std::int64_t versions) {
  paused_ = 0;
  for (int generator = 0; generator < generators_; ++generator)
    send(generator, {.kind = Order::Kind::pause, .versions = versions});
  const CallLabel label("the last answers");
  launch_.wait_for_message(first_generator_, [&] {
    take_answers();
    return paused_ == generators_;
  });
}

}  // namespace dat
