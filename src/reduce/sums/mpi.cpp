#include <algorithm>
#include <optional>

#include "reduce/sums/message_memory.hpp"
#include "reduce/sums/sums.hpp"

namespace dat {

namespace {

/// Most numbers of a call.
constexpr std::int64_t kMostOfACall = 1 << 28;

/// MPI adds up rows, or brings what is added up in the order of a tree. Groups on one node add up in the order of the
/// ring that Open MPI's MPI_Iallreduce takes, so that they have the same bits as the ring in the memory of the node.
class MpiSums final : public NodeSums {
 public:
  explicit MpiSums(const SumOptions& options) : options_(options), memory_(options.backend) {
    memory_.reserve(options.rows() * options.bytes);
    if (options.tree == nullptr) return;
    tree_.emplace(options.ranks, *options.tree, std::min(options.longest, kMostOfACall));
    tree_->reserve(options.longest);
  }

  [[nodiscard]] std::byte* device(int row, std::int64_t at) override {
    return memory_.device(row * options_.bytes + at);
  }
  [[nodiscard]] Backend::Ticket fetch(std::int64_t at, std::int64_t bytes) override {
    for (int row = 1; row < options_.rows(); ++row) static_cast<void>(memory_.fetch(row * options_.bytes + at, bytes));
    return memory_.fetch(at, bytes);
  }
  [[nodiscard]] Request start(std::int64_t at, std::int64_t count) override {
    auto* const numbers = reinterpret_cast<float*>(memory_.host(at));
    if (tree_)
      tree_->sum(numbers, options_.bytes / std::int64_t{sizeof(float)}, count, numbers);
    else if (options_.overlap)
      return options_.ranks.start_sum(numbers, count);
    else if (options_.ranks.node_size() == options_.ranks.size())
      for (std::int64_t k = 0; k < count; k += kMostOfACall)
        options_.ranks.start_sum(numbers + k, std::min(kMostOfACall, count - k)).wait();
    else
      options_.ranks.sum(numbers, count);
    return {};
  }
  void send(std::int64_t at, std::int64_t bytes) override { memory_.send(at, bytes); }

 private:
  SumOptions options_;
  MessageMemory memory_;  ///< [rows][bytes]
  std::optional<TreeSum<float>> tree_;
};

}  // namespace

SumKind mpi_sums() {
  return {.title = "by MPI", .make = [](const SumOptions& options, std::string&) -> std::unique_ptr<NodeSums> {
            return std::make_unique<MpiSums>(options);
          }};
}

}  // namespace dat
