#include "dat/loss.hpp"

namespace dat {

std::unique_ptr<Loss> make_cross_entropy(const LossOptions&);
std::unique_ptr<Loss> make_trades(const LossOptions&);
std::unique_ptr<Loss> make_kl(const LossOptions&);
std::unique_ptr<Loss> make_mart(const LossOptions&);

const Registry<std::unique_ptr<Loss>(const LossOptions&)>& losses() {
  static const Registry<std::unique_ptr<Loss>(const LossOptions&)> all(
      "loss", {{"cross_entropy", make_cross_entropy}, {"trades", make_trades}, {"kl", make_kl}, {"mart", make_mart}});
  return all;
}

}  // namespace dat
