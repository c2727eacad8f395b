#include <algorithm>
#include <charconv>
#include <string_view>

#include "dat/error.hpp"
#include "dat/loader.hpp"

namespace dat {

namespace {

[[nodiscard]] bool read_number(std::string_view text, int& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  return error == std::errc() && end == text.data() + text.size();
}

/// "32@6", or "24", which is from epoch 0 on.
[[nodiscard]] bool read_entry(std::string_view text, SizeFrom& to) {
  const std::size_t at = text.find('@');
  return read_number(text.substr(0, at), to.size) &&
         (at == std::string_view::npos || read_number(text.substr(at + 1), to.epoch));
}

}  // namespace

std::vector<SizeFrom> read_sizes(const std::string& text) {
  constexpr int kLeast = 8, kMost = 4096;
  std::vector<SizeFrom> all;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    SizeFrom one;
    require(read_entry(std::string_view(text).substr(begin, end - begin), one) &&
                (all.empty() ? one.epoch == 0 : one.epoch > all.back().epoch),
            ExitCode::usage, "--train-size ", text,
            " is not a size, and others from later epochs on, such as 24,32@6: 24 x 24 pixels in epochs 0 to 5, then ",
            "32 x 32");
    require(one.size >= kLeast && one.size <= kMost, ExitCode::usage, "--train-size ", text, ": networks take from ",
            kLeast, " to ", kMost, " pixels, not ", one.size);
    all.push_back(one);
    begin = end + 1;
  }
  return all;
}

int size_in(const std::vector<SizeFrom>& sizes, std::int64_t epoch) {
  int size = sizes.front().size;
  for (const SizeFrom& one : sizes)
    if (one.epoch <= epoch) size = one.size;
  return size;
}

}  // namespace dat
