#include "dat/report.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "record/history.hpp"

namespace dat {
namespace {

constexpr std::size_t kNumberBytes = 26;  // the longest shortest form of a double, and a comma

/// Writes one JSON object into a buffer that is large enough. Numbers have the shortest form that reads back exactly.
class JsonLine {
 public:
  JsonLine(std::vector<char>& buffer, std::string_view kind)
      : begin_(buffer.data()), at_(begin_), end_(begin_ + buffer.size()) {
    text("{\"kind\":\"");
    text(kind);
    text("\"");
  }

  void text(std::string_view characters) {
    assert(characters.size() <= static_cast<std::size_t>(end_ - at_));
    at_ = std::copy(characters.begin(), characters.end(), at_);
  }

  void key(std::string_view name) {
    text(",\"");
    text(name);
    text("\":");
  }

  template <class Number>
  void number(Number value) {
    if constexpr (std::is_floating_point_v<Number>) {
      if (!std::isfinite(value)) return text("null");
    }
    const auto [end, error] = std::to_chars(at_, end_, value);
    assert(error == std::errc{});
    at_ = end;
  }

  template <class Number>
  void field(std::string_view name, Number value) {
    key(name);
    number(value);
  }

  /// `word` needs no escapes.
  void field(std::string_view name, const std::string& word) {
    key(name);
    text("\"");
    text(word);
    text("\"");
  }

  /// "name":[value(0),...,value(count - 1)]
  template <class Value>
  void array(std::string_view name, std::size_t count, const Value& value) {
    key(name);
    text("[");
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) text(",");
      number(value(i));
    }
    text("]");
  }

  [[nodiscard]] std::size_t close() {
    text("}\n");
    return static_cast<std::size_t>(at_ - begin_);
  }

 private:
  char *begin_, *at_, *end_;
};

