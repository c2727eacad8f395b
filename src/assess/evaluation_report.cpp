#include "assess/evaluation_report.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "dat/error.hpp"
#include "dat/file.hpp"

namespace dat {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

[[nodiscard]] double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

[[nodiscard]] Validity verdict_on(const EvaluationResult& result, std::int64_t images, std::int64_t split_images) {
  bool finite = std::isfinite(mean(result.clean.loss));
  for (const EvaluationResult::Outcome& one : result.attacked) finite = finite && std::isfinite(mean(one.loss));
  return verdict_of(finite, images, split_images);
}

/// What a sequence has found out, by attack.
[[nodiscard]] Json json_of(const SequenceRun& sequence, const SequenceResult& result) {
  Json all = {{"name", sequence.sequence().name},
              {"title", sequence.sequence().title},
              {"norm", name_of(sequence.options().norm)},
              {"eps", sequence.options().eps},
              {"accuracy", result.accuracy()},
              {"notices", sequence.attacks().notices()}};
  if (!sequence.sequence().remark.empty()) all["notices"].push_back(sequence.sequence().remark);
  for (const std::string& warning : sequence.network_warnings()) all["notices"].push_back(warning);
  for (std::size_t k = 0; k < result.rows.size(); ++k) {
    const SequenceResult::Row& row = result.rows[k];
    all["attacks"].push_back({{"name", row.attack},
                              {"runs", row.runs},
                              {"alpha", sequence.attacks().members()[k].attack->alpha()},
                              {"images", row.images},
                              {"broken", row.broken},
                              {"zero_gradients", row.zero_gradients},
                              {"accuracy", row.accuracy},
                              {"seconds", row.seconds}});
  }
  return all;
}

/// What a sequence has found out about each image.
void add_images(Json& each, const std::string& name, const SequenceResult& result) {
  Json found;
  for (const SequenceResult::Image& image : result.images) {
    found[name + "_correct"].push_back(image.robust() ? 1 : 0);
    found["broken_by"].push_back(image.robust() ? Json(nullptr)
                                                : Json(result.rows[static_cast<std::size_t>(image.broken_by)].attack));
    found["run"].push_back(image.run);
    found["prediction"].push_back(image.prediction);
    found["distance"].push_back(image.distance);
  }
  each.update(found);
}

[[nodiscard]] Json json_of(const std::vector<Alarm>& alarms) {
  Json all = Json::array();
  for (const Alarm& alarm : alarms)
    all.push_back({{"name", alarm.name},
                   {"tested", alarm.state != Alarm::State::not_tested},
                   {"raised", alarm.state == Alarm::State::raised},
                   {"text", alarm.text}});
  return all;
}

[[nodiscard]] Json json_of(const std::vector<EvaluationRecord>& records) {
  Json all = Json::array();
  for (const EvaluationRecord& r : records)
    all.push_back({{"name", r.attack},
                   {"steps", r.attack_steps},
                   {"restarts", r.restarts},
                   {"norm", r.norm},
                   {"eps", r.eps},
                   {"alpha", r.alpha},
                   {"accuracy", r.adv_acc},
                   {"loss", r.adv_loss}});
  return all;
}

/// Named columns of what is right, image by image: clean, each attack, the sequence.
using Columns = std::vector<std::pair<std::string, std::vector<double>>>;

/// Results by class. The accuracy of a class without images is null.
[[nodiscard]] Json json_by_class(const Classes& classes, const std::vector<int>& labels, const Columns& columns) {
  const auto accuracy = [&](const std::vector<double>& correct, int label) -> Json {
    double right = 0, images = 0;
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (labels[i] == label) {
        ++images;
        right += correct[i];
      }
    return images > 0 ? Json(right / images) : Json(nullptr);
  };
  Json all;
  for (int label = 0; label < classes.count; ++label) {
    Json row = {{"name", classes.name(label)}, {"images", std::count(labels.begin(), labels.end(), label)}};
    for (const auto& [name, correct] : columns) row[name + "_accuracy"] = accuracy(correct, label);
    all.push_back(row);
  }
  return all;
}

void add_images(Json& each, const std::string& name, const EvaluationResult::Outcome& one) {
  each[name + "_correct"] = std::vector<int>(one.correct.begin(), one.correct.end());
  each[name + "_loss"] = one.loss;
  each[name + "_prediction"] = std::vector<int>(one.prediction.begin(), one.prediction.end());
}

/// What a person should know of a sequence's result, in lines.
[[nodiscard]] std::string text_of(const SequenceRun& run, const SequenceResult& result) {
  const AttackSequence& sequence = run.sequence();
  char line[256];
  std::snprintf(line, sizeof line, "  %-8s accuracy %.4f", sequence.name.c_str(), result.accuracy());
  std::string text = line;
  if (!sequence.title.empty()) text += "  " + sequence.title;
  text += "  (" + ball_text(run.options().norm, run.options().eps) + ")\n";
  std::snprintf(line, sizeof line, "    %-10s %5s %8s %8s %9s %10s\n", "attack", "runs", "images", "broken", "accuracy",
                "seconds");
  text += line;
  for (const SequenceResult::Row& row : result.rows) {
    std::snprintf(line, sizeof line, "    %-10s %5d %8lld %8lld %9.4f %10.1f\n", row.attack.c_str(), row.runs,
                  static_cast<long long>(row.images), static_cast<long long>(row.broken), row.accuracy, row.seconds);
    text += line;
  }
  return text;
}

}  // namespace

