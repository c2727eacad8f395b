#include "train/generators/packet.hpp"

#include <xxhash.h>

namespace dat {

std::uint64_t hash_of(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

}  // namespace dat
