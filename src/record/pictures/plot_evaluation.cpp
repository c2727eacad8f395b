// Pictures of an evaluation.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

#include "dat/error.hpp"
#include "dat/report.hpp"
#include "record/evaluation_file.hpp"
#include "record/pictures/drawing.hpp"

namespace dat {

namespace {

using Outcome = EvaluationFile::Outcome;

/// A name as a picture has room for it.
[[nodiscard]] std::string short_name(const std::string& name) {
  constexpr std::size_t kMost = 14;
  if (name.size() <= kMost) return name;
  std::size_t end = kMost - 2;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;  // inside a letter of UTF-8
  return name.substr(0, end) + "..";
}

/// Of `right` among n, with 95 % confidence.
struct Interval {
  double low, high;
};
/// Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
[[nodiscard]] Interval wilson(double right, double n) {
  constexpr double kZ = 1.959963984540054;
  const double p = right / n, scale = 1 / (1 + kZ * kZ / n);
  const double middle = scale * (p + kZ * kZ / (2 * n));
  const double half = scale * kZ * std::sqrt(p * (1 - p) / n + kZ * kZ / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

/// Which outcome hurts most, but for the clean one; 0: there is no other that says what was predicted.
[[nodiscard]] std::size_t worst_of(const EvaluationFile& file) {
  std::size_t worst = 0;
  for (std::size_t k = 1; k < file.outcomes.size(); ++k)
    if (!file.outcomes[k].prediction.empty() &&
        (worst == 0 || file.outcomes[k].accuracy() < file.outcomes[worst].accuracy()))
      worst = k;
  return worst;
}

constexpr std::size_t kMostInMatrix = 256;  // classes: a pixel or two for each, and some MB of text

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
  std::vector<std::size_t> shown = {0};
  if (const std::size_t worst = worst_of(file); worst > 0) shown.push_back(worst);
  const auto name_of = [](std::size_t outcome) { return outcome == 0 ? "confusion-clean" : "confusion-attacked"; };
  for (const std::size_t outcome : shown) write_confusion(plots, name_of(outcome), file, file.outcomes[outcome]);
  const std::size_t classes = file.classes();
  if (classes > kMostInMatrix) return;
  const bool numbers = classes <= 20, names = classes <= 40;
  // In pixels.
  const int side = numbers ? std::max(360, 46 * static_cast<int>(classes)) : 600;
  const int left = names ? 160 : 90, below = names ? 140 : 80, above = 80, gap = 40, bar = 110;
  const int width = left + static_cast<int>(shown.size()) * (side + gap) + bar, height = above + side + below;
  const auto across = [&](int pixel) { return std::to_string(static_cast<double>(pixel) / width); };
  const auto up = [&](int pixel) { return std::to_string(static_cast<double>(pixel) / height); };
  std::ostringstream body, marks, silent;  // silent: without names
  for (std::size_t k = 0; k < classes && names; ++k) {
    marks << (k > 0 ? ", " : "(") << gnuplot_tic(short_name(file.class_names[k])) << ' ' << k;
    silent << (k > 0 ? ", " : "") << "'' " << k;
  }
  const std::string tics = names ? marks.str() + ")" : "autofreq";
  const double end = static_cast<double>(classes) - 0.5;
  body << "set multiplot\nunset title\nset label 1 name at screen 0.5," << up(height - 24)
       << " center\nset key off\nset cbrange [0:100]\n"
       << "set palette defined (0 '#ffffff', 0.1 '#deebf7', 0.3 '#9ecae1', 0.6 '#4292c6', 1 '#08306b')\n"
       << "set xrange [-0.5:" << end << "]\nset yrange [" << end
       << ":-0.5]\nset tics out nomirror\nset xtics rotate by 45 right font ',10' " << tics
       << "\nset bmargin at screen " << up(below) << "\nset tmargin at screen " << up(below + side) << "\n";
  for (std::size_t k = 0; k < shown.size(); ++k) {
    const Outcome& one = file.outcomes[shown[k]];
    const std::string picture = name_of(shown[k]);
    const int from = left + static_cast<int>(k) * (side + gap);
    body << "set lmargin at screen " << across(from) << "\nset rmargin at screen " << across(from + side) << "\n"
         << "set label 2 "
         << gnuplot_text((shown[k] == 0 ? "clean" : "after " + one.name) + ": " + percent_text(one.accuracy()) +
                         " right")
         << " at graph 0.5,1.04 center\nset label 3 'predicted' at graph 0.5,screen " << up(16) << " center\n"
         << (k == 0 ? "set label 4 'label' at screen " + across(16) +
                          ",graph 0.5 center rotate\nset ytics font ',10' " + tics
                    : "unset label 4\nset ytics (" + silent.str() + ")")
         << "\n"
         << (k + 1 == shown.size() ? "set colorbox\nset cblabel '% of the class'\n" : "unset colorbox\n") << "plot '"
         << picture << ".csv' every ::1 using 3:2:5 with image pixels";
    if (numbers)  // dark cells have light numbers
      body << ", '' every ::1 using 3:2:($4 > 0 ? sprintf('%d', $4) : ''):($5 > 50 ? 0xffffff : 0x333333) with labels "
              "font ',10' tc rgb variable";
    body << "\n";
    if (k == 0) body << "unset label 1\n";
  }
  body << "unset multiplot\n";
  plots.script("confusion", "which classes are taken for which", std::to_string(width) + "," + std::to_string(height),
               body.str());
}

/// Accuracy of each class, clean and after each attack, with intervals.
void draw_classes(Plots& plots, const EvaluationFile& file) {
  const std::size_t classes = file.classes(), outcomes = file.outcomes.size();
  constexpr std::array<const char*, 7> kColours = {kBlue, kOrange, kGreen, kPink, kYellow, kSky, kGrey};
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
      const auto [low, high] = wilson(own, all);  // of no image: NaN, an empty cell
      for (const double value : {own, 100 * own / all, 100 * low, 100 * high}) row.push_back(value);
    }
    csv.row(row, file.class_names[label]);
  }
  plots.write("classes.csv", csv.text());

