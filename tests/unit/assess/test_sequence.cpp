#include "assess/alarms.hpp"
#include "assess/broken_images.hpp"
#include "assess/sequence.hpp"
#include "assess/sequence_files.hpp"
#include "catch.hpp"
#include "dat/file.hpp"
#include "errors.hpp"
#include "hdf5/hdf5_reader.hpp"
#include "single.hpp"

using namespace dat;

namespace {

[[nodiscard]] JournalEntry entry(int stage, std::vector<std::int64_t> images) {
  JournalEntry one{.stage = stage, .seconds = 0.5, .images = std::move(images), .outcomes = {}};
  for (const std::int64_t image : one.images)
    one.outcomes.push_back({static_cast<std::int32_t>(image % 10), 0.03F + static_cast<float>(image) * 1e-7F, 0});
  return one;
}

/// Returns whether a file has the rights that any new one gets.
[[nodiscard]] bool as_any_new(const std::string& path) {
  const TemporaryFolder folder;
  write_bytes(folder / "new", "");
  return std::filesystem::status(folder / "new").permissions() == std::filesystem::status(path).permissions();
}

struct JournalFile {
  const TemporaryFolder folder;
  const std::string path = folder / "sequence.journal";
  const Facts facts = {{"seed", "1"}, {"eps", "0.031"}, {"split", "ä"}};
};

/// Three images of one pixel, in three channels.
class Three final : public Dataset {
 public:
  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return 3; }
  [[nodiscard]] int label(std::int64_t index) const override { return static_cast<int>(index); }
  void read(std::int64_t index, std::uint8_t* pixels) const override {
    for (int c = 0; c < 3; ++c) pixels[c] = static_cast<std::uint8_t>(51 * index + c);
  }

 private:
  DatasetInfo info_{1, 3, 10, numbered_classes(10)};
};

/// The first image is wrong, the second one broken by an attack, the third one robust.
[[nodiscard]] SequenceResult result_of_three() {
  SequenceResult result;
  result.images = {{0, 0, 4, 0}, {1, 2, 5, 0.03}, {SequenceResult::kRobust, 0, 2, 0}};
  result.rows = {{"clean", 1, 3, 1, 0, 2.0 / 3, 0.1}, {"pgd2", 2, 2, 1, 0, 1.0 / 3, 0.2}};
  return result;
}

[[nodiscard]] SequenceResult rows_of(const std::vector<std::pair<std::string, double>>& accuracies) {
  SequenceResult result;
  for (const auto& [attack, accuracy] : accuracies) result.rows.push_back({attack, 1, 1000, 0, 0, accuracy, 0});
  return result;
}

}  // namespace

TEST_CASE("A sequence is a word of --eval with a plus, and takes each attack once", "[sequence]") {
  CHECK((names_sequence("pgd10+fgsm") && names_sequence("aa-standard") && !names_sequence("pgd10")));
  const AttackSequence own = read_attack_sequence("pgd7x3+fgsm+none");
  CHECK((own.name == "pgd7x3+fgsm+none" && own.title.empty()));
  REQUIRE(own.members.size() == 3);
  CHECK((own.members[0].attack == "pgd7x3" && own.members[0].restarts == 3));
  CHECK(own.members[2].restarts == 1);  // there is no start to repeat
  CHECK(read_attack_sequence("squarex3").members[0].restarts == 3);
  const auto usage = [](const std::string& word) {
    return message_of([&] { (void)read_attack_sequence(word); }, ExitCode::usage);
  };
  CHECK((contains(usage("pgd+pgd10"), "names pgd10 twice") && contains(usage("pgd+"), "unknown attack ''")));
  CHECK(contains(usage("pgd10-"), "names no loss after '-'; write 'pgd10'"));
  CHECK(contains(usage("pgd+pdg"), "unknown attack 'pdg'"));
  CHECK(contains(usage("aa-fast"), "known: aa-standard, aa-plus, aa-rand, aa-quick"));
}

