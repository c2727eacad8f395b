#include "dat/codec.hpp"

namespace dat {

std::unique_ptr<Codec> make_float32(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_bf16(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_f16(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_int8(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_terngrad(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_atomo(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_powersgd(Backend&, const Parameters&, const CodecOptions&);

const Registry<std::unique_ptr<Codec>(Backend&, const Parameters&, const CodecOptions&)>& codecs() {
  static const Registry<std::unique_ptr<Codec>(Backend&, const Parameters&, const CodecOptions&)> registry(
      "codec", {{"float32", make_float32},
                {"bf16", make_bf16},
                {"f16", make_f16},
                {"int8", make_int8},
                {"terngrad", make_terngrad},
                {"atomo", make_atomo},
                {"powersgd", make_powersgd}});
  return registry;
}

}  // namespace dat