  const bool names = classes <= 40;
  const std::size_t width = std::clamp<std::size_t>(160 + classes * (outcomes * 14 + 24), 900, 2400);
  std::ostringstream body, marks;
  for (std::size_t k = 0; k < classes && names; ++k)
    marks << (k > 0 ? ", " : "(") << gnuplot_tic(short_name(file.class_names[k])) << ' ' << k;
  std::vector<std::string> parts;
  for (std::size_t k = 0; k < outcomes; ++k) {
    const Outcome& one = file.outcomes[k];
    const double aside = 0.7 * ((static_cast<double>(k) + 0.5) / static_cast<double>(outcomes) - 0.5);
    const std::string colour = std::string(" lc rgb '") + kColours[k % kColours.size()] + "'";
    std::ostringstream x;
    x << "($2 + " << aside << ")";
    const std::size_t at = 4 + 4 * k;
    parts.push_back("'classes.csv' every ::1 using " + x.str() + ":" + std::to_string(at + 1) + ":" +
                    std::to_string(at + 2) + ":" + std::to_string(at + 3) + " with yerrorbars pt " +
                    std::to_string(kPoints[k % kPoints.size()]) + " ps 0.9 lw 1.5" + colour + " title " +
                    gnuplot_text(one.name + ": " + percent_text(one.accuracy()) + " of all"));
    std::ostringstream line;
    line << 100 * one.accuracy() << " with lines dt 3 lw 1" << colour << " notitle";
    parts.push_back(line.str());
  }
  body << "set xrange [-0.5:" << static_cast<double>(classes) - 0.5
       << "]\nset yrange [-3:103]\nset ytics 20\nset ylabel 'accuracy (%)'\n"
       << "set grid ytics lc rgb '#dddddd' lt 1\nset tics out nomirror\n"
       << (names ? "set xtics rotate by 35 right " + marks.str() + ")\n" : std::string("set xlabel 'label'\n"));
  // A faint line between classes tells whose points stand together.
  if (names)
    for (std::size_t k = 1; k < classes; ++k)
      body << "set arrow " << k << " from first " << static_cast<double>(k) - 0.5 << ",graph 0 to first "
           << static_cast<double>(k) - 0.5 << ",graph 1 nohead back lc rgb '#eeeeee'\n";
  body << kKeyBelow << "plot " << joined(parts) << "\n";
  plots.script("classes", "accuracy by class, with 95 % confidence (Wilson)", std::to_string(width) + ",620",
               body.str());
}

/// Images side by side, as bytes of red, green and blue.
class Canvas {
 public:
  Canvas(int width, int height)
      : width_(width), bytes_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3, '\xff') {}
  /// value(y, x, colour) in [0, 1] of a square of `size` pixels.
  template <class Value>
  void square(int left, int top, int size, const Value& value) {
    for (int y = 0; y < size; ++y)
      for (int x = 0; x < size; ++x)
        for (int colour = 0; colour < 3; ++colour) {
          const double bright = value(y, x, colour);
          const double byte = bright >= 0 ? std::min(255.0, std::round(255 * bright)) : 0;  // of NaN: 0
          bytes_[(static_cast<std::size_t>(top + y) * static_cast<std::size_t>(width_) +
                  static_cast<std::size_t>(left + x)) *
                     3 +
                 static_cast<std::size_t>(colour)] = static_cast<char>(static_cast<unsigned char>(byte));
        }
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  int width_;
  std::string bytes_;
};

/// The first images that are right as they are and wrong after the sequence: clean, attacked, and what lies between.
void draw_images(Plots& plots, const EvaluationFile& file, const std::string& path) {
  constexpr std::size_t kMost = 12, kInARow = 6;
  const Outcome &clean = file.outcomes.front(), &attacked = file.outcomes.back();
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0; i < file.images() && wanted.size() < kMost; ++i)
    if (clean.correct[i] != 0 && attacked.correct[i] == 0) wanted.push_back(i);
  require(!wanted.empty(), ExitCode::data, path, ": ", attacked.name,
          " has broken no image that was right: there is none to show");
  const ShownImages images = read_attacked_images(path, file.label, wanted);

