#include "train/protocol/ban_protocol.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <type_traits>
#include <utility>

#include "copy_bits.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

const char* const kState = "byzantine";

/// Reads what bytes_of_state() has written; what is not there, or has another length, is an error of the checkpoint.
class NumberReader {
 public:
  explicit NumberReader(const std::vector<std::uint8_t>& all) : all_(all) {}
  template <class T>
  void read(T* data, std::size_t count) {
    require(count <= (all_.size() - at_) / sizeof(T), ExitCode::checkpoint,
            "the state of --byzantine in the checkpoint is too short");
    std::copy_n(all_.data() + at_, count * sizeof(T), reinterpret_cast<std::uint8_t*>(data));  // none may be nowhere
    at_ += count * sizeof(T);
  }
  [[nodiscard]] std::int64_t number(std::int64_t most) {
    std::int64_t value{};
    read(&value, 1);
    require(value >= 0 && value <= most, ExitCode::checkpoint, "the state of --byzantine in the checkpoint has ", value,
            " where no more than ", most, " makes sense");
    return value;
  }
  template <class T>
  void read(std::vector<T>& all) {
    all.resize(static_cast<std::size_t>(number(std::ssize(all_))));
    read(all.data(), all.size());
  }

 private:
  const std::vector<std::uint8_t>& all_;
  std::size_t at_ = 0;
};

/// Numbers one after the other, as a checkpoint has them.
[[nodiscard]] std::vector<std::uint8_t> bytes_of_state(const ProtocolState& state) {
  std::vector<std::uint8_t> bytes;
  const auto write = [&]<class T>(const T* data, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* const from = reinterpret_cast<const std::uint8_t*>(data);
    bytes.insert(bytes.end(), from, from + count * sizeof(T));
  };
  const auto number = [&](std::int64_t value) { write(&value, 1); };
  const auto add = [&](const auto& all) {
    number(std::ssize(all));
    write(all.data(), all.size());
  };
  number(state.pending.step);
  number(state.pending.ranks);
  add(state.pending.keys);
  number(std::ssize(state.pending.checks));
  for (const PendingCheck& check : state.pending.checks) {
    for (const int rank : {check.validator, check.target, check.rank}) number(rank);
    add(check.commitments);
    add(check.numbers);
    add(check.claims);
  }
  write(state.disputes.all().data(), state.disputes.all().size());
  return bytes;
}

[[nodiscard]] ProtocolState state_of(const std::vector<std::uint8_t>& bytes) {
  NumberReader reader(bytes);
  ProtocolState state;
  reader.read(&state.pending.step, 1);
  state.pending.ranks = static_cast<int>(reader.number(kMostRanks));
  reader.read(state.pending.keys);
  state.pending.checks.resize(static_cast<std::size_t>(reader.number(kMostRanks)));
  for (PendingCheck& check : state.pending.checks) {
    for (int* const number : {&check.validator, &check.target, &check.rank})
      *number = static_cast<int>(reader.number(kMostRanks));
    reader.read(check.commitments);
    reader.read(check.numbers);
    reader.read(check.claims);
    const auto parts = static_cast<std::size_t>(state.pending.ranks);
    require(check.commitments.size() == parts && check.claims.size() == parts && state.pending.keys.size() == parts &&
                check.rank < state.pending.ranks,
            ExitCode::checkpoint, "the state of --byzantine in the checkpoint contradicts itself");
  }
  reader.read(state.disputes.all().data(), state.disputes.all().size());
  return state;
}

/// Liars could be half of those who bring a gradient if there were more validators.
[[nodiscard]] int most_validators(int faults, int ranks) { return ranks - 2 * faults - 1; }

[[nodiscard]] ProtocolOptions options_of(const StepExchange::Parts& parts) {
  const TrainOptions& options = parts.options;
  ProtocolOptions result{.faults = faults_of(options.aggregator, options.faults, parts.ranks.size()),
                         .validators = options.validators,
                         .tau = options.aggregator_tau,
                         .enough = kClipAtRest,
                         .weights = {}};
  // Fewer ranks may be free to check others where some have left.
  result.validators = std::min(result.validators, std::max(most_validators(result.faults, parts.ranks.size()), 0));
  for (int rank = 0; rank < parts.ranks.size(); ++rank) result.weights.push_back(parts.order->leaves_of(rank));
  return result;
}

/// $DAT_SECRET, which each rank may have its own of.
[[nodiscard]] std::string secret_words() {
  const char* const words = std::getenv("DAT_SECRET");
  return words != nullptr ? words : "";
}

}  // namespace

