#include "assess/evaluation_report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "dat/error.hpp"
#include "dat/file.hpp"

namespace dat {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

[[nodiscard]] Validity verdict_on(const EvaluationResult& result, std::int64_t images, std::int64_t split_images) {
  const auto finite = [](const EvaluationResult::Outcome& one) { return std::isfinite(mean(one.loss)); };
  return verdict_of(finite(result.clean) && std::ranges::all_of(result.attacked, finite), images, split_images);
}

/// Results of a sequence, by attack.
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

/// Adds the results of a sequence for each image.
void add_images(Json& each, const std::string& name, const SequenceResult& result) {
  for (const SequenceResult::Image& image : result.images) {
    each[name + "_correct"].push_back(image.robust() ? 1 : 0);
    each["broken_by"].push_back(image.robust() ? Json(nullptr)
                                               : Json(result.rows[static_cast<std::size_t>(image.broken_by)].attack));
    each["run"].push_back(image.run);
    each["prediction"].push_back(image.prediction);
    each["distance"].push_back(image.distance);
  }
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
  std::vector<std::int64_t> images(static_cast<std::size_t>(classes.count));
  std::vector<std::vector<double>> right(columns.size(), std::vector<double>(images.size()));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<std::size_t>(labels[i]);
    ++images[label];
    for (std::size_t c = 0; c < columns.size(); ++c) right[c][label] += columns[c].second[i];
  }
  Json all;
  for (std::size_t label = 0; label < images.size(); ++label) {
    Json row = {{"name", classes.name(static_cast<int>(label))}, {"images", images[label]}};
    for (std::size_t c = 0; c < columns.size(); ++c)  // of none it is no number, which JSON calls null
      row[columns[c].first + "_accuracy"] = right[c][label] / static_cast<double>(images[label]);
    all.push_back(row);
  }
  return all;
}

void add_images(Json& each, const std::string& name, const EvaluationResult::Outcome& one) {
  each[name + "_correct"] = std::vector<int>(one.correct.begin(), one.correct.end());
  each[name + "_loss"] = one.loss;
  each[name + "_prediction"] = std::vector<int>(one.prediction.begin(), one.prediction.end());
}

/// Results of a sequence for people, in lines.
[[nodiscard]] std::string text_of(const SequenceRun& run, const SequenceResult& result) {
  const AttackSequence& sequence = run.sequence();
  std::string text = fmt::format("  {:<8} accuracy {:.4f}", sequence.name, result.accuracy());
  if (!sequence.title.empty()) text += "  " + sequence.title;
  text += "  (" + ball_text(run.options().norm, run.options().eps) + ")\n";
  text += fmt::format("    {:<10} {:>5} {:>8} {:>8} {:>9} {:>10}\n", "attack", "runs", "images", "broken", "accuracy",
                      "seconds");
  for (const SequenceResult::Row& row : result.rows)
    text += fmt::format("    {:<10} {:>5} {:>8} {:>8} {:>9.4f} {:>10.1f}\n", row.attack, row.runs, row.images,
                        row.broken, row.accuracy, row.seconds);
  return text;
}

}  // namespace

EvaluationReport::EvaluationReport(const EvaluationSubject& subject, const Dataset& images,
                                   const EvaluationAttacks& attacks, const EvaluationResult& result,
                                   const SequenceRun* sequence, const SequenceResult* sequence_result)
    : subject_(subject),
      images_(images),
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
  if (!subject_.list.empty()) all["list"] = subject_.list;
  if (subject_.noise > 0) all["noise"] = {{"sigma", subject_.noise}, {"samples", subject_.noise_samples}};
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
  write_text_atomically(path, all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string EvaluationReport::text() const {
  const auto figures = [](const std::string& name, double accuracy, double loss) {
    return fmt::format("  {:<8} accuracy {:.4f}  loss {:.4f}", name, accuracy, loss);
  };
  std::string text = fmt::format(
      "{}: step {}, {} {}{}{}{}\n", subject_.checkpoint, subject_.step, images_.size(), images_text(subject_.split),
      subject_.list.empty() ? "" : fmt::format(" of {}, named in {}", subject_.split_images, subject_.list),
      weights_text(subject_.weights),
      subject_.noise == 0
          ? ""
          : fmt::format(", under noise of standard deviation {:g}, {} of each", subject_.noise,
                        subject_.noise_samples == 1 ? "one copy" : fmt::format("{} copies", subject_.noise_samples)));
  text += figures("clean", mean(result_.clean.correct), mean(result_.clean.loss)) + "\n";
  for (const EvaluationRecord& r : records_) {
    text += figures(r.attack, r.adv_acc, r.adv_loss);
    if (r.attack != "none")
      text += fmt::format("  ({}{}{}, {}{}", ball_text(subject_.norm, r.eps),
                          subject_.eps_given ? "" : " as in the training",
                          r.alpha > 0 ? ", alpha " + radius_text(r.alpha, subject_.norm) : "", r.restarts,
                          r.restarts == 1 ? " restart)" : " restarts)");
    text += "\n";
  }
  if (sequence_ != nullptr) text += text_of(*sequence_, *sequence_result_);
  const std::string alarms = alarms_text(alarms_);
  return alarms.empty() ? text : text + "  " + alarms + "\n";
}

std::string EvaluationReport::final_line() const {
  double seconds = result_.seconds;
  std::string text = fmt::format("Final: clean_acc={:.4f}", mean(result_.clean.correct));
  for (const EvaluationRecord& r : records_) text += fmt::format(" {}_acc={:.4f}", r.attack, r.adv_acc);
  if (sequence_ != nullptr) {
    text += fmt::format(" {}_acc={:.4f}", sequence_->sequence().name, sequence_result_->accuracy());
    for (const SequenceResult::Row& row : sequence_result_->rows) seconds += row.seconds;
  }
  return text + fmt::format(" time_s={:.1f} {}", seconds, verdict_text(verdict_));
}

std::string evaluation_file(const std::string& out) {
  const fs::path path = fs::path(out).extension() == ".json" ? fs::path(out) : fs::path(out) / "eval.json";
  require(!fs::is_directory(path), ExitCode::usage, "--out ", out, ": ", path.string(), " is a folder");
  return path.string();
}

std::string prepare_evaluation_file(const std::string& out) {
  const fs::path path = evaluation_file(out);
  make_folder(path.parent_path().string());
  // Before hours of work.
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  require(access(folder.c_str(), W_OK) == 0, ExitCode::io, "--out ", out, ": nothing can be written into ", folder,
          ": ", system_reason(errno));
  return path.string();
}

}  // namespace dat