  const auto channels = static_cast<std::size_t>(images.channels), size = static_cast<std::size_t>(images.size);
  const std::size_t elements = size * size * channels;
  double largest = 0;
  for (std::size_t k = 0; k < images.attacked.size(); ++k)
    largest = std::max(largest, std::abs(double{images.attacked[k]} - images.clean[k] / 255.0));
  const double scale = largest > 0 ? 0.5 / largest : 1;

  // Small images are enlarged by a whole number, of large ones every second, third, ... pixel is shown.
  const int zoom = std::max(1, 96 / images.size), stride = (images.size + 127) / 128;
  const int tile = zoom * ((images.size + stride - 1) / stride);
  const int left = 110, above = 70, words = 46, step = tile + 8;
  const std::size_t columns = std::min(kInARow, wanted.size()), blocks = (wanted.size() + kInARow - 1) / kInARow;
  const int width = std::max(left + static_cast<int>(columns) * step + 12, 640);
  const int block = words + 3 * step + 10, height = above + static_cast<int>(blocks) * block + 6;
  Canvas canvas(width, height);
  std::ostringstream labels;
  Csv csv({"broken by", "image", "label", "clean prediction", "attacked prediction", "distance"});
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const std::size_t i = wanted[k];
    const int x0 = left + static_cast<int>(k % kInARow) * step, y0 = above + static_cast<int>(k / kInARow) * block;
    const auto element = [&](int y, int x, int colour) {
      const auto row = static_cast<std::size_t>(y / zoom * stride),
                 column = static_cast<std::size_t>(x / zoom * stride);
      const std::size_t of = channels == 1 ? 0 : std::min(static_cast<std::size_t>(colour), channels - 1);
      return k * elements + (row * size + column) * channels + of;
    };
    const auto before = [&](int y, int x, int colour) { return images.clean[element(y, x, colour)] / 255.0; };
    const auto after = [&](int y, int x, int colour) { return double{images.attacked[element(y, x, colour)]}; };
    canvas.square(x0, y0 + words, tile, before);
    canvas.square(x0, y0 + words + step, tile, after);
    canvas.square(x0, y0 + words + 2 * step, tile,
                  [&](int y, int x, int colour) { return 0.5 + scale * (after(y, x, colour) - before(y, x, colour)); });
    const auto name = [&](int label) { return short_name(file.class_names[static_cast<std::size_t>(label)]); };
    labels << "set label " << gnuplot_text(name(file.label[i])) << " at " << x0 + tile / 2 << ',' << y0 + 12
           << " center front font ',10'\nset label " << gnuplot_text(name(attacked.prediction[i])) << " at "
           << x0 + tile / 2 << ',' << y0 + 32 << " center front font ',10' tc rgb '" << kOrange << "'\n";
    csv.row({static_cast<double>(i), static_cast<double>(file.label[i]), static_cast<double>(clean.prediction[i]),
             static_cast<double>(attacked.prediction[i]), file.distance[i]},
            file.broken_by[i]);
  }
  const std::string enlarged = fmt::format("x {:.3g}", scale);
  for (std::size_t of = 0; of < blocks; ++of) {
    const int y0 = above + static_cast<int>(of) * block;
    const auto beside = [&](const std::string& text, int y, const std::string& more) {
      labels << "set label " << gnuplot_text(text) << " at " << left - 12 << ',' << y << " right front font ',11'"
             << more << "\n";
    };
    beside("label", y0 + 12, "");
    beside("taken for", y0 + 32, std::string(" tc rgb '") + kOrange + "'");
    beside("clean", y0 + words + tile / 2, "");
    beside("attacked", y0 + words + step + tile / 2, "");
    beside("difference", y0 + words + 2 * step + tile / 2 - 9, "");
    beside(enlarged, y0 + words + 2 * step + tile / 2 + 9, "");
  }
  plots.write("images.csv", csv.text());
  plots.write("images.rgb", canvas.bytes());
  // A pixel of the file is one of the picture.
  std::ostringstream body;
  body << "unset border\nunset tics\nunset key\nset lmargin at screen 0\nset rmargin at screen 1\nset bmargin at "
          "screen 0\n"
       << "set tmargin at screen 1\nset xrange [-0.5:" << width << " - 0.5]\nset yrange [" << height
       << " - 0.5:-0.5]\nset title offset 0,-3\n"
       << labels.str() << "plot 'images.rgb' binary array=(" << width << ',' << height
       << ") format='%uchar' using 1:2:3 with rgbimage\n";
  plots.script("images", "the first images that are right, and wrong after " + attacked.name,
               std::to_string(width) + "," + std::to_string(height), body.str());
}

}  // namespace

