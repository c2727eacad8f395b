#include "options/train/sweep.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "dat/error.hpp"
#include "options/words.hpp"

namespace dat {

namespace {

/// "lr=0.05,0.1": an option, and the values that it takes.
struct Varied {
  std::string name;
  std::vector<std::string> values;
};

[[nodiscard]] Varied read_varied(const std::string& word) {
  const std::size_t equals = word.find('=');
  require(equals != std::string::npos && word.find_first_of("=-") != 0, ExitCode::usage, "--sweep: '", word,
          "' is not NAME=VALUE,VALUE,..., with the name of an option without dashes; write 'seed=1,2,3 lr=0.05,0.1'");
  Varied one{word.substr(0, equals),
             parts_of(word.substr(equals + 1), word.find(';') == std::string::npos ? ',' : ';')};
  require(one.name != "out", ExitCode::usage, "--sweep: --out is the folder of all points, in which each has its own");
  for (const std::string& value : one.values) {
    require(!value.empty(), ExitCode::usage, "--sweep: a value of '", one.name, "' is missing in '", word, "'");
    require(std::ranges::count(one.values, value) == 1, ExitCode::usage, "--sweep: ", one.name, " = ", value,
            " stands there twice; keep one of them");
  }
  return one;
}

[[nodiscard]] std::vector<Varied> read_sweep(const std::string& text) {
  std::vector<Varied> all;
  std::istringstream words(text);
  std::size_t points = 1;
  for (std::string word; words >> word;) {
    all.push_back(read_varied(word));
    const std::string& name = all.back().name;
    require(std::ranges::count_if(all, [&](const Varied& one) { return one.name == name; }) == 1, ExitCode::usage,
            "--sweep: ", name, " stands there twice; put all of its values behind one of them");
    points *= all.back().values.size();
    require(points <= kMostPoints, ExitCode::usage, "--sweep: more than ", kMostPoints,
            " points; sweep a part of them, in the same --out, after the other");
  }
  require(!all.empty(), ExitCode::usage, "--sweep is empty; write 'seed=1,2,3 lr=0.05,0.1'");
  return all;
}

/// A word as a part of the name of a folder, which no shell, Slurm or file system takes for anything else.
[[nodiscard]] std::string plain(std::string text) {
  const std::string taken = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+@=-";
  std::ranges::replace_if(
      text, [&](char c) { return taken.find(c) == std::string::npos; }, '_');
  return text;
}

}  // namespace

std::vector<SweepPoint> sweep_points(const std::string& sweep, const std::string& out) {
  require(!out.empty(), ExitCode::usage, "--sweep needs --out DIR, in which each of its points has a folder");
  std::vector<SweepPoint> points(1);
  for (const Varied& one : read_sweep(sweep)) {
    std::vector<SweepPoint> more;
    for (const SweepPoint& point : points)
      for (const std::string& value : one.values) {
        more.push_back(point);
        more.back().name += (point.name.empty() ? "" : ",") + plain(one.name + "=" + value);
        more.back().words.push_back("--" + one.name + "=" + value);
      }
    points = std::move(more);
  }
  std::set<std::string> names;
  for (SweepPoint& point : points) {
    constexpr std::size_t kLongest = 200;
    require(point.name.size() <= kLongest, ExitCode::usage, "--sweep: the folder ", point.name,
            " would have a name of more than ", kLongest, " characters; vary fewer options, or shorter values");
    require(names.insert(point.name).second, ExitCode::usage, "--sweep: two points would have the folder ", point.name,
            ", for which / and other signs become _; sweep one of them in another --out");
    point.words.push_back("--out=" + out + (out.ends_with('/') ? "" : "/") + point.name);
  }
  return points;
}

void at_point(const SweptTraining& point, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    throw Error(error.code(), "sweep point " + point.name + ": " + error.what());
  }
}

std::vector<SweptTraining> sweep_trainings(const std::string& sweep, const std::string& out,
                                           const std::vector<std::string>& common) {
  std::vector<SweptTraining> all;
  for (const SweepPoint& point : sweep_points(sweep, out)) {
    SweptTraining one{{}, point.name, point.words, common};
    for (const std::string& word : point.words) {
      const std::string name = word.substr(0, word.find('='));
      require(std::ranges::none_of(
                  common, [&](const std::string& other) { return other == name || other.starts_with(name + "="); }),
              ExitCode::usage, "--sweep varies ", name, ", which is given beside it, too; leave one of them off");
      one.words.push_back(word);
    }
    at_point(one, [&] {
      CommandLine line("train", one.words, {});
      std::optional<TrainOrder> order = parse_training(line, "");
      require(order.has_value(), ExitCode::usage, "its options ask for something to be printed");
      static_cast<TrainOrder&>(one) = std::move(*order);
    });
    for (const SweptTraining& other : all) {
      TrainOptions there = other.options;
      there.out = one.options.out;
      require(!(there == one.options), ExitCode::usage, "--sweep: ", other.name, " and ", one.name,
              " are the same training; keep one of them");
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace dat
