#include "train/examples/warm_start.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "attack/attacks.hpp"
#include "augment.hpp"
#include "dat/error.hpp"

namespace dat {

const char* const kName = "perturbations";
constexpr int kHomeTag = 0;

WarmStart::WarmStart(Communicator& world, Backend& backend, const WarmStartOptions& options)
    : world_(world),
      backend_(backend),
      options_(options),
      image_bytes_(options.layout.elements()),
      slots_((options.samples + world.size() - 1) / world.size()) {
  const std::int64_t ranks = world.size(), n = options.micro_batch;
  // Without repeats a step has each sample once, and at the end of a pool's epoch a micro-batch of all ranks at most
  // `ranks` of them again (dat/sampler.hpp).
  most_lent_ = options.repeats ? ranks * n : std::min(ranks * n, slots_ + ranks);
  require(std::max(most_lent_, n) * image_bytes_ <= std::numeric_limits<int>::max(), ExitCode::usage,
          "--warm-start would send messages above 2 GiB; choose a smaller --micro-batch");
  state_.resize(static_cast<std::size_t>(slots_ * image_bytes_));
  lent_ = std::make_unique_for_overwrite<std::uint8_t[]>(static_cast<std::size_t>(most_lent_ * image_bytes_));
  lent_slots_.reserve(static_cast<std::size_t>(most_lent_));
  if (const auto most = static_cast<std::size_t>(options.rounds * most_lent_); options.goes_back) {
    before_ = std::make_unique_for_overwrite<std::uint8_t[]>(most * static_cast<std::size_t>(image_bytes_));
    before_slots_.reserve(most);
  }
  lent_bytes_.resize(static_cast<std::size_t>(ranks));
  borrowed_bytes_.resize(static_cast<std::size_t>(ranks));
  next_.resize(static_cast<std::size_t>(ranks));
  places_.resize(static_cast<std::size_t>(n));
  borrowed_ = backend.allocate_pinned_array<std::uint8_t>(n * image_bytes_, "warm start");
  on_device_ = backend.allocate_array<std::uint8_t>(n * image_bytes_, "warm start");
  device_places_ = backend.allocate_array<std::int64_t>(n, "warm start");
}

std::int64_t WarmStart::load(Objective& objective, double eps, const Crop* crops, const HostBatch& batch, int first,
                             std::int64_t step) {
  settle();
  if (first == 0) {
    before_slots_.clear();
    if (step % options_.reset_steps == 0) std::ranges::fill(state_, std::uint8_t{0});
  }
  const int n = objective.n;
  const std::int64_t sent = bring(batch, first, n);
  backend_.send(on_device_, borrowed_, static_cast<std::size_t>(n * image_bytes_));
  backend_.copy_to_device(device_places_, places_.data(), static_cast<std::size_t>(n) * sizeof(std::int64_t));
  start(objective, BallNorm::linf, eps);
  const Layout& layout = objective.layout;
  each(objective.device, std::int64_t{n} * layout.h * layout.w,
       kernels::Recall{on_device_, device_places_, crops, objective.clean, objective.eta, layout, options_.layout.h,
                       static_cast<float>(eps)});
  objective.start = objective.eta;
  return sent;
}

std::int64_t WarmStart::help(const HostBatch& batch, int first, int n) {
  settle();
  under_way_ = true;  // pixels that the others borrow now come back
  return bring(batch, first, n);
}

/// The perturbations of the samples first .. first + n - 1 of every rank's batch, as far as it has these, go from their
/// owners to `borrowed_`.
std::int64_t WarmStart::bring(const HostBatch& batch, int first, int n) {
  const int ranks = world_.size(), me = world_.rank();
  const auto image = static_cast<int>(image_bytes_);
  lent_slots_.clear();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t before = lent_slots_.size();
    const auto r = static_cast<std::size_t>(rank);
    const int begin = batch.begins[r] + first, end = std::min(begin + n, batch.begins[r + 1]);
    for (int k = begin; k < end; ++k)
      if (const std::int64_t id = batch.everyone[static_cast<std::size_t>(k)]; id % ranks == me)
        lent_slots_.push_back(id / ranks);
    lent_bytes_[static_cast<std::size_t>(rank)] = static_cast<int>(lent_slots_.size() - before) * image;
  }
  assert(std::ssize(lent_slots_) <= most_lent_);
  for (std::size_t k = 0; k < lent_slots_.size(); ++k)
    std::memcpy(lent_.get() + k * static_cast<std::size_t>(image), state_.data() + lent_slots_[k] * image_bytes_,
                static_cast<std::size_t>(image));

  const std::int64_t* ids = batch.ids.data() + first;
  const int own = std::clamp(batch.count - first, 0, n);
  std::ranges::fill(borrowed_bytes_, 0);
  for (int k = 0; k < own; ++k) borrowed_bytes_[static_cast<std::size_t>(ids[k] % ranks)] += image;
  std::int64_t before = 0;
  for (std::size_t rank = 0; rank < next_.size(); before += borrowed_bytes_[rank++] / image) next_[rank] = before;
  for (int k = 0; k < own; ++k)
    places_[static_cast<std::size_t>(k)] = next_[static_cast<std::size_t>(ids[k] % ranks)]++;

