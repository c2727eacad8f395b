#include "dat/loss.hpp"

namespace dat {

std::unique_ptr<Loss> make_cross_entropy(const LossOptions&);
std::unique_ptr<Loss> make_trades(const LossOptions&);
std::unique_ptr<Loss> make_kl(const LossOptions&);
std::unique_ptr<Loss> make_mart(const LossOptions&);
std::unique_ptr<Loss> make_pgi(const LossOptions&);
std::unique_ptr<Loss> make_gat(const LossOptions&);
std::unique_ptr<Loss> make_nuat(const LossOptions&);

const Registry<std::unique_ptr<Loss>(const LossOptions&)>& losses() {
  static const Registry<std::unique_ptr<Loss>(const LossOptions&)> all("loss", {{"cross_entropy", make_cross_entropy},
                                                                                {"trades", make_trades},
                                                                                {"kl", make_kl},
                                                                                {"mart", make_mart},
                                                                                {"pgi", make_pgi},
                                                                                {"gat", make_gat},
                                                                                {"nuat", make_nuat}});
  return all;
}

}  // namespace dat
