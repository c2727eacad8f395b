#include <atomic>

#include "communicate/node/node_window.hpp"
#include "dat/error.hpp"
#include "reduce/sums/order.hpp"
#include "reduce/sums/sums.hpp"

namespace dat {

namespace {

/// Rows lie in memory that all ranks of the node have, and the ranks add them up themselves: each a share of every
/// part, which it writes into the first row of every rank. So a part is read once and written once, and nothing is
/// copied in between. Parts are counted; each rank says of how many its rows are there, and of how many its share is
/// added up.
///
/// From the moment when a rank says that its rows are there until all have said that they have added up, share q of
/// them is rank q's; before and after that, all of them are their owner's.
class WindowSums final : public NodeSums {
 public:
  WindowSums(const SumOptions& options, std::unique_ptr<NodeWindow> window)
      : options_(options),
        order_(options.ranks.size(), options.tree),
        window_(std::move(window)),
        staged_(options.backend.device().kind == DeviceKind::cuda),
        rows_(rows_of(options, options.ranks.rank())),
        stride_(stride_of(options)),
        shares_(static_cast<std::size_t>(order_.rows())),
        sums_(static_cast<std::size_t>(options.ranks.size())),
        parts_(static_cast<std::size_t>(options.parts), Part(*this)) {
    if (!staged_) return;
    const char* const purpose = "gradient message";
    device_ = static_cast<std::byte*>(options.backend.allocate(static_cast<std::size_t>(rows_ * stride_), purpose));
    pinned_ = options.backend.pin(window_->block(rank()), window_->bytes());
  }

  /// Rows of a rank.
  [[nodiscard]] static std::int64_t rows_of(const SumOptions& options, int rank) {
    return options.tree == nullptr ? 1 : std::ssize(options.tree->nodes(rank));
  }
  /// Bytes from a row to the next one.
  [[nodiscard]] static std::int64_t stride_of(const SumOptions& options) {
    constexpr std::int64_t kAligned = 64;
    return (options.bytes + kAligned - 1) / kAligned * kAligned;
  }

  [[nodiscard]] std::byte* device(int row, std::int64_t at) override {
    return (staged_ ? device_ : window_->block(rank())) + row * stride_ + at;
  }

  [[nodiscard]] Backend::Ticket fetch(std::int64_t at, std::int64_t bytes) override {
    if (!staged_ || bytes == 0) return options_.backend.mark();
    Backend::Ticket last = 0;
    for (std::int64_t row = 0; row < rows_; ++row)
      last = options_.backend.fetch(window_->block(rank()) + row * stride_ + at, device(static_cast<int>(row), at),
                                    static_cast<std::size_t>(bytes));
    return last;
  }

  [[nodiscard]] Request start(std::int64_t at, std::int64_t count) override {
    const std::uint32_t number = started_.load(std::memory_order_relaxed) + 1;
    Part& part = part_of(number);
    part.at = at;
    part.count = count;
    part.number = number;
    started_.store(number, std::memory_order_release);
    window_->say(kGiven, number);
    return options_.ranks.start(part, count * kFloat);
  }

  void send(std::int64_t at, std::int64_t bytes) override {
    if (staged_ && bytes > 0)
      options_.backend.send(device(0, at), window_->block(rank()) + at, static_cast<std::size_t>(bytes));
  }

 private:
  enum Counter : int { kGiven, kAdded };
  static constexpr std::int64_t kFloat = sizeof(float);

  /// Numbers of all rows that are added up together, and wait for those before them.
  struct Part final : Errand {
    explicit Part(WindowSums& sums) : of(sums) {}
    [[nodiscard]] bool advance(bool beside) override { return of.move_on(number, beside); }
    void nap() override { of.nap(); }

    WindowSums& of;
    std::uint32_t number = 0;  ///< from 1
    std::int64_t at = 0, count = 0;
  };
  [[nodiscard]] int rank() const { return options_.ranks.rank(); }
  [[nodiscard]] Part& part_of(std::uint32_t number) { return parts_[number % parts_.size()]; }
  /// The share of a rank in a row of another one.
  [[nodiscard]] float* share(int owner, std::int64_t row, const Part& part, int of) const {
    return reinterpret_cast<float*>(window_->block(owner) + row * stride_ + part.at) + order_.begin(of, part.count);
  }
  [[nodiscard]] std::int64_t length(const Part& part, int of) const {
    return order_.begin(of + 1, part.count) - order_.begin(of, part.count);
  }