  const CallLabel label("perturbations");
  world_.exchange(lent_.get(), lent_bytes_, borrowed_, borrowed_bytes_);
  std::int64_t sent = 0;
  for (int rank = 0; rank < ranks; ++rank)
    if (rank != me)
      sent += lent_bytes_[static_cast<std::size_t>(rank)] + borrowed_bytes_[static_cast<std::size_t>(rank)];
  return sent;
}

void WarmStart::keep(const Objective& objective, double eps, const Crop* crops) {
  const Layout& layout = objective.layout;
  each(objective.device, std::int64_t{objective.n} * layout.h * layout.w,
       kernels::Remember{on_device_, device_places_, crops, objective.clean, objective.x_adv, layout, options_.layout.h,
                         static_cast<float>(eps)});
  ticket_ = backend_.fetch(borrowed_, on_device_, static_cast<std::size_t>(objective.n * image_bytes_));
  under_way_ = true;
}

/// Brings what keep() has left back to its owners.
void WarmStart::settle() {
  if (!under_way_) return;
  under_way_ = false;
  backend_.wait_for(ticket_);
  const CallLabel label("perturbations");
  world_.exchange(borrowed_, borrowed_bytes_, lent_.get(), lent_bytes_);
  const auto image = static_cast<std::size_t>(image_bytes_);
  for (std::size_t k = 0; k < lent_slots_.size(); ++k) {
    std::uint8_t* const kept = state_.data() + lent_slots_[k] * image_bytes_;
    if (before_ != nullptr) {
      std::memcpy(before_.get() + before_slots_.size() * image, kept, image);
      before_slots_.push_back(lent_slots_[k]);
    }
    std::memcpy(kept, lent_.get() + k * image, image);
  }
}

void WarmStart::put_back() {
  if (under_way_) backend_.wait_for(ticket_);
  under_way_ = false;
  const auto image = static_cast<std::size_t>(image_bytes_);
  for (std::size_t k = before_slots_.size(); k-- > 0;)  // a sample may be there twice
    std::memcpy(state_.data() + before_slots_[k] * image_bytes_, before_.get() + k * image, image);
}

/// All perturbations to rank 0 (`whole`, by sample, with those of all slots), or from there to their owners, some at a
/// time.
void WarmStart::transfer(std::vector<std::uint8_t>& whole, bool home) {
  constexpr std::int64_t kPieceBytes = 64 << 20;
  const std::int64_t piece = std::max<std::int64_t>(1, kPieceBytes / image_bytes_);
  const auto image = static_cast<std::size_t>(image_bytes_);
  std::vector<std::uint8_t> staged;
  if (world_.root()) whole.resize(state_.size() * static_cast<std::size_t>(world_.size()));
  for (int rank = 0; rank < world_.size(); ++rank)
    for (std::int64_t first = 0; first < slots_; first += piece) {
      if (rank != world_.rank() && !world_.root()) break;
      const auto count = static_cast<std::size_t>(std::min(piece, slots_ - first));
      const auto at = [&](std::size_t k) {
        return whole.data() + ((first + static_cast<std::int64_t>(k)) * world_.size() + rank) * image_bytes_;
      };
      std::uint8_t* mine = state_.data() + first * image_bytes_;
      if (rank != world_.rank()) {
        staged.resize(count * image);
        mine = staged.data();
      }
      for (std::size_t k = 0; k < count && home && world_.root(); ++k) std::memcpy(mine + k * image, at(k), image);
      if (rank > 0 && world_.root() == home) world_.send(mine, count * image, home ? rank : 0, kHomeTag);
      if (rank > 0 && world_.root() != home) world_.receive(mine, count * image, home ? 0 : rank, kHomeTag);
      for (std::size_t k = 0; k < count && !home && world_.root(); ++k) std::memcpy(at(k), mine + k * image, image);
    }
}

void WarmStart::save(Checkpoint& checkpoint) {
  settle();
  std::vector<std::uint8_t> whole;
  transfer(whole, false);
  if (!world_.root()) return;
  whole.resize(static_cast<std::size_t>(bytes()));
  checkpoint.bytes[kName] = {shape(), std::move(whole)};
}

void WarmStart::restore(const Checkpoint& checkpoint) {
  const auto found = checkpoint.bytes.find(kName);
  require(found != checkpoint.bytes.end(), ExitCode::checkpoint,
          "the checkpoint has no perturbations for --warm-start; it was made without it");
  require(found->second.shape == shape(), ExitCode::checkpoint,
          "the checkpoint's perturbations do not have the shape of the training images");
  restored_ = found->second.values;
}

void WarmStart::share(Communicator& ranks) {
  bool any = !restored_.empty();
  ranks.broadcast(&any, sizeof any);
  if (!any) return;
  transfer(restored_, true);
  restored_ = {};
}

}  // namespace dat
