#include "train/attackers/cheating.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

#include "reduce/wrapped_reducer.hpp"
#include "train/attackers/arithmetic.hpp"

namespace dat {

namespace {

/// Reducer of a simulation with ranks that cheat: on each rank the true gradient goes into it, on those that cheat what
/// their cheat has made of it. Gradients of the honest, where a cheat must know them, go through a side channel on the
/// host, which a real cheater has not (it would compute them: seeds are public). The distance of each rank's gradient
/// from the result is measured on the way. All of that is in ReducerStage::aside, between two barriers, so that no rank
/// waits for it elsewhere. own() has the true gradient. Each rank has one block of gradients, and all have the same
/// layers.
class FalseGradients final : public WrappedReducer {
 public:
  /// gradients: where `of_ranks` takes them and leaves the result. distances: [ranks of the launch], where they are
  /// left. All references outlive it.
  FalseGradients(Backend& backend, Communicator& ranks, const Parameters& parameters, float* gradients,
                 std::unique_ptr<Reducer> of_ranks, const Cheating& cheating, std::vector<double>& distances,
                 std::function<void(ReducerStage)> ended)
      : WrappedReducer(std::move(of_ranks)),
        backend_(backend),
        ranks_(ranks),
        parameters_(parameters),
        gradients_(gradients),
        cheating_(cheating),
        distances_(distances),
        ended_(std::move(ended)),
        own_(static_cast<std::size_t>(parameters.size)),
        result_(own_),
        mean_(own_),
        deviation_(own_),
        first_(own_) {}

  void begin(std::span<const ActiveSet> layers, std::int64_t step) override {
    assert(layers.size() == 1);
    of_ranks().begin(layers, step);
    step_.step = step;
    tensors_.clear();
    for (const Segment& segment : parameters_.segments)
      if (layers.front().active(segment.layer)) tensors_.push_back(&segment);
    step_.tensors = tensors_;
  }

  void finish() override {
    const CallLabel label("simulated cheating");
    ended_(ReducerStage::outside);
    ranks_.barrier();
    ended_(ReducerStage::communicate);
    fetch(own_);
    cheat();
    ranks_.barrier();
    ended_(ReducerStage::aside);
    for (auto tensor = tensors_.rbegin(); tensor != tensors_.rend(); ++tensor)
      of_ranks().ready(static_cast<int>(*tensor - parameters_.segments.data()));
    of_ranks().finish();
    measure();
    ended_(ReducerStage::aside);
  }

 private:
  /// Copies the gradients to a block of the host.
  void fetch(std::vector<float>& block) {
    for (const Segment* tensor : tensors_)
      backend_.copy_to_host(block.data() + tensor->begin, gradients_ + tensor->begin,
                            static_cast<std::size_t>(tensor->size) * sizeof(float));
  }

  void cheat() {
    if (cheating_.anyone_sees_all()) learn_honest();
    step_.own = own_.data();
    if (Cheat* cheat = cheating_.looks()) cheat->look(step_);
    Cheat* const cheat = cheating_.now();
    if (cheat == nullptr || cheat->sees() == Cheat::Sees::nothing) return;
    cheat->gradient(step_);
    std::vector<float> file;
    for (const Segment* tensor : tensors_) {
      float* const values = own_.data() + tensor->begin;
      file.resize(static_cast<std::size_t>(tensor->file_size()));  // the padding is zero in gradients
      to_file_order(*tensor, values, file.data());
      to_memory_order(*tensor, file.data(), values);
      backend_.copy_to_device(gradients_ + tensor->begin, values,
                              static_cast<std::size_t>(tensor->size) * sizeof(float));
    }
  }

  /// Brings the true gradients of all ranks to all, piece by piece, and takes of them what cheats may have to know.
  void learn_honest() {
    const std::vector<char>& honest = cheating_.honest();
    std::vector<float> values, piece(honest.size() * static_cast<std::size_t>(kPiece));
    for (const Segment* tensor : tensors_)
      for (std::int64_t at = 0; at < tensor->size; at += kPiece) {
        const std::int64_t n = std::min(kPiece, tensor->size - at);
        ranks_.all_gather(own_.data() + tensor->begin + at, piece.data(), static_cast<std::size_t>(n) * sizeof(float));
        for (std::int64_t i = 0; i < n; ++i) {
          values.clear();
          for (std::size_t rank = 0; rank < honest.size(); ++rank)
            if (honest[rank]) values.push_back(piece[rank * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)]);
          const auto place = static_cast<std::size_t>(tensor->begin + at + i);
          std::tie(mean_[place], deviation_[place], first_[place]) = summary_of(values);
        }
      }
    step_.mean = mean_.data();
    step_.deviation = deviation_.data();
    step_.first = first_.data();
  }

