#include "options/values/hints.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "options/values/value.hpp"

namespace dat {
namespace {

/// Letters to put in, to leave out, to exchange with another one or with their neighbour.
int edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> least(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      int& here = least[i][j];
      if (i == 0 || j == 0) {
        here = static_cast<int>(i + j);
        continue;
      }
      here = std::min({least[i - 1][j - 1] + (a[i - 1] != b[j - 1]), least[i - 1][j] + 1, least[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        here = std::min(here, least[i - 2][j - 2] + 1);
    }
  return least[a.size()][b.size()];
}

/// Names of our options, verbs and values in other programs, where letters do not tell. The first of ours that is known
/// where the word stands is meant.
const std::map<std::string, std::vector<std::string>> kSynonyms = {
    {"activation-checkpointing", {"recompute"}},
    {"adam", {"lamb"}},
    {"adamw", {"lamb"}},
    {"amp", {"precision"}},
    {"apgd", {"apgd-ce"}},
    {"arch", {"network"}},
    {"architecture", {"network"}},
    {"attack-eps", {"eps"}},
    {"attack-iters", {"attack-steps"}},
    {"autopgd", {"apgd-ce"}},
    {"bim", {"pgd"}},
    {"ce", {"cross_entropy"}},
    {"check", {"validate"}},
    {"checkpoints", {"checkpoint-every"}},
    {"clip-grad", {"clip-norm"}},
    {"constraint", {"norm"}},
    {"convert", {"data convert"}},
    {"cores", {"threads"}},
    {"cpus", {"threads"}},
    {"cuda", {"device"}},
    {"draw", {"plot"}},
    {"dtype", {"precision"}},
    {"early-stopping", {"patience"}},
    {"ema", {"average"}},
    {"ema-decay", {"average"}},
    {"fit", {"train"}},
    {"gamma", {"schedule"}},
    {"gpu", {"device", "cuda"}},
    {"gpus", {"device", "cuda"}},
    {"grad-clip", {"clip-norm"}},
    {"gradient-checkpointing", {"recompute"}},
    {"ifgsm", {"pgd"}},
    {"info", {"doctor"}},
    {"inspect", {"data inspect"}},
    {"iterations", {"max-steps"}},
    {"iters", {"max-steps"}},
    {"learning-rate", {"lr"}},
    {"load", {"resume", "checkpoint"}},
    {"log-dir", {"out"}},
    {"max-grad-norm", {"clip-norm"}},
    {"model", {"network", "checkpoint"}},
    {"multistep", {"step"}},
    {"name", {"out", "job-name"}},
    {"num-epochs", {"epochs"}},
    {"num-steps", {"attack-steps"}},
    {"num-workers", {"threads"}},
    {"nvidia", {"cuda"}},
    {"pct-start", {"warmup-epochs"}},
    {"predict", {"eval"}},
    {"preset", {"recipe"}},
    {"pretrained", {"initialize", "checkpoint"}},
    {"pt", {"safetensors"}},
    {"pth", {"safetensors"}},
    {"pytorch", {"safetensors"}},
    {"random-seed", {"seed"}},
    {"restarts", {"eval"}},
    {"run", {"train"}},
    {"save-dir", {"out"}},
    {"save-every", {"checkpoint-every"}},
    {"sbatch", {"slurm"}},
    {"step-size", {"alpha"}},
    {"steps", {"max-steps", "attack-steps"}},
    {"swa", {"average"}},
    {"swa-start", {"average"}},
    {"synthetic", {"data synthetic"}},
    {"test", {"eval"}},
    {"threat-model", {"norm"}},
    {"torch", {"safetensors"}},
    {"wd", {"weight-decay"}},
    {"weights", {"initialize", "checkpoint"}},
    {"wideresnet", {"wrn_28_10"}},
    {"workers", {"threads"}},
    {"wrn", {"wrn_28_10"}},
};

std::string without_dashes(std::string text) {
  std::erase(text, '-');
  return text;
}

}  // namespace

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  const std::string low = lower_case(word);
  std::string dashed = low;
  std::ranges::replace(dashed, '_', '-');
  if (const auto synonym = kSynonyms.find(dashed); synonym != kSynonyms.end())
    for (const std::string& name : synonym->second)
      if (is_one_of(name, known)) return name;
  // In halves of a letter: dashes are underscores, a name with something after it comes after one that is a letter off,
  // and a name with something before it is meant where both have a number, as in resnet50.
  int least = 2 * (std::max(1, static_cast<int>(word.size() + 1) / 3) + 1);
  std::string best, begun;
  int beginnings = 0;
  for (const std::string& name : known) {
    std::string other = lower_case(name), plain = other;
    std::ranges::replace(plain, '_', '-');
    const bool longer = name.size() >= 3 && low.starts_with(other);
    const std::string letters = without_dashes(plain), wanted = without_dashes(dashed);
    const bool end_of =
        low.size() >= 4 && low.find_first_of("0123456789") != std::string::npos && letters.ends_with(wanted);
    const int distance = low == other        ? 0
                         : letters == wanted ? 1
                         : end_of            ? 2
                         : longer            ? 3
                                  : std::min(2 * edit_distance(low, other), 2 * edit_distance(dashed, plain) + 1);
    if (distance < least) {
      least = distance;
      best = name;
    }
    if (word.size() >= 3 && other.starts_with(low)) {
      begun = name;
      ++beginnings;
    }
  }
  return least > 3 && beginnings == 1 ? begun : best;
}

std::string hint(const std::string& word, const std::vector<std::string>& known, const std::string& prefix) {
  const std::string best = nearest(word, known);
  return best.empty() ? "" : "; did you mean '" + prefix + best + "'?";
}

std::string wrapped(const std::string& text, std::size_t indent, std::string begin) {
  constexpr std::size_t kWidth = 80;
  std::string all, line = std::move(begin);
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) {
    if (line.empty()) line.assign(indent, ' ');
    bool empty = true;
    std::istringstream words(one);
    for (std::string word; words >> word;) {
      if (!empty && line.size() + 1 + word.size() > kWidth) {
        all += line + "\n";
        line.assign(indent, ' ');
        empty = true;
      }
      line += (empty ? "" : " ") + word;
      empty = false;
    }
    all += line + "\n";
    line.clear();
  }
  return all;
}

}  // namespace dat
