#include <nlohmann/json.hpp>

#include "assess/certification/certification_report.hpp"
#include "assess/classes.hpp"
#include "assess/evaluation_report.hpp"
#include "assess/sequence_run.hpp"
#include "catch.hpp"
#include "hdf5/hdf5_reader.hpp"
#include "smoothing/bounds.hpp"

using namespace dat;

namespace {

using Json = nlohmann::json;

/// Objects with these keys, of lists of values.
[[nodiscard]] Json objects(const std::vector<std::string>& keys, const char* rows) {
  Json all;
  for (const Json& row : Json::parse(rows)) {
    REQUIRE(row.size() == keys.size());
    Json& one = all.emplace_back();
    for (std::size_t k = 0; k < keys.size(); ++k) one[keys[k]] = row[k];
  }
  return all;
}

/// Images of one pixel in three channels, of three classes in turn.
class Set final : public Dataset {
 public:
  explicit Set(std::int64_t size) : size_(size) {}
  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] int label(std::int64_t index) const override { return static_cast<int>(index % 3); }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    for (int c = 0; c < 3; ++c) pixels[c] = static_cast<std::uint8_t>(10 * index + c);
  }

 private:
  std::int64_t size_;
  DatasetInfo info_{1, 3, 3, numbered_classes(3)};
};

/// Images 1 and 5 are right, 3 is wrong, and 7 abstains; attacked, 1 and 5 are broken, and 3 abstains.
struct Certified {
  const Set set{8};
  CertificationSubject subject{
      .plan = {.sigma = 0.5, .grid = false, .n0 = 100, .n = 1000, .alpha = 0.001, .radii = {}, .seed = 7},
      .checkpoint = "run",
      .step = 40,
      .weights = "average",
      .weights_hash = "abc",
      .precision = "bf16",
      .data = {"ä.h5", "b.h5"},
      .split = "test",
      .list = "list.txt",
      .split_images = 100,
      .every = 2,
      .attack_steps = 8,
      .noise_samples = 5};
  const CertificationResult result{{1, 3, 5, 7},
                                   {1, 0, 2, 1},
                                   {{1, 0.75, 990, 1000, 0.9375, {1, 1}, 3661.5},
                                    {2, 0.5, 900, 1000, 0.75, {1, 0}, 0.25},
                                    {2, 0.25, 800, 1000, 0.625, {1, -1}, 0},
                                    {Certificate::kAbstains, 0, 500, 998, 0.4375, {0, 0}, 59.999999}}};
  const AttackedCertificates attacked{AttackedImages(set, {1, 3, 5}, {1, 2, 2}, {13, 15, 12, 30, 31, 32, 50, 51, 0}),
                                      {{1, 3, 5},
                                       {1, 2, 2},
                                       {{2, 0, 480, 500, 0.25, {}, 1.5},
                                        {Certificate::kAbstains, 0, 260, 500, 0.5, {}, 2},
                                        {0, 0, 400, 500, 0.125, {}, 2.5}}}};

  [[nodiscard]] static Json share(std::int64_t images) {
    return {{"images", images},
            {"accuracy", static_cast<double>(images) / 4},
            {"low", clopper_pearson_lower(images, 4, 0.025)},
            {"high", clopper_pearson_upper(images, 4, 0.025)}};
  }
  [[nodiscard]] static Json row(double radius, std::int64_t images) {
    Json all = share(images);
    all["radius"] = radius;
    return all;
  }
  /// What certify.json says of the subject as it is above.
  [[nodiscard]] static Json expected() {
    Json all = Json::parse(R"({"filetype": "certification", "format_version": 1,
      "settings": {"procedure": "certify", "sigma": 0.5, "noise_kind": "float", "n0": 100, "n": 1000, "alpha": 0.001,
        "seed": 7, "precision": "bf16", "checkpoint": "run", "step": 40, "weights": "average", "weights_hash": "abc",
        "data": ["ä.h5", "b.h5"], "split": "test", "split_images": 100, "every": 2, "list": "list.txt"},
      "acr": 0.25, "samples": 3998, "provenance": {"program": "here"},
      "attacked": {"steps": 8, "noise_samples": 5, "broken": 2, "abstained": 1}})");
    all["images"] = objects({"index", "label", "prediction", "radius", "votes", "samples", "lower", "seconds"},
                            R"([[1, 1, 1, 0.75, 990, 1000, 0.9375, 3661.5], [3, 0, 2, 0.5, 900, 1000, 0.75, 0.25],
        [5, 2, 2, 0.25, 800, 1000, 0.625, 0], [7, 1, -1, 0, 500, 998, 0.4375, 59.999999]])");
    all["attacked"]["images"] = objects({"index", "prediction", "votes", "samples", "seconds"},
                                        "[[1, 2, 480, 500, 1.5], [3, -1, 260, 500, 2], [5, 0, 400, 500, 2.5]]");
    all["abstained"] = share(1);
    all["correct"] = share(2);
    for (std::size_t k = 0; k < 3; ++k)  // sqrt(3^2 + 4^2) is 5
      all["attacked"]["images"][k]["distance"] = std::array{5, 0, 52}[k] / 255.0;
    // 1000 votes of 1000 certify .5 times the quantile of .001^(1/1000), 1.23.
    for (const double radius : {0.05, 0.1, 0.15, 0.2, 0.25}) all["radii"].push_back(row(radius, 2));
    for (const double radius : {0.3, 0.4, 0.5, 0.75}) all["radii"].push_back(row(radius, 1));
    all["radii"].push_back(row(1, 0));
    return all;
  }
};

}  // namespace

