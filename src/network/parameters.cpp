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
    const auto found = std::find(names.begin(), names.end(), key);
    segment.layer = static_cast<int>(found - names.begin());
    if (found == names.end()) {
      names.push_back(key);
      parameters.layer_sizes.push_back(0);
    }
    parameters.layer_sizes[static_cast<std::size_t>(segment.layer)] += segment.size;
  }
}

namespace {

/// `rows` matrices [height][width] -> [width][height].
void transpose(const float* from, float* to, std::int64_t rows, std::int64_t height, std::int64_t width) {
  for (std::int64_t row = 0; row < rows; ++row, from += height * width, to += height * width)
    for (std::int64_t y = 0; y < height; ++y)
      for (std::int64_t x = 0; x < width; ++x) to[x * height + y] = from[y * width + x];
}

}  // namespace

void to_memory_order(const Segment& segment, const float* file, float* memory) {
  const auto& s = segment.shape;
  if (s.size() == 4)
    transpose(file, memory, s[0], s[1], std::int64_t{s[2]} * s[3]);
  else
    std::copy_n(file, segment.size, memory);
}

void to_file_order(const Segment& segment, const float* memory, float* file) {
  const auto& s = segment.shape;
  if (s.size() == 4)
    transpose(memory, file, s[0], std::int64_t{s[2]} * s[3], s[1]);
  else
    std::copy_n(memory, segment.size, file);
}

ChunkTable::ChunkTable(Backend& backend, const Parameters& parameters)
    : backend_(backend),
      parameters_(parameters),
      first_(parameters.segments.size() + 1),
      active_(parameters.segments.size(), 2) {
  for (std::size_t k = 0; k < parameters.segments.size(); ++k) {
    const Segment& segment = parameters.segments[k];
    for (std::int64_t done = 0; done < segment.size; done += kChunk)
      all_.push_back({segment.begin + done,
                      static_cast<std::int32_t>(std::min<std::int64_t>(kChunk, segment.size - done)),
                      static_cast<std::int32_t>(k)});
  }
  selected_.reserve(all_.size());
  device_chunks_ = static_cast<Chunk*>(backend.allocate(all_.size() * sizeof(Chunk), "chunk tables"));
  device_first_ = static_cast<std::int32_t*>(backend.allocate(first_.size() * sizeof(std::int32_t), "chunk tables"));
}

const Chunks& ChunkTable::select(const ActiveSet& active) {
  assert(active.scale.size() == parameters_.layer_names.size());
  bool same = true;
  for (std::size_t k = 0; k < active_.size(); ++k) {
    const char now = active.active(parameters_.segments[k].layer) ? 1 : 0;
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

}  // namespace dat
