#include "record/tensorboard.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <regex>
#include <type_traits>

#include "dat/error.hpp"
#include "dat/file.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;

// Numbers of fields.
namespace event_field {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace value_field {
constexpr int tag = 1, simple_value = 2, image = 4, histogram = 5;
}
namespace histogram_field {
constexpr int min = 1, max = 2, num = 3, sum = 4, sum_squares = 5, bucket_limit = 6, bucket = 7;
}
namespace image_field {
constexpr int height = 1, width = 2, colorspace = 3, encoded = 4;
}
constexpr int kValueOfSummary = 1, kStatusOfSession = 1, kStart = 1, kRgb = 3;
constexpr int kBuckets = 20;  ///< equal parts of [0, 1]

constexpr std::size_t kAtOnce = 1 << 20;

/// CRC-32C (Castagnoli), reflected, a byte at a time. Source: RFC 3720, section 12.1.
constexpr auto kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
    table[byte] = crc;
  }
  return table;
}();

/// The checksum as frames have it: turned by 15 bits, with a number added.
[[nodiscard]] std::uint32_t masked_crc(const char* data, std::size_t bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (std::size_t i = 0; i < bytes; ++i)
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(data[i])) & 0xffU] ^ crc >> 8U;
  crc = ~crc;
  return (crc >> 15U | crc << 17U) + 0xa282ead8U;
}

template <class Number>
void append_number(std::string& to, Number number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  to.append(bytes, sizeof number);
}

/// Names of a folder's event files by the number in them, the newest last.
[[nodiscard]] std::multimap<std::int64_t, std::string> files_of(const std::string& folder) {
  static const std::regex own(R"(events\.out\.tfevents\.(\d{10,18})\.dat_hpc)");
  std::multimap<std::int64_t, std::string> names;
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable)) {
    const std::string name = entry.path().filename().string();
    if (std::smatch parts; std::regex_match(name, parts, own)) names.emplace(std::stoll(parts[1].str()), name);
  }
  return names;
}

/// A name that is none of these, and has a larger number.
[[nodiscard]] std::string next_name(const std::multimap<std::int64_t, std::string>& names) {
  std::int64_t number = std::time(nullptr);
  if (!names.empty()) number = std::max(number, names.rbegin()->first + 1);
  return fmt::format("events.out.tfevents.{:010}.dat_hpc", number);
}

/// Calls use(event) for each whole frame from the beginning of a file on.
void for_each_event(const std::string& path, const std::function<void(std::string_view event)>& use) {
  constexpr std::size_t kHead = sizeof(std::uint64_t) + sizeof(std::uint32_t), kTail = sizeof(std::uint32_t);
  std::error_code unreadable;  // then nothing is read below
  const std::uintmax_t most = fs::file_size(path, unreadable);
  std::ifstream file(path, std::ios::binary);
  const auto number_at = [](const std::string& text, std::size_t at, auto number) {
    std::memcpy(&number, text.data() + at, sizeof number);
    return number;
  };
  for (std::string frame(kHead, '\0'); file.read(frame.data(), kHead);) {
    const auto length = number_at(frame, 0, std::uint64_t{0});
    if (number_at(frame, sizeof length, std::uint32_t{0}) != masked_crc(frame.data(), sizeof length) || length > most)
      return;
    frame.resize(kHead + length + kTail);
    if (!file.read(frame.data() + kHead, static_cast<std::streamsize>(length + kTail)) ||
        number_at(frame, kHead + length, std::uint32_t{0}) != masked_crc(frame.data() + kHead, length))
      return;
    use(std::string_view(frame).substr(kHead, length));
  }
}

[[nodiscard]] std::string prefix_of(const EvaluationRecord& record) {
  return "evaluation/" + record.split + "/" + record.weights + "/" + record.attack + "/";
}
constexpr const char* kPicture = "attacked";

}  // namespace

