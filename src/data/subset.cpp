#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/random.hpp"

namespace dat {

namespace {

/// Samples begin ... end - 1 of a set.
struct Run {
  std::int64_t begin, end;
};

/// Some samples of another set, which it owns: runs of them, so that few bytes say which ones.
class Subset final : public Dataset {
 public:
  /// runs: increasing and apart.
  Subset(std::unique_ptr<Dataset> whole, const std::vector<Run>& runs) : whole_(std::move(whole)) {
    for (const Run& run : runs) {
      if (run.begin == run.end) continue;
      first_file_ += std::max<std::int64_t>(0, std::min(run.end, whole_->first_file()) - run.begin);
      begins_.push_back(run.begin);
      firsts_.push_back(firsts_.back() + run.end - run.begin);
    }
  }
  [[nodiscard]] const DatasetInfo& info() const override { return whole_->info(); }
  [[nodiscard]] std::int64_t size() const override { return firsts_.back(); }
  [[nodiscard]] std::int64_t first_file() const override { return first_file_; }
  [[nodiscard]] int label(std::int64_t index) const override { return whole_->label(at(index)); }
  void labels(std::int64_t first, std::span<std::int16_t> to) const override {
    while (!to.empty()) {
      const std::size_t k = run_of(first);
      const auto count = static_cast<std::size_t>(std::min(std::ssize(to), firsts_[k + 1] - first));
      whole_->labels(at(first), to.first(count));
      to = to.subspan(count);
      first += static_cast<std::int64_t>(count);
    }
  }
  [[nodiscard]] std::uint64_t hash(std::int64_t index) const override { return whole_->hash(at(index)); }
  std::int64_t stored_hashes(std::int64_t first, std::span<std::uint64_t> to) const override {
    const std::int64_t end = firsts_[run_of(first) + 1];
    return whole_->stored_hashes(at(first), to.first(static_cast<std::size_t>(std::min(std::ssize(to), end - first))));
  }
  [[nodiscard]] std::string name(std::int64_t index) const override { return whole_->name(at(index)); }
  [[nodiscard]] ImageShape shape(std::int64_t index) const override { return whole_->shape(at(index)); }
  void read(std::int64_t index, std::uint8_t* pixels) const override { whole_->read(at(index), pixels); }
  void see(std::int64_t index, const ImageView& view, std::uint8_t* pixels) const override {
    whole_->see(at(index), view, pixels);
  }

 private:
  [[nodiscard]] std::size_t run_of(std::int64_t index) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(firsts_, index) - firsts_.begin()) - 1;
  }
  [[nodiscard]] std::int64_t at(std::int64_t index) const {
    const std::size_t k = run_of(index);
    return begins_[k] + index - firsts_[k];
  }

  std::unique_ptr<Dataset> whole_;
  std::int64_t first_file_ = 0;
  std::vector<std::int64_t> firsts_ = {0}, begins_;  ///< first of each run here, and the end; in the whole set
};

/// `count` of the samples 0 ... among - 1, drawn at random, in increasing order.
std::vector<std::int64_t> drawn(std::int64_t among, std::int64_t count, std::uint64_t seed) {
  using Card = std::tuple<std::uint32_t, std::uint32_t, std::int64_t>;  // in the order of the random ones
  std::priority_queue<Card> lowest;
  for (std::int64_t i = 0; i < among; ++i) {
    const Philox4 words = random_words(seed, Purpose::held_out, 0, static_cast<std::uint64_t>(i), 0);
    lowest.emplace(words.v[0], words.v[1], i);
    if (std::ssize(lowest) > count) lowest.pop();
  }
  std::vector<std::int64_t> samples;
  for (; !lowest.empty(); lowest.pop()) samples.push_back(std::get<2>(lowest.top()));
  std::ranges::sort(samples);
  return samples;
}

/// Returns whether the longer of two paths is the other one, or ends in it after a '/'.
[[nodiscard]] bool one_ends_in_other(const std::string& a, const std::string& b) {
  const std::string &longer = a.size() > b.size() ? a : b, &shorter = a.size() > b.size() ? b : a;
  return longer.ends_with(shorter) &&
         (longer.size() == shorter.size() || longer[longer.size() - shorter.size() - 1] == '/');
}

/// A name without the ending of an image, which a pack gives by what the image is.
[[nodiscard]] std::string without_ending(const std::string& name) {
  std::string ending = std::filesystem::path(name).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool known = ending == ".jpg" || ending == ".jpeg" || ending == ".png";
  return known ? name.substr(0, name.size() - ending.size()) : name;
}