TEST_CASE("The versions of AutoAttack are those of its authors' code", "[sequence]") {
  const auto text = [](const std::string& name) {
    std::string all;
    for (const auto& member : read_attack_sequence(name).members)
      all += member.attack + ":" + std::to_string(member.restarts) + " ";
    return all;
  };
  CHECK(text("aa-standard") == "apgd-ce:1 apgd-t:1 fab-t:1 square:1 ");
  CHECK(text("aa-plus") == "apgd-ce:5 apgd-dlr:5 fab:5 square:1 apgd-t:1 fab-t:1 ");
  CHECK((text("aa-rand") == "apgd-ce:1 apgd-dlr:1 " && text("aa-quick") == "apgd-ce:1 apgd-t:1 "));
  for (const std::string version : {"standard", "plus", "rand"})
    CHECK(read_attack_sequence("aa-" + version).title == "AutoAttack, version " + version);
  CHECK(read_attack_sequence("aa-quick").title.empty());
  std::vector<int> runs;  // restarts are runs of an attack that knows of them, too; so are targets
  const SequenceAttacks plus(read_attack_sequence("aa-plus"), BallNorm::linf, 0.1, 0, 10);
  for (const auto& member : plus.members()) runs.push_back(member.runs);
  CHECK(runs == std::vector{1, 5, 5, 5, 1, 9, 9});
}

TEST_CASE("What is called AutoAttack is computed in f32", "[sequence]") {
  const AttackSequence standard = read_attack_sequence("aa-standard"), quick = read_attack_sequence("aa-quick");
  CHECK(contains(message_of([&] { require_f32(standard, true, "tf32"); }, ExitCode::usage), "take aa-quick"));
  CHECK_NOTHROW((require_f32(standard, true, "f32"), require_f32(standard, false, "tf32")));  // a CPU has none
  for (const std::string math : {"bf16", "bf16x3"})
    CHECK(contains(message_of([&] { require_f32(standard, false, math); }, ExitCode::usage), "--math is " + math));
  CHECK_NOTHROW((require_f32(quick, false, "bf16"), require_f32(quick, true, "tf32")));
}

TEST_CASE("A sequence takes 64 images at a time, 256 on a GPU, and fewer of large networks and images", "[sequence]") {
  const auto images = [](const std::string& network, int size, bool gpu) {
    return sequence_micro_batch(gpu, networks().at(network)({.width = default_width(network), .size = size}));
  };
  for (const std::string& network : networks().names()) {
    INFO(network);
    CHECK((images(network, 32, false) == 64 && images(network, 32, true) == 256));
  }
  for (const auto& [network, size, cpu, gpu] : {std::tuple("imagenet_resnet50", 224, 64, 256),
                                                {"preact_resnet50", 64, 64, 128},
                                                {"preact_resnet50", 224, 4, 16}})
    CHECK((images(network, size, false) == cpu && images(network, size, true) == gpu));
  CHECK(images("wrn_28_10", 4096, true) == 1);
  Graph most;  // 64 MB of each image
  most.nodes.push_back({.op = Op::convolution, .inputs = {}, .c = 1, .h = 4096, .w = 4096});
  CHECK(sequence_micro_batch(false, most) == 64);
}

TEST_CASE_METHOD(JournalFile, "A journal gives back what was written, and goes on after it", "[sequence]") {
  {
    Journal journal(path, "attack sequence", facts);
    CHECK((journal.found().empty() && as_any_new(path)));
    journal.append(line_of(entry(0, {0, 1, 2})));
    journal.append(line_of(entry(1, {1})));
  }
  Journal journal(path, "attack sequence", facts);
  CHECK(read_journal(journal.found()) == std::vector<JournalEntry>{entry(0, {0, 1, 2}), entry(1, {1})});
  journal.append(line_of(entry(1, {2})));
  CHECK(read_journal(Journal(path, "attack sequence", facts).found()).size() == 3);
}

TEST_CASE_METHOD(JournalFile, "Of two evaluations that write one journal one ends", "[sequence]") {
  Journal first(path, "attack sequence", facts);
  first.append(line_of(entry(0, {0})));
  Journal second(path, "attack sequence", facts);
  second.append(line_of(entry(0, {1})));
  CHECK(contains(message_of([&] { first.append(line_of(entry(0, {1}))); }, ExitCode::usage),
                 "another process is writing into " + path));
  CHECK(read_journal(Journal(path, "attack sequence", facts).found()).size() == 2);
}

