#include "byzantine/assembly.hpp"

#include <cstring>

namespace dat {

Heard Letter::read(const std::byte* block, std::size_t due) {
  std::uint32_t length = 0;
  std::memcpy(&length, block, sizeof length);
  if (length == 0) return {};
  if (length != due) return {.how = Heard::How::malformed, .bytes = {}};
  return {.how = Heard::How::well, .bytes = {block + kHead, due}};
}

}  // namespace dat