/// A line of a list of names.
struct ListedName {
  std::string text;
  std::int64_t line = 0, sample = -1;
};
using ListedNames = std::multimap<std::string, ListedName>;  // by their last part without its ending, which finds them
using LineOfSample = std::map<std::int64_t, std::int64_t>;

[[nodiscard]] std::string key_of(const std::string& path) { return without_ending(path.substr(path.rfind('/') + 1)); }

[[nodiscard]] ListedNames read_list(const std::string& list) {
  std::error_code error;
  require(std::filesystem::is_regular_file(list, error), ExitCode::data, list, ": there is no such file");
  std::ifstream file(list);
  ListedNames names;
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.emplace(key_of(line), ListedName{line, number});
  }
  require(!file.bad(), ExitCode::data, list, ": cannot be read");
  require(!names.empty(), ExitCode::data, list, ": names no image");
  return names;
}

/// Finds names among the images, with their endings or without. Images that were found before are passed over.
/// Error(data): a name fits several images, or an image several names.
void find_names(const Dataset& whole, const std::string& list, bool endings, ListedNames& names, LineOfSample& lines) {
  const LineOfSample before = lines;
  const auto seen = [&](const std::string& name) { return endings ? name : without_ending(name); };
  for (std::int64_t i = 0; i < whole.size(); ++i) {
    if (before.contains(i)) continue;
    const std::string path = whole.name(i);
    for (auto [at, end] = names.equal_range(key_of(path)); at != end; ++at) {
      ListedName& name = at->second;
      if (before.contains(name.sample) || !one_ends_in_other(seen(path), seen(name.text))) continue;
      const auto [found, first] = lines.emplace(i, name.line);
      require(first, ExitCode::data, list, ": lines ", found->second, " and ", name.line, " name the same image, ",
              in_one_line(path));
      require(name.sample < 0, ExitCode::data, list, ": ", in_one_line(name.text), " (line ", name.line,
              ") is the name of several images, ", in_one_line(whole.name(std::max<std::int64_t>(name.sample, 0))),
              " and ", in_one_line(path), "; give more of the path");
      name.sample = i;
    }
  }
}

/// Error(data): some names were not found.
void require_found(const std::string& list, const ListedNames& names) {
  std::map<std::int64_t, std::string> missing;  // by line
  for (const auto& [last, name] : names)
    if (name.sample < 0) missing.emplace(name.line, name.text);
  constexpr int kShown = 3;
  std::string first;
  int shown = 0;
  for (const auto& [line, name] : missing)
    if (++shown <= kShown)
      first += (shown > 1 ? ", " : "") + in_one_line(name) + " (line " + std::to_string(line) + ")";
  require(missing.empty(), ExitCode::data, list, ": ", missing.size(), " of its ", names.size(),
          " names are not among the images: ", first, missing.size() > kShown ? ", ..." : "");
}

}  // namespace

std::unique_ptr<Dataset> named_in(std::unique_ptr<Dataset> whole, const std::string& list) {
  ListedNames names = read_list(list);
  LineOfSample lines;
  find_names(*whole, list, true, names, lines);
  if (lines.size() != names.size()) find_names(*whole, list, false, names, lines);
  require_found(list, names);
  std::vector<Run> runs;
  for (const auto& [sample, line] : lines) runs.push_back({sample, sample + 1});
  return std::make_unique<Subset>(std::move(whole), runs);
}

std::unique_ptr<Dataset> held_out(std::unique_ptr<Dataset> whole, std::int64_t among, std::int64_t count,
                                  std::uint64_t seed, bool kept) {
  require(count < among, ExitCode::usage, "--holdout ", count, " leaves nothing of ", among,
          among < whole->size() ? " labelled" : "", " training images; lower it");
  std::vector<Run> runs;
  std::int64_t begin = 0;
  for (const std::int64_t sample : drawn(among, count, seed)) {
    runs.push_back(kept ? Run{begin, sample} : Run{sample, sample + 1});
    begin = sample + 1;
  }
  if (kept) runs.push_back({begin, whole->size()});
  return std::make_unique<Subset>(std::move(whole), runs);
}

std::unique_ptr<Dataset> first_of(std::unique_ptr<Dataset> whole, std::int64_t count) {
  if (count == 0 || count >= whole->size()) return whole;
  return std::make_unique<Subset>(std::move(whole), std::vector<Run>{{0, count}});
}

std::unique_ptr<Dataset> first_of_first_file(std::unique_ptr<Dataset> whole, std::int64_t count) {
  const std::int64_t all = whole->first_file(), size = whole->size();
  if (count == 0 || count >= all) return whole;
  return std::make_unique<Subset>(std::move(whole), std::vector<Run>{{0, count}, {all, size}});
}

}  // namespace dat
