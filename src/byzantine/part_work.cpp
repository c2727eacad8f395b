#include "byzantine/part_work.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "claims.hpp"
#include "copy_bits.hpp"

namespace dat {

namespace {

/// Each run has a chunk that is not whole.
[[nodiscard]] std::int64_t most_chunks(std::int64_t most, int runs) { return most / kChunk + runs; }

}  // namespace

RunSums::RunSums(Backend& backend, std::int64_t most, int runs) : backend_(backend) {
  const std::int64_t count = most_chunks(most, runs), sums = std::int64_t{kSums} * runs;
  chunks_.reserve(static_cast<std::size_t>(count));
  device_chunks_ = backend.allocate_array<Chunk>(count, "message tables");
  device_first_ = backend.allocate_array<std::int32_t>(runs + 1, "message tables");
  partial_ = backend.allocate_array<double>(count * kSums, "claims");
  sums_ = backend.allocate_array<double>(sums, "claims");
  host_ = backend.allocate_pinned_array<double>(sums, "claims");
}

std::int64_t RunSums::memory(std::int64_t most, int runs) {
  return most_chunks(most, runs) * std::int64_t{sizeof(Chunk) + kSums * sizeof(double)} +
         runs * std::int64_t{kSums * sizeof(double)} + (runs + 1) * std::int64_t{sizeof(std::int32_t)};
}

Chunks RunSums::chunks_of(std::span<const Run> runs) {
  chunks_.clear();
  first_.assign(1, 0);
  for (std::size_t k = 0; k < runs.size(); ++k) {
    for (std::int64_t at = 0; at < runs[k].elements; at += kChunk)
      chunks_.push_back({.begin = runs[k].x + at,
                         .size = static_cast<std::int32_t>(std::min<std::int64_t>(kChunk, runs[k].elements - at)),
                         .segment = static_cast<std::int32_t>(k)});
    first_.push_back(static_cast<std::int32_t>(chunks_.size()));
  }
  backend_.copy_to_device(device_chunks_, chunks_.data(), chunks_.size() * sizeof(Chunk));
  backend_.copy_to_device(device_first_, first_.data(), first_.size() * sizeof(std::int32_t));
  return {.data = device_chunks_,
          .first = device_first_,
          .count = static_cast<std::int32_t>(chunks_.size()),
          .segments = static_cast<int>(runs.size())};
}

const double* RunSums::of(std::span<const Run> runs, const float* x, const float* v) {
  kernels::ClaimSums f{.x = x, .v = v, .x_begin = {}, .v_begin = {}, .key = {}};
  for (std::size_t k = 0; k < runs.size(); ++k) {
    f.x_begin[k] = runs[k].x;
    f.v_begin[k] = runs[k].v;
    f.key[k] = runs[k].key;
  }
  sum(backend_.device(), chunks_of(runs), f, partial_, sums_);
  backend_.wait_for(backend_.fetch(host_, sums_, runs.size() * kSums * sizeof(double)));
  return host_;
}

PartWork::PartWork(Backend& backend, int ranks, int rank, std::int64_t most,
                   std::function<Redone(const PendingChecks&, const PendingCheck&)> redo)
    : backend_(backend),
      rank_(rank),
      redo_(std::move(redo)),
      // A check may be of a step in which the group was larger.
      hasher_(backend, most + ranks, kMostRanks),
      sums_(backend, most + ranks, kMostRanks),
      layout_{.elements = most, .ranks = ranks},
      own_(backend.allocate_floats(most, "own gradient")),
      shown_(backend.allocate_floats(layout_.longest(), "part that is shown")) {}

std::int64_t PartWork::memory(int ranks, std::int64_t most) {
  const PartLayout layout{.elements = most, .ranks = ranks};
  return RunHasher::memory(most + ranks, kMostRanks) + (most + layout.longest()) * std::int64_t{sizeof(float)} +
         RunSums::memory(most + ranks, kMostRanks);
}

void PartWork::begin(std::int64_t step, std::int64_t elements, const float* message) {
  step_ = step;
  layout_.elements = elements;
  copy_bits(backend_.device(), message, own_, elements);
}

std::size_t PartWork::part_bytes(int part) const {
  return static_cast<std::size_t>(layout_.size(part)) * sizeof(float);
}

std::span<const std::byte> PartWork::own_part(int part) const {
  host_.resize(part_bytes(part));
  backend_.copy_to_host(host_.data(), own_ + layout_.begin(part), host_.size());
  return host_;
}

void PartWork::roots_of_parts(const PartLayout& layout, const float* message, std::span<Sha256Digest> out) {
  hashed_.clear();
  for (int part = 0; part < layout.ranks; ++part)
    hashed_.push_back({.data = message + layout.begin(part), .elements = layout.size(part)});
  hasher_.roots(hashed_, out);
}

void PartWork::own_roots(std::span<Sha256Digest> of_parts) { roots_of_parts(layout_, own_, of_parts); }

void PartWork::received_roots(std::span<Sha256Digest> of_ranks) {
  const std::int64_t mine = layout_.size(rank_);
  hashed_.clear();
  for (int rank = 0; rank < layout_.ranks; ++rank)
    hashed_.push_back({.data = everyone_ + rank * mine, .elements = mine});
  hasher_.roots(hashed_, of_ranks);
}

Sha256Digest PartWork::root(std::span<const std::byte> shown) {
  return hasher_.root(reinterpret_cast<const float*>(shown.data()),
                      static_cast<std::int64_t>(shown.size() / sizeof(float)));
}

void PartWork::replace(int rank, std::span<const std::byte> shown) {
  backend_.copy_to_device(everyone_ + rank * layout_.size(rank_), shown.data(), shown.size());
}

Claim PartWork::claim_of(const double* sums) { return {.product = sums[0], .norm = std::sqrt(sums[1])}; }

const double* PartWork::sums_of_parts(const PartLayout& layout, std::span<const std::uint64_t> keys,
                                      const float* message, const float* result) {
  runs_.clear();
  for (int part = 0; part < layout.ranks; ++part)
    runs_.push_back({.x = layout.begin(part),
                     .elements = layout.size(part),
                     .v = layout.begin(part),
                     .key = keys[static_cast<std::size_t>(part)]});
  return sums_.of(runs_, message, result);
}

void PartWork::claims(std::span<const std::uint64_t> keys, std::span<Claim> of_parts, std::span<double> norms) {
  const double* const all = sums_of_parts(layout_, keys, own_, result_);
  for (std::size_t part = 0; part < of_parts.size(); ++part) {
    of_parts[part] = claim_of(all + part * kSums);
    norms[part] = std::sqrt(all[part * kSums + 2]);
  }
}

void PartWork::claims_received(std::uint64_t key, std::span<Claim> of_ranks) {
  const std::int64_t mine = layout_.size(rank_);
  runs_.clear();
  for (int rank = 0; rank < layout_.ranks; ++rank)
    runs_.push_back({.x = rank * mine, .elements = mine, .v = layout_.begin(rank_), .key = key});
  const double* const all = sums_.of(runs_, everyone_, result_);
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) of_ranks[rank] = claim_of(all + rank * kSums);
}

