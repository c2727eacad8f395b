// What `eval` has written, read again: all of it, and nothing that does not fit together.

#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "dat/file.hpp"
#include "hdf5/hdf5.hpp"
#include "record/evaluation_file.hpp"

using namespace dat;

namespace {

using Json = nlohmann::ordered_json;
using Texts = std::vector<std::string>;

/// Five images: one that nothing breaks, three that fgsm, pgd2 and both break, and one that is wrong clean.
const Json kAttacks = Json::parse(R"({
  "filetype": "evaluation", "format_version": 1, "checkpoint": "c.h5", "weights": "average", "split": "test", "step": 7,
  "provenance": {"hashes_of_images": {"test": "abc"}}, "classes": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
  "attacks": [{"name": "fgsm", "norm": "linf", "eps": 0.5, "alpha": 0.25, "restarts": 1, "steps": 1},
              {"name": "pgd2", "norm": "l2", "eps": 0.5, "alpha": 0.25, "restarts": 2, "steps": 2},
              {"name": "none", "norm": "l2", "eps": 0.5, "alpha": 0.25, "restarts": 1, "steps": 0}],
  "per_image": {"label": [0, 1, 2, 0, 1], "clean_loss": [0.5, null, 1.5, 2.5, 3.5],
    "clean_prediction": [0, 1, 2, 0, 2], "clean_correct": [1, 1, 1, 1, 0],
    "fgsm_prediction": [0, 2, 2, 1, 1], "fgsm_correct": [1, 0, 1, 0, 1],
    "pgd2_prediction": [0, 1, 0, 2, 2], "pgd2_correct": [1, 1, 0, 0, 0],
    "none_prediction": [0, 1, 2, 0, 2], "none_correct": [1, 1, 1, 1, 0]}})");

/// The same with a sequence, which leaves the second image right, under noise.
Json with_sequence() {
  Json all = kAttacks;
  all.update(Json::parse(R"({"sequence": {"name": "s", "norm": "linf", "eps": 0.5},
    "noise": {"sigma": 0.25, "samples": 1}, "per_image": {"prediction": [0, 1, 0, 2, 2], "s_correct": [1, 1, 0, 0, 0],
    "broken_by": [null, null, "pgd2", "fgsm", null], "distance": [0, 0, 0.5, 0.25, 0]}})"),
             true);
  return all;
}

EvaluationFile read(const Json& json) {
  const TemporaryFolder folder;
  write_bytes(folder / "eval.json", json.dump());
  return read_evaluation(folder / "eval.json");
}

Texts breakers(const EvaluationFile& file) {
  Texts names;
  for (std::size_t i = 0; i < file.images(); ++i)
    names.push_back(file.breaker(i) != nullptr ? file.breaker(i)->name : "");
  return names;
}

constexpr std::size_t kElements = std::size_t{40} * 40 * 3;  // more than are read at once

/// adversarial.h5 beside an evaluation: bytes that count up to 250, moved by at most a quarter.
std::string images_file(const std::string& path, const EvaluationFile& of,
                        const std::function<void(std::vector<std::int64_t>& label, std::vector<std::uint8_t>& robust,
                                                 Shape& images, Shape& clean)>& change = {}) {
  std::vector<std::int64_t> label(of.label.begin(), of.label.end());
  std::vector<std::uint8_t> robust, clean;
  std::vector<float> images, confidence = {.1F, .2F, .3F, .4F, .5F};
  for (std::size_t i = 0; i < of.images(); ++i) robust.push_back(of.outcomes[0].correct[i] && !of.breaker(i) ? 1 : 0);
  for (std::size_t k = 0; k < of.images() * kElements; ++k) {
    clean.push_back(static_cast<std::uint8_t>(k % 251));
    images.push_back(static_cast<float>(clean.back()) / 255 - (k == 3 * kElements + 5 ? .25F : k % 2 == 0 ? .125F : 0));
  }
  Shape of_images{5, 40, 40, 3}, of_clean = of_images;
  if (change) change(label, robust, of_images, of_clean);
  write_sealed(path, [&](const std::string& temporary) {
    Hdf5File file = Hdf5File::create(temporary);
    file.set_text("/", of.outcomes.back().sequence ? "sequence" : "attacks", of.attack_names());
    file.write("label", {std::ssize(label)}, label);
    file.write("robust", {std::ssize(robust)}, robust);
    file.write("confidence", {std::ssize(confidence)}, confidence);
    file.write("images", of_images, images);
    file.write("clean", of_clean, clean);
    file.close();
  });
  return path;
}

}  // namespace

