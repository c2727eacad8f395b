#include "backend/cuda/plan_cache.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/number.hpp"

namespace dat::cuda {

namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostBytes = 4U << 20U;        // most bytes of a file; some 20,000 choices
const std::string kSeal = "sha256 ", kWhole = "whole";  // all had been tried

[[nodiscard]] std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// One that is finite and not negative.
[[nodiscard]] std::optional<double> number(const std::string& text) {
  double value{};
  return read_number(text, value) && std::isfinite(value) && value >= 0 ? std::optional(value) : std::nullopt;
}

/// Error of the text; empty: none, and `body` is the part with the choices.
[[nodiscard]] std::string unseal(const std::string& text, std::string& body) {
  const auto at = ("\n" + text).rfind("\n" + kSeal);
  if (at == std::string::npos) return "it has no last line";
  body = text.substr(0, at);
  return text.substr(at) == kSeal + sha256_hex(body.data(), body.size()) + "\n" ? "" : "its hash is another one";
}

[[nodiscard]] std::string to_text(const std::map<std::string, PlanCache::Choice>& choices) {
  std::ostringstream text;
  text.precision(std::numeric_limits<double>::max_digits10);
  for (const auto& [of, choice] : choices) {
    text << of << '\t' << choice.plan << '\t' << choice.milliseconds << '\t';
    (choice.cut ? text << *choice.cut : text << kWhole) << '\n';
  }
  const std::string body = text.str();
  return body + kSeal + sha256_hex(body.data(), body.size()) + "\n";
}

}  // namespace

PlanCache::PlanCache(std::string path, std::string machine, bool writes)
    : path_(std::move(path)), machine_(std::move(machine)), writes_(writes) {
  known_ = read();
}

PlanCache::~PlanCache() { write(); }

std::optional<PlanCache::Choice> PlanCache::find(const std::string& pass) const {
  const auto found = known_.find(machine_ + "\t" + pass);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void PlanCache::keep(const std::string& pass, const Choice& choice) {
  constexpr auto kOften = std::chrono::seconds(5);
  const std::string of = machine_ + "\t" + pass;
  known_[of] = kept_[of] = choice;
  unwritten_ = true;
  if (std::chrono::steady_clock::now() > written_ + kOften) write();
}

void PlanCache::write() {
  if (!writes_ || !std::exchange(unwritten_, false)) return;
  try {
    Choices all = read();  // others may have kept theirs, and lost some of this process's
    for (const auto& [name, own] : kept_) all[name] = own;
    std::string text = to_text(all);
    if (text.size() > kMostBytes) text = to_text(kept_);
    fs::create_directories(fs::path(path_).parent_path());
    write_text_atomically(path_, text);
  } catch (const std::exception& why) {
    remark_ =
        std::string("chosen GPU algorithms cannot be kept, and the next start makes all trials again: ") + why.what();
  }
  written_ = std::chrono::steady_clock::now();
}

PlanCache::Choices PlanCache::read() {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (!fs::exists(status)) return {};
  const auto ignored = [&](const std::string& why) {
    remark_ = "the file of chosen GPU algorithms, " + path_ + ", is ignored and written anew: " + why;
    return Choices{};
  };
  if (!fs::is_regular_file(status)) return ignored("it is no file");
  if (fs::file_size(path_, error) > kMostBytes) return ignored("it is larger than any that was written");
  std::string text, body;
  try {
    std::ifstream file(path_, std::ios::binary);
    if (!file) return ignored("it cannot be opened");
    text.assign(std::istreambuf_iterator<char>(file), {});
  } catch (const std::exception& broken) {  // a file system may be
    return ignored("it cannot be read");
  }
  if (const std::string why = unseal(text, body); !why.empty()) return ignored(why);
  Choices choices;
  for (const std::string& line : split(body, '\n')) {
    const auto parts = split(line, '\t');
    const auto milliseconds = parts.size() == 5 ? number(parts[3]) : std::nullopt;
    if (!milliseconds || (parts[4] != kWhole && !number(parts[4]))) return ignored("a line is no choice");
    choices[parts[0] + "\t" + parts[1]] = {parts[2], *milliseconds, number(parts[4])};
  }
  return choices;
}

}  // namespace dat::cuda