__attribute__((format(printf, 1, 2))) std::string formatted(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

/// Width of the terminal that a person looks at, or 0. A launcher's pseudo-terminal (mpirun) has no width.
int terminal_columns() {
  winsize size{};
  return isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

void write_text(const std::string& path, const std::string& text) {
  write_atomically(path, [&](const std::string& temporary) {
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    file.close();
    require(file.good(), ExitCode::io, "cannot write ", temporary, ": ", system_reason(errno));
  });
}

std::string counted(std::int64_t number, const char* thing) {
  return formatted("%lld %s%s", static_cast<long long>(number), thing, number == 1 ? "" : "s");
}

/// The evaluations of one network on one split: a row per step, a column per attack.
std::string evaluation_table(const History& history, const std::string& split, const std::string& weights) {
  std::vector<EvaluationSeries> columns = history.evaluation_series();
  std::erase_if(columns, [&](const EvaluationSeries& column) {
    return column.front()->split != split || column.front()->weights != weights;
  });
  std::vector<std::string> names;
  std::map<std::string, int> namesakes;
  std::map<EvaluationMoment, EvaluationSeries> rows;  // null: not evaluated under this attack
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string& attack = columns[i].front()->attack;
    const int number = ++namesakes[attack];
    names.push_back(attack + (number > 1 ? "#" + std::to_string(number) : ""));
    for (const EvaluationRecord* record : columns[i]) {
      EvaluationSeries& row = rows[moment_of(*record)];
      row.resize(columns.size());
      row[i] = record;
    }
  }
  const auto cell = [](const std::string& text) { return formatted("%12s", text.c_str()); };
  const auto figure = [](double value, int digits) { return formatted("%12.*f", digits, value); };
  std::string text = formatted("\nEvaluations on %lld ", static_cast<long long>(columns[0].back()->images)) +
                     images_text(split) + weights_text(weights);
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (const std::string how = attack_text(*columns[i].front()); !how.empty()) text += "\n  " + names[i] + ": " + how;
  text += formatted("\n%8s%10s%12s", "epochs", "step", "seconds") + cell("clean %");
  for (const std::string& name : names) text += cell(name + " %");
  text += cell("clean loss");
  for (const std::string& name : names) text += cell(name + " loss");
  text += "\n";
  for (const auto& [moment, row] : rows) {
    const EvaluationRecord& any = **std::find_if(row.begin(), row.end(), [](const auto* r) { return r != nullptr; });
    text += formatted("%8d%10lld%12.1f", any.epoch, static_cast<long long>(any.step), any.wall_time) +
            figure(100 * any.clean_acc, 2);
    for (const EvaluationRecord* r : row) text += r != nullptr ? figure(100 * r->adv_acc, 2) : cell("-");
    text += figure(any.clean_loss, 4);
    for (const EvaluationRecord* r : row) text += r != nullptr ? figure(r->adv_loss, 4) : cell("-");
    text += "\n";
  }
  return text;
}

std::string table(const RunFacts& facts, const History& history, const FinalResult& result) {
  const std::array<double, kPhases> seconds = history.phase_seconds()[0];
  double images = 0, bytes = 0, statistics = 0, active = 0, passes = 0;
  for (std::size_t i = 0; i < history.steps.size(); ++i) {
    const StepRecord& r = history.steps[i];
    images += static_cast<double>(r.images);
    bytes += static_cast<double>(r.bytes_sent);
    statistics += static_cast<double>(r.bytes_statistics);
    active += static_cast<double>(history.active_layers(i));
    passes += static_cast<double>(r.attack_passes);
  }
  double total = 0, training = 0;
  for (std::size_t phase = 0; phase < kPhasesInSum; ++phase) {
    total += seconds[phase];
    if (phase < static_cast<std::size_t>(Phase::evaluate)) training += seconds[phase];
  }
  double dense = 0;
  for (const std::int64_t size : facts.layer_sizes) dense += static_cast<double>(size) * sizeof(float);

  std::string text = "Run " + facts.folder + "\n\n";
  text += formatted("%-16s%lld of %lld\n", "steps",
                    history.steps.empty() ? 0LL : static_cast<long long>(history.steps.back().step),
                    static_cast<long long>(facts.total_steps));
  text += formatted("%-16s%d\n", "ranks", facts.ranks);
  if (!history.steps.empty()) {
    const auto n = static_cast<double>(history.steps.size());
    if (training > 0)
      text += formatted("%-16s%.1f images/s, all ranks, without evaluation\n", "speed", images / training);
    if (passes > 0) {
      const double all = images * facts.attack_steps, saved = 100 * (1 - passes / all);
      text += formatted("%-16s%.2f per image", "attack passes", passes / images);
      text += saved > 0 ? formatted(" of at most %d: %.1f %% saved\n", facts.attack_steps, saved) : "\n";
    }
    if (bytes > 0 || facts.ranks > 1)
      text += formatted("%-16s%.4g MB per step and rank (%.4g MB with all layers), other messages %.4g kB\n",
                        "gradients sent", bytes / n * 1e-6, dense * 1e-6, statistics / n * 1e-3);
    else
      text += formatted("%-16snothing: one rank\n", "gradients sent");
    text += formatted("%-16s%.1f of %zu in the mean\n", "active layers", active / n, history.layers());
  }
  for (auto r = history.stragglers.begin(); r != history.stragglers.end(); ++r) {
    if (!r->slow) continue;
    const auto end = std::find_if(r, history.stragglers.end(),
                                  [&](const StragglerRecord& later) { return !later.slow && later.rank == r->rank; });
    text += formatted("%-16srank %d, %.1f times as long as the others, from about step %lld", "slow", r->rank, r->ratio,
                      static_cast<long long>(r->step));
    text += end == history.stragglers.end() ? "\n" : formatted(" to %lld\n", static_cast<long long>(end->step));
  }
  for (std::size_t k = 0; k < history.corruptions.size(); ++k) {
    const CorruptionRecord& r = history.corruptions[k];
    text += formatted("%-16s%zu of %zu: step %lld, ", "corruption", k + 1, history.corruptions.size(),
                      static_cast<long long>(r.step)) +
            (r.rank >= 0 ? "rank " + std::to_string(r.rank) + ", " : "") + r.what + "; " + r.done + "\n";
  }
  std::string skipped;
  for (const SetbackRecord& r : history.setbacks)
    if (r.event == "skipped") skipped += (skipped.empty() ? "" : ", ") + std::to_string(r.step);
  if (!skipped.empty()) text += formatted("%-16s", "skipped steps") + skipped + ": numbers that are not finite\n";
  for (const SetbackRecord& r : history.setbacks) {
    if (r.event == "overfitting") text += formatted("%-16s", "overfitting") + r.cause + "\n";
    if (r.event == "rollback")
      text += formatted("%-16sfrom step %lld to %lld, %g times the learning rate: ", "rollback",
                        static_cast<long long>(r.step), static_cast<long long>(r.to_step), r.lr_factor) +
              r.cause + "\n";
  }
  std::vector<std::pair<std::string, std::string>> tables;
  for (const EvaluationRecord& r : history.evaluations)
    if (const auto table = std::pair(r.split, r.weights);
        std::find(tables.begin(), tables.end(), table) == tables.end())
      tables.push_back(table);
  for (const auto& [split, weights] : tables) text += evaluation_table(history, split, weights);
  if (total > 0) {
    text += formatted("\n%-12s%12s%10s\n", "phase", "seconds", "share");
    for (std::size_t phase = 0; phase < kPhasesInSum; ++phase)
      text += formatted("%-12s%12.2f%8.1f %%\n", kPhaseNames[phase], seconds[phase], 100 * seconds[phase] / total);
    text += formatted("%-12s%12.2f\n", "sum, rank 0", total);
    if (const double hidden = seconds[static_cast<std::size_t>(Phase::hidden)]; hidden > 0)
      text += formatted("%-12s%12.2f  of communication beside them\n", "hidden", hidden);
  }
  text += "\n";
  if (!result.weights_hash.empty()) text += formatted("%-16s", "weights") + result.weights_hash + "\n";
  for (const std::string& remark : result.remarks) text += remark + "\n";
  return text;
}

}  // namespace

