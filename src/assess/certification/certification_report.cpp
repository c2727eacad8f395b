#include "assess/certification/certification_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/report.hpp"
#include "smoothing/bounds.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kCertificationFormat = 1;
/// Radii of published tables: DAT's, Cohen's, Salman's.
constexpr double kRadii[] = {0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1,
                             1.25, 1.5, 1.75, 2,   2.25, 2.5, 3,   3.5, 4};

[[nodiscard]] std::string all_digits(double value) { return fmt::format("{:.17g}", value); }

[[nodiscard]] std::string procedure_of(const CertificationPlan& plan) {
  return plan.predicts ? "predict" : plan.sequential() ? "certify, sequential" : "certify";
}

[[nodiscard]] std::string attack_text(const CertificationSubject& subject) {
  return subject.attack_steps == 0 ? "none"
                                   : fmt::format("pgd{} on {} copies", subject.attack_steps, subject.noise_samples);
}

/// Time in the form of Python's timedelta.
[[nodiscard]] std::string time_text(double seconds) {
  const std::lldiv_t time = std::lldiv(std::llround(seconds * 1e6), 1'000'000);
  return fmt::format("{}:{:02}:{:02}.{:06}", time.quot / 3600, time.quot / 60 % 60, time.quot % 60, time.rem);
}

}  // namespace

std::unique_ptr<CertificationFolder> open_certification(const std::string& folder, const Facts& facts, bool attacks) {
  const fs::path path = folder;
  require(path.extension() != ".json", ExitCode::usage, "--out ", folder, " must be a folder: a certification writes ",
          "several files");
  std::unique_ptr<CertificationFolder> opened(
      new CertificationFolder{folder, take_folder(folder, "certification", "certified"),
                              Journal((path / "certify.journal").string(), "certification", facts)});
  if (attacks)
    opened->attacked = std::make_unique<Journal>((path / "attacked.journal").string(), "attacked certificates", facts);
  return opened;
}

Facts facts_of(const CertificationSubject& subject, const std::vector<std::int64_t>& images) {
  const CertificationPlan& plan = subject.plan;
  return {{"procedure", procedure_of(plan)},
          {"sigma", all_digits(plan.sigma)},
          {"noise", plan.grid ? "grid" : "float"},
          {"n0", std::to_string(plan.predicts ? 0 : plan.n0)},
          {"n", std::to_string(plan.n)},
          {"alpha", all_digits(plan.alpha)},
          {"radii", fmt::format("{}", fmt::join(plan.radii, ","))},
          {"seed", std::to_string(plan.seed)},
          {"precision of the network", subject.precision},
          {"hash of the weights", subject.weights_hash},
          {"split", subject.split},
          {"every", std::to_string(subject.every)},
          {"attack", attack_text(subject)},
          {"number of certified images", std::to_string(images.size())}};
}

CertificationReport::Share CertificationReport::share(std::int64_t count) const {
  const auto all = std::ssize(result_.images);
  return {count, static_cast<double>(count) / static_cast<double>(all), clopper_pearson_lower(count, all, 0.025),
          clopper_pearson_upper(count, all, 0.025)};
}

std::vector<double> CertificationReport::radii() const {
  const CertificationPlan& plan = subject_.plan;
  if (plan.sequential()) return plan.radii;
  if (plan.predicts) return {};
  const double most = certified_radius(clopper_pearson_lower(plan.n, plan.n, plan.alpha), plan.sigma);
  return {std::begin(kRadii), std::ranges::upper_bound(kRadii, most)};
}

std::string CertificationReport::json(const std::string& provenance) const {
  const CertificationPlan& plan = subject_.plan;
  const auto shown = [](const Share& s) {
    return Json{{"images", s.count}, {"accuracy", s.part}, {"low", s.low}, {"high", s.high}};
  };
  Json all = {{"filetype", "certification"},
              {"format_version", kCertificationFormat},
              {"settings",
               {{"procedure", procedure_of(plan)},
                {"sigma", plan.sigma},
                {"noise_kind", plan.grid ? "grid" : "float"},
                {"n0", plan.predicts ? 0 : plan.n0},
                {"n", plan.n},
                {"alpha", plan.alpha},
                {"seed", plan.seed},
                {"precision", subject_.precision},
                {"checkpoint", subject_.checkpoint},
                {"step", subject_.step},
                {"weights", subject_.weights},
                {"weights_hash", subject_.weights_hash},
                {"data", subject_.data},
                {"split", subject_.split},
                {"split_images", subject_.split_images},
                {"every", subject_.every}}},
              {"images", Json::array()},
              {"radii", Json::array()},
              {"acr", result_.average_radius()},
              {"abstained", shown(share(result_.abstained()))},
              {"correct", shown(share(right()))},
              {"samples", result_.samples()}};
  for (std::size_t i = 0; i < result_.images.size(); ++i) {
    const Certificate& c = result_.certificates[i];
    Json one = {{"index", result_.images[i]},
                {"label", result_.labels[i]},
                {"prediction", c.prediction},
                {"radius", c.radius},
                {"votes", c.votes},
                {"samples", c.samples},
                {plan.predicts ? "p_value" : "lower", c.lower}};
    if (plan.sequential()) one["decided"] = c.decided;
    one["seconds"] = c.seconds;
    all["images"].push_back(one);
  }
  for (const double radius : radii()) {
    Json row = shown(share(result_.certified(radius)));
    row["radius"] = radius;
    all["radii"].push_back(row);
  }
  if (!subject_.list.empty()) all["settings"]["list"] = subject_.list;
  if (plan.predicts) all.erase("acr");
  if (attacked_ != nullptr) {
    const CertificationResult& predicted = attacked_->predicted;
    all["attacked"] = {{"steps", subject_.attack_steps},
                       {"noise_samples", subject_.noise_samples},
                       {"broken", attacked_->broken()},
                       {"abstained", predicted.abstained()},
                       {"images", Json::array()}};
    for (std::size_t i = 0; i < predicted.images.size(); ++i) {
      const Certificate& c = predicted.certificates[i];
      all["attacked"]["images"].push_back({{"index", predicted.images[i]},
                                           {"distance", attacked_->images.distance(predicted.images[i])},
                                           {"prediction", c.prediction},
                                           {"votes", c.votes},
                                           {"samples", c.samples},
                                           {"seconds", c.seconds}});
    }
  }
  all["provenance"] = Json::parse(provenance);
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string CertificationReport::tsv() const {
  std::string text = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n";
  for (std::size_t i = 0; i < result_.images.size(); ++i) {
    const Certificate& c = result_.certificates[i];
    text += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\n", result_.images[i], result_.labels[i], c.prediction, c.radius,
                        result_.correct(i) ? 1 : 0, time_text(c.seconds));
  }
  return text;
}

