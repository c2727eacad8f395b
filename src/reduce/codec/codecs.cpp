#include "dat/codec.hpp"

namespace dat {

std::unique_ptr<Codec> make_float32(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_bf16(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_f16(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_int8(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_terngrad(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_atomo(Backend&, const Parameters&, const CodecOptions&);
std::unique_ptr<Codec> make_powersgd(Backend&, const Parameters&, const CodecOptions&);

namespace {

using Codecs = Registry<std::unique_ptr<Codec>(Backend&, const Parameters&, const CodecOptions&)>;

/// The codecs, with their own columns and atoms where none are asked for.
[[nodiscard]] Codecs with_ranks(std::vector<Codecs::Row> rows) {
  for (Codecs::Row& row : rows)
    if (const std::optional<double> rank = number_of(row.settings, "codec:rank"))
      row.make = [make = row.make, own = static_cast<int>(*rank)](Backend& backend, const Parameters& parameters,
                                                                  CodecOptions options) {
        if (options.settings.codec_rank == 0) options.settings.codec_rank = own;
        return make(backend, parameters, options);
      };
  return {"codec", rows};
}

}  // namespace

const Codecs& codecs() {
  static const Codecs all =
      with_ranks({{"float32", make_float32, {{"codec-transport", "sum"}}},
                  {"bf16", make_bf16, {{"codec-transport", "two_sided"}}},
                  {"f16", make_f16, {{"codec-transport", "two_sided"}}},
                  {"int8", make_int8, {{"codec-transport", "gather"}}, "Alistarh et al. (QSGD), NeurIPS 2017"},
                  {"terngrad",
                   make_terngrad,
                   {{"codec-transport", "gather"}, {"codec:clip"}},
                   "Wen et al. (TernGrad), NeurIPS 2017"},
                  {"powersgd",
                   make_powersgd,
                   {{"codec-transport", "sum"}, {"codec:rank", "2"}},
                   "Vogels et al. (PowerSGD), NeurIPS 2019"},
                  {"atomo",
                   make_atomo,
                   {{"codec-transport", "gather"}, {"codec:rank", "3"}},
                   "Wang et al. (ATOMO), NeurIPS 2018"}});
  return all;
}

}  // namespace dat
