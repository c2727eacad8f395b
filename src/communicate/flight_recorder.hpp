#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// What a communication is, as its users call it.
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
  split,
  send,
  receive,
  finalize,
  abort
};

/// One communication of this rank.
struct CallRecord {
  static constexpr std::size_t kPurpose = 56;
  Call call = Call::none;
  std::uint32_t group = 0;
  std::int64_t number = 0;  ///< among the collectives of its group, from 1; of a message: the other rank
  std::int64_t bytes = 0;   ///< of this rank
  std::array<char, kPurpose> purpose{};
  std::int64_t begun = 0, ended = 0;  ///< nanoseconds of the steady clock; ended = 0: under way
};

/// "sum #1042 of 44.7 MB (gradients conv1 to linear)". Equal on all ranks for what is the same collective.
[[nodiscard]] std::string text_of(const CallRecord& record);

/// The last communications of this process, for the hang watch, which reads them from its own thread at any time: a
/// ring, written by the main thread without locks and without memory from the heap. (PyTorch's process groups call
/// theirs by this name.)
class FlightRecorder {
 public:
  static constexpr std::size_t kKept = 64;
  using Ticket = std::uint64_t;  ///< of a record; 0: none

  /// Of this process, as MPI is. Never destroyed.
  [[nodiscard]] static FlightRecorder& of_process();

  // The main thread:

  Ticket begin(Call call, std::uint32_t group, std::int64_t number, std::int64_t bytes) noexcept;
  void end(Ticket ticket) noexcept;
  /// The main thread waits for this communication, as long as it lives.
  class Waiting {
   public:
    explicit Waiting(Ticket ticket) noexcept;
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    std::int64_t since_;
  };
  /// Seconds that the main thread has waited so far.
  [[nodiscard]] double seconds_waited() const noexcept { return 1e-9 * static_cast<double>(waited_); }

  // Any thread:

  /// Grows with every communication that begins or ends, and with every tick().
  [[nodiscard]] std::uint64_t progress() const noexcept;
  struct Now {
    bool waiting = false;
    CallRecord record;  ///< what the main thread waits for; else what it has begun last
  };
  [[nodiscard]] Now now() const noexcept;
  /// The records that are kept, the oldest first.
  [[nodiscard]] std::vector<CallRecord> kept() const;
  /// What this rank has called as this collective of this group; Call::none where that is not kept, or has not begun.
  [[nodiscard]] CallRecord find(std::uint32_t group, std::int64_t number) const noexcept;

 private:
  static constexpr std::size_t kWords = sizeof(CallRecord) / sizeof(std::uint64_t);
  static_assert(sizeof(CallRecord) == kWords * sizeof(std::uint64_t));
  using Words = std::array<std::uint64_t, kWords>;
  /// A record that another thread may read while it is written: the version is odd then, and another one afterwards.
  struct Slot {
    std::atomic<std::uint64_t> version{0};
    std::atomic<Ticket> ticket{0};
    std::array<std::atomic<std::uint64_t>, kWords> words{};
  };
  void write(Ticket ticket, const CallRecord& record) noexcept;
  [[nodiscard]] bool read(Ticket ticket, CallRecord& record) const noexcept;

  std::array<Slot, kKept> slots_;
  std::atomic<Ticket> last_{0}, waiting_{0};
  std::atomic<std::uint64_t> moves_{0};
  std::int64_t waited_ = 0;  ///< nanoseconds
};

}  // namespace dat
