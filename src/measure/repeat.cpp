#include "measure/repeat.hpp"

namespace dat {

Sample summarize(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return {.median = ms[ms.size() / 2], .least = ms.front(), .runs = static_cast<int>(ms.size())};
}

}  // namespace dat
