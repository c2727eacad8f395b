#include "rounded.hpp"

namespace dat {

/// IEEE binary16: from 65520 on, infinity, which ends the run with a numerical error instead of training on a wrong
/// gradient.
std::unique_ptr<Codec> make_f16(Backend& backend, const Parameters&, const CodecOptions&) {
  return std::make_unique<Rounded<Half>>(backend);
}

}  // namespace dat
