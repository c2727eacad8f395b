#include "train/watch/verification.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "dat/dealing.hpp"
#include "dat/random.hpp"
#include "fingerprint.hpp"
#include "train/watch/replica_check.hpp"

namespace dat {

constexpr int kClaimTag = 2;
constexpr std::size_t kClaimHead = 2;  ///< numbers of a claim before the sketch: fingerprint, loss

VerificationPlan verification_of(std::uint64_t seed, std::int64_t step, const Plan& plan) {
  const Philox4 words = random_words(seed, Purpose::verification, static_cast<std::uint32_t>(step), 0, 0);
  const auto below = [](std::uint32_t word, int bound) {
    return static_cast<int>(word % static_cast<std::uint32_t>(bound));
  };
  VerificationPlan chosen{.of = {.ranks = plan.ranks}};
  if (plan.ordered) {
    const int number = below(words.v[0], plan.micro_batches);
    while (first_micro_batch(plan.micro_batches, plan.ranks, chosen.of.rank + 1) <= number) ++chosen.of.rank;
    chosen.of.index = number - first_micro_batch(plan.micro_batches, plan.ranks, chosen.of.rank);
  } else {
    chosen.of.rank = below(words.v[0], plan.ranks);
  }
  chosen.verifier = (chosen.of.rank + 1 + below(words.v[1], plan.ranks - 1)) % plan.ranks;
  if (plan.ranks == 2) return chosen;
  chosen.third = below(words.v[2], plan.ranks - 2);  // among those who are neither
  for (const int taken : {std::min(chosen.of.rank, chosen.verifier), std::max(chosen.of.rank, chosen.verifier)})
    chosen.third += chosen.third >= taken;
  return chosen;
}

double verification_tolerance(int attack_steps) {
  constexpr double kDifference = 1e-5;
  return 10 * kDifference + 4 * std::sqrt(2 * attack_steps * kDifference);
}

Verification::Verification(Communicator& ranks, const TrainOptions& options, const Plan& plan, const StepMethod& method,
                           Replica& replica, Recompute& recompute)
    : ranks_(ranks),
      plan_(plan),
      seed_(options.seed),
      every_(options.verify),
      tolerance_(options.deterministic ? 0 : verification_tolerance(method.attacks.most_gradients())),
      backend_(replica.backend()),
      recompute_(recompute),
      table_(replica.backend(), replica.model().parameters) {
  const std::int64_t segments = std::ssize(replica.model().parameters.segments), chunks = table_.largest();
  const char* const purpose = "verification";
  scratch_ = backend_.allocate_array<double>(chunks * kSums, purpose);
  fingerprints_ = backend_.allocate_array<double>((segments + chunks) * kSums, purpose);  // side by side, for one copy
  sketches_ = fingerprints_ + segments * kSums;
  sums_ = backend_.allocate_array<double>(segments * kSums, purpose);
  host_ = backend_.allocate_pinned_array<double>((segments + chunks) * kSums, purpose);
  for (std::vector<double>* claim : {&mine_, &other_})
    claim->reserve(kClaimHead + static_cast<std::size_t>(chunks * kSums));
}

void Verification::begin(std::int64_t step) {
  step_ = step;
  bytes_sent_ = 0;
  if (due()) chosen_ = verification_of(seed_, step, plan_);
}

void Verification::keep(const Batch& batch, const float* gradients, const ActiveSet& active) {
  if (!due() || chosen_.of.rank != ranks_.rank() || batch.begins_at != chosen_.of.index * batch.n) return;
  first_ = batch.begins_at;
  count_ = batch.n;
  sketch(gradients, active);
}

void Verification::sketch(const float* gradients, const ActiveSet& active) {
  chunks_ = table_.select(active);
  for (std::vector<double>* claim : {&mine_, &other_})
    claim->resize(kClaimHead + static_cast<std::size_t>(chunks_.count) * kSums);
  sum(backend_.device(), chunks_, kernels::Fingerprint{gradients}, scratch_, fingerprints_);
  sum(backend_.device(), chunks_, kernels::Sketch{gradients}, sketches_, sums_);
}

void Verification::fetch_claim(double loss, std::vector<double>& claim) {
  const auto numbers = static_cast<std::size_t>(chunks_.segments + chunks_.count) * kSums;
  backend_.wait_for(backend_.fetch(host_, fingerprints_, numbers * sizeof(double)));
  std::uint64_t fingerprint = kernels::mix_bits(std::bit_cast<std::uint64_t>(loss));
  for (int segment = 0; segment < chunks_.segments; ++segment)
    fingerprint += kernels::fingerprint_of(host_ + std::ptrdiff_t{segment} * kSums);
  claim[0] = std::bit_cast<double>(fingerprint);
  claim[1] = loss;
  std::copy_n(host_ + std::ptrdiff_t{chunks_.segments} * kSums, std::ptrdiff_t{chunks_.count} * kSums,
              claim.begin() + kClaimHead);
}

void Verification::recompute_claim(const ActiveSet& active, std::vector<double>& claim) {
  sketch(recompute_.recompute(step_, chosen_.of, active), active);
  fetch_claim(recompute_.loss(), claim);
}

double distance_of_claims(const std::vector<double>& one, const std::vector<double>& other) {
  if (std::bit_cast<std::uint64_t>(one[0]) == std::bit_cast<std::uint64_t>(other[0])) return 0;
  double difference = 0, square = 0;
  for (std::size_t at = kClaimHead; at < one.size(); at += kSums) {
    for (std::size_t k = 0; k < 2; ++k) difference += (one[at + k] - other[at + k]) * (one[at + k] - other[at + k]) / 2;
    square += std::max(one[at + 2], other[at + 2]);
  }
  // A difference in bits only, or in the loss only, is no distance of zero.
  const double of_loss = std::abs(one[1] - other[1]) / std::max(std::abs(one[1]), 1e-30);
  return std::max({std::sqrt(difference / std::max(square, 1e-300)), of_loss, 1e-30});
}

std::optional<Verification::Finding> Verification::verify(const Learner& learner, const ActiveSet& active) {
  if (!due()) return std::nullopt;
  const CallLabel label("verification");
  const std::int64_t before = ranks_.bytes_given();
  // Result: 1 where the two disagree, and the distance.
  double result[2] = {0, 0};
  if (ranks_.rank() == chosen_.of.rank) {
    fetch_claim(learner.loss_of(count_, first_), mine_);
    ranks_.send(mine_.data(), mine_.size() * sizeof(double), chosen_.verifier, kClaimTag);
  } else if (ranks_.rank() == chosen_.verifier) {
    recompute_claim(active, mine_);
    ranks_.receive(other_.data(), other_.size() * sizeof(double), chosen_.of.rank, kClaimTag);
    result[0] = agree(other_, mine_) ? 0 : 1;
    result[1] = distance_of_claims(other_, mine_);
  }
  ranks_.sum(result, 2);
  bytes_sent_ = ranks_.bytes_given() - before;
  if (result[0] == 0) return std::nullopt;
  return decide(result[1], active);
}

/// Decides about a difference: the third rank recomputes the micro-batch, too.
Verification::Finding Verification::decide(double distance, const ActiveSet& active) {
  const auto [of, verifier, third] = chosen_;
  double like[2] = {0, 0};  // 1 where the third agrees with the one, and with the other
  if (third >= 0 && (ranks_.rank() == of.rank || ranks_.rank() == verifier))
    ranks_.send(mine_.data(), mine_.size() * sizeof(double), third, kClaimTag);
  if (ranks_.rank() == third) {
    recompute_claim(active, mine_);
    for (int k = 0; k < 2; ++k) {
      ranks_.receive(other_.data(), other_.size() * sizeof(double), k == 0 ? of.rank : verifier, kClaimTag);
      like[k] = agree(other_, mine_) ? 1 : 0;
    }
  }
  ranks_.sum(like, 2);
  const std::vector<std::string> places = places_of(ranks_);
  const auto number = [&](int rank) { return std::to_string(ranks_.launch_rank(rank)); };

  const bool decided = like[0] != like[1];
  const int guilty = !decided ? -1 : like[0] > 0 ? verifier : of.rank;
  const std::string what = "micro-batch " + std::to_string(of.index) + " of rank " + number(of.rank);
  std::string text = "silent corruption: in step " + std::to_string(step_ + 1) + ", the gradient of micro-batch " +
                     std::to_string(of.index) + " of " + ranks_text({of.rank}, places) + " is not what " +
                     ranks_text({verifier}, places) + " finds when it recomputes it: " +
                     fmt::format("a distance of {:.2g} of its norm, tolerance {:.2g}{}; ", distance, tolerance_,
                                 tolerance_ == 0 ? " (bits)" : "");
  if (decided)
    text += ranks_text({third}, places) + " agrees with rank " + number(guilty == verifier ? of.rank : verifier) +
            ": rank " + number(guilty) + " is wrong";
  else if (third >= 0)
    text += "nor does " + ranks_text({third}, places) + " decide which of them is wrong";
  else
    text += "a third rank could tell which of them is wrong";
  const bool usable = guilty == verifier;
  return {{.step = step_ + 1,
           .rank = decided ? ranks_.launch_rank(guilty) : -1,
           .what = "gradient of " + what,
           .done = usable ? "the recomputation was wrong" : "the step was left out",
           .text = text},
          usable};
}

}  // namespace dat
