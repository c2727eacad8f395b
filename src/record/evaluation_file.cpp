#include "record/evaluation_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "files/outside_json.hpp"
#include "files/whole_number.hpp"
#include "hdf5/hdf5_reader.hpp"
#include "record/history.hpp"

namespace dat {

namespace {

using Json = nlohmann::ordered_json;  // what was written keeps its order

constexpr int kEvaluationFormat = 1;
constexpr std::size_t kMostClasses = 32767;     ///< limit of data files
constexpr std::size_t kMostElements = 1 << 26;  ///< of the images that are shown

/// Integers of an array, each in [0, below).
[[nodiscard]] std::vector<int> integers_of(const Json& array, std::size_t count, std::int64_t below,
                                           const std::string& name) {
  require(array.is_array() && array.size() == count, ExitCode::data, name, " is not a list of ", count, " numbers");
  std::vector<int> values;
  for (const Json& value : array) {
    const std::optional<std::int64_t> number = whole_number(value, 0, below - 1);
    require(number.has_value(), ExitCode::data, name, " holds ",
            value.is_structured() ? "a list" : value.dump().substr(0, 40), ", which must be a whole number from 0 to ",
            below - 1);
    values.push_back(static_cast<int>(*number));
  }
  return values;
}

/// Ball of an attack, and what else there is to say of it.
void describe_attack(const Json& attack, EvaluationFile::Outcome& one) {
  EvaluationRecord record;
  attack.at("norm").get_to(record.norm);
  attack.at("eps").get_to(record.eps);
  if (!one.sequence) {
    attack.at("alpha").get_to(record.alpha);
    record.restarts = count_in<int>(attack.at("restarts"));
    record.attack_steps = count_in<int>(attack.at("steps"));
    if (record.attack_steps == 0) return;
  }
  const auto parts = attack_parts(record);
  one.ball = parts[0];
  if (!one.sequence) one.rest = parts[1] + ", " + parts[2];
}

/// What was evaluated.
void read_evaluated(const Json& all, EvaluationFile& file) {
  all.at("checkpoint").get_to(file.checkpoint);
  all.at("weights").get_to(file.weights);
  all.at("split").get_to(file.split);
  file.step = count_in<std::int64_t>(all.at("step"));
  const Json& provenance = all.at("provenance");
  provenance.at("hashes_of_images").at(file.split).get_to(file.hash);
  file.provenance = provenance.dump();
  if (!all.contains("noise")) return;
  const auto samples = count_in<std::int64_t>(all["noise"].at("samples"));
  file.noise = fmt::format(", under noise {:g}, {} {}", all["noise"].at("sigma").get<double>(), samples,
                           samples == 1 ? "copy" : "copies");
}

[[nodiscard]] EvaluationFile evaluation_of(const Json& all) {
  require(all.is_object() && all.value("filetype", "") == "evaluation", ExitCode::data,
          "is no evaluation that 'eval --out' wrote");
  const int format = count_in<int>(all.at("format_version"));
  require(format == kEvaluationFormat, ExitCode::data, "has format ", format,
          " of another version of the program, this one reads ", kEvaluationFormat, "; evaluate once more");
  EvaluationFile file;
  read_evaluated(all, file);
  for (const Json& one : all.at("classes")) file.class_names.push_back(one.at("name").get<std::string>());
  require(file.classes() >= 2 && file.classes() <= kMostClasses, ExitCode::data, "has ", file.classes(),
          " classes, must have 2 to ", kMostClasses);
  const auto classes = static_cast<std::int64_t>(file.classes());
  const Json& each = all.at("per_image");
  const std::size_t images = each.at("label").size();
  require(images > 0, ExitCode::data, "is of no image");
  file.label = integers_of(each.at("label"), images, classes, "label");
  const auto add = [&](const std::string& name, const std::string& prediction) {
    EvaluationFile::Outcome& one = file.outcomes.emplace_back();
    one.name = name;
    const std::vector<int> correct = integers_of(each.at(name + "_correct"), images, 2, name + "_correct");
    one.correct.assign(correct.begin(), correct.end());
    one.prediction = integers_of(each.at(prediction), images, classes, prediction);
    for (std::size_t i = 0; i < images; ++i)
      require((one.prediction[i] == file.label[i]) == (one.correct[i] != 0), ExitCode::data, prediction, " and ", name,
              "_correct contradict each other at image ", i);
  };
  add("clean", "clean_prediction");
  for (const Json& attack : all.at("attacks")) {
    const auto name = attack.at("name").get<std::string>();
    add(name, name + "_prediction");
    describe_attack(attack, file.outcomes.back());
  }
  for (const Json& loss : each.at("clean_loss"))
    file.clean_loss.push_back(loss.is_null() ? std::nan("") : loss.get<double>());
  require(file.clean_loss.size() == images, ExitCode::data, "clean_loss is not a list of ", images, " values");
  if (!all.contains("sequence")) return file;
  add(all.at("sequence").at("name").get<std::string>(), "prediction");
  file.outcomes.back().sequence = true;
  describe_attack(all.at("sequence"), file.outcomes.back());
  for (const Json& by : each.at("broken_by")) file.broken_by.push_back(by.is_null() ? "" : by.get<std::string>());
  each.at("distance").get_to(file.distance);
  require(file.broken_by.size() == images && file.distance.size() == images, ExitCode::data,
          "broken_by or distance is not a list of ", images, " values");
  return file;
}

}  // namespace

double EvaluationFile::Outcome::accuracy() const {
  return std::accumulate(correct.begin(), correct.end(), 0.0) / static_cast<double>(correct.size());
}

const EvaluationFile::Outcome* EvaluationFile::breaker(std::size_t image) const {
  if (outcomes.front().correct[image] == 0) return nullptr;
  const auto first = outcomes.back().sequence ? outcomes.end() - 1 : outcomes.begin() + 1;
  const auto found = std::find_if(first, outcomes.end(), [&](const Outcome& one) { return one.correct[image] == 0; });
  return found == outcomes.end() ? nullptr : &*found;
}

std::string EvaluationFile::attack_names() const {
  if (outcomes.back().sequence) return outcomes.back().name;
  std::string names;
  for (std::size_t k = 1; k < outcomes.size(); ++k) names += (k == 1 ? "" : ", ") + outcomes[k].name;
  return names;
}

EvaluationFile read_evaluation(const std::string& path) {
  const std::string text = json_text_in(path, "evaluation");
  require(
      text.empty() || text.find('{') == text.find_first_not_of(" \t\r\n"), ExitCode::data, path,
      ": is no evaluation that 'eval --out' wrote; give the folder of a run or of a certification, or the folder or ",
      "the JSON file of an evaluation");
  try {
    return evaluation_of(Json::parse(text));
  } catch (const Json::exception& wrong) {
    fail(ExitCode::data, path, ": is no evaluation that 'eval --out' wrote, or cut off (", wrong.what(), ")");
  } catch (const Error& wrong) {
    fail(ExitCode::data, path, ": ", wrong.what());
  }
}

ShownImages read_attacked_images(const std::string& path, const EvaluationFile& evaluation, std::size_t most) {
  const std::string damage = check_seal(path);
  require(damage.empty(), ExitCode::data, path, ": ", damage);
  const Hdf5Reader file = Hdf5Reader::open(path, ExitCode::data);
  const auto count = static_cast<std::int64_t>(evaluation.images());
  for (const char* column : {"label", "robust", "confidence"}) {
    require(file.has(column), ExitCode::data, path, ": has no ", column,
            ", so another version of the program wrote it; evaluate once more");
    require(file.info(column).shape == Shape{count}, ExitCode::data, path, ": has no ", column, " of ", count,
            " images, as the evaluation beside it");
  }
  const char* const named = evaluation.outcomes.back().sequence ? "sequence" : "attacks";
  const std::string other = ": is of another evaluation than the one beside it";
  require(file.text("/", named) == evaluation.attack_names(), ExitCode::data, path, other);
  require(file.has("images") && file.has("clean"), ExitCode::data, path, ": holds no attacked and clean images");
  const Shape shape = file.info("images").shape;
  require(shape.size() == 4 && shape[0] == count && shape[1] == shape[2] && shape[1] >= 1 && shape[1] <= 4096 &&
              shape[3] >= 1 && shape[3] <= 4 && file.info("clean").shape == shape,
          ExitCode::data, path, ": has images of another shape or number than the evaluation beside it");
  Shape ignored;
  const auto label = file.read<std::int64_t>("label", ignored);
  const auto robust = file.read<std::uint8_t>("robust", ignored);
  const auto confidence = file.read<float>("confidence", ignored);
  const auto elements = static_cast<std::size_t>(shape[1] * shape[2] * shape[3]);
  most = std::clamp<std::size_t>(kMostElements / elements, 1, most);
  ShownImages images;
  images.size = static_cast<int>(shape[1]);
  images.channels = static_cast<int>(shape[3]);
  std::size_t wanted = 0;  // elements up to the end of the last image that is shown
  for (std::size_t i = 0; i < evaluation.images(); ++i) {
    const bool right = evaluation.outcomes.front().correct[i] != 0, broken = evaluation.breaker(i) != nullptr;
    require(label[i] == evaluation.label[i] && (robust[i] != 0) == (right && !broken), ExitCode::data, path, other,
            ": image ", i, " has another label or outcome");
    if (!broken || images.numbers.size() == most) continue;
    images.numbers.push_back(i);
    images.confidence.push_back(confidence[i]);
    wanted = (i + 1) * elements;
  }
  // Those of the wanted images among all elements, block by block.
  const auto pick = [&](auto& into, const auto& block, std::size_t& done) {
    for (const std::size_t image : images.numbers) {
      const std::size_t begin = std::max(image * elements, done);
      const std::size_t end = std::min((image + 1) * elements, done + block.size());
      for (std::size_t at = begin; at < end; ++at) into.push_back(block[at - done]);
    }
    done += block.size();
  };
  std::size_t done = 0;
  file.read_blocks<std::uint8_t>(
      "clean", [&](std::span<const std::uint8_t> b) { pick(images.clean, b, done); }, wanted);
  done = 0;
  file.read_blocks<float>(
      "images", [&](std::span<const float> b) { pick(images.attacked, b, done); }, wanted);
  double largest = 0;
  for (std::size_t k = 0; k < images.attacked.size(); ++k)
    largest = std::max(largest, std::abs(double{images.attacked[k]} - images.clean[k] / 255.0));
  if (largest > 0) images.scale = 0.5 / largest;
  return images;
}

}  // namespace dat
