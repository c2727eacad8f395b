#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dat {

/// Kind of a communication, named as its users call it.
enum class Call : std::uint32_t {
  none,
  sum,
  minimum,
  agree,
  broadcast,
  gather,
  all_gather,
  exchange,
  barrier,
  subgroup,
  send,
  receive,
  work,
  finalize,
  abort
};

/// Returns whether it is between this rank and one other.
[[nodiscard]] constexpr bool of_two_ranks(Call call) {
  return call == Call::send || call == Call::receive || call == Call::work;
}

/// One communication of this rank.
struct CallRecord {
  static constexpr std::size_t kPurpose = 56;
  Call call = Call::none;
  std::uint32_t group = 0;
  /// Number among the collectives of its group, from 1; of a message from rank to rank, or of work, the other rank.
  std::int64_t number = 0;
  std::int64_t bytes = 0;  ///< bytes of this rank's part
  std::array<char, kPurpose> purpose{};
  std::int64_t begun = 0, ended = 0;  ///< nanoseconds of the steady clock; ended = 0: under way
};

/// "sum #1042 of 44.7 MB (gradients conv1 to linear)". The text of a collective is equal on all ranks that are in the
/// same one.
[[nodiscard]] std::string text_of(const CallRecord& record);

/// The last communications of this process, for the hang watch, which reads them from its own thread at any time: a
/// ring, written by the main thread without locks and without memory from the heap. (The name is that of the recorder
/// in PyTorch's process groups.)
class FlightRecorder {
 public:
  static constexpr std::size_t kKept = 64;
  using Ticket = std::uint64_t;  ///< names a record; 0: none

  /// The one recorder of this process, as there is one MPI. Never destroyed.
  [[nodiscard]] static FlightRecorder& of_process();

  // The main thread:

  Ticket begin(Call call, std::uint32_t group, std::int64_t number, std::int64_t bytes) noexcept;
  void end(Ticket ticket) noexcept;
  /// The main thread waits for a communication as long as this object lives. Where several live, for that of the last.
  class Waiting {
   public:
    explicit Waiting(Ticket ticket) noexcept;
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Ticket around_;  ///< ticket of the object around this one; 0: there is none
    std::int64_t since_;
  };
  /// Absence of this rank from what the others do, as long as this object lives.
  class Absence {
   public:
    Absence() noexcept { of_process().absent_.store(true, std::memory_order_release); }
    ~Absence() { of_process().absent_.store(false, std::memory_order_release); }
    Absence(const Absence&) = delete;
    Absence& operator=(const Absence&) = delete;
  };
  /// Seconds that the main thread has waited so far.
  [[nodiscard]] double seconds_waited() const noexcept { return 1e-9 * static_cast<double>(waited_); }

  // Any thread:

  /// Grows with every communication that begins or ends, and with every tick().
  [[nodiscard]] std::uint64_t progress() const noexcept;
  struct Now {
    bool waiting = false;
    bool absent = false;  ///< an Absence lives
    CallRecord record;    ///< the communication that the main thread waits for, else the one that it has begun last
  };
  [[nodiscard]] Now now() const noexcept;
  /// The records that are kept, the oldest first.
  [[nodiscard]] std::vector<CallRecord> kept() const;
  /// The call that this rank has made as collective `number` of the group; Call::none where its record is not kept any
  /// more, or where it has not begun.
  [[nodiscard]] CallRecord find(std::uint32_t group, std::int64_t number) const;

 private:
  static constexpr std::size_t kWords = sizeof(CallRecord) / sizeof(std::uint64_t);
  static_assert(sizeof(CallRecord) == kWords * sizeof(std::uint64_t));
  using Words = std::array<std::uint64_t, kWords>;
  /// A record that another thread may read while a later one takes its place: the ticket is that of the words, or of
  /// those that are being written.
  struct Slot {
    std::atomic<Ticket> ticket{0};
    std::array<std::atomic<std::uint64_t>, kWords> words{};
  };
  [[nodiscard]] std::optional<CallRecord> read(Ticket ticket) const noexcept;

  std::array<Slot, kKept> slots_;
  std::atomic<Ticket> last_{0}, waiting_{0};
  std::atomic<std::uint64_t> moves_{0};
  std::atomic<bool> absent_{false};
  std::int64_t waited_ = 0;  ///< nanoseconds that the main thread has waited
};

}  // namespace dat