std::string evaluation_in(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return path;
  const std::string inside = (fs::path(path) / "eval.json").string();
  return !fs::exists(fs::path(path) / "metrics.jsonl", ignored) && fs::is_regular_file(inside, ignored) ? inside : "";
}

EvaluationPictures plot_evaluation(const std::string& file, const std::string& format) {
  namespace fs = std::filesystem;
  const fs::path path(file), folder = path.parent_path();
  const bool usual = path.filename() == "eval.json";
  const EvaluationFile evaluation = read_evaluation(file);
  std::string name =
      usual ? fs::absolute(path).lexically_normal().parent_path().filename().string() : path.stem().string();
  if (name.empty()) name = "evaluation";
  EvaluationPictures done;
  Plots plots((folder / (usual ? "plots" : path.stem().string() + "-plots")).string(), name, format);
  if (evaluation.outcomes.front().prediction.empty())
    done.remarks.push_back(file +
                           ": is of a version that did not say what was predicted: no confusion matrix and no "
                           "images; evaluate again to see them");
  else
    draw_confusion(plots, evaluation);
  draw_classes(plots, evaluation);
  const std::string saved = (folder / "adversarial.h5").string();
  std::error_code ignored;
  if (usual && evaluation.outcomes.back().sequence && !evaluation.outcomes.front().prediction.empty() &&
      fs::exists(saved, ignored)) {
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