std::string radius_text(double value, BallNorm norm) {
  char plain[32], levels[40];
  *std::to_chars(plain, plain + sizeof plain - 1, value).ptr = '\0';
  std::snprintf(levels, sizeof levels, "%.6g", 255 * value);
  const bool exact = std::fabs(std::strtod(levels, nullptr) / 255 - value) <= 1e-12 * value;
  const std::string fraction = std::string(levels) + "/255";
  return norm == BallNorm::linf && exact && fraction.size() <= std::strlen(plain) ? fraction : plain;
}

std::string ball_text(BallNorm norm, double eps) {
  return (norm == BallNorm::linf ? "eps " : name_of(norm) + " eps ") + radius_text(eps, norm);
}

std::string attack_text(const EvaluationRecord& record) {
  if (record.eps == 0 || record.attack_steps == 0) return "";
  const auto [eps, alpha, restarts] = attack_parts(record);
  return eps + ", " + alpha + ", " + restarts;
}

std::array<std::string, 3> attack_parts(const EvaluationRecord& record) {
  const BallNorm norm = norm_from(record.norm);
  return {ball_text(norm, record.eps), "alpha " + radius_text(record.alpha, norm), counted(record.restarts, "restart")};
}

std::string images_text(const std::string& split) {
  return split == "test" ? "test images" : split == "holdout" ? "held-out training images" : "training images";
}

std::string weights_text(const std::string& weights) { return weights == "average" ? ", averaged weights" : ""; }

Validity verdict_of(bool finite, std::int64_t images, std::int64_t whole) {
  return !finite ? Validity::invalid : images < whole ? Validity::partial : Validity::valid;
}

const char* verdict_text(Validity verdict) {
  return verdict == Validity::valid ? "VALID" : verdict == Validity::partial ? "PARTIAL" : "INVALID";
}

