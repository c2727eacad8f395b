#include "dat/codec.hpp"

namespace dat {

std::unique_ptr<Codec> make_float32(Backend&, const Parameters&, const CodecOptions&);

const Registry<std::unique_ptr<Codec>(Backend&, const Parameters&, const CodecOptions&)>& codecs() {
  static const Registry<std::unique_ptr<Codec>(Backend&, const Parameters&, const CodecOptions&)> registry(
      "codec", {{"float32", make_float32}});
  return registry;
}

}  // namespace dat
