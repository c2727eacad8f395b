#include "assess/kept_images.hpp"

#include <fmt/format.h>

namespace dat {

void KeptImages::write(const EvaluationAttacks& attacks, const EvaluationResult& result, const FileFacts& facts) {
  SequenceResult outcomes;
  for (std::size_t i = 0; i < result.clean.correct.size(); ++i) {
    SequenceResult::Image& image = outcomes.images.emplace_back();
    if (result.clean.correct[i] == 0) image.broken_by = 0;
    for (std::size_t a = 0; a < result.attacked.size() && image.robust(); ++a)
      if (result.attacked[a].correct[i] == 0) image = {.broken_by = static_cast<int>(a) + 1, .run = 1};
  }
  std::string names;
  for (const EvaluationAttacks::Member& member : attacks.members()) names += (names.empty() ? "" : ", ") + member.name;
  FileFacts all = {
      {"attacks", names}, {"norm", name_of(attacks.norm())}, {"eps", fmt::format("{:.17g}", attacks.eps())}};
  all.insert(all.end(), facts.begin(), facts.end());
  images_.finish(outcomes, all);
}

}  // namespace dat