TEST_CASE_METHOD(JournalFile, "A journal that was cut anywhere loses its last line at most", "[sequence]") {
  {
    Journal journal(path, "attack sequence", facts);
    journal.append(line_of(entry(0, {0})));
    journal.append(line_of(entry(0, {1})));
  }
  const std::string bytes = read_bytes(path);
  std::vector<std::size_t> ends;  // of its lines
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] == '\n') ends.push_back(i + 1);
  REQUIRE(ends.size() == 3);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    write_bytes(path, bytes.substr(0, cut));
    const std::size_t whole = (cut >= ends[1] ? 1U : 0U) + (cut >= ends[2] ? 1U : 0U);
    {
      Journal journal(path, "attack sequence", facts);
      CHECK(read_journal(journal.found()).size() == whole);
      journal.append(line_of(entry(0, {7})));
    }
    CHECK(read_journal(Journal(path, "attack sequence", facts).found()).back() == entry(0, {7}));
  }
  // A last line of zeros, which a file system may leave behind, is none either; one in the middle is damage.
  for (const std::string& behind : {std::string(9, '\0') + "\n", std::string("\n")}) {
    write_bytes(path, bytes + behind);
    CHECK(read_journal(Journal(path, "attack sequence", facts).found()).size() == 2);
  }
  write_bytes(path, bytes.substr(0, ends[0]) + "damage\n" + bytes.substr(ends[0]));
  const auto damage = [](const std::string& lines) {
    return message_of([&] { (void)read_journal(lines); }, ExitCode::data);
  };
  CHECK(contains(damage(Journal(path, "attack sequence", facts).found()), "line 2 is damaged"));
  CHECK(
      contains(damage("{\"stage\":0,\"seconds\":0,\"images\":[1],\"prediction\":[],\"distance\":[0],\"flags\":[0]}\n"),
               "not of one length"));
}

TEST_CASE_METHOD(JournalFile, "A journal of other settings is refused, and the first difference is named",
                 "[sequence]") {
  CHECK(
      contains(error_of([] { const Journal none("/no/journal", "", {}); }), "9: cannot read and write /no/journal: "));
  { const Journal journal(path, "attack sequence", facts); }
  const std::string before = read_bytes(path);
  CHECK(before == R"({"kind":"attack sequence","format_version":1,"facts":{"seed":"1","eps":"0.031","split":"ä"}})"
                  "\n");
  const auto usage = [&](const Facts& others) {
    return message_of([&] { const Journal j(path, "attack sequence", others); }, ExitCode::usage);
  };
  CHECK(contains(usage({{"seed", "1"}, {"eps", "0.062"}}), "eps is 0.031 there and 0.062 here"));
  CHECK(contains(usage({{"seed", "2"}, {"eps", "0.062"}}), "seed is 1 there and 2 here"));
  CHECK(contains(usage({{"seed", "1"}, {"eps", "0.031"}, {"alpha", "0"}}), "alpha is not named there"));
  CHECK((contains(usage({{"seed", "1"}}), "more than this program knows") && read_bytes(path) == before));
  for (const std::string header : {"7", "damage\n7", R"({"kind":"other","format_version":1,"facts":{}})",
                                   R"({"kind":"attack sequence","format_version":2,"facts":{}})",
                                   R"({"kind":"attack sequence","format_version":1})",
                                   R"({"kind":"attack sequence","format_version":1,"facts":7})"}) {
    write_bytes(path, header + "\n");
    CHECK(contains(usage({{"seed", "1"}}), "no journal that this program reads"));
  }
  write_bytes(path, R"({"kind":"attack sequence","format_version":1,"facts":{"seed":7}})" + std::string("\n"));
  CHECK(contains(usage({{"seed", "1"}}), "seed is 7 there and 1 here"));
  // What no writer of this journal has left is somebody's, and stays.
  for (const char* text : {"notes", "notes\n"}) {
    write_bytes(path, text);
    CHECK((contains(usage({{"seed", "1"}}), "is not the journal of this evaluation") && read_bytes(path) == text));
  }
}

