#include "run/membership.hpp"

#include <algorithm>
#include <limits>

#include "dat/aggregator.hpp"
#include "dat/error.hpp"

namespace dat {

constexpr int kEndTag = 0;  ///< tag of the launch's group, in which nobody else sends messages

bool Membership::has_left(int rank) const {
  return std::ranges::any_of(left_, [&](const LeftRecord& one) { return one.rank == rank; });
}

std::vector<LeftRecord> Membership::add(const std::vector<LeftRecord>& leaving) {
  std::vector<LeftRecord> added;
  for (const LeftRecord& one : leaving) {
    require(one.rank != 0, ExitCode::integrity, "rank 0 would have to leave (", one.why,
            "), and the run's folder is in its hands; the last checkpoint is good");
    if (has_left(one.rank)) continue;
    left_.push_back(one);
    added.push_back(one);
  }
  return added;
}

RankRecord Membership::of_launch(const RankRecord& record, const Communicator& group) const {
  const auto all = static_cast<std::size_t>(world_.size());
  const double none = std::numeric_limits<double>::quiet_NaN();
  RankRecord whole{.step = record.step,
                   .seconds = std::vector<double>(all * kPhases, none),
                   .bytes = std::vector<double>(all, none)};
  for (std::size_t k = 0; k < record.bytes.size(); ++k) {
    const auto rank = static_cast<std::size_t>(group.launch_rank(static_cast<int>(k)));
    std::copy_n(record.seconds.begin() + static_cast<std::ptrdiff_t>(k * kPhases), kPhases,
                whole.seconds.begin() + static_cast<std::ptrdiff_t>(rank * kPhases));
    whole.bytes[rank] = record.bytes[k];
  }
  return whole;
}

ExitCode Membership::sleep_until_the_end() {
  world_.sleep_until_called(0, kEndTag);
  return called().value();
}

std::optional<ExitCode> Membership::called() {
  if (!world_.probe(0, kEndTag)) return {};
  ExitCode code = ExitCode::done;
  world_.receive(&code, sizeof code, 0, kEndTag);
  return code;
}

void Membership::wake(ExitCode code) {
  if (!world_.root()) return;
  for (const LeftRecord& one : left_) world_.send(&code, sizeof code, one.rank, kEndTag);
  for (const int rank : serving_) world_.send(&code, sizeof code, rank, kEndTag);
}

bool honest_majority(int micro_batches, int ranks, int faults) {
  const int each = micro_batches / ranks, one_more = micro_batches % ranks;
  return 2 * (faults * each + std::min(faults, one_more)) < micro_batches;
}

TrainOptions options_left(TrainOptions options, const Plan& plan, int ranks, int gone) {
  const int faults = std::max(0, faults_of(options.aggregator, options.faults, ranks) - gone);
  require(honest_majority(plan.micro_batches, ranks - gone, faults), ExitCode::integrity, gone, " of ", ranks,
          " ranks have left, and ", faults, " of the others could hold half of the micro-batches of a step");
  options.total_batch = static_cast<int>(plan.total_batch);
  options.batch = 0;
  if (ranks_may_be_false(options)) options.faults = faults;
  return options;
}

}  // namespace dat
