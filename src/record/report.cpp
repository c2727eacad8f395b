#include "dat/report.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/run_lock.hpp"
#include "files/outside_json.hpp"
#include "printed.hpp"
#include "record/event_kind.hpp"
#include "record/json_line.hpp"
#include "record/progress_line.hpp"
#include "record/tensorboard.hpp"

namespace dat {
namespace {

constexpr double kLeastPause = 1;  ///< seconds between lines that a terminal shows

/// A whole number as one. |value| is below 2^63.
[[nodiscard]] nlohmann::ordered_json plain_number(double value) {
  const auto whole = static_cast<std::int64_t>(value);
  return static_cast<double>(whole) == value ? nlohmann::ordered_json(whole) : nlohmann::ordered_json(value);
}

}  // namespace

Report::Report(RunFacts facts, std::int64_t resume_bytes, const std::string& behind,
               const std::vector<EventKind>& kinds)
    : facts_(std::move(facts)),
      kinds_(kinds),
      metrics_path_(facts_.folder + "/metrics.jsonl"),
      logged_(std::make_unique<ProgressLine>()),
      shown_(std::make_unique<ProgressLine>()) {
  const std::string& folder = facts_.folder;
  make_folder(folder);
  std::error_code error;
  const bool fresh = resume_bytes < 0;
  metrics_ = open(metrics_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(metrics_ != -1, ExitCode::io, "cannot open ", metrics_path_, ": ", system_reason(errno));
  // The destructor does not run when a constructor throws.
  try {
    remove_temporaries(folder);
    metrics_bytes_ = fresh ? 0 : resume_bytes;
    struct stat status {};
    require(fstat(metrics_, &status) == 0, ExitCode::io, "cannot read ", metrics_path_, ": ", system_reason(errno));
    require(status.st_size >= metrics_bytes_, ExitCode::checkpoint, metrics_path_, " has ", status.st_size,
            " bytes, but the checkpoint was written after ", metrics_bytes_,
            "; restore the file, or start anew in another folder");
    for (const char* stale : {"/results.h5", "/SUMMARY.txt", "/report.html"})
      std::filesystem::remove(folder + stale, error);
    require(status.st_size == metrics_bytes_ || ftruncate(metrics_, metrics_bytes_) == 0, ExitCode::io, "cannot cut ",
            metrics_path_, ": ", system_reason(errno));
    const std::string log_path = folder + "/run.log";
    if (fresh) std::filesystem::remove(log_path, error);
    log_ = std::fopen(log_path.c_str(), "ae");
    require(log_ != nullptr, ExitCode::io, "cannot open ", log_path, ": ", system_reason(errno));
    write_text_atomically(folder + "/config.resolved.toml", facts_.config_toml);
    write_text_atomically(folder + "/provenance.json", facts_.provenance_json);
    if (metrics_bytes_ == 0) {
      const nlohmann::ordered_json header{{"kind", "run"},
                                          {"format_version", kResultsFormat},
                                          {"layer_name", facts_.layer_names},
                                          {"layer_elements", facts_.layer_sizes},
                                          {"layer_cost", facts_.layer_costs},
                                          {"warmup_epochs", plain_number(facts_.warmup_epochs)}};
      write_text(header.dump() + "\n");
    }
    if (!behind.empty()) write_text(behind);
    if (facts_.tensorboard || (!fresh && TensorBoard::is_in(folder)))
      tensorboard_ = std::make_unique<TensorBoard>(folder, read_history(folder, kinds_));
    else
      TensorBoard::remove_from(folder);
  } catch (...) {
    if (log_ != nullptr) std::fclose(log_);
    close(metrics_);
    throw;
  }
  line_.reserve(2048 + kNumberBytes * (3 * facts_.layer_names.size() +
                                       (kPhases + 1) * static_cast<std::size_t>(facts_.ranks + facts_.generators)));
  terminal_ = terminal_size().ws_col != 0;
}

Report::~Report() {
  if (progress_shown_) std::fputs("\n", stdout);
  std::fclose(log_);
  close(metrics_);
}

void Report::require_alone() const { dat::require_alone(metrics_, metrics_bytes_, metrics_path_); }

std::int64_t Report::metrics_bytes() {
  require_alone();
  require(fdatasync(metrics_) == 0, ExitCode::io, "cannot write ", metrics_path_, ": ", system_reason(errno));
  return metrics_bytes_;
}

void Report::write_text(std::string_view lines) {
  require_alone();
  write_bytes(metrics_, lines, metrics_path_);
  metrics_bytes_ += std::ssize(lines);
}

void Report::log(const char* text) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
  const bool good = std::fprintf(log_, "%s %s\n", stamp, text) >= 0 && std::fflush(log_) == 0;
  require(good, ExitCode::io, "cannot write ", facts_.folder, "/run.log: ", system_reason(errno));
}

void Report::print(const char* text) {
  std::printf("%s%s\n", progress_shown_ ? "\r\033[K" : "", text);
  std::fflush(stdout);
  progress_shown_ = false;
  log(text);
}

void Report::count_anew(std::int64_t total_steps, std::int64_t steps_per_epoch) {
  facts_.total_steps = total_steps;
  facts_.steps_per_epoch = steps_per_epoch;
  logged_ = std::make_unique<ProgressLine>();
  shown_ = std::make_unique<ProgressLine>();
}

void Report::message(const std::string& line) { print(in_one_line(line).c_str()); }

void Report::warning(const std::string& text) {
  const std::string line = in_one_line(text);
  if (progress_shown_) std::fputs("\r\033[K", stdout);
  std::fflush(stdout);
  progress_shown_ = false;
  std::fprintf(stderr, "dat_hpc: warning: %s\n", line.c_str());
  log(("warning: " + line).c_str());
}

void Report::step(const StepRecord& record) {
  assert(record.scale != nullptr && record.p != nullptr);
  const std::size_t layers = facts_.layer_names.size();
  const auto active = [&](std::size_t layer) { return (*record.scale)[layer] != 0.0F; };

  JsonLine line(line_, "step");
  const auto field = [&](const char* name, const auto& value, const char*) { line.field(name, value); };
  for_each_step_field(record, field);
  std::int64_t n_active = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) n_active += active(layer);
  line.field("n_active", n_active);
  line.key("active");
  line.text("\"");
  for (std::size_t layer = 0; layer < layers; ++layer) line.text(active(layer) ? "1" : "0");
  line.text("\"");
  line.array("p", layers, [&](std::size_t layer) { return static_cast<float>((*record.p)[layer]); });
  line.array("norm", layers, [&](std::size_t layer) {
    return record.norms != nullptr && active(layer) ? static_cast<float>((*record.norms)[layer]) : std::nanf("");
  });
  if (record.generators != nullptr) for_each_generator_field(*record.generators, field);
  if (const std::vector<double>* all = record.distances)
    line.array("distance", static_cast<std::size_t>(facts_.ranks),
               [&](std::size_t rank) { return rank < all->size() ? static_cast<float>((*all)[rank]) : std::nanf(""); });
  write_text(line.close());
  if (tensorboard_) tensorboard_->step(record, n_active);
  if (record.generators != nullptr && record.generators->spans != nullptr)
    tell(AttacksRecord{record.step, !std::exchange(attacks_told_, true), *record.generators->spans});
  progress(record);
}