std::string plan_text(std::int64_t total_steps, std::int64_t steps_per_epoch, int epochs, int warmup_epochs) {
  const std::int64_t all = steps_per_epoch * epochs;
  return (total_steps < all ? std::to_string(total_steps) + " of " : "") + counted(std::max(total_steps, all), "step") +
         ", " + counted(epochs, "epoch") + " of " + counted(steps_per_epoch, "step") +
         (warmup_epochs > 0 ? formatted(" (%d warm-up)", warmup_epochs) : "");
}

Report::Report(RunFacts facts, std::int64_t resume_bytes) : facts_(std::move(facts)) {
  const std::string& folder = facts_.folder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(!error, ExitCode::io, "cannot create the folder ", folder, ": ", error.message());
  const bool fresh = resume_bytes < 0;
  const std::string path = folder + "/metrics.jsonl";
  metrics_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  require(metrics_ >= 0, ExitCode::io, "cannot open ", path, ": ", system_reason(errno));
  // The destructor does not run when a constructor throws.
  try {
    remove_temporaries(folder);
    for (const char* stale : {"/results.h5", "/SUMMARY.txt"}) std::filesystem::remove(folder + stale, error);
    metrics_bytes_ = fresh ? 0 : resume_bytes;
    struct stat status {};
    require(fstat(metrics_, &status) == 0, ExitCode::io, "cannot read ", path, ": ", system_reason(errno));
    require(status.st_size >= metrics_bytes_, ExitCode::checkpoint, path, " has ", status.st_size,
            " bytes, but the checkpoint was written after ", metrics_bytes_,
            "; restore the file, or start anew in another folder");
    require(status.st_size == metrics_bytes_ || ftruncate(metrics_, metrics_bytes_) == 0, ExitCode::io, "cannot cut ",
            path, ": ", system_reason(errno));
    const std::string log_path = folder + "/run.log";
    log_ = std::fopen(log_path.c_str(), fresh ? "we" : "ae");
    require(log_ != nullptr, ExitCode::io, "cannot open ", log_path, ": ", system_reason(errno));
    write_text(folder + "/config.resolved.toml", facts_.config_toml);
    write_text(folder + "/provenance.json", facts_.provenance_json);
    if (metrics_bytes_ == 0) {
      const std::string header = nlohmann::ordered_json{{"kind", "run"},
                                                        {"format_version", kResultsFormat},
                                                        {"layer_name", facts_.layer_names},
                                                        {"layer_elements", facts_.layer_sizes},
                                                        {"layer_cost", facts_.layer_costs},
                                                        {"warmup_epochs", facts_.warmup_epochs}}
                                     .dump() +
                                 "\n";
      line_.assign(header.begin(), header.end());
      write_line(line_.size());
    }
  } catch (...) {
    if (log_ != nullptr) std::fclose(log_);
    close(metrics_);
    throw;
  }
  const std::size_t layers = facts_.layer_names.size();
  line_.resize(2048 + kNumberBytes * std::max(3 * layers, static_cast<std::size_t>(facts_.ranks) * (kPhases + 1)));
  terminal_ = terminal_columns() > 0;
  if (facts_.warmup_epochs > 0) std::snprintf(warmup_, sizeof warmup_, " (%d warm-up)", facts_.warmup_epochs);
}

Report::~Report() {
  if (progress_shown_) std::fputs("\n", stdout);
  std::fclose(log_);
  close(metrics_);
}

std::int64_t Report::metrics_bytes() {
  unwritten_.erase(0, append(unwritten_.data(), unwritten_.size()));
  require(unwritten_.empty() && fdatasync(metrics_) == 0, ExitCode::io, "cannot write ", facts_.folder,
          "/metrics.jsonl: ", system_reason(errno));
  return metrics_bytes_;
}