TEST_CASE("A folder of other results is refused by what lies in it", "[sequence]") {
  const std::string training = "training", certified = "certification", sequence = "evaluation",
                    single = "evaluation without a sequence";
  for (const auto& [files, whose] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, ""},
           {{"results.h5"}, ""},
           {{"metrics.jsonl", "certify.json", "sequence.journal"}, training},
           {{"ckpt"}, training},
           {{"certify.journal", "results.h5", "adversarial.h5"}, certified},
           {{"certify.json"}, certified},
           {{"sequence.journal", "adversarial.h5"}, sequence},
           {{"results.h5", "eval.json"}, sequence},
           {{"eval.json"}, single},
           {{"adversarial.h5"}, single}}) {
    const TemporaryFolder folder;
    for (const std::string& file : files) write_bytes(folder / file, "");
    for (const std::string& what : {sequence, single, certified}) {
      const std::string refusal = "2: --out " + folder.path() + " is the folder of " +
                                  (whose[0] == 'e' ? "an " : "a ") + whose + ", whose files this " + what +
                                  " would overwrite; take another one, such as " + (folder / "there");
      const bool fits = whose.empty() || whose == what;
      std::optional<RunLock> held;  // nobody who is refused waits for it
      if (!fits) held.emplace(folder.path(), [](const std::string&) {});
      CHECK(error_of([&] {
              const auto lock = take_folder(folder.path(), what, "there");
              const Writer writer = look_at_lock(folder.path()).writer;
              CHECK((writer.host == host_name() && writer.starts == 1));
            }) == (fits ? "none" : refusal));
    }
  }
}

TEST_CASE("An image is looked at before it counts", "[sequence]") {
  const std::vector<float> logits = {1, 3, 3}, clean = {0, 0.5F, 1}, moved = {0.02F, 0.5F, 0.99F};
  const ImageOutcome fine = outcome_of(logits, clean, moved, BallNorm::linf, 0.02);
  CHECK(fine == ImageOutcome{.prediction = 1, .distance = 0.02F, .flags = 0});  // the first of equal ones
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  // In L2 the moves add up: sqrt(.02^2 + ...) of what is above.
  double squares = 0;
  for (std::size_t i = 0; i < clean.size(); ++i) squares += std::pow(double(moved[i]) - double(clean[i]), 2);
  const double far = std::sqrt(squares);
  CHECK(std::abs(outcome_of(logits, clean, moved, BallNorm::l2, 1).distance - far) <= 1e-8);
  // 1e-6 is for rounding, and nothing else is.
  for (const auto& [x, norm, eps, flags] : std::vector<std::tuple<std::vector<float>, BallNorm, double, int>>{
           {moved, BallNorm::linf, 0.0199995, 0},
           {moved, BallNorm::linf, 0.019998, ImageOutcome::kOutside},
           {{-1e-7F, 0.5F, 1}, BallNorm::linf, 0.02, ImageOutcome::kOutside},
           {{0, 0.5F, std::nextafter(1.0F, 2.0F)}, BallNorm::linf, 0.02, ImageOutcome::kOutside},
           {{0, nan, 1}, BallNorm::linf, 0.02, ImageOutcome::kOutside},
           {moved, BallNorm::l2, far, 0},
           {moved, BallNorm::l2, far - 3e-6, ImageOutcome::kOutside},
           {{0, nan, 1}, BallNorm::l2, 1, ImageOutcome::kOutside}})
    CHECK(outcome_of(logits, clean, x, norm, eps).flags == flags);
  for (const float bad : {nan, -infinity})
    CHECK(outcome_of(std::vector{1.0F, bad, 3.0F}, clean, moved, BallNorm::linf, 0.02).flags ==
          ImageOutcome::kNotFinite);
}

