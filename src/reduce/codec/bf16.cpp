#include "rounded.hpp"

namespace dat {

std::unique_ptr<Codec> make_bf16(Backend& backend, const Parameters&, const CodecOptions&) {
  return std::make_unique<Rounded<BFloat16>>(backend);
}

}  // namespace dat
