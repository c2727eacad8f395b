#include "communicate/hang/flight_recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ranges>

#include "dat/communicator.hpp"
#include "dat/tick.hpp"

namespace dat {

namespace {

constexpr const char* kNames[] = {"nothing",    "sum",          "minimum",   "agreement",      "broadcast",
                                  "gather",     "all-gather",   "exchange",  "barrier",        "subgroup",
                                  "message to", "message from", "work from", "the end of MPI", "the abortion of MPI"};

[[nodiscard]] std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Returns whether all ranks have the same number of bytes in it.
[[nodiscard]] bool of_one_size(Call call) {
  return call == Call::sum || call == Call::minimum || call == Call::agree || call == Call::broadcast ||
         call == Call::all_gather || call == Call::send || call == Call::receive;
}

[[nodiscard]] std::string bytes_text(std::int64_t bytes) {
  const auto number = static_cast<double>(bytes);
  if (bytes < 10000) return fmt::format("{} bytes", bytes);
  // Four digits of what is above would be 1e+04.
  return bytes < 9999500 ? fmt::format("{:.4g} kB", number * 1e-3) : fmt::format("{:.4g} MB", number * 1e-6);
}

}  // namespace

std::string text_of(const CallRecord& record) {
  const auto name = std::min(static_cast<std::size_t>(record.call), std::size(kNames) - 1);
  std::string text = kNames[name];
  if (of_two_ranks(record.call))
    text += " rank " + std::to_string(record.number);
  else if (record.number > 0)
    text += " #" + std::to_string(record.number);
  if (of_one_size(record.call) && !(of_two_ranks(record.call) && record.bytes == 0))  // 0: not known yet
    text += " of " + bytes_text(record.bytes);
  const std::string purpose(record.purpose.data(), strnlen(record.purpose.data(), record.purpose.size()));
  return purpose.empty() ? text : text + " (" + purpose + ")";
}

FlightRecorder& FlightRecorder::of_process() {
  static FlightRecorder& one = *new FlightRecorder;
  return one;
}

FlightRecorder::Ticket FlightRecorder::begin(Call call, std::uint32_t group, std::int64_t number,
                                             std::int64_t bytes) noexcept {
  CallRecord record{.call = call, .group = group, .number = number, .bytes = bytes, .begun = now_ns()};
  char *at = record.purpose.data(), *const end = at + CallRecord::kPurpose - 1;
  for (const char* part : CallLabel::current_)
    while (*part != '\0' && at < end) *at++ = *part++;
  const Ticket ticket = last_.load(std::memory_order_relaxed) + 1;
  Slot& slot = slots_[ticket % kKept];
  slot.ticket.store(ticket, std::memory_order_relaxed);
  const auto words = std::bit_cast<Words>(record);
  for (std::size_t k = 0; k < kWords; ++k) slot.words[k].store(words[k], std::memory_order_release);
  last_.store(ticket, std::memory_order_release);
  moves_.fetch_add(1, std::memory_order_relaxed);
  return ticket;
}

void FlightRecorder::end(Ticket ticket) noexcept {
  Slot& slot = slots_[ticket % kKept];
  moves_.fetch_add(1, std::memory_order_relaxed);
  if (slot.ticket.load(std::memory_order_relaxed) != ticket) return;  // long ago
  slot.words[offsetof(CallRecord, ended) / sizeof(std::uint64_t)].store(static_cast<std::uint64_t>(now_ns()),
                                                                        std::memory_order_release);
}

FlightRecorder::Waiting::Waiting(Ticket ticket) noexcept
    : around_(of_process().waiting_.exchange(ticket, std::memory_order_acq_rel)), since_(now_ns()) {}

FlightRecorder::Waiting::~Waiting() {
  of_process().waiting_.store(around_, std::memory_order_release);
  if (around_ == 0) of_process().waited_ += now_ns() - since_;
}

std::uint64_t FlightRecorder::progress() const noexcept {
  return moves_.load(std::memory_order_relaxed) + ticks.load(std::memory_order_relaxed);
}

/// The ticket is one that last_ has reached: its record was whole. Whoever sees a word of a later one sees its ticket.
std::optional<CallRecord> FlightRecorder::read(Ticket ticket) const noexcept {
  const Slot& slot = slots_[ticket % kKept];
  Words words;
  for (std::size_t k = 0; k < kWords; ++k) words[k] = slot.words[k].load(std::memory_order_acquire);
  if (slot.ticket.load(std::memory_order_relaxed) != ticket) return {};
  return std::bit_cast<CallRecord>(words);
}

FlightRecorder::Now FlightRecorder::now() const noexcept {
  Now result;
  const Ticket waiting = waiting_.load(std::memory_order_acquire);
  result.waiting = waiting != 0;
  result.absent = absent_.load(std::memory_order_acquire);
  result.record = read(result.waiting ? waiting : last_.load(std::memory_order_acquire)).value_or(CallRecord{});
  return result;
}

std::vector<CallRecord> FlightRecorder::kept() const {
  std::vector<CallRecord> records;
  const Ticket last = last_.load(std::memory_order_acquire);
  for (Ticket ticket = last - std::min<Ticket>(last, kKept); ticket < last;)
    if (const auto record = read(++ticket)) records.push_back(*record);
  return records;
}

CallRecord FlightRecorder::find(std::uint32_t group, std::int64_t number) const {
  for (const CallRecord& record : kept() | std::views::reverse)
    if (record.group == group && record.number == number && !of_two_ranks(record.call)) return record;
  return {};
}

CallLabel::Parts CallLabel::current_ = {"", "", "", "", ""};

}  // namespace dat
