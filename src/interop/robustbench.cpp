#include "interop/robustbench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/report.hpp"
#include "files/outside_json.hpp"
#include "files/whole_number.hpp"
#include "interop/pytorch_folder.hpp"

namespace dat {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::int64_t kCifar10Images = 10000;  ///< test images
constexpr double kSameRadius = 1e-6;            ///< relative: one that was written and read again

/// Figures of an evaluation, in percent, as RobustBench writes them.
struct Figures {
  std::string clean, reported, autoattack;  ///< the last one is empty where AutoAttack has not been run on all images
  std::string footnote;
  bool limited = false;  ///< true: not on all test images
};

[[nodiscard]] std::string percent(double part) { return fmt::format("{:.2f}", 100 * part); }

[[nodiscard]] Figures read_figures(const RobustBenchEntry& entry) {
  const std::string &path = entry.evaluation, &weights = entry.weights;
  const OrderedJson all = OrderedJson::parse(json_text_in(path, "evaluation"), nullptr, false);
  const auto check = [&](bool condition, const auto&... parts) {
    require(condition, ExitCode::data, path, ": ", parts...);
  };
  check(all.is_object() && all.contains("filetype") && all.at("filetype") == "evaluation",
        "is no evaluation that 'eval --out' wrote");
  try {
    check(all.at("weights_hash").get<std::string>() == weights, "is the evaluation of other weights (",
          all.at("weights_hash").get<std::string>(), "), the exported ones are ", weights,
          "; evaluate this checkpoint");
    check(all.at("split") == "test", "is an evaluation of other images than the test images");
    check(!all.contains("noise"),
          "is of the network under noise, which the exported one has not; evaluate with --noise 0");
    check(all.value("verdict", "VALID") != "INVALID", "is INVALID: a loss was infinite or NaN");
    const auto images = whole_number(all.at("images"), 1), of_split = whole_number(all.at("split_images"), 1);
    check(images.has_value() && of_split.has_value(), "is of ", all.at("images").dump(), " of ",
          all.at("split_images").dump(), " images");
    Figures figures{.clean = percent(all.at("clean").at("accuracy").get<double>()),
                    .reported = {},
                    .autoattack = {},
                    .footnote = "On " + std::to_string(*images) + " test images:",
                    .limited = images != of_split || (entry.dataset == "cifar10" && *images != kCifar10Images)};
    double least = HUGE_VAL;
    auto attacks = all.at("attacks").get<std::vector<OrderedJson>>();
    if (all.contains("sequence")) attacks.push_back(all.at("sequence"));  // a version of AutoAttack, or several attacks
    for (const OrderedJson& attack : attacks) {
      const auto name = attack.at("name").get<std::string>();
      const auto accuracy = attack.at("accuracy").get<double>(), eps = attack.at("eps").get<double>();
      const BallNorm norm = norm_from(attack.at("norm"));
      check(norm != entry.norm || std::abs(eps - entry.eps) <= kSameRadius * entry.eps, "attacks with ",
            ball_text(norm, eps), " (", name, "), and the network was trained for ", ball_text(entry.norm, entry.eps),
            "; evaluate it with that one");
      if (norm == entry.norm) least = std::min(least, accuracy);
      if (norm == entry.norm && name == "aa-standard" && !figures.limited) figures.autoattack = percent(accuracy);
      figures.footnote += (figures.footnote.ends_with(':') ? " " : ", ") + name + " " + percent(accuracy) + " % (" +
                          ball_text(norm, eps) + ")";
    }
    check(least <= 1, "has no attack in ", ball_text(entry.norm, entry.eps), ", for which the network was trained");
    figures.reported = percent(least);
    return figures;
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, path, ": is no evaluation of this version of the program (", error.what(),
         "); evaluate the checkpoint again");
  }
}

}  // namespace

std::string write_robustbench(const std::string& folder, const Graph& graph, const StateDict& state,
                              const RobustBenchEntry& entry) {
  std::optional<Figures> figures;
  if (!entry.evaluation.empty()) figures = read_figures(entry);

  const auto figure = [](const std::string& text) { return text.empty() ? OrderedJson(nullptr) : OrderedJson(text); };
  const OrderedJson additional_data =
      entry.additional_data ? OrderedJson(*entry.additional_data) : OrderedJson(nullptr);
  const OrderedJson info = {{"link", ""},
                            {"name", ""},
                            {"authors", ""},
                            {"additional_data", additional_data},
                            {"number_forward_passes", 1},
                            {"dataset", entry.dataset},
                            {"venue", ""},
                            {"architecture", entry.architecture},
                            {"eps", radius_text(entry.eps, entry.norm)},
                            {"clean_acc", figure(figures ? figures->clean : "")},
                            {"reported", figure(figures ? figures->reported : "")},
                            {"footnote", figures ? figures->footnote : ""},
                            {"autoattack_acc", figure(figures ? figures->autoattack : "")}};
  write_pytorch_folder(folder, graph, state, entry.architecture);
  write_text_atomically(folder + "/model_info.json", info.dump(2) + "\n");

  std::string missing = "model_info.json: link, name, authors and venue are yours to fill in";
  if (entry.dataset.empty()) missing += "; so is dataset";
  missing += std::string(". Its place there is model_info/") + (entry.dataset.empty() ? "DATASET" : entry.dataset) +
             (entry.norm == BallNorm::linf ? "/Linf" : "/L2") + ".\n";
  if (!entry.additional_data) missing += "additional_data is null: nobody knows what the network was trained on.\n";
  if (!figures)
    missing += "No figures: give the JSON file of 'dat_hpc eval --out' with --evaluation.\n";
  else if (figures->limited)
    missing += "autoattack_acc is null: the evaluation is of a part of the test images; evaluate all of them.\n";
  else if (figures->autoattack.empty())
    missing +=
        "autoattack_acc is null: the evaluation has not run aa-standard, without which RobustBench lists nothing.\n";
  return missing;
}

}  // namespace dat
