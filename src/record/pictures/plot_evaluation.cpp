// Pictures of an evaluation.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "dat/error.hpp"
#include "dat/report.hpp"
#include "record/evaluation_file.hpp"
#include "record/intervals.hpp"
#include "record/pictures/chart.hpp"

namespace dat {

namespace {

using Outcome = EvaluationFile::Outcome;

/// The names of classes as a picture has room for them; of very many, or without `shown`, empty ones.
[[nodiscard]] std::vector<std::string> short_names(const EvaluationFile& file, bool shown = true) {
  constexpr std::size_t kMost = 14;
  std::vector<std::string> names;
  for (const std::string& name : file.class_names) names.push_back(shown ? shortened(name, kMost) : "");
  return names;
}

/// Second line of a title: "10000 test images; aa-quick, eps 8/255". An evaluation has one ball.
[[nodiscard]] std::string facts_of(const EvaluationFile& file, const std::vector<const Outcome*>& outcomes) {
  std::string names, ball;
  for (const Outcome* one : outcomes) {
    if (one->ball.empty()) continue;
    names += (names.empty() ? "; " : ", ") + one->name;
    ball = ", " + one->ball;
  }
  return fmt::format("{} {}", file.images(), images_text(file.split)) + file.noise + names + ball;
}

constexpr std::size_t kMostInMatrix = 256;  // classes: a pixel or two for each, and some MB of text
constexpr std::size_t kMostNamed = 40;      // classes beside an axis

/// A table of how many images of each class were taken for each class: a row for each pair, class by class; of more
/// classes than a matrix shows, of the pairs that have images only.
void write_confusion(const Plots& plots, const std::string& picture, const EvaluationFile& file, const Outcome& one) {
  const std::size_t classes = file.classes();
  std::map<std::pair<std::size_t, std::size_t>, double> counts;
  std::vector<double> of_class(classes);
  for (std::size_t label = 0; label < classes && classes <= kMostInMatrix; ++label)
    for (std::size_t said = 0; said < classes; ++said) counts[{label, said}] = 0;
  for (std::size_t i = 0; i < file.images(); ++i) {
    const auto label = static_cast<std::size_t>(file.label[i]);
    ++counts[{label, static_cast<std::size_t>(one.prediction[i])}];
    ++of_class[label];
  }
  Csv csv({"class", "label", "prediction", "images", "percent of the class"});
  for (const auto& [pair, count] : counts) {
    const auto [label, said] = pair;
    csv.row({static_cast<double>(label), static_cast<double>(said), count,
             of_class[label] > 0 ? 100 * count / of_class[label] : 0},
            file.class_names[label]);
  }
  plots.write(picture + ".csv", csv.text());
}

/// Matrices side by side: of the clean images, and of the attack that hurts most. Of very many classes the tables
/// alone.
void draw_confusion(Plots& plots, const EvaluationFile& file) {
  std::vector<const Outcome*> shown = {&file.outcomes[0]};
  if (file.outcomes.size() > 1)
    shown.push_back(&*std::min_element(file.outcomes.begin() + 1, file.outcomes.end(),
                                       [](const Outcome& a, const Outcome& b) { return a.accuracy() < b.accuracy(); }));
  constexpr std::array<const char*, 2> kFiles = {"confusion-clean", "confusion-attacked"};
  for (std::size_t k = 0; k < shown.size(); ++k) write_confusion(plots, kFiles[k], file, *shown[k]);
  const std::size_t classes = file.classes();
  if (classes > kMostInMatrix) return;
  const bool numbers = classes <= 20, names = classes <= kMostNamed;
  // In pixels.
  const int side = numbers ? std::max(360, 46 * static_cast<int>(classes)) : 600;
  const int left = names ? 260 : 90, below = names ? 170 : 80, above = 80, gap = 40, bar = 110;
  Chart chart{.picture = "confusion",
              .title = "which classes are taken for which",
              .facts = facts_of(file, shown),
              .width = left + static_cast<int>(shown.size()) * (side + gap) + bar,
              .height = above + side + below,
              .key = Key::none};
  const double end = static_cast<double>(classes) - 0.5;
  for (std::size_t k = 0; k < shown.size(); ++k) {
    const std::string table = std::string(kFiles[k]) + ".csv";
    const auto marks = [&](bool with_names) { return names ? named_marks(short_names(file, with_names)) : "autofreq"; };
    const int from = left + static_cast<int>(k) * (side + gap);
    Panel panel{
        .x = {"predicted", fmt::format("-0.5:{}", end), "rotate by 45 right font ',10' " + marks(true)},
        .y = {k == 0 ? "label" : "", fmt::format("{}:-0.5", end), "font ',10' " + marks(k == 0)},
        .series = {{table, "3:2:5", plots.cells()}},
        .settings =
            "set cbrange [0:100]\nset cblabel '% of the class'\nset tics out nomirror\n"
            "set palette defined (0 '#ffffff', 0.1 '#deebf7', 0.3 '#9ecae1', 0.6 '#4292c6', 1 '#08306b')\n",
        .grid = "",
        .title = (k == 0 ? "clean" : "after " + shown[k]->name) + ": " + percent_text(shown[k]->accuracy()) + " right",
        .inside = {from, above, from + side, above + side}};
    panel.settings += k + 1 == shown.size() ? "set colorbox\n" : "unset colorbox\n";
    if (k > 0 && !names) panel.settings += "set format y ''\n";
    if (numbers)  // dark cells have light numbers
      panel.series.push_back({table, "3:2:($4 > 0 ? sprintf('%d', $4) : ''):($5 > 50 ? 0xffffff : 0x333333)",
                              "labels font ',10' tc rgb variable"});
    chart.panels.push_back(panel);
  }
  plots.add(chart);
}

/// Accuracy of each class, clean and after each attack, with intervals.
void draw_classes(Plots& plots, const EvaluationFile& file) {
  const std::size_t classes = file.classes(), outcomes = file.outcomes.size();
  constexpr std::array<int, 7> kPoints = {7, 5, 9, 13, 11, 15, 6};
  std::vector<std::string> columns = {"class", "label", "images"};
  for (const Outcome& one : file.outcomes)
    for (const char* what : {" right", " (%)", " low (%)", " high (%)"}) columns.push_back(one.name + what);
  Csv csv(columns);
  std::vector<double> images(classes);
  std::vector<std::vector<double>> right(outcomes, std::vector<double>(classes));
  for (std::size_t i = 0; i < file.images(); ++i) {
    const auto label = static_cast<std::size_t>(file.label[i]);
    ++images[label];
    for (std::size_t k = 0; k < outcomes; ++k) right[k][label] += file.outcomes[k].correct[i];
  }
  for (std::size_t label = 0; label < classes; ++label) {
    const double all = images[label];
    std::vector<double> row = {static_cast<double>(label), all};
    for (std::size_t k = 0; k < outcomes; ++k) {
      const double own = right[k][label];
      const auto [low, high] = wilson(own, all);  // NaN for no image: an empty cell
      for (const double value : {own, 100 * own / all, 100 * low, 100 * high}) row.push_back(value);
    }
    csv.row(row, file.class_names[label]);
  }
  plots.write("classes.csv", csv.text());

  std::vector<const Outcome*> shown;
  for (const Outcome& one : file.outcomes) shown.push_back(&one);
  const bool names = classes <= kMostNamed;
  Panel panel{.x = {names ? "" : "label", fmt::format("-0.5:{}", static_cast<double>(classes) - 0.5),
                    names ? "rotate by 45 right font ',11' " + named_marks(short_names(file)) : ""},
              .y = {"accuracy (%)", "0:100", "20"},
              .settings = "set tics out nomirror\n",
              .grid = "ytics"};
  // A faint line between classes tells whose points stand together.
  for (std::size_t k = 1; k < classes && names; ++k)
    panel.settings +=
        fmt::format("set arrow {0} from first {1},graph 0 to first {1},graph 1 nohead back lc rgb '#eeeeee'\n", k,
                    static_cast<double>(k) - 0.5);
  for (std::size_t k = 0; k < outcomes; ++k) {
    const Outcome& one = file.outcomes[k];
    const double aside = 0.7 * ((static_cast<double>(k) + 0.5) / static_cast<double>(outcomes) - 0.5);
    const std::size_t at = 5 + 4 * k;
    panel.series.push_back(
        {"classes.csv", fmt::format("($2 + {}):{}:{}:{}", aside, at, at + 1, at + 2),
         fmt::format("yerrorbars pt {} ps 0.9 lw 1.5 lc rgb '{}'", kPoints[k % kPoints.size()], colour_of(k)),
         one.name + ": " + percent_text(one.accuracy()) + " of all"});
    panel.series.push_back({"", fmt::format("{}", 100 * one.accuracy()), line_style(colour_of(k), 1, 3)});
  }
  plots.add({.picture = "classes",
             .title = "accuracy by class, with 95 % confidence (Wilson)",
             .facts = facts_of(file, shown),
             .width = static_cast<int>(std::clamp<std::size_t>(160 + classes * (outcomes * 14 + 24), 900, 1300)),
             .height = 580,
             .panels = {panel}});
}

/// Images side by side, as bytes of red, green and blue.
struct Canvas {
  std::size_t width;
  std::string bytes;