  /// Whether all ranks have come so far; else the first one that has not is waited for next.
  bool all_have(Counter counter, std::uint32_t number) {
    for (int other = 0; other < options_.ranks.size(); ++other)
      if (other != rank() && !window_->has(other, counter, number)) {
        lacking_.store(std::uint64_t{number} << 32 | static_cast<std::uint64_t>(other) << 8 | counter);
        return false;
      }
    return true;
  }
  void nap() const {
    const std::uint64_t lacking = lacking_;
    window_->nap(static_cast<int>(lacking >> 8 & 0xffffff), static_cast<int>(lacking & 0xff),
                 static_cast<std::uint32_t>(lacking >> 32));
  }

  /// Adds up what the other ranks have made ready, in the order of the parts, one after the other; beside: one of them.
  /// True: part `number` is done.
  bool move_on(std::uint32_t number, bool beside) {
    while (static_cast<std::int32_t>(done_ - number) < 0) {
      if (done_ != added_ && all_have(kAdded, done_ + 1))
        ++done_;
      else if (!add_next(!beside) || beside)
        break;
    }
    return static_cast<std::int32_t>(done_ - number) >= 0;
  }

  bool add_next(bool threads) {
    const std::uint32_t number = added_ + 1;
    if (added_ == started_.load(std::memory_order_acquire)) return false;
    // Who waits for shares of others waits for those of the oldest part.
    const std::uint64_t lacking = lacking_;
    if (!all_have(kGiven, number)) {
      if (done_ != added_) lacking_ = lacking;
      return false;
    }
    const Part& part = part_of(number);
    for (int other = 0; other < options_.ranks.size(); ++other) {
      sums_[static_cast<std::size_t>(other)] = share(other, 0, part, rank());
      for (int row = order_.first(other); row < order_.first(other + 1); ++row)
        shares_[static_cast<std::size_t>(row)] = share(other, row - order_.first(other), part, rank());
    }
    order_.add(rank(), shares_, length(part, rank()), sums_, threads);
    window_->say(kAdded, added_ = number);
    return true;
  }

  SumOptions options_;
  SumOrder order_;
  std::unique_ptr<NodeWindow> window_;
  bool staged_;  ///< messages are copied from the device and back to it
  std::int64_t rows_, stride_;
  std::byte* device_ = nullptr;            ///< [rows][stride], where staged
  std::shared_ptr<void> pinned_;           ///< of the window
  std::vector<const float*> shares_;       ///< [rows of all ranks]
  std::vector<float*> sums_;               ///< [ranks] where the sum goes
  std::vector<Part> parts_;                ///< [most that are under way]
  std::atomic<std::uint32_t> started_{0};  ///< parts so far, as the next ones
  std::uint32_t added_ = 0, done_ = 0;
  std::atomic<std::uint64_t> lacking_{0};  ///< number, rank and counter that is waited for
};

[[nodiscard]] std::unique_ptr<NodeSums> make_window_sums(const SumOptions& options, std::string& why) {
  Communicator& ranks = options.ranks;
  if (ranks.node_size() != ranks.size()) {
    // On all ranks alike, whichever node they are on.
    if (ranks.minimum(-ranks.node_size()) < -1) why = "the ranks are on several nodes";
    return nullptr;
  }
  if (ranks.size() == 1) return nullptr;
  std::unique_ptr<NodeWindow> window =
      NodeWindow::make(ranks, WindowSums::rows_of(options, ranks.rank()) * WindowSums::stride_of(options), why);
  if (window == nullptr) return nullptr;
  std::unique_ptr<WindowSums> sums;
  try {
    sums = std::make_unique<WindowSums>(options, std::move(window));
  } catch (const Error& error) {
    why = error.what();
  }
  // All or none: the driver may refuse one rank to pin its part.
  if (ranks.minimum(sums != nullptr ? 1 : 0) == 1) return sums;
  if (sums != nullptr) why = "another rank of this node cannot take part in it";
  return nullptr;
}

}  // namespace

SumKind window_sums() { return {.title = "in memory that the ranks of the node share", .make = make_window_sums}; }

}  // namespace dat