void require_validators(const TrainOptions& options, int ranks) {
  if (!options.byzantine || ranks == 1) return;
  const int faults = faults_of(options.aggregator, options.faults, ranks), most = most_validators(faults, ranks);
  require(options.validators <= most, ExitCode::usage, "with --validators ", options.validators, ", ",
          ranks - options.validators, " of ", ranks, " ranks bring a gradient to a step, and ", faults,
          " of them may lie (--faults), which must be less than half; choose fewer validators or --faults ",
          std::max(0, (ranks - options.validators - 1) / 2));
}

std::unique_ptr<StepExchange> make_exchange(const StepExchange::Parts& parts) {
  std::unique_ptr<StepExchange> exchange;
  if (parts.options.byzantine && parts.ranks.size() > 1)
    exchange = std::make_unique<BanProtocol>(parts);
  else
    exchange = std::make_unique<StepExchange>(parts);
  exchange->open();
  return exchange;
}

BanProtocol::BanProtocol(const Parts& parts)
    : StepExchange(parts),
      ranks_(parts.ranks),
      plan_(parts.plan),
      replica_(parts.replica),
      cheating_(parts.cheating),
      options_(options_of(parts)),
      secret_(parts.options.seed, parts.ranks.launch_rank(), secret_words()),
      assembly_(parts.ranks),
      recompute_(parts.ranks, parts.images, parts.options, parts.plan, parts.method, parts.replica, parts.timer),
      kept_(parts.replica),
      sum_(replica_.backend().allocate_floats(replica_.model().parameters.size, "a contribution made once more")),
      message_(replica_.backend().allocate_floats(replica_.model().parameters.size, "a contribution made once more")),
      work_(replica_.backend(), ranks_.size(), ranks_.rank(), replica_.model().parameters.size,
            [this](const PendingChecks& of, const PendingCheck& check) { return redo(of, check); }),
      numbers_(ranks_, replica_.backend(), parts.order,
               Tolerance{.faults = options_.faults, .shares = std::vector<double>(options_.weights.size())}),
      shares_(options_.weights.size()),
      distances_(static_cast<std::size_t>(ranks_.launch_rank(ranks_.size() - 1)) + 1, std::nan("")) {}

void BanProtocol::ready() {
  unit_.resize(recompute_.numbers());
  redone_.resize(recompute_.numbers());
  require(numbers_.numbers() == recompute_.numbers(), ExitCode::usage, "--byzantine: a rank's ", numbers_.numbers(),
          " numbers of a step are ", recompute_.numbers(), " when its work is done once more");
  protocol_ = std::make_unique<Protocol>(assembly_, work_, options_, secret_, numbers_.numbers());
}

std::int64_t BanProtocol::memory(const Model& model, int ranks) {
  return KeptStep::memory(model) + PartWork::memory(ranks, model.parameters.size) +
         3 * model.parameters.size * std::int64_t{sizeof(float)};  // Recompute has one block, too
}

void BanProtocol::begin_step(std::int64_t step) {
  bytes_sent_ = 0;
  collusion_.act(cheating_.now());
  protocol_->act(cheating_.now() != nullptr ? &collusion_ : nullptr);
  protocol_->begin(step);
  work_.weigh(protocol_->weights());
}

void BanProtocol::encoded(std::int64_t step, std::int64_t elements, const float* message) {
  work_.begin(step, elements, message);
  counted([&] {
    protocol_->commit(contributes() ? numbers_.write_own()
                                    : std::span<const double>(std::vector<double>(numbers_.numbers())));
  });
}

void BanProtocol::leaves(std::span<float> message) {
  if (contributes()) collusion_.parts(message);
}

void BanProtocol::exchanged(float* everyone, float* place) {
  work_.exchanged(everyone, place);
  counted([&] { protocol_->check_parts(); });
}

void BanProtocol::aggregated(std::span<float> part) {
  work_.aggregated();
  collusion_.aggregate(part);
}

void BanProtocol::gathered(const float* result) {
  work_.gathered(result);
  counted([&] {
    protocol_->reveal();
    protocol_->check_claims();
  });
}

bool BanProtocol::finish() {
  static_cast<void>(StepExchange::finish());
  counted([&] { protocol_->validate(); });
  if (!protocol_->bans().empty()) return false;
  const auto weights = protocol_->weights();
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t rank = 0; rank < shares_.size(); ++rank) shares_[rank] = weights[rank] / all;
  numbers_.read_said(protocol_->numbers(), shares_);
  for (int rank = 0; rank < ranks_.size(); ++rank)
    distances_[static_cast<std::size_t>(ranks_.launch_rank(rank))] = protocol_->claimed_distance(rank);
  return true;
}

void BanProtocol::keep(const ActiveSet& active) {
  protocol_->end();
  kept_.keep(active, replica_.model().parameters.gradients);
  tell_friends();
}