  Canvas(std::size_t across, std::size_t down) : width(across), bytes(across * down * 3, '\xff') {}
  /// value(y, x, colour) in [0, 1] of a square of `size` pixels.
  template <class Value>
  void square(std::size_t left, std::size_t top, std::size_t size, const Value& value) {
    for (std::size_t y = 0; y < size; ++y)
      for (std::size_t x = 0; x < size; ++x)
        for (std::size_t colour = 0; colour < 3; ++colour) {
          const double bright = value(y, x, colour);
          const double byte = bright >= 0 ? std::min(255.0, std::round(255 * bright)) : 0;  // NaN becomes 0
          bytes[((top + y) * width + left + x) * 3 + colour] = static_cast<char>(static_cast<unsigned char>(byte));
        }
  }
};

/// The first images that are right as they are and wrong after an attack: clean, attacked, and what lies between.
void draw_images(Plots& plots, const EvaluationFile& file, const std::string& path) {
  constexpr std::size_t kMost = 12, kInARow = 6;
  const ShownImages images = read_attacked_images(path, file, kMost);
  const std::vector<std::size_t>& wanted = images.numbers;
  require(!wanted.empty(), ExitCode::data, path, ": ", file.attack_names(),
          " has broken no image that was right: there is none to show");
  const auto channels = static_cast<std::size_t>(images.channels), size = static_cast<std::size_t>(images.size);
  const double scale = images.scale;

  // Small images are enlarged by a whole number, of large ones every second, third, ... pixel is shown.
  const std::size_t zoom = std::max<std::size_t>(1, 96 / size), stride = (size + 127) / 128;
  const std::size_t tile = zoom * ((size + stride - 1) / stride), step = tile + 8;
  constexpr std::size_t kLeft = 110, kAbove = 70, kWords = 46;
  const std::size_t columns = std::min(kInARow, wanted.size()), blocks = (wanted.size() + kInARow - 1) / kInARow;
  const std::size_t width = std::max<std::size_t>(kLeft + columns * step + 12, 640);
  const std::size_t block = kWords + 3 * step + 10, height = kAbove + blocks * block + 6;
  Canvas canvas(width, height);
  std::string labels;
  const auto label = [&](const std::string& text, std::size_t x, std::size_t y, const char* more, bool taken = false) {
    labels += fmt::format("set label {} at {},{} {} tc rgb '{}'\n", gnuplot_text(text), x, y, more,
                          taken ? kOrange : "black");
  };
  const auto beside = [&](const std::string& text, std::size_t y, bool taken = false) {
    label(text, kLeft - 12, y, "right front font ',11'", taken);
  };
  const std::vector<std::string> names = short_names(file);
  Csv csv({"broken by", "image", "label", "clean prediction", "attacked prediction", "distance"});
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const std::size_t i = wanted[k], x0 = kLeft + k % kInARow * step, y0 = kAbove + k / kInARow * block;
    const std::size_t images_at = y0 + kWords, middle = images_at + tile / 2;
    const auto element = [&](std::size_t y, std::size_t x, std::size_t colour) {
      const std::size_t of = channels == 1 ? 0 : std::min(colour, channels - 1);
      return ((k * size + y / zoom * stride) * size + x / zoom * stride) * channels + of;
    };
    const auto before = [&](auto... at) { return images.clean[element(at...)] / 255.0; };
    const auto after = [&](auto... at) { return double{images.attacked[element(at...)]}; };
    canvas.square(x0, images_at, tile, before);
    canvas.square(x0, images_at + step, tile, after);
    canvas.square(x0, images_at + 2 * step, tile,
                  [&](auto... at) { return 0.5 + scale * (after(at...) - before(at...)); });
    const Outcome& attacked = *file.breaker(i);
    const std::array<int, 3> of = {file.label[i], file.outcomes.front().prediction[i], attacked.prediction[i]};
    label(names[static_cast<std::size_t>(of[0])], x0 + tile / 2, y0 + 12, "center front font ',10'");
    label(names[static_cast<std::size_t>(of[2])], x0 + tile / 2, y0 + 32, "center front font ',10'", true);
    csv.row({static_cast<double>(i), 1.0 * of[0], 1.0 * of[1], 1.0 * of[2],
             attacked.sequence ? file.distance[i] : std::nan("")},
            attacked.sequence ? file.broken_by[i] : attacked.name);
    if (k % kInARow > 0) continue;
    beside("label", y0 + 12);
    beside("taken for", y0 + 32, true);
    beside("clean", middle);
    beside("attacked", middle + step);
    beside("difference", middle + 2 * step - 9);
    beside(fmt::format("x {:.3g}", scale), middle + 2 * step + 9);
  }
  plots.write("images.csv", csv.text());
  plots.write("images.rgb", canvas.bytes);
  std::vector<const Outcome*> shown;
  for (const Outcome& one : file.outcomes)
    if (one.sequence == file.outcomes.back().sequence) shown.push_back(&one);
  // A pixel of the file is one of the picture.
  const std::string pixels =
      fmt::format("'images.rgb' binary array=({},{}) format='%uchar' using 1:2:3", width, height);
  const int right = static_cast<int>(width), bottom = static_cast<int>(height);
  Panel panel{.x = {.range = fmt::format("-0.5:{} - 0.5", width)},
              .y = {.range = fmt::format("{} - 0.5:-0.5", height)},
              .series = {{"", pixels, "rgbimage"}},
              .settings = "unset border\nunset tics\nset title offset 0,-3\n" + labels,
              .grid = "",
              .inside = {0, 0, right, bottom}};
  plots.add({.picture = "images",
             .title = "the first images that are right, and wrong after " + file.attack_names(),
             .facts = facts_of(file, shown),
             .width = right,
             .height = bottom,
             .key = Key::none,
             .panels = {panel}});
}

}  // namespace

