#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// Content of a file of `eval --out`, as far as pictures and comparisons need it.
struct EvaluationFile {
  /// Outcome on all images: without an attack, after an attack, or after a sequence of them.
  struct Outcome {
    std::string name;
    std::vector<std::uint8_t> correct;  ///< [images]
    std::vector<int> prediction;        ///< [images]
    std::string ball{};                 ///< "eps 8/255"; empty: no attack
    std::string rest{};                 ///< what else the name of the attack does not say: "alpha 2/255, 1 restart"
    bool sequence = false;

    [[nodiscard]] double accuracy() const;
  };
  std::string checkpoint, weights, split;
  std::int64_t step = 0;
  std::string hash;                      ///< content_hash() of the images
  std::string provenance;                ///< JSON: program, machines, command, data
  std::string noise;                     ///< ", under noise 0.25, 4 copies"; empty: images as they are
  std::vector<std::string> class_names;  ///< [classes]
  std::vector<int> label;                ///< [images]
  std::vector<double> clean_loss;        ///< [images] cross-entropy of the clean image; NaN: not finite
  std::vector<Outcome> outcomes;         ///< the first one: clean; the sequence, where there was one: the last
  /// [images] of a sequence: the attack that has broken the image, an empty text for no attack; without a sequence
  /// empty.
  std::vector<std::string> broken_by;
  /// [images] of a sequence: distance of the broken image; without a sequence empty.
  std::vector<double> distance;

  /// What has broken an image: the sequence, or without one the first attack that has; null: none, or it is wrong
  /// clean.
  [[nodiscard]] const Outcome* breaker(std::size_t image) const;
  /// What the images of adversarial.h5 are attacked with: "aa-quick", "pgd20, fgsm".
  [[nodiscard]] std::string attack_names() const;
  [[nodiscard]] std::size_t images() const { return label.size(); }
  [[nodiscard]] std::size_t classes() const { return class_names.size(); }
};

/// Reads the JSON file of an evaluation. Error(data): the file is no such file, or what it says does not fit together.
[[nodiscard]] EvaluationFile read_evaluation(const std::string& path);

/// Images of an evaluation with --save-adversarial, before and after an attack.
struct ShownImages {
  std::vector<std::size_t> numbers;  ///< in the evaluation, increasing
  int size = 0, channels = 0;
  std::vector<std::uint8_t> clean;  ///< bytes, [image][size][size][channels]
  std::vector<float> attacked;      ///< numbers in [0, 1], like these
  std::vector<float> confidence;    ///< [image] probability of the class that the attacked image is taken for
  double scale = 1;                 ///< factor by which the largest change of a pixel becomes 0.5
};

/// The first images, `most` at most (of images of millions of pixels fewer), that are right clean and that an attack
/// has broken, of adversarial.h5 beside an evaluation. Error(data): it is damaged, or of another evaluation.
[[nodiscard]] ShownImages read_attacked_images(const std::string& path, const EvaluationFile& evaluation,
                                               std::size_t most);

}  // namespace dat
