#include "train/message/codec_state.hpp"

#include <algorithm>

#include "copy_bits.hpp"
#include "dat/error.hpp"

namespace dat {

namespace {

[[nodiscard]] std::string name_of(const Reducer::State& state) { return state.of + "/" + state.name; }

/// Shape in a checkpoint of so many ranks.
[[nodiscard]] std::vector<std::int64_t> shape_of(const Reducer::State& state, std::int64_t ranks) {
  return state.own ? std::vector{ranks, state.count} : std::vector{state.count};
}

}  // namespace

CodecState::CodecState(Communicator& ranks, Backend& backend, const Reducer& reducer, bool may_go_back)
    : ranks_(ranks), backend_(backend), reducer_(reducer) {
  if (!may_go_back) return;
  for (const Reducer::State& state : reducer.state())
    kept_.emplace_back(state, backend.allocate_floats(state.count, "codec state before the step"));
}

void CodecState::keep() {
  for (const auto& [state, before] : kept_) copy_bits(backend_.device(), state.data, before, state.count);
}

void CodecState::put_back() {
  for (const auto& [state, before] : kept_) copy_bits(backend_.device(), before, state.data, state.count);
}

void CodecState::save(Checkpoint& checkpoint) {
  for (const Reducer::State& state : reducer_.state()) {
    std::vector<float> values(static_cast<std::size_t>(state.count));
    backend_.copy_to_host(values.data(), state.data, values.size() * sizeof(float));
    checkpoint.arrays.push_back({name_of(state), shape_of(state, ranks_.size()),
                                 state.own ? gather_floats(ranks_, std::move(values)) : std::move(values)});
  }
}

void CodecState::restore(const Checkpoint& checkpoint) {
  for (const Reducer::State& state : reducer_.state()) {
    const auto found = std::ranges::find(checkpoint.arrays, name_of(state), &Checkpoint::Array::name);
    if (found == checkpoint.arrays.end()) continue;
    require(found->shape == shape_of(state, state.own ? std::ssize(found->values) / state.count : 0),
            ExitCode::checkpoint, "the checkpoint's array ", found->name, " has another length than this network and ",
            state.of == "codec" ? "--codec" : "--aggregator", " want; resume with those of the run");
    if (state.own)
      restored_[found->name] = found->values;
    else
      backend_.copy_to_device(state.data, found->values.data(), found->values.size() * sizeof(float));
  }
}

void CodecState::share(Communicator& ranks) {
  for (const Reducer::State& state : reducer_.state()) {
    if (!state.own) {
      share_floats(ranks, backend_, state.data, state.count);
      continue;
    }
    std::vector<float> all = std::exchange(restored_[name_of(state)], {});
    const auto count = static_cast<std::size_t>(state.count);
    std::size_t saved = all.size() / count;
    ranks.broadcast(&saved, sizeof saved);
    if (saved == 0) continue;
    const auto size = static_cast<std::size_t>(ranks.size());
    if (ranks.root() && saved != size) {  // the mean, in place of each rank's
      all.resize(std::max(saved, size) * count);
      for (std::size_t i = 0; i < count; ++i) {
        double total = 0;
        for (std::size_t r = 0; r < saved; ++r) total += all[r * count + i];
        for (std::size_t r = 0; r < size; ++r)
          all[r * count + i] = static_cast<float>(total / static_cast<double>(saved));
      }
    }
    all = deal_floats(ranks, std::move(all), count);
    backend_.copy_to_device(state.data, all.data(), count * sizeof(float));
  }
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