TEST_CASE_METHOD(Certified, "A certification's files say all of it, and nothing that was not asked for",
                 "[certification]") {
  const TemporaryFolder folder;
  const auto written = [&](const AttackedCertificates* attacks) {
    CertificationReport(subject, result, attacks).write(folder.path(), R"({"program": "here"})");
    return Json::parse(read_bytes(folder / "certify.json"));
  };
  CHECK(written(&attacked) == expected());
  CHECK(contains(read_bytes(folder / "certify.json"), "\n  \"data\": [\n   \"ä.h5\",\n   \"b.h5\"\n  ],\n"));
  CHECK(
      read_bytes(folder / "certify.tsv") ==
      "idx\tlabel\tpredict\tradius\tcorrect\ttime\n1\t1\t1\t0.75\t1\t1:01:01.500000\n3\t0\t2\t0.5\t0\t0:00:00.250000\n"
      "5\t2\t2\t0.25\t1\t0:00:00.000000\n7\t1\t-1\t0\t0\t0:00:59.999999\n");
  const auto facts = [&] {
    std::string text;
    for (const auto& [name, value] : facts_of(subject, result.images)) text += name + ": " + value + "; ";
    return text;
  };
  CHECK(facts() ==
        "procedure: certify; sigma: 0.5; noise: float; n0: 100; n: 1000; alpha: 0.001; radii: ; seed: 7; precision of "
        "the network: bf16; hash of the weights: abc; split: test; every: 2; attack: pgd8 on 5 copies; number of "
        "certified images: 4; ");
  {
    const Hdf5Reader file = Hdf5Reader::open(folder / "results.h5", ExitCode::data);
    CHECK((file.text("/", "hash of the weights") == "abc" && file.text("/", "checkpoint") == "run"));
    CHECK((file.text("/", "provenance") == R"({"program": "here"})" && file.text("/", "list") == "list.txt"));
    CHECK((file.text("/", "filetype") == "certification" && file.integer("/", "format_version") == 1));
    Shape shape;
    CHECK(file.read<double>("image/seconds", shape) == std::vector<double>{3661.5, 0.25, 0, 59.999999});
    CHECK(file.read<double>("radii/radius", shape) ==
          std::vector<double>{0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1});
    CHECK(file.read<double>("radii/accuracy", shape) ==
          std::vector<double>{0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0});
    CHECK(file.read<std::int64_t>("attacked/prediction", shape) == std::vector<std::int64_t>{2, -1, 0});
    CHECK(file.read<std::uint8_t>("attacked/images", shape) == attacked.images.pixels());
    CHECK(shape == Shape{3, 1, 1, 3});
  }

  subject.plan.radii = {0.25, 0.75};
  subject.plan.grid = true;
  Json sequential = expected();
  sequential["settings"]["procedure"] = "certify, sequential";
  sequential["settings"]["noise_kind"] = "grid";
  sequential["radii"] = {row(0.25, 2), row(0.75, 1)};
  for (std::size_t i = 0; i < 4; ++i) sequential["images"][i]["decided"] = result.certificates[i].decided;
  CHECK(written(&attacked) == sequential);
  CHECK(contains(facts(), "procedure: certify, sequential; sigma: 0.5; noise: grid; n0: 100; "));
  CHECK(contains(facts(), "radii: 0.25,0.75; "));
  const CertificationReport certified(subject, result, &attacked);
  CHECK(certified.text() ==
        "run: step 40, 4 test images of 100, named in list.txt, averaged weights, smoothed with sigma 0.5, the network "
        "in bf16\n"
        "  right               2 of 4  0.5000  (0.0676 to 0.9324)\n"
        "  abstained           1 of 4  0.2500  (0.0063 to 0.8059)\n"
        "  radius 0.25         2 of 4  0.5000  (0.0676 to 0.9324)\n"
        "  radius 0.75         1 of 4  0.2500  (0.0063 to 0.8059)\n"
        "  attacked within their radii (pgd8 on 5 copies): 3 images, 2 broken, 1 abstained\n"
        "  3998 samples, 999.5 an image\n");
  CHECK(certified.final_line() == "Final: right=0.5000 acr=0.2500 broken=2 abstained=0.2500 images=4 PARTIAL");

  subject.plan.radii = {};
  subject.plan.predicts = true;
  subject.precision = "f32";
  subject.list = "";
  subject.attack_steps = 0;
  Json predicted = expected();
  predicted["settings"].update({{"procedure", "predict"}, {"noise_kind", "grid"}, {"n0", 0}, {"precision", "f32"}});
  predicted["settings"].erase("list");
  predicted["radii"] = Json::array();
  predicted.erase("acr");
  predicted.erase("attacked");
  for (Json& image : predicted["images"]) {
    image["p_value"] = image["lower"];
    image.erase("lower");
  }
  CHECK(written(nullptr) == predicted);
  CHECK((contains(facts(), "procedure: predict; sigma: 0.5; noise: grid; n0: 0; ") &&
         contains(facts(), "attack: none; ")));
  const Hdf5Reader file = Hdf5Reader::open(folder / "results.h5", ExitCode::data);
  for (const char* absent : {"radii", "attacked"}) CHECK(!file.has(absent));
  CHECK(!file.text("/", "list"));
  const CertificationReport prediction(subject, result, nullptr);
  CHECK(prediction.text().starts_with("run: step 40, 4 test images, averaged weights, smoothed with sigma 0.5\n"));
  for (const auto& [split_images, every, verdict] : {std::tuple(4, 1, "VALID"), {4, 2, "PARTIAL"}, {5, 1, "PARTIAL"}}) {
    subject.split_images = split_images;
    subject.every = every;
    CHECK(prediction.final_line() == std::string("Final: right=0.5000 abstained=0.2500 images=4 ") + verdict);
  }
}

