#include <chrono>
#include <thread>
#include <vector>

#include "communicate/nccl/group.hpp"
#include "reduce/sums/sums.hpp"

namespace dat {

namespace {

/// NCCL adds up messages where they lie, in device memory, in the type of their numbers, beside other work of the
/// device. It promises no order of additions.
class NcclSums final : public NodeSums {
 public:
  NcclSums(const SumOptions& options, std::unique_ptr<NcclGroup> group)
      : options_(options), group_(std::move(group)), under_way_(static_cast<std::size_t>(options.parts)) {
    data_ = options.backend.allocate_array<std::byte>(options.bytes, "gradient message");
    for (Sum& sum : under_way_) sum.of = this;
  }

  [[nodiscard]] std::byte* device(int /*row*/, std::int64_t at) override { return data_ + at; }
  [[nodiscard]] Backend::Ticket fetch(std::int64_t /*at*/, std::int64_t /*bytes*/) override {
    return options_.backend.mark();
  }
  [[nodiscard]] Request start(std::int64_t at, std::int64_t count) override {
    const std::int64_t bytes = count * std::int64_t{sizeof(float)};
    group_->sum(data_ + at, bytes / static_cast<std::int64_t>(size_of(options_.type)), options_.type,
                options_.backend.side_queue());
    Sum& sum = under_way_[next_++ % under_way_.size()];
    sum.ticket = options_.backend.mark_side();
    return options_.ranks.start(sum, bytes);
  }
  /// The host has waited for the sum, and queues what reads it after that.
  void send(std::int64_t /*at*/, std::int64_t /*bytes*/) override {}

 private:
  struct Sum final : Errand {
    [[nodiscard]] bool advance(bool beside) override {
      if (beside) return false;  // a backend is for one thread
      of->group_->check();
      // A sum that the hang watch has ended never arrives: nothing continues until it has ended the process.
      return of->options_.backend.arrived(ticket) && of->group_->alive();
    }
    void nap() override { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

    NcclSums* of = nullptr;
    Backend::Ticket ticket = 0;
  };

  SumOptions options_;
  std::unique_ptr<NcclGroup> group_;
  std::byte* data_ = nullptr;
  std::vector<Sum> under_way_;
  std::size_t next_ = 0;
};

}  // namespace

SumKind nccl_sums() {
  return {.title = "NCCL", .make = [](const SumOptions& options, std::string& why) -> std::unique_ptr<NodeSums> {
            // Each draws two of the device's tickets.
            if (constexpr int kMost = Backend::kTickets / 4; options.parts > kMost) {
              why = std::to_string(options.parts) + " messages may be under way, " + std::to_string(kMost) +
                    " are the most";
              return nullptr;
            }
            if (options.tree != nullptr) {
              why = "NCCL does not add up in the order that --deterministic wants";
              return nullptr;
            }
            std::unique_ptr<NcclGroup> group = NcclGroup::join(options.ranks, options.backend.device_id(), why);
            return group != nullptr ? std::make_unique<NcclSums>(options, std::move(group)) : nullptr;
          }};
}

}  // namespace dat
