#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dat/checkpoint.hpp"
#include "files/bytes.hpp"

namespace dat {

/// The tensors of a network by name, as PyTorch's state_dict() gives them.
struct StateDict {
  std::vector<Checkpoint::Array> tensors;        ///< tensors of real numbers, in the order of the file
  std::map<std::string, std::int64_t> counters;  ///< whole numbers: "bn1.num_batches_tracked"
  std::map<std::string, std::string> metadata;   ///< description in the file
};

/// Reads a safetensors file: 8 bytes N, little-endian; N bytes of JSON that name each tensor with its type, its shape
/// and where its elements lie; the elements. F32 is taken as it is, F16, BF16 and F64 become float32; weights of other
/// types are refused. A num_batches_tracked of one element is a counter, in any of these types, I64 or I32. Everything
/// is checked before it is believed: the header is at most 16 MB of UTF-8 without a name twice or one over 1 KiB, each
/// tensor has the bytes that type and shape ask for, and the tensors lie one after the other from the header to the end
/// of the file. Memory: a few times the file. Error(checkpoint): what is wrong, and where. Source: the format in the
/// README of huggingface/safetensors.
[[nodiscard]] StateDict read_safetensors(const ByteSource& source);

/// Writes a safetensors file, through a temporary one: counters as I64, then the tensors as F32 in their order. The
/// header is padded, so that all elements are aligned. Error(io).
void write_safetensors(const std::string& path, const StateDict& state);

}  // namespace dat