/// Cheats know the commitments of a friend that one of them is to check; an honest rank has no use for them.
void BanProtocol::tell_friends() {
  collusion_.forget();
  const std::vector<char>& honest = cheating_.honest();
  const auto& checks = protocol_->state().pending.checks;
  const auto of_cheat = [&](const PendingCheck& check) { return honest[static_cast<std::size_t>(check.rank)] == 0; };
  if (std::ranges::none_of(checks, of_cheat)) return;
  const auto ranks = static_cast<std::size_t>(ranks_.size());
  std::vector<Sha256Digest> own(ranks), all(ranks * ranks);
  work_.own_roots(own);
  ranks_.all_gather(own.data(), all.data(), ranks * sizeof(Sha256Digest));
  for (const PendingCheck& check : checks) {
    if (!of_cheat(check)) continue;
    const auto of_target = all.begin() + check.rank * static_cast<std::ptrdiff_t>(ranks);
    collusion_.hear(check.target, {of_target, of_target + static_cast<std::ptrdiff_t>(ranks)});
  }
}

/// Recomputes the target's gradient: the mean of its micro-batches (MeanOfUnits), in the order of the message.
Redone BanProtocol::redo(const PendingChecks& of, const PendingCheck& check) {
  Backend& backend = replica_.backend();
  const Parameters& parameters = replica_.model().parameters;
  const ActiveSet& active = kept_.active();
  kept_.exchange();
  const bool still = replica_.model().frozen > 0;
  replica_.model().freeze(plan_.frozen_in(of.step));
  const int units = plan_.micro_batches_of(check.rank, of.ranks);
  const auto for_each_tensor = [&](const auto& f) {
    for (std::size_t k = parameters.segments.size(); k-- > 0;)
      if (active.active(parameters.segments[k].layer)) f(parameters.segments[k]);
  };
  const auto copy = [&](const float* from, float* to, std::int64_t count) {
    copy_bits(backend.device(), from, to, count);
  };
  for (int unit = 0; unit < units; ++unit) {
    const float* const gradient =
        recompute_.recompute(of.step, {.rank = check.rank, .index = unit, .ranks = of.ranks}, active);
    recompute_.write_numbers(unit == 0 ? redone_.data() : unit_.data());
    for (std::size_t i = 0; unit > 0 && i < redone_.size(); ++i) redone_[i] += unit_[i];
    for_each_tensor([&](const Segment& tensor) {
      const float* const from = gradient + tensor.begin;
      float* const to = sum_ + tensor.begin;
      if (unit == 0) return copy(from, to, tensor.size);
      each(backend.device(), tensor.size, kernels::Scale{from, to, 1.0F, true});
    });
  }
  kept_.exchange();
  replica_.model().freeze(still);
  const float factor = static_cast<float>(plan_.micro_batches) / static_cast<float>(units);
  std::int64_t elements = 0;
  for_each_tensor([&](const Segment& tensor) {
    each(backend.device(), tensor.size, kernels::Scale{sum_ + tensor.begin, message_ + elements, factor, false});
    elements += tensor.size;
  });
  // The result, in the order of the message, too: the block of the gradients that were added up is free now.
  std::int64_t at = 0;
  for_each_tensor([&](const Segment& tensor) {
    copy(kept_.result() + tensor.begin, sum_ + at, tensor.size);
    at += tensor.size;
  });
  return {.message = message_, .result = sum_, .elements = elements, .numbers = redone_};
}

void BanProtocol::save(Checkpoint& checkpoint) {
  kept_.save(checkpoint);
  const std::vector<std::uint8_t> bytes = bytes_of_state(protocol_->state());
  checkpoint.bytes[kState] = {.shape = {std::ssize(bytes)}, .values = bytes};
}

void BanProtocol::restore(const Checkpoint& checkpoint) {
  kept_.restore(checkpoint);
  if (const auto found = checkpoint.bytes.find(kState); found != checkpoint.bytes.end())
    restored_ = state_of(found->second.values);
}

void BanProtocol::share(Communicator& ranks) {
  kept_.share(ranks);
  std::vector<std::uint8_t> bytes = bytes_of_state(restored_);
  std::uint64_t count = bytes.size();
  ranks.broadcast(&count, sizeof count);
  bytes.resize(count);
  ranks.broadcast(bytes.data(), bytes.size());
  ProtocolState state = state_of(bytes);
  // Ranks of a larger group have fewer micro-batches each, and no room for those of a rank of then.
  if (state.pending.ranks < ranks_.size()) state.pending.checks.clear();
  // Numbers of another network are nothing to check by.
  std::erase_if(state.pending.checks,
                [&](const PendingCheck& check) { return check.numbers.size() != numbers_.numbers(); });
  protocol_->restore(std::move(state));
}

}  // namespace dat
