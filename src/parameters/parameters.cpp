#include "dat/parameters.hpp"

#include <algorithm>
#include <cassert>

#include "dat/backend.hpp"
#include "dat/error.hpp"

namespace dat {

Granularity granularity_from(const std::string& name) {
  if (name == "tensor") return Granularity::tensor;
  if (name == "module") return Granularity::module;
  if (name == "block") return Granularity::block;
  fail(ExitCode::usage, "unknown granularity '", name, "'; known: tensor, module, block");
}

void assign_layers(Parameters& parameters, Granularity granularity) {
  auto& names = parameters.layer_names;
  names.clear();
  parameters.layer_sizes.clear();
  for (Segment& segment : parameters.segments) {
    const std::string& key = granularity == Granularity::tensor   ? segment.name
                             : granularity == Granularity::module ? segment.module
                                                                  : segment.block;
    const auto found = std::ranges::find(names, key);
    segment.layer = static_cast<int>(found - names.begin());
    if (found == names.end()) {
      names.push_back(key);
      parameters.layer_sizes.push_back(0);
    }
    parameters.layer_sizes[static_cast<std::size_t>(segment.layer)] += segment.size;
  }
}

std::vector<int> Segment::file_shape() const {
  std::vector<int> result = shape;
  if (!result.empty()) result[0] -= padding_out;
  if (result.size() > 1) result[1] -= padding_in;
  return result;
}

std::int64_t Segment::file_size() const {
  std::int64_t count = 1;
  for (const int extent : file_shape()) count *= extent;
  return count;
}

std::int64_t Segment::real_before(std::int64_t count) const {
  const std::vector<int> file = file_shape();
  const std::int64_t inputs = file.size() > 1 ? file[1] : 1, row = inputs + padding_in;
  return std::min(count / row * inputs + std::min(count % row, inputs), file_size());
}

std::int64_t file_size(const std::vector<Segment>& segments) {
  std::int64_t count = 0;
  for (const Segment& segment : segments) count += segment.file_size();
  return count;
}

namespace {

/// Calls with the element's place in a file, and in memory.
template <class F>
void each_element(const Segment& segment, const F& element) {
  const std::vector<int> file = segment.file_shape();
  const std::int64_t outputs = file[0], inputs = file.size() > 1 ? file[1] : 1;
  const std::int64_t pixels = segment.file_size() / (outputs * inputs);
  const std::int64_t row = inputs + segment.padding_in;
  for (std::int64_t o = 0; o < outputs; ++o)
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel)
      for (std::int64_t i = 0; i < inputs; ++i)
        element((o * inputs + i) * pixels + pixel, (o * pixels + pixel) * row + i);
}

}  // namespace

void to_memory_order(const Segment& segment, const float* file, float* memory) {
  std::fill_n(memory, segment.size, 0.0F);
  each_element(segment, [&](std::int64_t from, std::int64_t to) { memory[to] = file[from]; });
}

void to_file_order(const Segment& segment, const float* memory, float* file) {
  each_element(segment, [&](std::int64_t to, std::int64_t from) { file[to] = memory[from]; });
}

ChunkTable::ChunkTable(Backend& backend, const Parameters& parameters)
    : backend_(backend),
      parameters_(parameters),
      first_(parameters.segments.size() + 1),
      active_(parameters.segments.size(), '?') {
  for (std::size_t k = 0; k < parameters.segments.size(); ++k) {
    const Segment& segment = parameters.segments[k];
    for (std::int64_t done = 0; done < segment.size; done += kChunk)
      all_.push_back({segment.begin + done,
                      static_cast<std::int32_t>(std::min<std::int64_t>(kChunk, segment.size - done)),
                      static_cast<std::int32_t>(k)});
  }
  selected_.reserve(all_.size());
  device_chunks_ = backend.allocate_array<Chunk>(std::ssize(all_), "chunk tables");
  device_first_ = backend.allocate_array<std::int32_t>(std::ssize(first_), "chunk tables");
}

const Chunks& ChunkTable::select(const ActiveSet& active) {
  assert(active.scale.size() == parameters_.layer_names.size());
  bool same = true;
  for (std::size_t k = 0; k < active_.size(); ++k) {
    const char now = active.active(parameters_.segments[k].layer);
    same = same && now == active_[k];
    active_[k] = now;
  }
  if (same) return chunks_;
  selected_.clear();
  std::size_t next = 0;
  for (std::size_t k = 0; k < active_.size(); ++k) {
    first_[k] = static_cast<std::int32_t>(selected_.size());
    for (; next < all_.size() && all_[next].segment == static_cast<std::int32_t>(k); ++next)
      if (active_[k] != 0) selected_.push_back(all_[next]);
  }
  first_.back() = static_cast<std::int32_t>(selected_.size());
  backend_.copy_to_device(device_chunks_, selected_.data(), selected_.size() * sizeof(Chunk));
  backend_.copy_to_device(device_first_, first_.data(), first_.size() * sizeof(std::int32_t));
  chunks_ = {device_chunks_, device_first_, first_.back(), static_cast<std::int32_t>(active_.size())};
  return chunks_;
}

Chunks ChunkTable::between(int begin, int end) const {
  const std::int32_t from = first_[static_cast<std::size_t>(begin)], to = first_[static_cast<std::size_t>(end)];
  return {device_chunks_ + from, device_first_ + begin, to - from, end - begin, from};
}

ArrayInChunks::ArrayInChunks(Backend& backend, std::int64_t size)
    : parameters{.segments = {{.name = {}, .shape = {}, .module = {}, .block = {}, .begin = 0, .size = size}},
                 .layer_names = {""},
                 .layer_sizes = {size},
                 .size = size},
      table(backend, parameters),
      chunks(table.select(ActiveSet::all(parameters.layers()))) {}

}  // namespace dat
