#include "train/message/stateful.hpp"

#include <algorithm>

#include "dat/error.hpp"

namespace dat {

namespace {

constexpr int kFloatsTag = 0;

/// Transfers in messages that MPI can count.
template <class Transfer>
void in_pieces(float* data, std::size_t count, const Transfer& transfer) {
  constexpr std::size_t kPiece = 1 << 28;
  for (std::size_t at = 0; at < count; at += kPiece) transfer(data + at, std::min(kPiece, count - at) * sizeof(float));
}

}  // namespace

std::int64_t integer_of(const Checkpoint& checkpoint, const char* name) {
  const auto found = checkpoint.integers.find(name);
  require(found != checkpoint.integers.end(), ExitCode::checkpoint, "the checkpoint has no number '", name, "'");
  return found->second;
}

const std::vector<double>& doubles_of(const Checkpoint& checkpoint, const char* name) {
  const auto found = checkpoint.doubles.find(name);
  require(found != checkpoint.doubles.end(), ExitCode::checkpoint, "the checkpoint has no array '", name, "'");
  return found->second;
}

void share_doubles(Communicator& ranks, std::vector<double>& values) {
  std::uint64_t count = values.size();
  ranks.broadcast(&count, sizeof count);
  values.resize(count);
  ranks.broadcast(values.data(), count * sizeof(double));
}

void share_floats(Communicator& ranks, Backend& backend, float* device, std::int64_t count) {
  std::vector<float> host(static_cast<std::size_t>(count));
  backend.copy_to_host(host.data(), device, host.size() * sizeof(float));
  in_pieces(host.data(), host.size(), [&](float* at, std::size_t bytes) { ranks.broadcast(at, bytes); });
  backend.copy_to_device(device, host.data(), host.size() * sizeof(float));
}

std::vector<float> gather_floats(Communicator& ranks, std::vector<float> mine) {
  const std::size_t count = mine.size();
  if (!ranks.root()) {
    in_pieces(mine.data(), count, [&](float* at, std::size_t bytes) { ranks.send(at, bytes, 0, kFloatsTag); });
    return {};
  }
  mine.resize(count * static_cast<std::size_t>(ranks.size()));
  for (int rank = 1; rank < ranks.size(); ++rank)
    in_pieces(mine.data() + static_cast<std::size_t>(rank) * count, count,
              [&](float* at, std::size_t bytes) { ranks.receive(at, bytes, rank, kFloatsTag); });
  return mine;
}

std::vector<float> deal_floats(Communicator& ranks, std::vector<float> all, std::size_t count) {
  for (int rank = 1; rank < ranks.size() && ranks.root(); ++rank)
    in_pieces(all.data() + static_cast<std::size_t>(rank) * count, count,
              [&](float* at, std::size_t bytes) { ranks.send(at, bytes, rank, kFloatsTag); });
  all.resize(count);
  if (!ranks.root())
    in_pieces(all.data(), count, [&](float* at, std::size_t bytes) { ranks.receive(at, bytes, 0, kFloatsTag); });
  return all;
}

}  // namespace dat
