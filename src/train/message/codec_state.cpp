#include "train/message/codec_state.hpp"

#include <algorithm>

#include "dat/error.hpp"
#include "pointwise.hpp"

namespace dat {

namespace {

constexpr int kTag = 0;

[[nodiscard]] std::string name_of(const Reducer::State& state) { return state.of + "/" + state.name; }

/// Transfers in messages that MPI can count.
template <class Transfer>
void in_pieces(float* data, std::int64_t count, const Transfer& transfer) {
  constexpr std::int64_t kPiece = 1 << 28;
  for (std::int64_t at = 0; at < count; at += kPiece)
    transfer(data + at, static_cast<std::size_t>(std::min(kPiece, count - at)) * sizeof(float));
}

}  // namespace

CodecState::CodecState(Communicator& ranks, Backend& backend, const Reducer& reducer, bool may_go_back)
    : ranks_(ranks), backend_(backend), reducer_(reducer) {
  if (!may_go_back) return;
  for (const Reducer::State& state : reducer.state())
    kept_.push_back({state.data, backend.allocate_floats(state.count, "codec state before the step"), state.count});
}

void CodecState::keep() {
  for (const Kept& one : kept_) each(backend_.device(), one.count, kernels::Scale{one.data, one.before, 1.0F, false});
}

void CodecState::put_back() {
  for (const Kept& one : kept_) each(backend_.device(), one.count, kernels::Scale{one.before, one.data, 1.0F, false});
}

void CodecState::save(Checkpoint& checkpoint) {
  for (const Reducer::State& state : reducer_.state()) {
    const auto count = static_cast<std::size_t>(state.count);
    std::vector<float> values(count * (state.own && ranks_.root() ? static_cast<std::size_t>(ranks_.size()) : 1));
    backend_.copy_to_host(values.data(), state.data, count * sizeof(float));
    for (int rank = 1; rank < ranks_.size() && state.own; ++rank)
      if (ranks_.root())
        in_pieces(values.data() + rank * state.count, state.count,
                  [&](float* at, std::size_t bytes) { ranks_.receive(at, bytes, rank, kTag); });
      else if (rank == ranks_.rank())
        in_pieces(values.data(), state.count, [&](float* at, std::size_t bytes) { ranks_.send(at, bytes, 0, kTag); });
    if (!ranks_.root()) continue;  // other ranks write no file, and keep nothing for one
    checkpoint.arrays.push_back(
        {name_of(state),
         state.own ? std::vector<std::int64_t>{ranks_.size(), state.count} : std::vector<std::int64_t>{state.count},
         std::move(values)});
  }
}

void CodecState::restore(const Checkpoint& checkpoint) {
  restored_.clear();
  for (const Reducer::State& state : reducer_.state()) {
    if (state.own) restored_.emplace_back();
    const auto found = std::ranges::find_if(
        checkpoint.arrays, [&](const Checkpoint::Array& array) { return array.name == name_of(state); });
    if (found == checkpoint.arrays.end()) continue;
    const auto ranks = static_cast<std::int64_t>(found->values.size()) / std::max<std::int64_t>(1, state.count);
    require(found->shape ==
                (state.own ? std::vector<std::int64_t>{ranks, state.count} : std::vector<std::int64_t>{state.count}),
            ExitCode::checkpoint, "the checkpoint's array ", found->name, " has another length than this network and ",
            state.of == "codec" ? "--codec" : "--aggregator", " want; resume with those of the run");
    if (!state.own)
      backend_.copy_to_device(state.data, found->values.data(), found->values.size() * sizeof(float));
    else
      restored_.back() = found->values;
  }
}

void CodecState::share(Communicator& ranks) {
  std::size_t k = 0;
  for (const Reducer::State& state : reducer_.state()) {
    if (!state.own) {
      share_floats(ranks, backend_, state.data, state.count);
      continue;
    }
    auto saved = static_cast<std::int64_t>(
        k < restored_.size() ? restored_[k].size() / static_cast<std::size_t>(std::max<std::int64_t>(1, state.count))
                             : 0);
    ranks.broadcast(&saved, sizeof saved);
    std::vector<float> mine(static_cast<std::size_t>(state.count));
    const bool each_its_own = saved == ranks.size();
    for (std::size_t i = 0; i < mine.size() && ranks.root() && saved > 0 && !each_its_own; ++i) {
      double total = 0;
      for (std::size_t r = 0; r < static_cast<std::size_t>(saved); ++r) total += restored_[k][r * mine.size() + i];
      mine[i] = static_cast<float>(total / static_cast<double>(saved));
    }
    const auto part = [&](int rank) {  // on rank 0
      if (each_its_own) std::copy_n(restored_[k].begin() + rank * state.count, state.count, mine.begin());
    };
    for (int rank = 1; rank < ranks.size() && saved > 0; ++rank)
      if (ranks.root()) {
        part(rank);
        in_pieces(mine.data(), state.count, [&](float* at, std::size_t bytes) { ranks.send(at, bytes, rank, kTag); });
      } else if (rank == ranks.rank()) {
        in_pieces(mine.data(), state.count, [&](float* at, std::size_t bytes) { ranks.receive(at, bytes, 0, kTag); });
      }
    if (saved > 0) {
      if (ranks.root()) part(0);
      backend_.copy_to_device(state.data, mine.data(), mine.size() * sizeof(float));
    }
    ++k;
  }
  restored_.clear();
}

void CodecState::replicated(ReplicatedState& state) {
  for (const Reducer::State& array : reducer_.state())
    if (!array.own) state.device(array.of + " state " + array.name, array.data, array.count);
}

std::int64_t CodecState::bytes(int ranks) const {
  std::int64_t floats = 0;
  for (const Reducer::State& state : reducer_.state()) floats += state.count * (state.own ? ranks : 1);
  return floats * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace dat
