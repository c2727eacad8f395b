#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <ranges>
#include <thread>

#include "communicate/node/lane.hpp"
#include "communicate/node/node_window.hpp"
#include "reduce/sums/order.hpp"
#include "reduce/sums/sums.hpp"

namespace dat {

namespace {

/// Rows lie in memory that all ranks of the node have, and the ranks add them up themselves: each a share of every
/// part, which it writes into the first row of every rank. So a part is read once and written once, and nothing is
/// copied in between. Parts are counted; each rank says of how many its rows are there, and of how many its share is
/// added up.
///
/// Where the ranks are on several nodes, each node has such a memory, and there are as many shares as the node with the
/// fewest ranks has. Share q of all nodes is then added up by MPI, over the q-th ranks of the nodes, before it is
/// written into all rows.
///
/// From the moment when a rank says that its rows are there until all have said that they have added up, share q of
/// them is rank q's; before and after that, all of them are their owner's.
class WindowSums final : public NodeSums {
 public:
  /// shares: into which a part is cut, the first one of the first rank of the node.
  WindowSums(const SumOptions& options, std::unique_ptr<NodeWindow> window, int shares)
      : options_(options),
        order_(window->ranks(), options.tree, shares),
        window_(std::move(window)),
        staged_(options.backend.device().kind == DeviceKind::cuda),
        shares_(static_cast<std::size_t>(order_.first(window_->ranks()))),
        sums_(static_cast<std::size_t>(window_->ranks())),
        parts_(static_cast<std::size_t>(options.parts), Part(*this)) {
    if (!staged_) return;
    device_ = options.backend.allocate_array<std::byte>(options.rows() * options.bytes, "gradient message");
    pinned_ = options.backend.pin(window_->block(rank()), window_->bytes());
  }

  ~WindowSums() override {
    // MPI may still write there: all ranks end now.
    if (lane_ && lane_->busy()) static_cast<void>(window_.release());
  }

  /// Sums of this rank's share go on over the nodes; before the first sum.
  void go_on(std::unique_ptr<Lane> lane) { lane_ = std::move(lane); }

  [[nodiscard]] std::byte* device(int row, std::int64_t at) override {
    return (staged_ ? device_ : window_->block(rank())) + row * options_.bytes + at;
  }

  [[nodiscard]] Backend::Ticket fetch(std::int64_t at, std::int64_t bytes) override {
    if (!staged_) return options_.backend.mark();
    const auto fetched = [&](int row) {
      return options_.backend.fetch(window_->block(rank()) + row * options_.bytes + at, device(row, at),
                                    static_cast<std::size_t>(bytes));
    };
    for (int row = 1; row < options_.rows(); ++row) static_cast<void>(fetched(row));
    return fetched(0);
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
    if (staged_) options_.backend.send(device(0, at), window_->block(rank()) + at, static_cast<std::size_t>(bytes));
  }

 private:
  enum Counter : std::int16_t { kGiven, kAdded };
  struct Lacking {
    std::uint32_t number = 0;
    std::int16_t rank = 0;
    Counter counter = kGiven;
  };
  static constexpr std::int64_t kFloat = sizeof(float);

  /// Numbers of all rows that are added up together, and wait for those before them.
  struct Part final : Errand {
    explicit Part(WindowSums& sums) : of(sums) {}
    [[nodiscard]] bool advance(bool beside) override {
      if (of.lane_ && !beside) of.lane_->check();
      return of.move_on(number, beside);
    }
    void nap() override { of.nap(); }

    WindowSums& of;
    std::uint32_t number = 0;  ///< counted from 1
    std::int64_t at = 0, count = 0;
  };
  [[nodiscard]] int rank() const { return window_->rank(); }
  [[nodiscard]] std::size_t slot(std::uint32_t number) const { return number % parts_.size(); }
  [[nodiscard]] Part& part_of(std::uint32_t number) { return parts_[slot(number)]; }
  /// The share of a rank in a row of another one.
  [[nodiscard]] float* share(int owner, std::int64_t row, const Part& part, int of) const {
    return reinterpret_cast<float*>(window_->block(owner) + row * options_.bytes + part.at) +
           order_.begin(of, part.count);
  }
  [[nodiscard]] std::int64_t length(const Part& part, int of) const {
    return order_.begin(of + 1, part.count) - order_.begin(of, part.count);
  }

  /// Returns whether all ranks have come so far; else the first one that has not is waited for next.
  bool all_have(Counter counter, std::uint32_t number) {
    for (int other = 0; other < window_->ranks(); ++other)
      if (other != rank() && !window_->has(other, counter, number)) {
        lacking_ = Lacking{number, static_cast<std::int16_t>(other), counter};
        return false;
      }
    return true;
  }
  void nap() const {
    if (in_lane_.load(std::memory_order_relaxed)) {  // MPI wants to be asked again and again
      std::this_thread::yield();
      return;
    }
    const Lacking lacking = lacking_;
    window_->nap(lacking.rank, lacking.counter, lacking.number);
  }

  /// Adds up what the other ranks have made ready, in the order of the parts, one after the other; beside: one of them.
  /// True: part `number` is done.
  bool move_on(std::uint32_t number, bool beside) {
    while (static_cast<std::int32_t>(done_ - number) < 0) {
      if (done_ != told_ && all_have(kAdded, done_ + 1))
        ++done_;
      else if (tell_next())
        continue;
      else if (!add_next(!beside) || beside)
        break;
    }
    return static_cast<std::int32_t>(done_ - number) >= 0;
  }

