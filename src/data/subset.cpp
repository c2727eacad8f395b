#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/random.hpp"

namespace dat {

namespace {

/// Some samples of another set, which it owns.
class Subset final : public Dataset {
 public:
  Subset(std::unique_ptr<Dataset> whole, std::vector<std::int64_t> samples)
      : whole_(std::move(whole)), samples_(std::move(samples)) {}
  [[nodiscard]] const DatasetInfo& info() const override { return whole_->info(); }
  [[nodiscard]] std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  [[nodiscard]] std::int64_t first_file() const override {
    return std::lower_bound(samples_.begin(), samples_.end(), whole_->first_file()) - samples_.begin();
  }
  [[nodiscard]] int label(std::int64_t index) const override { return whole_->label(at(index)); }
  [[nodiscard]] std::string name(std::int64_t index) const override { return whole_->name(at(index)); }
  [[nodiscard]] ImageShape shape(std::int64_t index) const override { return whole_->shape(at(index)); }
  void read(std::int64_t index, std::uint8_t* pixels) const override { whole_->read(at(index), pixels); }
  void see(std::int64_t index, const ImageView& view, std::uint8_t* pixels) const override {
    whole_->see(at(index), view, pixels);
  }

 private:
  [[nodiscard]] std::int64_t at(std::int64_t index) const { return samples_[static_cast<std::size_t>(index)]; }

  std::unique_ptr<Dataset> whole_;
  std::vector<std::int64_t> samples_;  ///< increasing
};

/// Whether the longer of two paths is the other one, or ends in it behind a '/'.
[[nodiscard]] bool one_ends_in_other(const std::string& a, const std::string& b) {
  const std::string &longer = a.size() > b.size() ? a : b, &shorter = a.size() > b.size() ? b : a;
  return longer.ends_with(shorter) &&
         (longer.size() == shorter.size() || longer[longer.size() - shorter.size() - 1] == '/');
}

/// A line of a list of names.
struct ListedName {
  std::string text;
  std::int64_t line = 0, sample = -1;
};

/// The names of a list by their last part, which finds them.
[[nodiscard]] std::multimap<std::string, ListedName> read_list(const std::string& list) {
  std::error_code error;
  require(std::filesystem::is_regular_file(list, error), ExitCode::data, list, ": there is no such file");
  std::ifstream file(list);
  std::multimap<std::string, ListedName> names;
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.emplace(line.substr(line.rfind('/') + 1), ListedName{line, number});
  }
  require(!file.bad(), ExitCode::data, list, ": cannot be read");
  require(!names.empty(), ExitCode::data, list, ": names no image");
  return names;
}

/// Error(data): some names were not found.
void require_found(const std::string& list, const std::multimap<std::string, ListedName>& names) {
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
  std::multimap<std::string, ListedName> names = read_list(list);
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < whole->size(); ++i) {
    const std::string path = whole->name(i);
    auto [at, end] = names.equal_range(path.substr(path.rfind('/') + 1));
    for (const ListedName* found = nullptr; at != end; ++at) {
      ListedName& name = at->second;
      if (!one_ends_in_other(path, name.text)) continue;
      require(found == nullptr, ExitCode::data, list, ": lines ", found == nullptr ? 0 : found->line, " and ",
              name.line, " name the same image, ", in_one_line(path));
      require(name.sample < 0, ExitCode::data, list, ": ", in_one_line(name.text), " (line ", name.line,
              ") is the name of several images, ", in_one_line(whole->name(std::max<std::int64_t>(name.sample, 0))),
              " and ", in_one_line(path), "; give more of the path");
      found = &name;
      name.sample = i;
      samples.push_back(i);
    }
  }
  require_found(list, names);
  return std::make_unique<Subset>(std::move(whole), std::move(samples));
}

std::unique_ptr<Dataset> held_out(std::unique_ptr<Dataset> whole, std::int64_t among, std::int64_t count,
                                  std::uint64_t seed, bool kept) {
  require(count < among, ExitCode::usage, "--holdout ", count, " leaves nothing of ", among,
          among < whole->size() ? " labelled" : "", " training images; lower it");
  std::vector<std::pair<std::uint64_t, std::int64_t>> cards;
  for (std::int64_t i = 0; i < among; ++i) {
    const Philox4 words = random_words(seed, Purpose::held_out, 0, static_cast<std::uint64_t>(i), 0);
    cards.emplace_back(std::uint64_t{words.v[0]} << 32 | words.v[1], i);
  }
  std::sort(cards.begin(), cards.end());
  std::vector<std::int64_t> samples;
  for (std::size_t k = 0; k < cards.size(); ++k)
    if ((k < static_cast<std::size_t>(count)) != kept) samples.push_back(cards[k].second);
  std::sort(samples.begin(), samples.end());
  for (std::int64_t i = among; i < whole->size() && kept; ++i) samples.push_back(i);
  return std::make_unique<Subset>(std::move(whole), std::move(samples));
}

std::unique_ptr<Dataset> first_of(std::unique_ptr<Dataset> whole, std::int64_t count) {
  if (count == 0 || count >= whole->size()) return whole;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), 0);
  return std::make_unique<Subset>(std::move(whole), std::move(samples));
}

std::unique_ptr<Dataset> first_of_first_file(std::unique_ptr<Dataset> whole, std::int64_t count) {
  const std::int64_t all = whole->first_file();
  if (count == 0 || count >= all) return whole;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count + whole->size() - all));
  std::iota(samples.begin(), samples.begin() + count, 0);
  std::iota(samples.begin() + count, samples.end(), all);
  return std::make_unique<Subset>(std::move(whole), std::move(samples));
}

}  // namespace dat