TEST_CASE("An evaluation is read as it was written", "[evaluation]") {
  for (const bool sequence : {false, true}) {
    const EvaluationFile file = read(sequence ? with_sequence() : kAttacks);
    CHECK(Texts{file.checkpoint, file.weights, file.split, file.hash} == Texts{"c.h5", "average", "test", "abc"});
    CHECK(file.step == 7);
    CHECK(file.provenance == R"({"hashes_of_images":{"test":"abc"}})");
    CHECK(file.noise == (sequence ? ", under noise 0.25, 1 copy" : ""));
    CHECK(file.class_names == Texts{"a", "b", "c"});
    CHECK(file.label == std::vector<int>{0, 1, 2, 0, 1});
    CHECK((file.clean_loss.size() == 5 && file.clean_loss[0] == 0.5 && std::isnan(file.clean_loss[1])));
    Texts names, balls, rests;
    std::vector<double> accuracies;
    for (const auto& one : file.outcomes) {
      names.push_back(one.name);
      balls.push_back(one.ball);
      rests.push_back(one.rest);
      accuracies.push_back(one.accuracy());
      CHECK(one.sequence == (one.name == "s"));
    }
    names.resize(4);
    CHECK(names == Texts{"clean", "fgsm", "pgd2", "none"});
    CHECK(std::vector<double>(accuracies.begin(), accuracies.begin() + 4) == std::vector{.8, .6, .4, .8});
    CHECK(file.outcomes[2].prediction == std::vector{0, 1, 0, 2, 2});
    CHECK(file.outcomes[2].correct == std::vector<std::uint8_t>{1, 1, 0, 0, 0});
    const Texts own{"", "eps 0.5", "l2 eps 0.5", ""}, more{"", "alpha 0.25, 1 restart", "alpha 0.25, 2 restarts", ""};
    CHECK(Texts(balls.begin(), balls.begin() + 4) == own);
    CHECK(Texts(rests.begin(), rests.begin() + 4) == more);
    CHECK(file.attack_names() == (sequence ? "s" : "fgsm, pgd2, none"));
    CHECK(breakers(file) == (sequence ? Texts{"", "", "s", "s", ""} : Texts{"", "fgsm", "pgd2", "fgsm", ""}));
    CHECK(file.broken_by == (sequence ? Texts{"", "", "pgd2", "fgsm", ""} : Texts{}));
    CHECK(file.distance == (sequence ? std::vector<double>{0, 0, .5, .25, 0} : std::vector<double>{}));
    REQUIRE(file.outcomes.size() == (sequence ? 5 : 4));
    if (sequence) CHECK(Texts{file.outcomes[4].ball, file.outcomes[4].rest} == Texts{"eps 0.5", ""});
  }
}

TEST_CASE("An evaluation that contradicts itself is refused, and why", "[evaluation]") {
  const auto refusal = [](const std::string& text) {
    const TemporaryFolder folder;
    write_bytes(folder / "eval.json", text);
    const std::string said = message_of([&] { (void)read_evaluation(folder / "eval.json"); }, ExitCode::data);
    CHECK((said.empty() || said.starts_with(folder / "eval.json: ")));
    return said;
  };
  CHECK(refusal(with_sequence().dump()).empty());
  const std::tuple<const char*, const char*, const char*> damages[] = {
      {"/filetype", "\"results\"", "is no evaluation that 'eval --out' wrote"},
      {"/format_version", "2", "has format 2 of another version"},
      {"/step", "-1", "-1 is no whole number"},
      {"/classes", R"([{"name": "a"}])", "has 1 classes"},
      {"/per_image/label", "[]", "is of no image"},
      {"/per_image/label/0", "3", "label holds 3, which must be a whole number from 0 to 2"},
      {"/per_image/label/0", "-1", "label holds -1"},
      {"/per_image/label/0", "[0]", "label holds a list"},
      {"/per_image/clean_correct/0", "2", "clean_correct holds 2, which must be a whole number from 0 to 1"},
      {"/per_image/fgsm_prediction", "[0, 2, 2, 1]", "fgsm_prediction is not a list of 5 numbers"},
      {"/per_image/fgsm_prediction", R"({"a": 0, "b": 2, "c": 2, "d": 1, "e": 1})", "is not a list of 5 numbers"},
      {"/per_image/clean_correct/4", "1", "clean_prediction and clean_correct contradict each other at image 4"},
      {"/per_image/clean_loss", "[1]", "clean_loss is not a list of 5 values"},
      {"/attacks/0/restarts", "-1", "-1 is no whole number"},
      {"/per_image/broken_by", "[]", "broken_by or distance is not a list of 5 values"},
      {"/per_image/distance", "[]", "broken_by or distance is not a list of 5 values"},
      {"/provenance", "{}", "is no evaluation that 'eval --out' wrote, or cut off ("}};
  for (const auto& [place, value, said] : damages) {
    INFO(place << " " << value);
    Json json = with_sequence();
    json[Json::json_pointer(place)] = Json::parse(value);
    CHECK(contains(refusal(json.dump()), said));
  }
  CHECK(contains(refusal(""), "or cut off ("));
  CHECK(contains(refusal(" [1]"), "give the folder of a run"));
  CHECK(contains(refusal("\n " + with_sequence().dump().substr(0, 99)), "or cut off ("));
}