TEST_CASE("A network that is random, or puts out probabilities, is found out", "[sequence]") {
  const std::vector<std::int32_t> labels = {0, 1};
  const std::vector<float> logits = {3, 0, -1, 0, 2, -2};
  CHECK(network_warnings({logits, logits}, labels).empty());
  // The first image's logits have length 3.16. Across them, 0.0004 turns them by 1.3e-4; 0.0009 along the first axis,
  // at an angle whose sine is 0.32, by 0.9e-4.
  std::vector<float> near = logits, far = logits;
  near[0] += 0.0009F;
  far[1] += 0.0004F;
  CHECK(network_warnings({logits, near}, labels).empty());
  REQUIRE(network_warnings({logits, logits, far}, labels).size() == 1);
  CHECK(contains(network_warnings({logits, far}, labels)[0], "random"));
  // Counts differ where logits hardly do.
  const std::vector<float> one = {1, 1, 0, 0, 1, 0}, other = {1, 1.00001F, 0, 0, 1, 0};
  CHECK(network_warnings({one, other}, labels).size() == 1);
  const std::vector<float> probabilities = {0.7F, 0.2F, 0.1F, 0, 1, 0};
  REQUIRE(network_warnings({probabilities}, labels).size() == 1);
  CHECK(contains(network_warnings({probabilities}, labels)[0], "probabilities"));
  CHECK(network_warnings({probabilities, logits}, labels).size() == 2);       // the first pass says what it puts out
  CHECK(network_warnings({{0.7F, 0.2F, 0.1F, 0, 0.9F, 0}}, labels).empty());  // a sum that is not 1
  CHECK(network_warnings({{0.7F, 0.4F, -0.1F, 0, 1, 0}}, labels).empty());    // a negative one
  CHECK(network_warnings({{1.000015F, -8e-6F, -7e-6F, 0, 1, 0}}, labels).empty());  // one above 1
}

TEST_CASE("Alarms of gradient masking speak where the attacks compared were run", "[sequence]") {
  using State = Alarm::State;
  const auto states = [](const std::vector<AttackFigure>& figures, const SequenceResult* sequence) {
    std::vector<State> all;
    for (const Alarm& alarm : masking_alarms(figures, sequence)) all.push_back(alarm.state);
    return all;
  };
  const State none = State::not_tested, quiet = State::quiet, raised = State::raised;
  CHECK(states({}, nullptr) == std::vector{none, none, none});
  CHECK(states({{"pgd10", 0.5}, {"square", 0.1}}, nullptr) == std::vector{none, none, none});
  // 0.2 % is allowed.
  CHECK(states({{"square", 0.49801}, {"apgd-ce", 0.5}}, nullptr) == std::vector{quiet, none, none});
  CHECK(states({{"square", 0.49799}, {"apgd-ce", 0.5}}, nullptr) == std::vector{raised, none, none});
  CHECK(states({{"square", 0}, {"apgd-ce", 0.002}, {"pgd10", 0.02}, {"pgd50", 0}}, nullptr) ==
        std::vector{quiet, none, quiet});
  // The best of them counts.
  CHECK(states({{"square", 0.49}, {"apgd-ce", 0.5}, {"apgd-t", 0.45}}, nullptr) == std::vector{quiet, none, none});
  SequenceResult sequence = rows_of({{"clean", 0.9}, {"apgd-ce", 0.5}, {"square", 0.497}, {"apgd-t", 0.3}});
  CHECK(states({}, &sequence) == std::vector{raised, quiet, none});
  sequence = rows_of({{"clean", 0.9}, {"apgd-ce", 0.5}, {"apgd-t", 0.45}, {"square", 0.449}});
  CHECK(states({}, &sequence) == std::vector{quiet, quiet, none});
  sequence = rows_of({{"clean", 0.9}, {"square", 0.4}, {"apgd-ce", 0.3}});  // nothing to compare with
  CHECK(states({}, &sequence) == std::vector{none, quiet, none});
  // A sequence's APGD, and a Square that was run on all images.
  CHECK(states({{"square", 0.2}}, &sequence) == std::vector{raised, quiet, none});
  CHECK(states({{"square", 0.3}}, &sequence) == std::vector{quiet, quiet, none});
  // What the longer attack breaks after the shorter one.
  SequenceResult steps = rows_of({{"clean", 0.9}, {"pgd10", 0.5}, {"fgsm", 0.49}, {"pgd50", 0.4799}});
  CHECK(states({}, &steps) == std::vector{none, quiet, quiet});
  steps.rows[3].accuracy = 0.4699;
  CHECK(states({}, &steps) == std::vector{none, quiet, raised});
  steps = rows_of({{"clean", 0.9}, {"pgd10", 0.5}, {"pgd50", 0.47}});
  CHECK(states({}, &steps) == std::vector{none, quiet, raised});
  sequence.rows[2].zero_gradients = 3;
  CHECK(states({}, &sequence) == std::vector{none, raised, none});
  CHECK(masking_alarms({}, &sequence)[1].text ==
        "the loss of apgd-ce has none at 3 of 1000 images: attacks that follow it leave these as they are, and the "
        "network is less robust than measured");
  sequence.rows[0].zero_gradients = 4;
  CHECK(contains(masking_alarms({}, &sequence)[1].text, "the cross-entropy has none at 4 of 1000 images, the loss of"));
  CHECK(states({{"pgd10", 0.5}, {"pgd50", 0.4801}}, nullptr) == std::vector{none, none, quiet});
  CHECK(states({{"pgd50", 0.4799}, {"pgd10", 0.5}}, nullptr) == std::vector{none, none, raised});
  for (const char* other : {"pgd49", "pgd50x2", "pgd50-cw", "smooth-pgd50"})
    CHECK(states({{"pgd10", 0.5}, {other, 0.1}, {"fgsm", 0.6}}, nullptr) == std::vector{none, none, none});
  // The largest difference is told.
  const std::vector<Alarm> told =
      masking_alarms({{"pgd2", 0.6}, {"pgd10", 0.5}, {"pgd50", 0.1}, {"square", 0.2}, {"apgd-ce", 0.5}}, nullptr);
  CHECK(told[0].text.starts_with("Square, which asks for no gradient, breaks 30.00 % of the images more than APGD:"));
  CHECK(told[2].text.starts_with("pgd50 leaves 50.00 % less than pgd2:"));
  CHECK(alarms_text(masking_alarms({{"pgd10", 0.5}, {"pgd50", 0.1}}, &sequence)) ==
        "Square beats APGD: not tested; zero gradients: YES; more steps of PGD: YES");
}