  /// Measures the distance of what each rank has sent from the result.
  void measure() {
    fetch(result_);
    step_.result = result_.data();
    const auto difference = [&](std::int64_t i) {
      return double{own_[static_cast<std::size_t>(i)]} - result_[static_cast<std::size_t>(i)];
    };
    const double distance = std::sqrt(product(tensors_, difference, difference));
    std::vector<double> all(static_cast<std::size_t>(ranks_.size()));
    ranks_.all_gather(&distance, all.data(), sizeof distance);
    for (int rank = 0; rank < ranks_.size(); ++rank)
      distances_[static_cast<std::size_t>(ranks_.launch_rank(rank))] = all[static_cast<std::size_t>(rank)];
  }

  static constexpr std::int64_t kPiece = 1 << 13;  ///< numbers of a rank that go through the side channel at once

  Backend& backend_;
  Communicator& ranks_;
  const Parameters& parameters_;
  float* gradients_;
  const Cheating& cheating_;
  std::vector<double>& distances_;
  std::function<void(ReducerStage)> ended_;
  std::vector<const Segment*> tensors_;  ///< tensors of the active layers
  CheatStep step_;
  std::vector<float> own_, result_;              ///< [parameters.size]
  std::vector<float> mean_, deviation_, first_;  ///< [parameters.size] statistics of the honest gradients
};

/// A part of the step's message, of whose numbers a rank that cheats says something else.
class FalseNumbers final : public MessagePart {
 public:
  FalseNumbers(MessagePart& part, const Cheating& cheating) : part_(part), cheating_(cheating) {}

  [[nodiscard]] std::size_t places() const override { return part_.places(); }
  void fetch(Backend::Ticket& ticket) override { part_.fetch(ticket); }
  void write(double* to, int unit) override {
    part_.write(to, unit);
    if (Cheat* cheat = cheating_.now()) cheat->statistics({to, places()});
  }
  void read(const double* from) override { part_.read(from); }
  [[nodiscard]] Estimate estimate() const override { return part_.estimate(); }
  bool read_each(const RankNumbers& said) override { return part_.read_each(said); }

 private:
  MessagePart& part_;
  const Cheating& cheating_;
};

}  // namespace

Cheating::Cheating(const Communicator& ranks, const TrainOptions& options, int classes, std::int64_t parameters)
    : honest_(static_cast<std::size_t>(ranks.size()), true) {
  std::vector<std::pair<std::size_t, Cheater>> here;  // ranks of the group
  for (const Cheater& one : attackers_of(options))
    for (std::size_t rank = 0; rank < honest_.size(); ++rank)
      if (ranks.launch_rank(static_cast<int>(rank)) == one.rank) here.emplace_back(rank, one);
  for (const auto& [rank, one] : here) {
    honest_[rank] = false;
    if (one.leaves) continue;
    auto cheat = cheats().at(one.name)({.seed = options.seed,
                                        .classes = classes,
                                        .ranks = ranks.size(),
                                        .attackers = static_cast<int>(std::ssize(here)),
                                        .rank = one.rank,
                                        .delay = one.own_delay(),
                                        .parameters = parameters});
    if (cheat->attack_steps()) weak_ = one.name;
    all_.push_back({static_cast<int>(rank), one, std::move(cheat)});
  }
  for (const OfRank& one : all_)
    if (one.rank == ranks.rank()) own_ = &one;
}

Cheat* Cheating::at(std::int64_t step) const {
  return own_ != nullptr && own_->attacker.cheats_after(step) ? own_->cheat.get() : nullptr;
}

Cheat* Cheating::looks() const {
  if (own_ == nullptr || own_->cheat->sees() == Cheat::Sees::nothing) return nullptr;
  return step_ >= own_->attacker.from - own_->cheat->looks_back() ? own_->cheat.get() : nullptr;
}

bool Cheating::anyone_sees_all() const {
  return std::ranges::any_of(all_, [&](const OfRank& one) {
    return one.cheat->sees() == Cheat::Sees::all && one.attacker.cheats_after(step_);
  });
}

std::unique_ptr<Reducer> Cheating::falsify(std::unique_ptr<Reducer> reducer, Backend& backend, Communicator& ranks,
                                           const Parameters& parameters, float* gradients,
                                           const ReducerOptions& options) {
  if (all_.empty()) return reducer;
  distances_.resize(static_cast<std::size_t>(ranks.launch_rank(ranks.size() - 1)) + 1, std::nan(""));
  return std::make_unique<FalseGradients>(backend, ranks, parameters, gradients, std::move(reducer), *this, distances_,
                                          options.ended);
}

MessagePart& Cheating::falsify(MessagePart& part) {
  if (all_.empty()) return part;
  false_numbers_ = std::make_unique<FalseNumbers>(part, *this);
  return *false_numbers_;
}

}  // namespace dat
