#include <algorithm>
#include <cmath>
#include <sstream>

#include "dat/network.hpp"
#include "dat/number.hpp"

namespace dat {

Normalization normalization_from(const std::string& text) {
  constexpr std::size_t kMostChannels = 4;
  if (text == "none") return {};
  if (text == "cifar10") return {{0.4914F, 0.4822F, 0.4465F}, {0.2471F, 0.2435F, 0.2616F}};
  if (text == "cifar100") return {{0.5071F, 0.4865F, 0.4409F}, {0.2673F, 0.2564F, 0.2762F}};
  if (text == "imagenet") return {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};
  std::vector<float> numbers;
  bool good = true;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    double number{};
    good = good && read_fraction(trimmed(word), number) && std::isfinite(static_cast<float>(number));
    numbers.push_back(static_cast<float>(number));
  }
  const std::size_t channels = numbers.size() / 2;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(channels);
  require(good && numbers.size() % 2 == 0 && channels >= 1 && channels <= kMostChannels &&
              std::all_of(middle, numbers.end(), [](float deviation) { return deviation > 0; }),
          ExitCode::usage,
          "--normalize must be none, cifar10, cifar100, imagenet, or the means of all channels and then ",
          "their standard deviations, which are above 0, e.g. 0.5,0.5,0.5,0.25,0.25,0.25, or fractions such as "
          "125.3/255; not '",
          text, "'");
  return {{numbers.begin(), middle}, {middle, numbers.end()}};
}

}  // namespace dat
