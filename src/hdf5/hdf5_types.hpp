#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "dat/error.hpp"

namespace dat {

using Shape = std::vector<std::int64_t>;

/// Element types that are written, in the order of file_type() and hdf5_memory_type(). Files hold them little-endian.
enum class Hdf5Type : std::uint8_t { u8, u64, i64, f32, f64 };
template <class T>
inline constexpr Hdf5Type kHdf5Type = [] {
  static_assert(std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::uint64_t> ||
                std::is_same_v<T, std::int64_t> || std::is_same_v<T, float> || std::is_same_v<T, double>);
  return std::is_same_v<T, std::uint8_t>    ? Hdf5Type::u8
         : std::is_same_v<T, std::uint64_t> ? Hdf5Type::u64
         : std::is_same_v<T, std::int64_t>  ? Hdf5Type::i64
         : std::is_same_v<T, float>         ? Hdf5Type::f32
                                            : Hdf5Type::f64;
}();

/// Description of a dataset.
struct Hdf5Info {
  enum class Kind : std::uint8_t { u8, integer, real, text, other };
  Shape shape;
  Kind kind = Kind::other;   ///< u8: unsigned bytes; integer: any other integers
  bool is_unsigned = false;  ///< true: unsigned integers
  std::int64_t element = 0;  ///< bytes of one element
  std::int64_t offset = -1;  ///< byte in the file where the elements lie in row-major order; -1: no such place
};

/// Error(code): elements of this kind are not read as `type`.
void require_kind(Hdf5Info::Kind kind, Hdf5Type type, ExitCode code, const std::string& path, const std::string& name);

}  // namespace dat