TEST_CASE("How sure a network is: the probability of its class", "[sequence]") {
  const std::vector<float> logits = {1000, 999, 1000 - std::log(4.0F)};
  CHECK(std::abs(double{confidence_of(logits)} - 1 / (1.25 + std::exp(-1.0))) < 1e-6);
  CHECK(confidence_of(std::vector<float>(8, -3)) == 0.125F);
  CHECK(std::isnan(confidence_of(std::vector<float>{0, std::nanf("")})));
}

TEST_CASE("Adversarial images outlive the evaluation that made them", "[sequence]") {
  const TemporaryFolder folder;
  const Three set;
  const SequenceResult result = result_of_three();
  CHECK(result.accuracy() == 1.0 / 3);
  const std::vector<float> broken = {0.25F, 0.5F, 0.75F};
  {
    AdversarialImages images(folder.path(), set, false);
    images.keep(1, broken.data(), 0.625F);
    images.sync();
  }
  CHECK(std::filesystem::file_size(folder / "adversarial.part") == 2 * (3 + 1) * sizeof(float));  // up to image 1
  CHECK(as_any_new(folder / "adversarial.part"));
  {
    AdversarialImages images(folder.path(), set, true);
    images.finish(result, {{"sequence", "pgd2"}});
  }
  CHECK(folder.names() == std::vector<std::string>{"adversarial.h5"});
  const Hdf5Reader file = Hdf5Reader::open(folder / "adversarial.h5", ExitCode::data);
  Shape shape;
  CHECK(file.read<float>("images", shape) ==
        std::vector<float>{0, 1 / 255.0F, 2 / 255.0F, 0.25F, 0.5F, 0.75F, 102 / 255.0F, 103 / 255.0F, 104 / 255.0F});
  CHECK(shape == Shape{3, 1, 1, 3});
  const std::vector<float> confidence = file.read<float>("confidence", shape);
  CHECK((shape == Shape{3} && std::isnan(confidence[0]) && confidence[1] == 0.625F && std::isnan(confidence[2])));
  CHECK(check_seal(folder / "adversarial.h5").empty());
  // A finished evaluation, asked again, leaves the file alone; but nothing can be added.
  AdversarialImages again(folder.path(), set, true);
  again.finish(result, {});
  CHECK(file.text("/", "sequence") == "pgd2");
  CHECK(contains(message_of([&] { again.keep(2, broken.data(), 1); }, ExitCode::usage), "remove the journal"));
  std::filesystem::remove(folder / "adversarial.h5");
  CHECK(contains(message_of([&] { const AdversarialImages gone(folder.path(), set, true); }, ExitCode::usage), "gone"));
  CHECK(contains(error_of([&] { const AdversarialImages none("/no", set, false); }), "9: cannot write /no/adv"));
  // What another evaluation has left is none of a new one's.
  write_bytes(folder / "adversarial.part", "left");
  const AdversarialImages anew(folder.path(), set, false);
  CHECK(read_bytes(folder / "adversarial.part").empty());
  std::filesystem::rename(folder / "adversarial.part", folder / "adversarial.h5");
  const AdversarialImages again_anew(folder.path(), set, false);
  CHECK(std::filesystem::exists(folder / "adversarial.part"));
}

