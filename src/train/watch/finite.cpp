#include "train/watch/finite.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "all_finite.hpp"
#include "dat/error.hpp"
#include "gradients.hpp"

namespace dat {

constexpr const char* kSetbacks = "setbacks";

std::string BadNumbers::text(const Parameters& parameters) const {
  const char* const words[] = {"an attacked image", "a batch statistic", "the loss"};
  const auto place = static_cast<std::size_t>(where);
  const std::string what = place < std::size(words)
                               ? words[place]
                               : "the gradient of " + parameters.segments[static_cast<std::size_t>(segment)].name;
  return what + " is not finite" + (where == Where::sum ? " after the sum over the ranks" : "") + " (rank " +
         std::to_string(rank) + ")";
}

bool BadNumbers::possible(std::ptrdiff_t segments) const {
  return where >= Where::images && where <= Where::sum && segment >= (where >= Where::gradient ? 0 : -1) &&
         segment < segments;
}

NumberCheck::NumberCheck(Communicator& ranks, Backend& backend, const Parameters& parameters, const Learner& learner,
                         const BatchStatistics& statistics, Vote& vote, const Sizes& sizes)
    : ranks_(ranks),
      backend_(backend),
      parameters_(parameters),
      learner_(learner),
      statistics_(statistics),
      vote_(vote),
      row_(std::ssize(parameters.segments) * kSums),
      own_table_(backend, parameters),
      sum_table_(backend, parameters),
      at_own_(std::int64_t{sizes.micro_batches} * kSums),
      at_sum_(at_own_ + sizes.gradients * row_),
      size_(at_sum_ + row_),
      all_(static_cast<std::size_t>(ranks.size())) {
  const char* const purpose = "checks of numbers";
  std::int64_t chunks = own_table_.largest();
  std::set<std::int64_t> floats;
  for (const std::int64_t image : sizes.images)
    for (const int count : sizes.counts) floats.insert(count * image);
  for (const std::int64_t size : floats) {
    tensors_.push_back(std::make_unique<ArrayInChunks>(backend, size));
    chunks = std::max(chunks, tensors_.back()->table.largest());
  }
  partial_ = backend.allocate_array<double>(chunks * kSums, purpose);
  sums_ = backend.allocate_array<double>(size_, purpose);
  host_ = backend.allocate_pinned_array<double>(size_, purpose);
  flag_ = backend.allocate_array<double>(1, purpose);
}

void NumberCheck::look_at_images(const Batch& batch) {
  const std::int64_t floats = batch.n * batch.layout.elements();
  const auto tensor = std::ranges::find_if(tensors_, [&](const auto& one) { return one->parameters.size == floats; });
  sum(backend_.device(), (*tensor)->chunks, kernels::SquaredNorm{batch.x_adv}, partial_, sums_ + images_++ * kSums);
}

void NumberCheck::look_at_own(std::span<float* const> gradients, const ActiveSet& layers) {
  const Chunks& chunks = own_table_.select(layers);
  for (const float* block : gradients)
    sum(backend_.device(), chunks, kernels::SquaredNorm{block}, partial_, sums_ + at_own_ + gradients_++ * row_);
}

void NumberCheck::look_at_sum(const ActiveSet& layers) {
  sum(backend_.device(), sum_table_.select(layers), kernels::SquaredNorm{parameters_.gradients}, partial_,
      sums_ + at_sum_);
}

void NumberCheck::fetch(Backend::Ticket& ticket) {
  ticket = backend_.fetch(host_, sums_, static_cast<std::size_t>(size_) * sizeof(double));
  fetched_images_ = images_;
  fetched_gradients_ = gradients_;
}

const double* NumberCheck::decide() {
  require(at_own_ + gradients_ * row_ == at_sum_, ExitCode::numerical, "the check of numbers has looked at ",
          gradients_, " blocks of gradients of this rank, not at all of them");
  const Learner::Losses losses = learner_.losses();
  each(backend_.device(), 1, kernels::SetFlag{flag_});
  const kernels::AllFinite all{losses.values,
                               losses.passes,
                               losses.stride,
                               losses.images,
                               statistics_.values(),
                               statistics_.count(),
                               sums_,
                               images_ * kSums,
                               at_own_,
                               (gradients_ + 1) * row_,
                               flag_};
  each(backend_.device(), all.size(), all);
  return flag_;
}

std::int32_t NumberCheck::bad_segment(std::int64_t at) const {
  for (auto k = static_cast<std::int32_t>(parameters_.segments.size()); k-- > 0;)
    if (!std::isfinite(host_[at + std::int64_t{k} * kSums])) return k;
  return -1;
}

BadNumbers NumberCheck::own_verdict() const {
  using Where = BadNumbers::Where;
  const auto bad = [&](Where where, std::int32_t segment = -1) {
    return BadNumbers{.where = where, .segment = segment, .rank = ranks_.launch_rank()};
  };
  for (int k = 0; k < fetched_images_; ++k)
    if (!std::isfinite(host_[k * kSums])) return bad(Where::images);
  if (!statistics_.own_finite()) return bad(Where::statistics);
  if (!learner_.own_finite()) return bad(Where::loss);
  for (int k = 0; k < fetched_gradients_; ++k)
    if (const std::int32_t segment = bad_segment(at_own_ + k * row_); segment >= 0)
      return bad(Where::gradient, segment);
  if (const std::int32_t segment = bad_segment(at_sum_); segment >= 0) return bad(Where::sum, segment);
  return bad(Where::nowhere);
}

void NumberCheck::write(double*, int unit) {
  if (unit > 0) return;
  mine_ = own_verdict();
  vote_.bad = mine_.where != BadNumbers::Where::nowhere;
}

const BadNumbers* NumberCheck::agreed() {
  if (!vote_.bad_agreed()) return nullptr;
  const CallLabel label("numbers that are not finite");
  ranks_.all_gather(&mine_, all_.data(), sizeof mine_);
  // A rank may say anything, where that is tolerated.
  for (BadNumbers& one : all_)
    if (!one.possible(std::ssize(parameters_.segments))) one.where = BadNumbers::Where::nowhere;
  first_ = *std::ranges::min_element(all_, [](const BadNumbers& a, const BadNumbers& b) { return a.where < b.where; });
  return &first_;
}

void SkippedSteps::save(Checkpoint& checkpoint) {
  if (in_a_row == 0 && rollbacks == 0 && lr_factor == 1) return;
  checkpoint.doubles[kSetbacks] = {static_cast<double>(in_a_row), static_cast<double>(rollbacks), lr_factor};
}

void SkippedSteps::restore(const Checkpoint& checkpoint) {
  in_a_row = rollbacks = 0;
  lr_factor = 1;
  const auto found = checkpoint.doubles.find(kSetbacks);
  if (found == checkpoint.doubles.end()) return;
  const std::vector<double>& values = found->second;
  require(values.size() == 3 && values[0] >= 0 && values[0] < 0x1p53 && values[1] >= 0 && values[1] < 0x1p53 &&
              values[2] > 0 && values[2] <= 1,
          ExitCode::checkpoint, "the checkpoint's numbers of setbacks are damaged");
  in_a_row = static_cast<std::int64_t>(values[0]);
  rollbacks = static_cast<std::int64_t>(values[1]);
  lr_factor = values[2];
}

void SkippedSteps::share(Communicator& ranks) {
  ranks.broadcast(&in_a_row, sizeof in_a_row);
  ranks.broadcast(&rollbacks, sizeof rollbacks);
  ranks.broadcast(&lr_factor, sizeof lr_factor);
}

void SkippedSteps::replicated(ReplicatedState& state) {
  state.host("skipped steps in a row", &in_a_row, sizeof in_a_row);
  state.host("rollbacks", &rollbacks, sizeof rollbacks);
  state.host("factor of the learning rate", &lr_factor, sizeof lr_factor);
}

}  // namespace dat