TEST_CASE("An evaluation's report says all of it, to people and to programs", "[evaluation]") {
  const TemporaryFolder folder;
  const Set set(4);
  EvaluationSubject subject{.checkpoint = "run",
                            .step = 40,
                            .weights_hash = "abc",
                            .classes = {4, {"cat", "dog", "owl"}},
                            .data = {"ä.h5"},
                            .split = "train",
                            .split_images = 9,
                            .list = "list.txt",
                            .seed = 3,
                            .eps = 0.25,
                            .noise = 0.125,
                            .noise_samples = 2};
  const EvaluationAttacks attacks({.attacks = {"fgsm", "pgd10x2", "none"}, .eps = 0.25, .classes = 4});
  EvaluationResult result{.clean = {{0.5, 1, 1.5, 1}, {1, 1, 0, 1}, {0, 1, 0, 0}},
                          .attacked = {{{2, 1, 3, 2}, {1, 0, 0, 1}, {0, 2, 0, 0}},
                                       {{2, 2.5, 3, 2.5}, {0, 0, 0, 1}, {1, 2, 0, 0}},
                                       {{0.5, 1, 1.5, 1}, {1, 1, 0, 1}, {0, 1, 0, 0}}},
                          .seconds = 2};
  CHECK(EvaluationResult::bytes(4, 3) == (1 + 3) * 3 * 4 * sizeof(double));  // of each of the four 3 x 4 numbers
  const SequenceRun run(read_attack_sequence("aa-rand"), {.eps = 0.25}, 4);
  const SequenceResult sequence{
      {{.prediction = 0}, {2, 1, 2, 0.125}, {0, 0, 0, 0}, {1, 1, 1, 0.25}},
      {{"clean", 1, 4, 1, 1, 0.75, 0.5}, {"apgd-ce", 1, 3, 1, 2, 0.5, 1.5}, {"apgd-dlr", 1, 2, 1, 0, 0.25, 2}}};
  const EvaluationReport report(subject, set, attacks, result, &run, &sequence);
  report.write(folder / "eval.json", R"({"program": "here"})");
  Json expected = Json::parse(R"({"filetype": "evaluation", "format_version": 1, "checkpoint": "run", "step": 40,
    "weights_hash": "abc", "data": ["ä.h5"], "split": "train", "weights": "raw", "images": 4, "split_images": 9,
    "verdict": "PARTIAL", "seed": 3, "seconds": 2, "list": "list.txt", "noise": {"sigma": 0.125, "samples": 2},
    "clean": {"accuracy": 0.75, "loss": 1}, "provenance": {"program": "here"},
    "sequence": {"name": "aa-rand", "title": "AutoAttack, version rand", "norm": "linf", "eps": 0.25, "accuracy": 0.25},
    "per_image": {"label": [0, 1, 2, 0],
      "clean_correct": [1, 1, 0, 1], "clean_loss": [0.5, 1, 1.5, 1], "clean_prediction": [0, 1, 0, 0],
      "fgsm_correct": [1, 0, 0, 1], "fgsm_loss": [2, 1, 3, 2], "fgsm_prediction": [0, 2, 0, 0],
      "pgd10x2_correct": [0, 0, 0, 1], "pgd10x2_loss": [2, 2.5, 3, 2.5], "pgd10x2_prediction": [1, 2, 0, 0],
      "none_correct": [1, 1, 0, 1], "none_loss": [0.5, 1, 1.5, 1], "none_prediction": [0, 1, 0, 0],
      "aa-rand_correct": [1, 0, 0, 0], "broken_by": [null, "apgd-dlr", "clean", "apgd-ce"], "run": [0, 1, 0, 1],
      "prediction": [0, 2, 0, 1], "distance": [0, 0.125, 0, 0.25]}})");
  expected["attacks"] = objects({"name", "steps", "restarts", "norm", "eps", "alpha", "accuracy", "loss"},
                                R"([["fgsm", 1, 1, "linf", 0.25, 0.3125, 0.5, 2],
      ["pgd10x2", 10, 2, "linf", 0.25, 0.0625, 0.25, 2.5], ["none", 0, 1, "linf", 0.25, 0, 0.75, 1]])");
  expected["sequence"]["attacks"] =
      objects({"name", "runs", "alpha", "images", "broken", "zero_gradients", "accuracy", "seconds"},
              R"([["clean", 1, 0, 4, 1, 1, 0.75, 0.5], ["apgd-ce", 1, 0.5, 3, 1, 2, 0.5, 1.5],
      ["apgd-dlr", 1, 0.5, 2, 1, 0, 0.25, 2]])");
  expected["classes"] = objects(
      {"name", "images", "clean_accuracy", "fgsm_accuracy", "pgd10x2_accuracy", "none_accuracy", "aa-rand_accuracy"},
      R"([["cat", 2, 1, 1, 0.5, 1, 0.5], ["dog", 1, 1, 0, 0, 1, 0],
      ["owl", 1, 0, 0, 0, 0, 0], ["class 3", 0, null, null, null, null, null]])");
  expected["alarms"] = objects({"name", "tested", "raised"}, R"([["Square beats APGD", false, false],
      ["zero gradients", true, true], ["more steps of PGD", false, false]])");
  expected["sequence"]["notices"] = {run.sequence().remark};
  for (std::size_t k = 0; k < 3; ++k) expected["alarms"][k]["text"] = report.alarms()[k].text;
  CHECK(Json::parse(read_bytes(folder / "eval.json")) == expected);
  CHECK(contains(read_bytes(folder / "eval.json"), "\n \"data\": [\n  \"ä.h5\"\n ],\n"));
  CHECK(report.text() ==
        "run: step 40, 4 training images of 9, named in list.txt, under noise of standard deviation 0.125, 2 copies of "
        "each\n"
        "  clean    accuracy 0.7500  loss 1.0000\n"
        "  fgsm     accuracy 0.5000  loss 2.0000  (eps 0.25 as in the training, alpha 0.3125, 1 restart)\n"
        "  pgd10x2  accuracy 0.2500  loss 2.5000  (eps 0.25 as in the training, alpha 0.0625, 2 restarts)\n"
        "  none     accuracy 0.7500  loss 1.0000\n"
        "  aa-rand  accuracy 0.2500  AutoAttack, version rand  (eps 0.25)\n"
        "    attack      runs   images   broken  accuracy    seconds\n"
        "    clean          1        4        1    0.7500        0.5\n"
        "    apgd-ce        1        3        1    0.5000        1.5\n"
        "    apgd-dlr       1        2        1    0.2500        2.0\n"
        "  Square beats APGD: not tested; zero gradients: YES\n");
  CHECK(report.final_line() ==
        "Final: clean_acc=0.7500 fgsm_acc=0.5000 pgd10x2_acc=0.2500 none_acc=0.7500 aa-rand_acc=0.2500 time_s=6.0 "
        "PARTIAL");

  subject.split_images = 4;
  subject.list = "";
  subject.eps_given = true;
  subject.noise_samples = 1;
  result.attacked[1].loss[2] = std::nan("");
  const EvaluationReport alone(subject, set, attacks, result, nullptr, nullptr);
  CHECK(alone.final_line().ends_with(" none_acc=0.7500 time_s=2.0 INVALID"));
  CHECK(
      alone.text().starts_with("run: step 40, 4 training images, under noise of standard deviation 0.125, one copy "));
  CHECK(contains(alone.text(), "  (eps 0.25, alpha 0.3125, 1 restart)\n"));
  CHECK(alone.text().ends_with("  none     accuracy 0.7500  loss 1.0000\n"));  // no alarm was tested
  subject.noise = 0;
  alone.write(folder / "eval.json", "{}");
  const Json told = Json::parse(read_bytes(folder / "eval.json"));
  for (const char* absent : {"list", "noise", "sequence"}) CHECK(!told.contains(absent));
  CHECK(alone.text().starts_with("run: step 40, 4 training images\n"));
  // A sequence of words has no title, and nothing is remarked on it.
  const SequenceRun words(read_attack_sequence("pgd4+fgsm"), {.eps = 0.25}, 4);
  const EvaluationReport of_words(subject, set, attacks, result, &words, &sequence);
  of_words.write(folder / "eval.json", "{}");
  CHECK(Json::parse(read_bytes(folder / "eval.json"))["sequence"]["notices"] == Json::array());
  CHECK(contains(of_words.text(), "  pgd4+fgsm accuracy 0.2500  (eps 0.25)\n"));
}

