#include "dat/loss.hpp"

namespace dat {

std::unique_ptr<Loss> make_cross_entropy(const LossOptions&);
std::unique_ptr<Loss> make_trades(const LossOptions&);
std::unique_ptr<Loss> make_kl(const LossOptions&);
std::unique_ptr<Loss> make_mart(const LossOptions&);
std::unique_ptr<Loss> make_pgi(const LossOptions&);
std::unique_ptr<Loss> make_gat(const LossOptions&);
std::unique_ptr<Loss> make_nuat(const LossOptions&);

namespace {

using Losses = Registry<std::unique_ptr<Loss>(const LossOptions&)>;

/// The losses, those that have a weight of the term of two predictions with their own where none is asked for.
[[nodiscard]] Losses with_beta(std::vector<Losses::Row> rows) {
  for (Losses::Row& row : rows)
    if (const auto beta = number_of(row.settings, "beta"))
      row.make = [make = row.make, own = *beta](LossOptions options) {
        if (options.beta < 0) options.beta = own;
        return make(options);
      };
  return {"loss", rows};
}

}  // namespace

const Losses& losses() {
  static const Losses all =
      with_beta({{"cross_entropy", make_cross_entropy, {{"lambda"}, {"label-smoothing"}, {"noise"}}},
                 {"gat",
                  make_gat,
                  {{"beta", "10"}, {"label-smoothing"}, {"loss:detach"}},
                  "Sriramanan et al., \"Guided Adversarial Attack for Evaluating and Enhancing Adversarial Defenses\", "
                  "NeurIPS 2020"},
                 {"kl",
                  make_kl,
                  {{"beta", "1"}, {"label-smoothing"}, {"noise"}},
                  "Miyato et al., \"Virtual Adversarial Training: A Regularization Method for Supervised and "
                  "Semi-Supervised Learning\""},
                 {"mart", make_mart, {{"beta", "5"}}, "Wang et al. (MART), ICLR 2020"},
                 {"nuat",
                  make_nuat,
                  {{"beta", "4"}, {"label-smoothing"}, {"loss:detach"}},
                  "Sriramanan et al., \"Towards Efficient and Effective Adversarial Training\", NeurIPS 2021"},
                 {"pgi",
                  make_pgi,
                  {{"beta", "10"}, {"label-smoothing"}, {"loss:detach"}},
                  "Jia et al., \"Prior-Guided Adversarial Initialization for Fast Adversarial Training\", ECCV 2022"},
                 {"trades",
                  make_trades,
                  {{"beta", "6"}, {"label-smoothing"}, {"noise"}},
                  "Zhang et al., \"Theoretically Principled Trade-off between Robustness and Accuracy\", ICML 2019"}});
  return all;
}

}  // namespace dat
