#include "interop/hub.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/number.hpp"
#include "dat/report.hpp"
#include "files/outside_json.hpp"
#include "files/whole_number.hpp"
#include "hdf5/hdf5_reader.hpp"
#include "interop/pytorch_folder.hpp"

namespace dat {

namespace {

/// Accuracy under an attack on the whole test set.
struct CardFigure {
  std::string attack;  ///< empty: clean
  std::string ball;    ///< "linf eps 8/255"; empty: clean
  double accuracy = 0;
  std::int64_t images = 0;
};
using CardFigures = std::vector<CardFigure>;

[[nodiscard]] std::string ball_of(const std::string& norm, double eps) {
  return norm + " eps " + radius_text(eps, norm_from(norm));
}

/// Error(data): a name that is no attack's, which would be a text of a stranger's in the card.
void add_figure(CardFigures& all, const CardFigure& one) {
  require(is_plain(one.attack, "+-_"), ExitCode::data, "an evaluation names the attack '", one.attack,
          "', which there is not");
  const bool there = std::ranges::any_of(
      all, [&](const CardFigure& f) { return std::tie(f.attack, f.ball) == std::tie(one.attack, one.ball); });
  if (!there) all.push_back(one);
}

[[nodiscard]] Hdf5Reader open_sealed(const std::string& path) {
  const std::string damage = check_seal(path);
  require(damage.empty(), ExitCode::data, path, ": ", damage);
  return Hdf5Reader::open(path, ExitCode::data);
}

/// Adds the figures of a run's last evaluation. Returns why there are none; empty: there are.
[[nodiscard]] std::string add_run(CardFigures& figures, const HubEntry& entry) {
  std::error_code unreadable;
  if (!std::filesystem::exists(entry.results, unreadable))
    return "the run has no results.h5; it is written at the end of a run";
  if (entry.noise) return "the run evaluates under noise, which the exported network has not";
  const Hdf5Reader file = open_sealed(entry.results);
  if (file.text("/", "weights_hash").value_or("") != entry.raw_hash)
    return "the run's last evaluation is of other weights";
  if (file.text("/", "verdict").value_or("") != "VALID")
    return "the run's last evaluation is of a part of the test images, or not finite";
  for (const nlohmann::json& one : json_or_discarded(file.text("/", "figures").value_or("[]"))) {
    if (one.at("weights") != entry.weights) continue;
    const auto images = whole_number(one.at("images"), 1);
    require(images.has_value(), ExitCode::data, entry.results, ": its figures are of ", one.at("images").dump(),
            " images");
    add_figure(figures, {"", "", one.at("clean_acc"), *images});
    add_figure(figures, {one.at("attack"), ball_of(one.at("norm"), one.at("eps")), one.at("adv_acc"), *images});
  }
  return "";
}

void add_evaluation(CardFigures& figures, const HubEntry& entry) {
  const std::string& path = entry.evaluation;
  const Hdf5Reader file = open_sealed(path);
  const auto said = [&](const char* name) { return file.text("/", name).value_or(""); };
  const auto check = [&](bool condition, const auto&... parts) {
    require(condition, ExitCode::data, path, ": ", parts...);
  };
  check(said("filetype") == "evaluation",
        "is no results.h5 that 'eval --out FOLDER' wrote of a sequence of attacks, such as aa-standard");
  check(said("weights_hash") == entry.hash, "is the evaluation of other weights (", said("weights_hash"),
        "), the exported ones are ", entry.hash, "; evaluate this checkpoint");
  const nlohmann::json provenance = json_or_discarded(said("provenance"));
  const std::string images = provenance.is_object() && provenance.contains("hashes_of_images")
                                 ? provenance["hashes_of_images"].value("test", "")
                                 : "";
  check(!entry.test_images.empty() && images == entry.test_images,
        "is not of the whole test set of the training; evaluate without --limit, --images, --split and --data");
  Shape shape;
  const auto share = [&](const char* name) {
    const std::vector<std::uint8_t> right = file.read<std::uint8_t>(name, shape);
    check(!right.empty(), "holds no image");
    return std::accumulate(right.begin(), right.end(), 0.0) / static_cast<double>(right.size());
  };
  const double clean = share("image/clean_correct"), robust = share("image/robust");
  double eps{};
  check(read_fraction(said("eps"), eps), "does not say its eps");
  add_figure(figures, {"", "", clean, shape.at(0)});
  add_figure(figures, {said("sequence"), ball_of(said("norm"), eps), robust, shape.at(0)});
}

[[nodiscard]] std::string percent_text_of(double part) { return fmt::format("{:.2f}", 100 * part); }

/// The metadata in front of the card, in YAML; its texts are quoted as JSON's.
[[nodiscard]] std::string metadata_of(const HubEntry& entry, const CardFigures& figures) {
  std::string text =
      "---\nlibrary_name: pytorch\npipeline_tag: image-classification\ntags:\n- image-classification\n"
      "- adversarial-robustness\n- dat_hpc\n";
  if (!entry.dataset.empty()) text += "datasets:\n- " + entry.dataset + "\n";
  if (figures.empty()) return text + "---\n";
  const std::string name = entry.dataset.empty() ? "the training's own" : entry.dataset;
  text += "metrics:\n- accuracy\nmodel-index:\n- name: " + nlohmann::json(entry.architecture).dump() +
          "\n  results:\n  - task:\n      type: image-classification\n    dataset:\n      name: " + name +
          "\n      type: " + (entry.dataset.empty() ? "other" : entry.dataset) + "\n      split: test\n    metrics:\n";
  for (const CardFigure& one : figures)
    text += "    - type: accuracy\n      value: " + percent_text_of(one.accuracy) + "\n      name: " +
            nlohmann::json(one.attack.empty() ? "clean accuracy (%)"
                                              : "accuracy under " + one.attack + ", " + one.ball + " (%)")
                .dump() +
            "\n";
  return text + "---\n";
}

[[nodiscard]] std::string card_of(const HubEntry& entry, const StateDict& state, const CardFigures& figures) {
  const auto said = [&](const char* name) { return state.metadata.at(name); };
  std::string text =
      metadata_of(entry, figures) + "\n# " + entry.architecture + "\n\nA classifier of " + said("classes") +
      " classes for images of " + said("image_size") + "x" + said("image_size") + "x" + said("channels") +
      " in [0, 1], trained " +
      (entry.eps > 0 ? "to withstand perturbations in the ball " + ball_of(name_of(entry.norm), entry.eps)
                     : std::string("without an attack")) +
      ".\nStep " + said("step") + ", " + said("weights") + " weights, hash `" + entry.hash + "`; made by " +
      said("producer") + ".\n";
  text +=
      "\n## Load\n\nPyTorch is all that this takes:\n\n```python\nimport model          # of this folder\n"
      "network = model.load()\nlogits = network(images)  # float32 [n, c, h, w] in [0, 1]\n```\n";
  text += "\n## Accuracy\n\n";
  if (figures.empty()) {
    text += "There are no figures of the whole test set.\n";
  } else {
    text += fmt::format("On all {} test images", figures.front().images) +
            (entry.test_images.empty() ? "" : " (hash `" + entry.test_images + "`)") +
            ":\n\n| attack | ball | accuracy (%) |\n|---|---|---|\n";
    for (const CardFigure& one : figures)
      text += "| " + (one.attack.empty() ? "none (clean)" : one.attack) + " | " + one.ball + " | " +
              percent_text_of(one.accuracy) + " |\n";
  }
  text += "\n## Training\n\nOptions of `dat_hpc train` that differ from the defaults:\n\n```\n";
  for (const std::string& line : entry.options) text += line + "\n";
  text += "```\n\n## Cite\n\n";
  for (const auto& [what, publication] : entry.citations) text += "- " + publication + " (" + what + ")\n";
  return text +
         "\n## Not said here\n\nLicence, authors, intended use and limits: the files that this card is made of do not "
         "know them.\n";
}

}  // namespace

std::string write_hub(const std::string& folder, const Graph& graph, const StateDict& state, const HubEntry& entry) {
  CardFigures figures;
  std::string missing = "README.md: licence, authors and intended use are yours to add";
  missing += entry.dataset.empty() ? ", and the name of the data set.\n" : ".\n";
  std::string why;
  try {
    if (!entry.evaluation.empty()) add_evaluation(figures, entry);
    why = add_run(figures, entry);
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "the results of the run or of the evaluation are not of this version of the program (",
         error.what(), "); evaluate the checkpoint again");
  }
  if (!why.empty()) {
    missing += (figures.empty() ? "No figures: " : "No figures but the evaluation's: ") + why + ".\n";
    if (figures.empty())
      missing +=
          "For figures give --evaluation FOLDER, what 'dat_hpc eval --eval aa-standard --out FOLDER' has left.\n";
  }
  const std::string card = folder + "/README.md";
  std::error_code unreadable;
  require(!std::filesystem::exists(card, unreadable), ExitCode::usage, card,
          " is there, and may have words of yours; move it away, or choose another --out");
  write_pytorch_folder(folder, graph, state, entry.architecture);
  write_text_atomically(card, card_of(entry, state, figures));
  return missing;
}

}  // namespace dat