void Report::progress(const StepRecord& record) {
  const ProgressLine::Clock::time_point now = ProgressLine::Clock::now();
  logged_->add(record, now);
  shown_->add(record, now);
  const bool due = record.step == facts_.total_steps || logged_->waited(now) >= facts_.progress_seconds;
  fmt::memory_buffer line;  // long enough for what stands in it, so that nothing is allocated
  if (terminal_ && !facts_.quiet && (due || shown_->waited(now) >= kLeastPause)) {
    shown_->write(line, facts_, now, terminal_size().ws_col - 1);
    draw(line.data());
  }
  if (!due) return;
  constexpr int kWidth = 79;
  logged_->write(line, facts_, now, kWidth);
  if (terminal_ || facts_.quiet)
    log(line.data());
  else
    print(line.data());
}

void Report::evaluating(double part) {
  const ProgressLine::Clock::time_point now = ProgressLine::Clock::now();
  if (!terminal_ || facts_.quiet || (part > 0 && shown_->waited(now) < kLeastPause)) return;
  fmt::memory_buffer line;
  shown_->write_evaluation(line, facts_, now, terminal_size().ws_col - 1, part);
  draw(line.data());
}

void Report::draw(const char* line) {
  std::printf("\r%s\033[K", line);
  std::fflush(stdout);
  progress_shown_ = true;
}

