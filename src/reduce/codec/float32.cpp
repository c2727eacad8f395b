#include "rounded.hpp"

namespace dat {

std::unique_ptr<Codec> make_float32(Backend& backend, const Parameters&, const CodecOptions&) {
  return std::make_unique<Rounded<float>>(backend);
}

}  // namespace dat
