#include "train/attackers/arithmetic.hpp"

#include "smoothing/bounds.hpp"

namespace dat {

double deviations_allowed(int ranks, int attackers) {
  const int honest = ranks - attackers, needed = ranks / 2 + 1 - attackers;
  return normal_quantile(static_cast<double>(honest - needed) / honest);
}

}  // namespace dat