TensorBoard::TensorBoard(const std::string& folder, const History& history) {
  constexpr std::size_t kRoom = 1 << 14;
  for (std::string* text : {&frames_, &prefix_, &tag_}) text->reserve(kRoom);
  const std::multimap<std::int64_t, std::string> before = files_of(folder);
  began_ =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count() - history.seconds();
  make_room(history.layers());
  const std::string path = folder + "/" + next_name(before);
  try {
    write_atomically(path, [&](const std::string& temporary) {
      path_ = temporary;
      file_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
      require(file_ != -1, ExitCode::io, "cannot write ", temporary, ": ", system_reason(errno));
      write_history(history, before.empty() ? "" : folder + "/" + before.rbegin()->second);
    });
  } catch (...) {
    ::close(file_);
    throw;
  }
  path_ = path;  // and the file stays open
  std::error_code ignored;
  for (const auto& [number, name] : before) fs::remove(folder + "/" + name, ignored);
}

TensorBoard::~TensorBoard() { ::close(file_); }

bool TensorBoard::is_in(const std::string& folder) { return !files_of(folder).empty(); }

void TensorBoard::remove_from(const std::string& folder) {
  std::error_code ignored;
  for (const auto& [number, name] : files_of(folder)) fs::remove(folder + "/" + name, ignored);
}

void TensorBoard::make_room(std::size_t layers) {
  p_.assign(layers, 1);
  for (float& one : p_ | std::views::take(1)) one = 0;  // the widest histogram
  StepRecord longest;
  const GeneratorRecord generators;
  longest.step = std::numeric_limits<std::int64_t>::max();
  longest.generators = &generators;
  add_step(longest, 0);
  frames_.clear();
}

void TensorBoard::write_history(const History& history, const std::string& before) {
  event_.clear();
  event_.real64(event_field::wall_time, began_);
  event_.text(event_field::file_version, "brain.Event:2");
  frame(event_);
  ProtobufMessage session;
  session.integer(kStatusOfSession, kStart);
  event_.clear();
  event_.real64(event_field::wall_time, began_);
  event_.integer(event_field::step, 0);
  event_.copy(event_field::session_log, session);
  frame(event_);
  const std::size_t layers = history.layers();
  for (std::size_t i = 0; i < history.steps.size(); ++i) {
    StepRecord step = history.steps[i];
    if (history.had_generators) step.generators = &history.generators[i];
    std::copy_n(history.p.begin() + static_cast<std::ptrdiff_t>(i * layers), layers, p_.begin());
    add_step(step, history.active_layers(i));
  }
  std::multimap<std::pair<std::optional<std::int64_t>, std::string>, const EvaluationRecord*> pictured;
  for (const EvaluationRecord& record : history.evaluations) {
    add_scalars(record);
    pictured.emplace(std::pair(record.step, prefix_ + kPicture), &record);
  }
  if (!before.empty())
    for_each_event(before, [&](std::string_view event) {
      const std::string_view summary = bytes_in(event, event_field::summary).value_or("");
      const auto value = bytes_in(summary, kValueOfSummary).value_or("");
      const std::string tag(bytes_in(value, value_field::tag).value_or(""));
      const auto found = pictured.find({integer_in(event, event_field::step), tag});
      if (found == pictured.end()) return;
      event_.clear();
      event_.real64(event_field::wall_time, began_ + found->second->wall_time);
      event_.integer(event_field::step, found->second->step);
      event_.text(event_field::summary, summary);
      frame(event_);
      pictured.erase(found);
    });
  flush();
}

void TensorBoard::step(const StepRecord& record, std::int64_t n_active) {
  std::transform(record.p->begin(), record.p->end(), p_.begin(), [](double p) { return static_cast<float>(p); });
  add_step(record, n_active);
  flush();
}

void TensorBoard::evaluation(const EvaluationRecord& record) {
  add_scalars(record);
  if (const Picture& picture = record.picture; !picture.png.empty()) {
    ProtobufMessage image;
    image.integer(image_field::height, picture.height);
    image.integer(image_field::width, picture.width);
    image.integer(image_field::colorspace, kRgb);
    image.text(image_field::encoded, picture.png);
    value_.clear();
    value_.text(value_field::tag, prefix_ + kPicture);
    value_.message(value_field::image, std::move(image));
    summary_.copy(kValueOfSummary, value_);
    end_event(record.wall_time, record.step);
  }
  flush();
}