TEST_CASE("Images are of a network's classes where both are named, and of its size", "[evaluation]") {
  Checkpoint checkpoint;
  checkpoint.arrays = {{"bn/a", {5, 5}, {}}, {"param/conv", {5, 5, 3, 3}, {}}};
  CHECK(error_of([&] { (void)classes_of(checkpoint, "run"); }) == "4: run holds no network");
  checkpoint.arrays.push_back({"param/head", {3, 8}, {}});
  CHECK((classes_of(checkpoint, "run").count == 3 && classes_of(checkpoint, "run").names.empty()));
  checkpoint.integers = {{"image_size", 16}, {"image_channels", 3}};
  const auto told = [&](const std::string& known, const std::vector<std::string>& names, int size = 16, int of = 3) {
    checkpoint.texts["class_names"] = known;
    const DatasetInfo info{size, of, static_cast<int>(names.size()), names};
    return error_of([&] { require_fitting_images(info, checkpoint, classes_of(checkpoint, "run"), "run"); });
  };
  CHECK(told("a\nb\nc\n", {"a", "b", "c"}) == "none");
  CHECK(told("a\nb\nc\n", {"a", "b", "d"}) ==
        "3: the data's classes (a ... d) are not those of the network in run (a ... c); take the data it was trained "
        "for");
  CHECK(told("class 0\nclass 1\nclass 2\n", {"a", "b", "d"}) == "none");
  CHECK(told("a\nb\nc\n", numbered_classes(2)) == "none");
  CHECK(told("a\nb\nc\n", numbered_classes(4)) ==
        "3: the data has 4 classes, the network in run knows 3; take the data it was trained for");
  CHECK(told("a\nb\nc\nd\n", {"x", "y"}) == "none");  // of four names three classes have none
  CHECK(told("", {"a", "b", "d"}, 8) ==
        "3: the data's images have 8x8 pixels, the network in run was trained on 16x16");
  CHECK(told("", {"a", "b", "d"}, 16, 1) ==
        "3: the data's images have 1 channels, the network in run was trained on 3");
  checkpoint.integers.clear();  // a network of unknown images takes any
  CHECK(told("", {"a", "b", "d"}, 8, 1) == "none");
}
