// What `eval` has written, read again: all of it, and nothing that does not fit together.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "dat/file.hpp"
#include "data/images/png.hpp"
#include "hdf5/hdf5.hpp"
#include "record/evaluation_file.hpp"
#include "verbs/report/sections.hpp"

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

/// What an attack takes away from an element of an image; the brightest become brighter than white.
float change_at(std::size_t at) { return at % 251 == 250 ? -.05F : at % 7 == 5 ? .25F : at % 2 == 0 ? .125F : 0; }

/// What stands in adversarial.h5 beside an evaluation: bytes that count up to 250, and these moved a little.
struct Saved {
  std::vector<std::int64_t> label;
  std::vector<std::uint8_t> robust, clean;
  std::vector<float> images, confidence = {.1F, .2F, .3F, .4F, .5F};
  Shape of_images, of_clean;
  std::size_t elements;  // more than are read at once

  explicit Saved(const EvaluationFile& of, int size = 40, int channels = 3)
      : label(of.label.begin(), of.label.end()),
        of_images{5, size, size, channels},
        of_clean(of_images),
        elements(static_cast<std::size_t>(size * size * channels)) {
    for (std::size_t i = 0; i < 5; ++i) robust.push_back(of.outcomes[0].correct[i] && !of.breaker(i) ? 1 : 0);
    for (std::size_t at = 0; at < 5 * elements; ++at) {
      clean.push_back(static_cast<std::uint8_t>(at % 251));
      images.push_back(static_cast<float>(clean.back()) / 255 - (at < 3 * elements ? .5F : 1) * change_at(at));
    }
  }
  void write(const std::string& path, const std::string& named, const std::string& names) const {
    write_sealed_hdf5(path, [&](Hdf5File& file) {
      file.set_text("/", named, names);
      file.write("label", {std::ssize(label)}, label);
      file.write("robust", {std::ssize(robust)}, robust);
      file.write("confidence", {std::ssize(confidence)}, confidence);
      file.write("images", of_images, images);
      file.write("clean", of_clean, clean);
    });
  }
};

}  // namespace

