#include "dat/loss.hpp"

namespace dat {

std::unique_ptr<Loss> make_cross_entropy(const LossOptions&);

const Registry<std::unique_ptr<Loss>(const LossOptions&)>& losses() {
  static const Registry<std::unique_ptr<Loss>(const LossOptions&)> all("loss", {{"cross_entropy", make_cross_entropy}});
  return all;
}

}  // namespace dat
