#include "byzantine/digest.hpp"

#include <algorithm>
#include <cstring>

#include "launch.hpp"
#include "sha256.hpp"

namespace dat {

namespace {

using Leaves = kernels::HashLeaves;
constexpr std::size_t kDigest = sizeof(Sha256Digest);

void begin_root(Sha256& hash, std::int64_t elements) {
  hash.add("root", 4);
  hash.add(&elements, sizeof elements);
}

}  // namespace

Sha256Digest digest_of(const char* what, std::initializer_list<std::span<const std::byte>> pieces) {
  Sha256 hash;
  hash.add(what, std::strlen(what) + 1);
  for (const std::span<const std::byte> piece : pieces) hash.add(piece.data(), piece.size());
  return hash.digest();
}

Sha256Digest commitment(const Sha256Digest& salt, const Sha256Digest& root) {
  return digest_of("commitment", {bytes_of(salt), bytes_of(root)});
}

RunHasher::RunHasher(Backend& backend, std::int64_t most, int runs) : backend_(backend) {
  if (backend.device().kind == DeviceKind::cpu) return;
  const auto bytes = static_cast<std::size_t>(memory(most, runs));
  device_ = static_cast<std::uint32_t*>(backend.allocate(bytes, "digests"));
  host_ = static_cast<std::uint32_t*>(backend.allocate_pinned(bytes, "digests"));
}

/// Each run has a leaf that is not whole.
std::int64_t RunHasher::memory(std::int64_t most, int runs) {
  return (most / Leaves::kLeaf + runs) * static_cast<std::int64_t>(kDigest);
}

void RunHasher::roots(std::span<const Run> runs, std::span<Sha256Digest> out) {
  if (device_ == nullptr) {
    std::ranges::transform(runs, out.begin(), [&](const Run& run) { return root(run.data, run.elements); });
    return;
  }
  std::int64_t leaves = 0;
  for (const Run& run : runs) {
    const std::int64_t count = Leaves::leaves(run.elements);
    each(backend_.device(), count, Leaves{run.data, run.elements, device_ + leaves * 8});
    leaves += count;
  }
  backend_.wait_for(backend_.fetch(host_, device_, static_cast<std::size_t>(leaves) * kDigest));
  const std::uint32_t* at = host_;
  for (std::size_t k = 0; k < runs.size(); ++k) {
    const std::int64_t count = Leaves::leaves(runs[k].elements);
    begin_root(hash_, runs[k].elements);
    hash_.add(at, static_cast<std::size_t>(count) * kDigest);
    out[k] = hash_.digest();
    at += count * 8;
  }
}

Sha256Digest RunHasher::root(const float* data, std::int64_t elements) {
  Sha256 leaf;
  begin_root(hash_, elements);
  for (std::int64_t at = 0; at < elements; at += Leaves::kLeaf) {
    leaf.add(data + at, static_cast<std::size_t>(std::min<std::int64_t>(Leaves::kLeaf, elements - at)) * sizeof(float));
    const Sha256Digest digest = leaf.digest();
    hash_.add(digest.data(), kDigest);
  }
  return hash_.digest();
}

}  // namespace dat