TEST_CASE("An evaluation is read as it was written", "[evaluation]") {
  for (const bool sequence : {false, true}) {
    const EvaluationFile file = read(sequence ? with_sequence() : kAttacks);
    CHECK(Texts{file.checkpoint, file.weights, file.split, file.hash} == Texts{"c.h5", "average", "test", "abc"});
    CHECK(std::tuple(file.step, file.provenance, file.noise) ==
          std::tuple(7, R"({"hashes_of_images":{"test":"abc"}})", sequence ? ", under noise 0.25, 1 copy" : ""));
    CHECK(file.class_names == Texts{"a", "b", "c"});
    CHECK(file.label == std::vector<int>{0, 1, 2, 0, 1});
    CHECK((file.clean_loss.size() == 5 && file.clean_loss[0] == 0.5 && std::isnan(file.clean_loss[1])));
    std::vector<std::tuple<std::string, std::string, std::string, double, bool>> outcomes;
    for (const auto& one : file.outcomes)
      outcomes.emplace_back(one.name, one.ball, one.rest, one.accuracy(), one.sequence);
    decltype(outcomes) expected = {{"clean", "", "", .8, false},
                                   {"fgsm", "eps 0.5", "alpha 0.25, 1 restart", .6, false},
                                   {"pgd2", "l2 eps 0.5", "alpha 0.25, 2 restarts", .4, false},
                                   {"none", "", "", .8, false}};
    if (sequence) expected.emplace_back("s", "eps 0.5", "", .4, true);
    CHECK(outcomes == expected);
    CHECK(file.outcomes[2].prediction == std::vector{0, 1, 0, 2, 2});
    CHECK(file.outcomes[2].correct == std::vector<std::uint8_t>{1, 1, 0, 0, 0});
    CHECK(file.attack_names() == (sequence ? "s" : "fgsm, pgd2, none"));
    CHECK(breakers(file) == (sequence ? Texts{"", "", "s", "s", ""} : Texts{"", "fgsm", "pgd2", "fgsm", ""}));
    CHECK(file.broken_by == (sequence ? Texts{"", "", "pgd2", "fgsm", ""} : Texts{}));
    CHECK(file.distance == (sequence ? std::vector<double>{0, 0, .5, .25, 0} : std::vector<double>{}));
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
  const std::string path = folder / "adversarial.h5";
  for (const bool sequence : {false, true}) {
    const EvaluationFile file = read(sequence ? with_sequence() : kAttacks);
    const Saved saved(file);
    saved.write(path, sequence ? "sequence" : "attacks", file.attack_names());
    using Numbers = std::vector<std::size_t>;
    for (const auto& [most, numbers] :
         {std::pair(std::size_t{9}, sequence ? Numbers{2, 3} : Numbers{1, 2, 3}), {1, {sequence ? 2U : 1U}}}) {
      const ShownImages shown = read_attacked_images(path, file, most);
      REQUIRE(shown.numbers == numbers);
      CHECK(std::tuple(shown.size, shown.channels, shown.clean.size(), shown.attacked.size()) ==
            std::tuple(40, 3, numbers.size() * saved.elements, numbers.size() * saved.elements));
      bool same = true;
      for (std::size_t k = 0; k < shown.clean.size(); ++k) {
        const std::size_t at = numbers[k / saved.elements] * saved.elements + k % saved.elements;
        same = same && shown.clean[k] == saved.clean[at] && shown.attacked[k] == saved.images[at] &&
               shown.confidence[k / saved.elements] == saved.confidence[numbers[k / saved.elements]];
      }
      CHECK(same);
      CHECK(shown.scale == Approx(most == 9 ? 2 : 4).epsilon(1e-5));
    }
  }
  const EvaluationFile file = read(kAttacks);
  Saved black(file);  // after the attack, too
  black.clean.assign(black.clean.size(), 0);
  black.images.assign(black.images.size(), 0);
  black.write(path, "attacks", file.attack_names());
  CHECK(read_attacked_images(path, file, 9).scale == 1);
  const auto refused = [&](const std::string& said, const std::function<void(Saved&)>& change,
                           const char* named = "attacks") {
    Saved saved(file);
    change(saved);
    saved.write(path, named, file.attack_names());
    INFO(said);
    CHECK(contains(message_of([&] { (void)read_attacked_images(path, file, 9); }, ExitCode::data), said));
  };
  refused("image 3 has another label", [](Saved& s) { s.label[3] = 1; });
  for (const std::size_t image : {0, 1, 4})
    refused(fmt::format("image {} has another", image), [&](Saved& s) { s.robust[image] = 1 - s.robust[image]; });
  refused("has no label of 5 images", [](Saved& s) { s.label.pop_back(); });
  refused("has no confidence of 5 images", [](Saved& s) { s.confidence.push_back(0); });
  for (const Shape& shape : {Shape{20, 20, 20, 3}, {5, 40, 30, 4}, {5, 4800}, {5, 20, 20, 12}})
    refused("another shape", [&](Saved& s) { s.of_images = s.of_clean = shape; });
  refused("another shape", [](Saved& s) { s.of_clean = {5, 4800}; });
  refused(
      "is of another evaluation", [](Saved&) {}, "sequence");
  std::filesystem::resize_file(path, 3000);
  CHECK(code_of([&] { (void)read_attacked_images(path, file, 9); }) == ExitCode::data);
}

TEST_CASE("A page shows images clean, changed and attacked; of large ones every second pixel", "[evaluation]") {
  const TemporaryFolder folder;
  const EvaluationFile file = read(kAttacks);
  write_bytes(folder / "eval.json", kAttacks.dump());
  for (const auto& [size, channels] : {std::pair(40, 3), {9, 2}, {130, 1}, {1, 4}}) {
    const Saved saved(file, size, channels);
    saved.write(folder / "adversarial.h5", "attacks", file.attack_names());
    std::string figures;  // of the first two, images 1 and 2
    for (const auto& [image, label, attack, taken] :
         {std::tuple(1U, "b", "fgsm", "c (20.0 %)"), {2U, "c (22.3 %)", "pgd2", "a (30.0 %)"}}) {
      std::array<std::vector<std::uint8_t>, 3> rgb;
      for (int y = 0; y<size; y += size> 128 ? 2 : 1)
        for (int x = 0; x<size; x += size> 128 ? 2 : 1)
          for (int colour = 0; colour < 3; ++colour) {
            const std::size_t at = image * saved.elements +
                                   static_cast<std::size_t>((y * size + x) * channels + std::min(colour, channels - 1));
            const double before = saved.clean[at] / 255.0, after = saved.images[at];
            for (std::size_t k = 0; const double value : {before, 0.5 + 2 * (after - before), after})
              rgb[k++].push_back(static_cast<std::uint8_t>(std::lround(255 * std::clamp(value, 0.0, 1.0))));
          }
      const int side = size > 128 ? 65 : size;
      const std::string about[] = {std::string("clean: ") + label, "perturbation", std::string("attacked: ") + taken};
      for (std::size_t k = 0; k < 3; ++k)
        figures += fmt::format("{}<img src=\"{}\" alt=\"{}\">", k == 0 ? "<figure>" : " ",
                               png_address(png_of({side, side}, rgb[k])), about[k]);
      figures += fmt::format("<figcaption>image {}: {}, after {} taken for {}</figcaption></figure>\n", image, label,
                             attack, taken);
    }
    Page page("t");
    add_image_grid(page, folder / "eval.json");
    CHECK(contains(page.text(), figures + "<figure>"));
  }
  // Of a sequence: the attack of it that has broken the image.
  const EvaluationFile sequence = read(with_sequence());
  write_bytes(folder / "eval.json", with_sequence().dump());
  Saved(sequence).write(folder / "adversarial.h5", "sequence", "s");
  Page page("t");
  add_image_grid(page, folder / "eval.json");
  CHECK(contains(page.text(), "<figcaption>image 2: c (22.3 %), after pgd2 taken for a (30.0 %)</figcaption>"));
  // Where nothing is broken there is nothing to show.
  for (const std::string name : {"none", ""}) {
    Json unbroken = kAttacks;
    std::erase_if(unbroken["attacks"].get_ref<Json::array_t&>(), [&](const Json& one) { return one["name"] != name; });
    write_bytes(folder / "eval.json", unbroken.dump());
    Saved(read(unbroken)).write(folder / "adversarial.h5", "attacks", name);
    Page without("t");
    add_image_grid(without, folder / "eval.json");
    CHECK(contains(without.text(), (name.empty() ? "No attack" : name) + " has broken no image that was right.</p>"));
  }
}