void CertificationReport::write_hdf5(const std::string& path, const std::string& provenance) const {
  FileFacts facts = facts_of(subject_, result_.images);
  facts.insert(facts.end(), {{"checkpoint", subject_.checkpoint}, {"provenance", provenance}});
  if (!subject_.list.empty()) facts.emplace_back("list", subject_.list);
  write_sealed_hdf5(path, [&](Hdf5File& file) {
    write_facts(file, "certification", kCertificationFormat, facts);
    write_column<std::int64_t>(file, "image/index", result_.images);
    write_column<std::int64_t>(file, "image/label", result_.labels);
    write_column<std::int64_t>(file, "image/prediction", result_.certificates, &Certificate::prediction);
    write_column<double>(file, "image/radius", result_.certificates, &Certificate::radius);
    write_column<std::int64_t>(file, "image/votes", result_.certificates, &Certificate::votes);
    write_column<std::int64_t>(file, "image/samples", result_.certificates, &Certificate::samples);
    write_column<double>(file, "image/seconds", result_.certificates, &Certificate::seconds);
    if (const std::vector<double> looked_at = radii(); !looked_at.empty()) {
      write_column<double>(file, "radii/radius", looked_at);
      write_column<double>(file, "radii/accuracy", looked_at,
                           [&](double radius) { return share(result_.certified(radius)).part; });
    }
    if (attacked_ != nullptr && !attacked_->predicted.images.empty()) {
      const CertificationResult& predicted = attacked_->predicted;
      const DatasetInfo& info = attacked_->images.info();
      write_column<std::int64_t>(file, "attacked/index", predicted.images);
      write_column<std::int64_t>(file, "attacked/prediction", predicted.certificates, &Certificate::prediction);
      file.declare<std::uint8_t>("attacked/images",
                                 {std::ssize(predicted.images), info.size, info.size, info.channels});
      file.write_rows("attacked/images", 0, attacked_->images.pixels());
    }
  });
}

void CertificationReport::write(const std::string& folder, const std::string& provenance) const {
  const fs::path path = folder;
  write_hdf5((path / "results.h5").string(), provenance);
  write_text_atomically((path / "certify.tsv").string(), tsv());
  write_text_atomically((path / "certify.json").string(), json(provenance));
}

std::string CertificationReport::text() const {
  const CertificationPlan& plan = subject_.plan;
  const auto line = [&](const std::string& name, std::int64_t count) {
    const Share s = share(count);
    return fmt::format("  {:<14} {:>6} of {}  {:.4f}  ({:.4f} to {:.4f})\n", name, s.count, result_.images.size(),
                       s.part, s.low, s.high);
  };
  std::string text =
      fmt::format("{}: step {}, {} {}{}{}, smoothed with sigma {}{}\n", subject_.checkpoint, subject_.step,
                  result_.images.size(), images_text(subject_.split),
                  subject_.list.empty() ? "" : fmt::format(" of {}, named in {}", subject_.split_images, subject_.list),
                  weights_text(subject_.weights), plan.sigma,
                  subject_.precision == "f32" ? "" : ", the network in " + subject_.precision);
  text += line("right", right()) + line("abstained", result_.abstained());
  for (const double radius : radii()) text += line(fmt::format("radius {}", radius), result_.certified(radius));
  if (attacked_ != nullptr) {
    const CertificationResult& predicted = attacked_->predicted;
    text += fmt::format("  attacked within their radii ({}): {} images, {} broken, {} abstained\n",
                        attack_text(subject_), predicted.images.size(), attacked_->broken(), predicted.abstained());
  }
  return text + fmt::format("  {} samples, {:.1f} an image\n", result_.samples(),
                            static_cast<double>(result_.samples()) / static_cast<double>(result_.images.size()));
}

std::string CertificationReport::final_line() const {
  const bool whole = subject_.every == 1 && std::ssize(result_.images) == subject_.split_images;
  std::string text = fmt::format("Final: right={:.4f}", share(right()).part);
  if (!subject_.plan.predicts) text += fmt::format(" acr={:.4f}", result_.average_radius());
  if (attacked_ != nullptr) text += fmt::format(" broken={}", attacked_->broken());
  return text + fmt::format(" abstained={:.4f} images={} {}", share(result_.abstained()).part, result_.images.size(),
                            verdict_text(whole ? Validity::valid : Validity::partial));
}

}  // namespace dat