std::size_t Report::append(const char* data, std::size_t length) {
  std::size_t done = 0;
  while (done < length) {
    const ssize_t written = ::write(metrics_, data + done, length - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    done += static_cast<std::size_t>(written);
  }
  metrics_bytes_ += static_cast<std::int64_t>(done);
  return done;
}

void Report::write_line(std::size_t length) {
  if (!unwritten_.empty()) unwritten_.erase(0, append(unwritten_.data(), unwritten_.size()));
  const std::size_t done = unwritten_.empty() ? append(line_.data(), length) : 0;
  if (done == length) return;
  if (!facts_.keep_on) fail(ExitCode::io, "cannot write ", facts_.folder, "/metrics.jsonl: ", system_reason(errno));
  unwritten_.append(line_.data() + done, length - done);
}

void Report::log(const char* text) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
  const bool good = std::fprintf(log_, "%s %s\n", stamp, text) >= 0 && std::fflush(log_) == 0;
  if (!good && !facts_.keep_on) fail(ExitCode::io, "cannot write ", facts_.folder, "/run.log: ", system_reason(errno));
}

void Report::print(const char* text) {
  std::printf("%s%s\n", progress_shown_ ? "\r\033[K" : "", text);
  std::fflush(stdout);
  progress_shown_ = false;
  log(text);
}

void Report::message(const std::string& line) { print(line.c_str()); }

void Report::warning(const std::string& line) {
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
  for_each_step_field(record, [&](const char* name, const auto& value, const char*) { line.field(name, value); });
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
  write_line(line.close());
  progress(record);
}

void Report::progress(const StepRecord& record) {
  const Clock::time_point now = Clock::now();
  if (first_step_ < 0) {
    first_step_ = record.step;
    started_ = last_progress_ = last_logged_ = now;
  } else {
    images_since_ += record.images;
  }
  const bool last = record.step == facts_.total_steps;
  const bool due = last || seconds_between(last_logged_, now) >= facts_.progress_seconds;
  const double since = seconds_between(last_progress_, now);
  if (!due && !(terminal_ && !facts_.quiet && since >= 1)) return;

  char speed[32] = "", rest[32] = "";
  if (record.step > first_step_) {
    std::snprintf(speed, sizeof speed, "  %.4g images/s", static_cast<double>(images_since_) / since);
    const auto left =
        static_cast<long long>(seconds_between(started_, now) / static_cast<double>(record.step - first_step_) *
                               static_cast<double>(facts_.total_steps - record.step));
    std::snprintf(rest, sizeof rest, "  ETA %lld:%02lld:%02lld", left / 3600, left / 60 % 60, left % 60);
  }
  char text[256];
  std::snprintf(text, sizeof text, "step %lld/%lld  epoch %d of %d%s  loss %.4f  acc %.2f %%%s%s",
                static_cast<long long>(record.step), static_cast<long long>(facts_.total_steps), record.epoch + 1,
                std::max(facts_.epochs, record.epoch + 1), warmup_, record.loss_adv, 100 * record.acc_adv, speed, rest);
  images_since_ = 0;
  last_progress_ = now;
  if (terminal_ && !facts_.quiet) {
    std::printf("\r%.*s\033[K", std::max(terminal_columns() - 1, 0), text);
    std::fflush(stdout);
    progress_shown_ = true;
  }
  if (!due) return;
  last_logged_ = now;
  if (terminal_ || facts_.quiet)
    log(text);
  else
    print(text);
}

