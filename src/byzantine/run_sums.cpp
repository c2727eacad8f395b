#include "byzantine/run_sums.hpp"

#include <algorithm>

#include "claims.hpp"

namespace dat {

namespace {

/// Each run has a chunk that is not whole.
[[nodiscard]] std::int64_t most_chunks(std::int64_t most, int runs) { return most / kChunk + runs; }

}  // namespace

RunSums::RunSums(Backend& backend, std::int64_t most, int runs) : backend_(backend) {
  const auto count = static_cast<std::size_t>(most_chunks(most, runs)), all = static_cast<std::size_t>(runs);
  chunks_.reserve(count);
  device_chunks_ = static_cast<Chunk*>(backend.allocate(count * sizeof(Chunk), "message tables"));
  device_first_ = static_cast<std::int32_t*>(backend.allocate((all + 1) * sizeof(std::int32_t), "message tables"));
  partial_ = static_cast<double*>(backend.allocate(count * kSums * sizeof(double), "claims"));
  sums_ = static_cast<double*>(backend.allocate(all * kSums * sizeof(double), "claims"));
  host_ = static_cast<double*>(backend.allocate_pinned(all * kSums * sizeof(double), "claims"));
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

}  // namespace dat