void TensorBoard::add_step(const StepRecord& record, std::int64_t n_active) {
  prefix_ = "step/";
  const auto scalar = [&](const char* name, auto value, const char*) { add_scalar(name, static_cast<double>(value)); };
  for_each_step_field(record, scalar);
  scalar("n_active", n_active, "");
  if (record.generators != nullptr) for_each_generator_field(*record.generators, scalar);
  if (std::ranges::any_of(p_, [](float p) { return p != 1; })) add_probabilities();
  end_event(record.wall_time, record.step);
}

void TensorBoard::add_scalars(const EvaluationRecord& record) {
  prefix_ = prefix_of(record);
  for_each_evaluation_field(record, [&](const char* name, const auto& value, const char*) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) add_scalar(name, static_cast<double>(value));
  });
  end_event(record.wall_time, record.step);
}

void TensorBoard::add_scalar(const char* name, double value) {
  if (std::string_view(name) == "step" || !std::isfinite(static_cast<float>(value))) return;
  tag_ = prefix_;
  tag_ += name;
  value_.clear();
  value_.text(value_field::tag, tag_);
  value_.real(value_field::simple_value, static_cast<float>(value));
  summary_.copy(kValueOfSummary, value_);
}

/// A reader takes the least value for the lower end of the first bucket, and the largest for the upper end of the last
/// one: buckets at both ends are left out where they are empty.
void TensorBoard::add_probabilities() {
  std::array<double, kBuckets> limits{}, counts{};
  for (int k = 0; k < kBuckets; ++k) limits[static_cast<std::size_t>(k)] = static_cast<double>(k + 1) / kBuckets;
  double sum = 0, squares = 0;
  for (const float p : p_) {
    const auto* const limit = std::lower_bound(limits.begin(), limits.end() - 1, double{p});
    ++counts[static_cast<std::size_t>(limit - limits.begin())];
    sum += p;
    squares += double{p} * p;
  }
  const auto [least, most] = std::ranges::minmax_element(p_);
  const auto filled = [](double count) { return count > 0; };
  const auto first = static_cast<std::size_t>(std::ranges::find_if(counts, filled) - counts.begin());
  const auto end = static_cast<std::size_t>(counts.rend() - std::find_if(counts.rbegin(), counts.rend(), filled));
  histogram_.clear();
  histogram_.real64(histogram_field::min, *least);
  histogram_.real64(histogram_field::max, *most);
  histogram_.real64(histogram_field::num, static_cast<double>(p_.size()));
  histogram_.real64(histogram_field::sum, sum);
  histogram_.real64(histogram_field::sum_squares, squares);
  histogram_.reals(histogram_field::bucket_limit, std::span(limits).subspan(first, end - first));
  histogram_.reals(histogram_field::bucket, std::span(counts).subspan(first, end - first));
  value_.clear();
  value_.text(value_field::tag, "step/p");
  value_.copy(value_field::histogram, histogram_);
  summary_.copy(kValueOfSummary, value_);
}

void TensorBoard::end_event(double wall_time, std::int64_t step) {
  event_.clear();
  event_.real64(event_field::wall_time, began_ + wall_time);
  event_.integer(event_field::step, step);
  event_.copy(event_field::summary, summary_);
  summary_.clear();
  frame(event_);
}

void TensorBoard::frame(const ProtobufMessage& event) {
  const auto length = static_cast<std::uint64_t>(event.size());
  append_number(frames_, length);
  append_number(frames_, masked_crc(frames_.data() + frames_.size() - sizeof length, sizeof length));
  const std::size_t begin = frames_.size();
  for (const std::string& piece : event.pieces()) frames_ += piece;
  append_number(frames_, masked_crc(frames_.data() + begin, frames_.size() - begin));
  if (frames_.size() > kAtOnce) flush();
}

void TensorBoard::flush() {
  write_bytes(file_, frames_, path_);
  frames_.clear();
}

}  // namespace dat