std::string evaluation_in(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return path;
  const std::string inside = (fs::path(path) / "eval.json").string();
  return !fs::exists(fs::path(path) / "metrics.jsonl", ignored) && fs::is_regular_file(inside, ignored) ? inside : "";
}

EvaluationPictures plot_evaluation(const std::string& file, const PictureFormat& format, const std::string& out) {
  namespace fs = std::filesystem;
  const fs::path path(file), folder = path.parent_path();
  const bool usual = path.filename() == "eval.json";
  const EvaluationFile evaluation = read_evaluation(file);
  std::string name =
      usual ? fs::absolute(path).lexically_normal().parent_path().filename().string() : path.stem().string();
  if (name.empty()) name = "evaluation";
  EvaluationPictures done;
  const fs::path beside = folder / (usual ? "plots" : path.stem().string() + "-plots");
  Plots plots(out.empty() ? beside.string() : out, name, format);
  draw_confusion(plots, evaluation);
  draw_classes(plots, evaluation);
  const std::string saved = (folder / "adversarial.h5").string();
  std::error_code ignored;
  if (out.empty() && usual && fs::exists(saved, ignored)) {
    try {
      draw_images(plots, evaluation, saved);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      done.remarks.emplace_back(error.what());
    }
  }
  done.paths = plots.draw();
  return done;
}

}  // namespace dat