TEST_CASE("Broken images are handed over, be it a single one", "[sequence]") {
  const Layout layout{3, 1, 1, 1};
  std::vector<float> told;
  hand_over_broken(test::single(), layout, {0.25F, 0.5F, 0.75F}, {{7, 0, 0.625F}}, 1,
                   [&](std::int64_t image, const float* pixels, float confidence) {
                     told.assign(pixels, pixels + 3);
                     told.insert(told.end(), {static_cast<float>(image), confidence});
                   });
  CHECK(told == std::vector{0.25F, 0.5F, 0.75F, 7.0F, 0.625F});
  // Of two ranks, five of each at a time, twice.
  CHECK(bytes_handed_over(layout, 2, 5) == 2 * 5 * 2 * (sizeof(BrokenImage) + 3 * sizeof(float)));
}

TEST_CASE("A sequence's results are in a file, image by image and attack by attack", "[sequence]") {
  const TemporaryFolder folder;
  write_sequence_results(folder / "results.h5", Three(), result_of_three(), {{"sequence", "pgd2"}});
  CHECK(check_seal(folder / "results.h5").empty());
  const Hdf5Reader file = Hdf5Reader::open(folder / "results.h5", ExitCode::data);
  Shape shape;
  using Numbers = std::vector<std::int64_t>;
  for (const auto& [name, numbers] : std::vector<std::pair<std::string, Numbers>>{{"image/label", {0, 1, 2}},
                                                                                  {"image/broken_by", {0, 1, -1}},
                                                                                  {"image/run", {0, 2, 0}},
                                                                                  {"image/prediction", {4, 5, 2}},
                                                                                  {"attack/runs", {1, 2}},
                                                                                  {"attack/images", {3, 2}},
                                                                                  {"attack/broken", {1, 1}}})
    CHECK(file.read<std::int64_t>(name, shape) == numbers);
  CHECK(file.read<std::uint8_t>("image/robust", shape) == std::vector<std::uint8_t>{0, 0, 1});
  CHECK(file.read<std::uint8_t>("image/clean_correct", shape) == std::vector<std::uint8_t>{0, 1, 1});
  CHECK(file.read<double>("image/distance", shape) == std::vector<double>{0, 0.03, 0});
  CHECK(file.read<double>("attack/accuracy", shape) == std::vector<double>{2.0 / 3, 1.0 / 3});
  CHECK(file.read<double>("attack/seconds", shape) == std::vector<double>{0.1, 0.2});
  CHECK((file.text("/", "filetype") == "evaluation" && file.integer("/", "format_version") == 1));
  CHECK((file.text("/", "sequence") == "pgd2" && file.text("attack/seconds", "units") == "s"));
}

TEST_CASE("A sequence says which of its attacks cannot reach the border of the ball", "[sequence]") {
  const auto notices = [](const char* word, double alpha) {
    return SequenceAttacks(read_attack_sequence(word), BallNorm::linf, 8.0 / 255, alpha, 10).notices();
  };
  CHECK((notices("pgd4+fgsm", 0).empty() && notices("aa-standard", 0).empty()));
  const auto two = notices("pgd3+pgd2+fgsm", 0);
  REQUIRE(two.size() == 2);
  CHECK(contains(two[0], "pgd3 moves by 6/255 at most, which is less than eps 8/255"));
  CHECK((contains(two[1], "pgd2 moves by 4/255 at most") && notices("pgd16+fgsm", 0.5 / 255).size() == 1));
}