void Report::evaluation(const std::vector<EvaluationRecord>& records) {
  for (const EvaluationRecord& record : records) {
    JsonLine line(line_, "evaluation");
    for_each_evaluation_field(record,
                              [&](const char* name, const auto& value, const char*) { line.field(name, value); });
    write_line(line.close());
  }
  for (auto next = records.begin(); next != records.end();) {
    const EvaluationRecord& first = *next;
    std::string text =
        formatted("evaluation at step %lld, %d of %d epochs done, %lld ", static_cast<long long>(first.step),
                  first.epoch, std::max(facts_.epochs, first.epoch), static_cast<long long>(first.images)) +
        images_text(first.split) + weights_text(first.weights) +
        formatted(": clean %.2f %%, loss %.4f", 100 * first.clean_acc, first.clean_loss);
    for (; next != records.end() && next->split == first.split && next->weights == first.weights; ++next) {
      text += "; " + next->attack + formatted(" %.2f %%, loss %.4f", 100 * next->adv_acc, next->adv_loss);
      if (const std::string how = attack_text(*next); !how.empty()) text += " (" + how + ")";
    }
    print(text.c_str());
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
  write_line(line.close());
}

void Report::straggler(const StragglerRecord& record, const std::string& host) {
  JsonLine line(line_, "straggler");
  line.field("step", record.step);
  line.field("rank", record.rank);
  line.key("slow");
  line.text(record.slow ? "true" : "false");
  line.field("ratio", record.ratio);
  write_line(line.close());
  const std::string who = "rank " + std::to_string(record.rank) + " on " + host;
  message(record.slow
              ? who + formatted(" is slow: its part of a step takes %.1f times as long as the others', in the "
                                "last steps up to %lld",
                                record.ratio, static_cast<long long>(record.step))
              : who + formatted(" keeps up with the others again, at step %lld", static_cast<long long>(record.step)));
}

void Report::corruption(const CorruptionRecord& record) {
  JsonLine line(line_, "corruption");
  line.field("step", record.step);
  line.field("rank", record.rank);
  line.field("what", record.what);
  line.field("done", record.done);
  write_line(line.close());
  warning(record.text);
}

void Report::setback(const SetbackRecord& record) {
  const bool rollback = record.event == "rollback";
  nlohmann::ordered_json row{
      {"kind", "setback"}, {"step", record.step}, {"event", record.event}, {"cause", record.cause}};
  if (rollback) {
    row["to_step"] = record.to_step;
    row["lr_factor"] = record.lr_factor;
  }
  const std::string line = row.dump() + "\n";
  line_.resize(std::max(line_.size(), line.size()));
  std::copy(line.begin(), line.end(), line_.begin());
  write_line(line.size());
  if (record.event == "skipped") warning(record.cause + ": the step is skipped");
  if (record.event == "overfitting") warning(record.cause);
  if (rollback)
    warning("back to the checkpoint of step " + std::to_string(record.to_step) +
            formatted(", with %g times the learning rate: ", record.lr_factor) + record.cause);
}

void Report::cut_back(std::int64_t metrics_bytes) {
  require(metrics_bytes <= metrics_bytes_, ExitCode::checkpoint, facts_.folder, "/metrics.jsonl has ", metrics_bytes_,
          " bytes, but the checkpoint to go back to was written after ", metrics_bytes,
          ": it is of another run; remove it");
  require(ftruncate(metrics_, metrics_bytes) == 0, ExitCode::io, "cannot cut ", facts_.folder,
          "/metrics.jsonl back to ", metrics_bytes, " bytes: ", system_reason(errno));
  metrics_bytes_ = metrics_bytes;
  unwritten_.clear();
  first_step_ = -1;  // speeds are those of the steps from here on
  images_since_ = 0;
}

std::string Report::finish(const FinalResult& result) {
  static_cast<void>(metrics_bytes());  // all of them
  const History history = read_history(facts_.folder);
  write_results(facts_, history);
  // fabs: a NaN may carry a sign, which printf would show.
  std::string last = "Final:";
  std::string weights;
  for (const EvaluationRecord& r : result.evaluations) {
    const std::string of = r.weights == "average" ? " average_" : " ";
    if (r.weights != weights) last += of + formatted("clean_acc=%.4f", std::fabs(r.clean_acc));
    weights = r.weights;
    last += of + r.attack + formatted("_acc=%.4f", std::fabs(r.adv_acc));
  }
  last += formatted(" time_s=%.1f comm_s=%.1f %s", result.time_s, result.comm_s, verdict_text(result.verdict));
  const std::string text = table(facts_, history, result) + last + "\n";
  write_text(facts_.folder + "/SUMMARY.txt", text);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    message(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return last;
}

}  // namespace dat