void Report::evaluation(const std::vector<EvaluationRecord>& records) {
  for (const EvaluationRecord& record : records) {
    JsonLine line(line_, "evaluation");
    for_each_evaluation_field(record,
                              [&](const char* name, const auto& value, const char*) { line.field(name, value); });
    write_text(line.close());
    if (tensorboard_) tensorboard_->evaluation(record);
  }
  for (auto next = records.begin(); next != records.end();) {
    const EvaluationRecord& first = *next;
    std::string text = fmt::format("evaluation at step {}, {} of {} epochs done, {} ", first.step, first.epoch,
                                   std::max(facts_.epochs, first.epoch), first.images) +
                       images_text(first.split) + weights_text(first.weights) +
                       fmt::format(": clean {:.2f} %, loss {:.4f}", 100 * first.clean_acc, first.clean_loss);
    for (; next != records.end() && next->split == first.split && next->weights == first.weights; ++next) {
      text += "; " + next->attack + fmt::format(" {:.2f} %, loss {:.4f}", 100 * next->adv_acc, next->adv_loss);
      if (const std::string how = attack_text(*next); !how.empty()) text += " (" + how + ")";
    }
    message(text);
  }
}

void Report::ranks(const RankRecord& record) {
  const std::size_t ranks = record.bytes.size();
  assert(record.seconds.size() == ranks * kPhases);
  JsonLine line(line_, "ranks");
  line.field("step", record.step);
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    line.array(kPhaseSeries[phase], ranks, [&](std::size_t rank) { return record.seconds[rank * kPhases + phase]; });
  line.array("bytes", ranks, [&](std::size_t rank) { return record.bytes[rank]; });
  write_text(line.close());
}

std::string Report::behind_rollback(std::int64_t metrics_bytes, const SetbackRecord& rollback) const {
  return lines_that_stay(metrics_bytes) + line_of(rollback);
}

void Report::roll_back(std::int64_t metrics_bytes, const std::string& behind, const SetbackRecord& rollback) {
  require(metrics_bytes <= metrics_bytes_, ExitCode::checkpoint, metrics_path_, " has ", metrics_bytes_,
          " bytes, but the checkpoint to go back to was written after ", metrics_bytes,
          ": it is of another run; remove it");
  require_alone();
  require(ftruncate(metrics_, metrics_bytes) == 0, ExitCode::io, "cannot cut ", metrics_path_, " back to ",
          metrics_bytes, " bytes: ", system_reason(errno));
  metrics_bytes_ = metrics_bytes;
  attacks_told_ = false;
  logged_->begin_anew();
  shown_->begin_anew();
  write_text(behind);
  if (tensorboard_) tensorboard_ = std::make_unique<TensorBoard>(facts_.folder, read_history(facts_.folder, kinds_));
  warning(rollback.sentence());
}

std::string Report::lines_that_stay(std::int64_t from) const {
  std::ifstream file(metrics_path_);
  file.seekg(from);
  std::istringstream rest(std::string(std::istreambuf_iterator<char>(file), {}));
  std::string kept;
  for (std::string line; std::getline(rest, line);) {
    try {
      const nlohmann::json row = parsed_json(line);
      const EventKind* kind = kind_named(row.at("kind").get<std::string>(), kinds_);
      if (kind != nullptr && kind->lasts(row)) kept += line + "\n";
    } catch (const std::exception&) {  // a damaged line is of no use to anybody
    }
  }
  return kept;
}

std::string Report::finish(const FinalResult& result) {
  static_cast<void>(metrics_bytes());  // all of them
  const History history = read_history(facts_.folder, kinds_);
  write_results(facts_, history, &result);
  // fabs: a NaN may carry a sign, which printf would show.
  std::string last = "Final:", weights;
  for (const EvaluationRecord& r : result.evaluations) {
    const std::string of = r.weights == "average" ? " average_" : " ";
    if (r.weights != weights) last += of + fmt::format("clean_acc={:.4f}", std::fabs(r.clean_acc));
    weights = r.weights;
    last += of + r.attack + fmt::format("_acc={:.4f}", std::fabs(r.adv_acc));
  }
  last += fmt::format(" time_s={:.1f} comm_s={:.1f} {}", result.time_s, result.comm_s, verdict_text(result.verdict));
  const std::string text = without_controls(summary_table(facts_, history, result)) + last + "\n";
  write_text_atomically(facts_.folder + "/SUMMARY.txt", text);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) message(line);
  return last;
}

}  // namespace dat
