#include "reduce/transport/message.hpp"

#include <cassert>
#include <utility>

#include "dat/error.hpp"
#include "launch.hpp"

namespace dat {

constexpr const char* kTables = "message tables";

std::int64_t bytes_of(const Codec& codec, const Segment& tensor, int round) {
  return tensor.size > 0 ? codec.bytes(tensor, round) : 0;
}

std::vector<std::int64_t> lengths_of(const Codec& codec, const Parameters& tensors, int rounds) {
  std::vector<std::int64_t> lengths;
  for (int round = 0; round < rounds; ++round)
    for (const Segment& tensor : tensors.segments) {
      lengths.push_back(bytes_of(codec, tensor, round));
      assert(lengths.back() % std::int64_t{sizeof(float)} == 0);
    }
  return lengths;
}

void check_length(const Bucket& bucket, std::int64_t bytes, const char* before, const char* after) {
  require(std::in_range<int>(bytes), ExitCode::communication, "a bucket of ", bucket.elements, " gradients is ", before,
          bytes, after, ": 2^31 - 1 is the most that goes at once; choose a smaller DAT_BUCKET");
}

void TensorTables::reserve(Backend& backend, const Parameters& tensors) {
  std::vector<std::int64_t> elements, sizes, reals;
  for (const Segment& tensor : tensors.segments) {
    elements.push_back(tensor.begin);
    sizes.push_back(tensor.size);
    reals.push_back(tensor.file_size());
  }
  // Each tensor has a chunk that is not whole.
  partial = backend.allocate_array<double>((tensors.size / kChunk + std::ssize(sizes)) * kSums, kTables);
  sums = backend.allocate_array<double>(std::ssize(sizes) * kSums, kTables);
  for (auto [table, values] : {std::pair(&element, &elements), std::pair(&size, &sizes), std::pair(&real, &reals)}) {
    *table = backend.allocate_array<std::int64_t>(std::ssize(*values), kTables);
    backend.copy_to_device(*table, values->data(), values->size() * sizeof(std::int64_t));
  }
}

Message::Message(Backend& backend, const Parameters& tensors, int rounds)
    : backend_(backend),
      tensors_(tensors.segments.size()),
      table_(backend, tensors),
      begin_(tensors_ * static_cast<std::size_t>(rounds)) {}

void Message::reserve() { device_begin_ = backend_.allocate_array<std::int64_t>(std::ssize(begin_), kTables); }

std::int64_t& Message::begin(std::size_t tensor, int round) {
  return begin_[static_cast<std::size_t>(round) * tensors_ + tensor];
}

const Chunks& Message::select(const ActiveSet& layers) {
  const Chunks& chunks = table_.select(layers);
  backend_.copy_to_device(device_begin_, begin_.data(), begin_.size() * sizeof(std::int64_t));
  return chunks;
}

MessageTensors Message::range(const TensorTables& tables, int first, int end, MessageTensors about, int row) const {
  about.first = first;
  about.end = end;
  about.chunks = table_.between(first, end);
  about.element = tables.element;
  about.size = tables.size;
  about.real = tables.real;
  about.byte = device_begin_ + static_cast<std::size_t>(row) * tensors_;
  about.partial = tables.partial;
  about.sums = tables.sums;
  return about;
}

}  // namespace dat