  bool add_next(bool threads) {
    const std::uint32_t number = added_ + 1;
    if (added_ == started_.load(std::memory_order_acquire)) return false;
    // Ranks that wait for shares of others wait for those of the oldest part.
    const Lacking lacking = lacking_;
    if (!all_have(kGiven, number)) {
      if (done_ != added_) lacking_ = lacking;
      return false;
    }
    const Part& part = part_of(number);
    const std::int64_t count = length(part, rank());
    for (int other = 0; other < window_->ranks(); ++other) {
      sums_[static_cast<std::size_t>(other)] = share(other, 0, part, rank());
      for (int row = order_.first(other); row < order_.first(other + 1); ++row)
        shares_[static_cast<std::size_t>(row)] = share(other, row - order_.first(other), part, rank());
    }
    added_ = number;
    if (lane_) {
      float* const own = sums_[static_cast<std::size_t>(rank())];
      order_.add(rank(), shares_, count, {&own, 1}, threads);
      lane_->start(static_cast<int>(slot(number)), own, count);
      in_lane_ = true;
    } else {
      order_.add(rank(), shares_, count, sums_, threads);
    }
    static_cast<void>(tell_next());
    return true;
  }

  /// Says that the next share is added up, where it is, on all nodes.
  bool tell_next() {
    const std::uint32_t number = told_ + 1;
    if (told_ == added_ || (lane_ && !lane_->done(static_cast<int>(slot(number))))) return false;
    if (lane_) {
      const Part& part = part_of(number);
      for (int other = 0; other < window_->ranks(); ++other)
        if (other != rank())
          std::copy_n(share(rank(), 0, part, rank()), length(part, rank()), share(other, 0, part, rank()));
      in_lane_ = number != added_;
    }
    window_->say(kAdded, told_ = number);
    return true;
  }

  SumOptions options_;
  SumOrder order_;
  std::unique_ptr<NodeWindow> window_;
  std::unique_ptr<Lane> lane_;
  bool staged_;                            ///< messages are copied from the device and back to it
  std::byte* device_ = nullptr;            ///< [rows][bytes], where staged
  std::shared_ptr<void> pinned_;           ///< memory of the window
  std::vector<const float*> shares_;       ///< [rows of all ranks]
  std::vector<float*> sums_;               ///< [ranks] where the sum goes
  std::vector<Part> parts_;                ///< [most that are under way]
  std::atomic<std::uint32_t> started_{0};  ///< parts so far, as the next ones
  /// Parts of which this rank's share is added up on the node, and on all nodes; and those that are done.
  std::uint32_t added_ = 0, told_ = 0, done_ = 0;
  std::atomic<bool> in_lane_{false};  ///< some of them are not reported yet: they are on their way between nodes
  std::atomic<Lacking> lacking_{};    ///< what is waited for
};

/// The first reason that any rank has, on all of them; empty: none has one. **Collective.**
[[nodiscard]] std::string common_reason(Communicator& ranks, const std::string& why) {
  std::string first;
  for (const std::string& one : ranks.gather(why))
    if (first.empty()) first = one;
  ranks.broadcast(first);
  return first;
}

/// [ranks] the node of each, by the number of its first rank. **Collective.**
[[nodiscard]] std::vector<int> nodes_for(const SumOptions& options) {
  Communicator& ranks = options.ranks;
  if (!options.node) return nodes_of(ranks);
  std::vector<int> nodes(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(&*options.node, nodes.data(), sizeof(int));
  return nodes;
}

[[nodiscard]] std::unique_ptr<NodeSums> make_window_sums(const SumOptions& options, std::string& why) {
  Communicator& ranks = options.ranks;
  if (ranks.size() == 1) return nullptr;
  const std::vector<int> nodes = nodes_for(options);
  if (nodes.empty()) {
    why = "the names of hosts do not tell which ranks share memory";
    return nullptr;
  }
  // The ranks of each node.
  std::map<int, std::vector<int>> members;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) members[nodes[rank]].push_back(static_cast<int>(rank));
  const auto sizes = members | std::views::values | std::views::transform([](const auto& own) { return own.size(); });
  const std::size_t least = std::ranges::min(sizes), most = std::ranges::max(sizes);
  if (most < 2) return nullptr;  // nobody shares memory
  const bool several = members.size() > 1;
  if (several && options.tree != nullptr)
    why = "the ranks are on several nodes, and --deterministic adds up over all of them in one order";
  else if (several && 2 * least < most)
    why = "a node has less than half as many ranks as another one, and would add up for all";
  else if (several && options.longest / static_cast<std::int64_t>(least) >= Lane::kLongest)
    why = "messages of more than 2^28 numbers a share are too long between nodes";
  if (!why.empty()) return nullptr;

  const int node = nodes[static_cast<std::size_t>(ranks.rank())];
  const std::unique_ptr<Communicator> own = several ? ranks.subgroup(node, ranks.rank()) : nullptr;
  std::unique_ptr<NodeWindow> window = NodeWindow::make(several ? *own : ranks, options.rows() * options.bytes, why);
  why = common_reason(ranks, why);
  if (!why.empty()) return nullptr;
  const auto place = static_cast<std::size_t>(window->rank());
  std::unique_ptr<WindowSums> sums;
  try {
    sums = std::make_unique<WindowSums>(options, std::move(window), static_cast<int>(least));
  } catch (const std::exception& error) {
    why = error.what();
  }
  // All or none: the driver may refuse one rank to pin its part.
  why = common_reason(ranks, why);
  if (!why.empty()) return nullptr;
  if (several)
    ranks.meet([&] {
      if (place >= least) return;
      std::vector<int> across;
      for (const auto& [one, of_node] : members) across.push_back(of_node[place]);
      sums->go_on(std::make_unique<Lane>(ranks, across, options.parts));
    });
  return sums;
}

}  // namespace

SumKind window_sums() {
  return {.title = "in memory that the ranks of a node share, by MPI between nodes", .make = make_window_sums};
}

}  // namespace dat