EvaluationReport::EvaluationReport(const EvaluationSubject& subject, const Dataset& images,
                                   const EvaluationAttacks& attacks, const EvaluationResult& result,
                                   const SequenceRun* sequence, const SequenceResult* sequence_result)
    : subject_(subject),
      images_(images),
      attacks_(attacks),
      result_(result),
      sequence_(sequence),
      sequence_result_(sequence_result),
      records_(result.records(attacks)),
      verdict_(verdict_on(result, images.size(), subject.split_images)) {
  std::vector<AttackFigure> figures;
  for (const EvaluationRecord& r : records_) figures.push_back({r.attack, r.adv_acc});
  alarms_ = masking_alarms(figures, sequence_result);
}

void EvaluationReport::write(const std::string& path, const std::string& provenance) const {
  Json all = {{"filetype", "evaluation"},
              {"format_version", 1},
              {"checkpoint", subject_.checkpoint},
              {"step", subject_.step},
              {"weights_hash", subject_.weights_hash},
              {"data", subject_.data},
              {"split", subject_.split},
              {"weights", subject_.weights},
              {"images", images_.size()},
              {"split_images", subject_.split_images},
              {"verdict", verdict_text(verdict_)},
              {"seed", subject_.seed},
              {"seconds", result_.seconds},
              {"clean", {{"accuracy", mean(result_.clean.correct)}, {"loss", mean(result_.clean.loss)}}},
              {"attacks", json_of(records_)}};
  if (sequence_ != nullptr) all["sequence"] = json_of(*sequence_, *sequence_result_);
  all["alarms"] = json_of(alarms_);
  std::vector<int> labels;
  for (std::int64_t i = 0; i < images_.size(); ++i) labels.push_back(images_.label(i));
  Columns columns = {{"clean", result_.clean.correct}};
  for (std::size_t a = 0; a < records_.size(); ++a)
    columns.emplace_back(records_[a].attack, result_.attacked[a].correct);
  if (sequence_ != nullptr) {
    std::vector<double> right;
    for (const SequenceResult::Image& image : sequence_result_->images) right.push_back(image.robust() ? 1 : 0);
    columns.emplace_back(sequence_->sequence().name, right);
  }
  all["classes"] = json_by_class(subject_.classes, labels, columns);
  Json& each = all["per_image"];
  each["label"] = labels;
  add_images(each, "clean", result_.clean);
  for (std::size_t a = 0; a < records_.size(); ++a) add_images(each, records_[a].attack, result_.attacked[a]);
  if (sequence_ != nullptr) add_images(each, sequence_->sequence().name, *sequence_result_);
  all["provenance"] = Json::parse(provenance);
  write_atomically(path, [&](const std::string& temporary) {
    std::ofstream file(temporary, std::ios::binary);
    file << all.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
    file.close();
    require(file.good(), ExitCode::io, "cannot write ", temporary, ": ", system_reason(errno));
  });
}

std::string EvaluationReport::text() const {
  char line[256];
  std::ostringstream text;
  text << subject_.checkpoint << ": step " << subject_.step << ", " << images_.size() << " "
       << images_text(subject_.split) << weights_text(subject_.weights) << "\n";
  std::snprintf(line, sizeof line, "  %-8s accuracy %.4f  loss %.4f\n", "clean", mean(result_.clean.correct),
                mean(result_.clean.loss));
  text << line;
  for (const EvaluationRecord& r : records_) {
    std::snprintf(line, sizeof line, "  %-8s accuracy %.4f  loss %.4f", r.attack.c_str(), r.adv_acc, r.adv_loss);
    text << line;
    if (r.attack != "none")
      text << "  (" << ball_text(subject_.norm, r.eps) << (subject_.eps_given ? "" : " as in the training")
           << (r.alpha > 0 ? ", alpha " + radius_text(r.alpha, subject_.norm) : "") << ", " << r.restarts
           << (r.restarts == 1 ? " restart)" : " restarts)");
    text << "\n";
  }
  if (sequence_ != nullptr) text << text_of(*sequence_, *sequence_result_);
  text << "  " << alarms_text(alarms_) << "\n";
  return text.str();
}

std::string EvaluationReport::final_line() const {
  double seconds = result_.seconds;
  std::ostringstream text;
  text << "Final: clean_acc=" << std::fixed << std::setprecision(4) << mean(result_.clean.correct);
  for (const EvaluationRecord& r : records_) text << " " << r.attack << "_acc=" << r.adv_acc;
  if (sequence_ != nullptr) {
    text << " " << sequence_->sequence().name << "_acc=" << sequence_result_->accuracy();
    for (const SequenceResult::Row& row : sequence_result_->rows) seconds += row.seconds;
  }
  text << std::setprecision(1) << " time_s=" << seconds << " " << verdict_text(verdict_);
  return text.str();
}

std::string prepare_evaluation_file(const std::string& out) {
  const fs::path path = fs::path(out).extension() == ".json" ? fs::path(out) : fs::path(out) / "eval.json";
  if (path.has_parent_path()) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    require(!error, ExitCode::io, "cannot create the folder ", path.parent_path().string(), ": ", error.message());
  }
  return path.string();
}

}  // namespace dat