TEST_CASE("Images that an attack has broken are those of the evaluation beside them", "[evaluation]") {
  const TemporaryFolder folder;
  for (const bool sequence : {false, true}) {
    const EvaluationFile file = read(sequence ? with_sequence() : kAttacks);
    const std::string path = images_file(folder / "adversarial.h5", file);
    for (const std::size_t most : {std::size_t{9}, std::size_t{2}}) {
      const ShownImages shown = read_attacked_images(path, file, most);
      const std::vector<std::size_t> all =
          sequence ? std::vector<std::size_t>{2, 3} : std::vector<std::size_t>{1, 2, 3};
      CHECK(shown.numbers == std::vector(all.begin(), all.begin() + std::ssize(all) - (most < all.size() ? 1 : 0)));
      CHECK((shown.size == 40 && shown.channels == 3));
      REQUIRE(shown.clean.size() == shown.numbers.size() * kElements);
      REQUIRE(shown.attacked.size() == shown.clean.size());
      bool same = true;
      for (std::size_t k = 0; k < shown.clean.size(); ++k) {
        const std::size_t at = shown.numbers[k / kElements] * kElements + k % kElements;
        const float change = at == 3 * kElements + 5 ? .25F : at % 2 == 0 ? .125F : 0;
        same = same && shown.clean[k] == at % 251 &&
               shown.attacked[k] == static_cast<float>(shown.clean[k]) / 255 - change;
      }
      CHECK(same);
      const std::vector<float> confidence{.1F, .2F, .3F, .4F, .5F};
      for (std::size_t k = 0; k < shown.numbers.size(); ++k) CHECK(shown.confidence[k] == confidence[shown.numbers[k]]);
      CHECK(shown.scale == Approx(shown.numbers.back() == 3 ? 2 : 4).epsilon(1e-5));
    }
  }
  const EvaluationFile file = read(kAttacks);
  using Labels = std::vector<std::int64_t>&;
  using Marks = std::vector<std::uint8_t>&;
  const auto refused = [&](const auto& change) {
    const std::string path = images_file(folder / "adversarial.h5", file, change);
    return message_of([&] { (void)read_attacked_images(path, file, 9); }, ExitCode::data);
  };
  CHECK(contains(refused([](Labels label, Marks, Shape&, Shape&) { label[3] = 1; }), "image 3 has another label"));
  CHECK(contains(refused([](Labels, Marks robust, Shape&, Shape&) { robust[0] = 0; }), "image 0 has another label"));
  CHECK(contains(refused([](Labels, Marks robust, Shape&, Shape&) { robust[1] = 1; }), "image 1 has another label"));
  CHECK(contains(refused([](Labels, Marks robust, Shape&, Shape&) { robust[4] = 1; }), "image 4 has another label"));
  CHECK(contains(refused([](Labels label, Marks, Shape&, Shape&) { label.pop_back(); }), "has no label of 5 images"));
  CHECK(contains(refused([](Labels, Marks robust, Shape&, Shape&) { robust.push_back(0); }),
                 "has no robust of 5 images"));
  for (const Shape& shape : {Shape{20, 20, 20, 3}, {5, 40, 30, 4}, {5, 4800}, {5, 20, 20, 12}})
    CHECK(contains(refused([&](Labels, Marks, Shape& images, Shape& clean) { images = clean = shape; }),
                   "another shape"));
  CHECK(contains(refused([](Labels, Marks, Shape&, Shape& clean) { clean = {5, 4800}; }), "another shape"));
  // Of an evaluation with other attacks, and cut.
  const std::string path = images_file(folder / "adversarial.h5", read(with_sequence()));
  CHECK(contains(message_of([&] { (void)read_attacked_images(path, file, 9); }, ExitCode::data),
                 "of another evaluation"));
  std::filesystem::resize_file(path, 3000);
  CHECK(code_of([&] { (void)read_attacked_images(path, file, 9); }) == ExitCode::data);
}