Claim PartWork::claim(int part, std::uint64_t key, std::span<const std::byte> shown) {
  backend_.copy_to_device(shown_, shown.data(), shown.size());
  const RunSums::Run run{.x = 0, .elements = layout_.size(part), .v = layout_.begin(part), .key = key};
  return claim_of(sums_.of({&run, 1}, shown_, result_));
}

bool PartWork::aggregated(int part, std::span<const std::byte> shown, bool& unfinished) {
  const std::int64_t size = layout_.size(part);
  backend_.copy_to_device(everyone_, shown.data(), shown.size());
  const RunSums::Run run{.elements = size};
  aggregator_->aggregate({.chunks = sums_.chunks_of({&run, 1}),
                          .gradients = everyone_,
                          .stride = size,
                          .step = step_,
                          .result = place_,
                          .weights = weights_});
  unfinished = aggregator_->unfinished();
  made_.resize(2 * part_bytes(part));
  const std::size_t bytes = part_bytes(part);
  backend_.copy_to_host(made_.data(), place_, bytes);
  backend_.copy_to_host(made_.data() + bytes, result_ + layout_.begin(part), bytes);
  const std::span<const std::byte> both(made_);
  return std::ranges::equal(both.first(bytes), both.last(bytes));
}

const Contribution& PartWork::redo(const PendingChecks& of, const PendingCheck& check) {
  const Redone redone = redo_(of, check);
  const PartLayout layout{.elements = redone.elements, .ranks = of.ranks};
  const auto parts = static_cast<std::size_t>(of.ranks);
  contribution_.roots.resize(parts);
  contribution_.claims.resize(parts);
  contribution_.numbers.assign(redone.numbers.begin(), redone.numbers.end());
  roots_of_parts(layout, redone.message, contribution_.roots);
  const double* const all = sums_of_parts(layout, of.keys, redone.message, redone.result);
  for (std::size_t part = 0; part < parts; ++part) contribution_.claims[part] = claim_of(all + part * kSums);
  return contribution_;
}

}  // namespace dat
