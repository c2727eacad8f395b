#include "byzantine/mischief.hpp"
#include "catch.hpp"
#include "dat/cheat.hpp"
#include "perturb.hpp"
#include "random_values.hpp"
#include "train/attackers/arithmetic.hpp"
#include "train/attackers/attackers.hpp"
#include "train/protocol/ban_protocol.hpp"

using namespace dat;

namespace {

/// Three tensors, of which the second one is not active, and what a rank knows of them.
struct Known {
  static constexpr std::int64_t kSize = 60;
  explicit Known(std::int64_t number) {
    step = {.step = number,
            .tensors = tensors,
            .own = own.data(),
            .mean = mean.data(),
            .deviation = deviation.data(),
            .first = first.data(),
            .result = nullptr};
  }
  /// Another true gradient.
  void have(std::uint32_t seed) {
    truth = own = test::random_values(kSize, seed);
    step.own = own.data();
  }
  std::vector<Segment> segments = {{.name = "a", .shape = {}, .module = {}, .block = {}, .begin = 0, .size = 25},
                                   {.name = "b", .shape = {}, .module = {}, .block = {}, .begin = 25, .size = 20},
                                   {.name = "c", .shape = {}, .module = {}, .block = {}, .begin = 45, .size = 15}};
  std::vector<const Segment*> tensors = {&segments[0], &segments[2]};
  std::vector<float> truth = test::random_values(kSize, 1), own = truth, mean = test::random_values(kSize, 2),
                     deviation = test::random_values(kSize, 3, 0, 1), first = test::random_values(kSize, 4),
                     result = test::random_values(kSize, 5);
  CheatStep step;
};

constexpr CheatOptions kOptions{
    .seed = 7, .classes = 10, .ranks = 16, .attackers = 7, .rank = 3, .delay = 2, .parameters = Known::kSize};

[[nodiscard]] bool is_active(std::size_t i) { return i < 25 || i >= 45; }
[[nodiscard]] double norm(const std::vector<double>& numbers) {
  return std::sqrt(std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0));
}

/// How many numbers are not what `expected(i)` says, to the last bit or two, or are not as they were where the layer is
/// not active.
template <class Expected>
[[nodiscard]] int wrong(const Known& known, const Expected& expected) {
  int count = 0;
  for (std::size_t i = 0; i < known.own.size(); ++i)
    count += is_active(i) ? !(std::abs(known.own[i] - expected(i)) <= 0x1p-22 * std::abs(expected(i)))
                          : known.own[i] != known.truth[i];
  return count;
}

}  // namespace

TEST_CASE("How far honest ranks are from their mean, as A little is enough has it", "[cheats]") {
  CHECK(std::abs(deviations_allowed(16, 7) - 0.7647) < 5e-5);
  CHECK(std::abs(deviations_allowed(8, 3) - 0.2533) < 5e-5);
  CHECK(std::abs(deviations_allowed(3, 1)) < 1e-12);
  CHECK(summary_of(std::vector{1.0F, 4.0F, 7.0F}) == std::tuple(4.0F, 3.0F, 1.0F));
  CHECK(summary_of(std::vector{3.0F, 1.0F}) == std::tuple(2.0F, std::sqrt(2.0F), 3.0F));
  CHECK(summary_of(std::vector{5.0F}) == std::tuple(5.0F, 0.0F, 5.0F));
  // As exact where numbers are far from zero and near each other.
  CHECK(std::get<1>(summary_of(std::vector{1.0F, 1.0F, 1 + 0x1p-23F})) == Approx(0x1p-23 / std::sqrt(3.0)));
}

TEST_CASE("What cheats send is what their formulas say", "[cheats]") {
  Known known(5);
  const auto sent = [&](const char* name) {
    known.own = known.truth;
    const auto cheat = cheats().at(name)(kOptions);
    CHECK(cheat->sees() == (name == std::string("sign_flip") ? Cheat::Sees::own : Cheat::Sees::all));
    cheat->gradient(known.step);
  };
  sent("sign_flip");
  CHECK(wrong(known, [&](std::size_t i) { return -1000.0 * known.truth[i]; }) == 0);
  for (const auto& [name, factor] : {std::pair("ipm01", -0.1), std::pair("ipm06", -0.6)}) {
    sent(name);
    CHECK(wrong(known, [&, by = factor](std::size_t i) { return by * known.mean[i]; }) == 0);
  }
  sent("alie");
  int far = 0;
  for (std::size_t i = 0; i < known.own.size(); ++i)
    far += is_active(i) && std::abs(known.own[i] - (known.mean[i] - 0.76470967 * known.deviation[i])) > 1e-6;
  CHECK(far == 0);
  sent("mimic");
  CHECK(wrong(known, [&](std::size_t i) { return double{known.first[i]}; }) == 0);
}

TEST_CASE("The constant direction is one for all ranks and steps, tensor by tensor a thousand times the gradient",
          "[cheats]") {
  Known one(5), other(9);
  other.have(99);
  CheatOptions options = kOptions;
  cheats().at("constant")(options)->gradient(one.step);
  options.rank = 5;
  cheats().at("constant")(options)->gradient(other.step);
  std::vector<double> direction;
  for (int i = 0; i < Known::kSize; ++i)
    direction.push_back(kernels::normal_number<double>(
        random_words(7, Purpose::attackers, 0, static_cast<std::uint64_t>(i / 4), 0), i % 4));
  for (const Known* known : {&one, &other})
    for (const auto& [begin, size] : {std::pair(0, 25), std::pair(45, 15)}) {
      const double length = norm({known->truth.begin() + begin, known->truth.begin() + begin + size}),
                   of_direction = norm({direction.begin() + begin, direction.begin() + begin + size});
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(begin + size); ++i)
        CHECK(known->own[i] == Approx(1000 * length / of_direction * direction[i]).epsilon(1e-6));
    }
  CHECK(wrong(one, [&](std::size_t i) { return double{one.own[i]}; }) == 0);
}

TEST_CASE("A late gradient is that of some steps ago, or an honest one where there was none", "[cheats]") {
  for (const auto& [name, delay] : {std::pair("delayed", 2), std::pair("free_rider", 1)}) {
    const auto cheat = cheats().at(name)(kOptions);
    CHECK(cheat->looks_back() == delay);
    CHECK(cheat->memory() == (delay + 1) * Known::kSize * 4);
    const Known names(0);  // tensors are known by their addresses, the same in all steps
    std::vector<std::vector<float>> truths;
    for (int step = 0; step < 9; ++step) {
      Known now(step);
      now.have(static_cast<std::uint32_t>(100 + step));
      now.step.tensors = std::span(names.tensors).first(step == 2 ? 1 : 2);
      truths.push_back(now.truth);
      if (step == 5) continue;  // nobody looks
      cheat->look(now.step);
      cheat->gradient(now.step);
      const int then = step - delay;
      const bool known = then >= 0 && then != 5;
      INFO(name << ", step " << step);
      int bad = 0;
      for (std::size_t i = 0; i < now.own.size(); ++i) {
        const bool late = known && is_active(i) && !((step == 2 || then == 2) && i >= 45);
        bad += now.own[i] != (late ? truths[static_cast<std::size_t>(then)] : now.truth)[i];
      }
      CHECK(bad == 0);
    }
  }
}

TEST_CASE("The history attack goes from the last result, across the way, as far as A little is enough", "[cheats]") {
  const auto reference = [](const Known& known, bool first) {
    std::vector<double> last, along;
    for (std::size_t i = 0; i < known.own.size(); ++i)
      if (is_active(i)) {
        last.push_back(first ? known.mean[i] : known.result[i]);
        along.push_back(0.9 * last.back() + 0.1 * known.mean[i]);
      }
    const double squares = norm(along) * norm(along);
    std::vector<double> across(along.size(), 1.0);
    const double part = std::accumulate(along.begin(), along.end(), 0.0) / squares;
    for (std::size_t i = 0; i < across.size(); ++i) across[i] -= part * along[i];
    CHECK(std::abs(std::inner_product(along.begin(), along.end(), across.begin(), 0.0)) < 1e-12);
    std::vector<double> sent;
    for (std::size_t i = 0; i < across.size(); ++i)
      sent.push_back(last[i] + deviations_allowed(16, 7) * across[i] / norm(across));
    return sent;
  };
  for (const bool first : {true, false}) {
    Known known(5);
    known.step.result = first ? nullptr : known.result.data();
    const std::vector<double> expected = reference(known, first);
    cheats().at("history")(kOptions)->gradient(known.step);
    std::size_t at = 0;
    for (std::size_t i = 0; i < known.own.size(); ++i)
      if (is_active(i)) CHECK(known.own[i] == Approx(expected[at++]).epsilon(1e-6).margin(1e-7));
    CHECK(wrong(known, [&](std::size_t i) { return double{known.own[i]}; }) == 0);
  }
  // Without a direction there is nothing to go across.
  Known lost(5);
  lost.result[3] = std::nanf("");
  lost.step.result = lost.result.data();
  cheats().at("history")(kOptions)->gradient(lost.step);
  CHECK(lost.own == lost.truth);
  std::ranges::fill(lost.mean, 0.0F);
  lost.step.result = nullptr;
  cheats().at("history")(kOptions)->gradient(lost.step);
  CHECK(lost.own == lost.truth);
}

TEST_CASE("A flipped bit is one bit of one number of an active layer, another one in every step and rank", "[cheats]") {
  std::vector<std::pair<std::size_t, std::uint32_t>> flips;
  for (const int rank : {1, 2})
    for (int step = 0; step < 50; ++step) {
      CheatOptions options = kOptions;
      options.rank = rank;
      Known known(step);
      cheats().at("bit_flip")(options)->gradient(known.step);
      const auto words =
          random_words(7, Purpose::attackers, static_cast<std::uint32_t>(step), static_cast<std::uint64_t>(rank), 1);
      // A number of 64 bits modulo the 40 elements; 2^32 leaves 16.
      const std::size_t number = (16 * (words.v[0] % 40) + words.v[1] % 40) % 40;
      std::size_t changed = 0;
      for (std::size_t i = 0; i < known.own.size(); ++i) {
        const std::uint32_t bits =
            std::bit_cast<std::uint32_t>(known.own[i]) ^ std::bit_cast<std::uint32_t>(known.truth[i]);
        if (bits == 0) continue;
        ++changed;
        CHECK((std::has_single_bit(bits) && is_active(i)));
        CHECK((i == (number < 25 ? number : number + 20) && bits == 1U << words.v[2] % 32));
        flips.emplace_back(i, bits);
      }
      CHECK(changed == 1);
    }
  std::sort(flips.begin(), flips.end());
  // Of 1280 places, 100 draws hit about 96.
  CHECK(std::unique(flips.begin(), flips.end()) - flips.begin() > 85);
}

TEST_CASE("Cheats with labels, statistics and the attack leave gradients alone", "[cheats]") {
  std::vector<std::int32_t> labels = {0, 9, 4, -1};
  cheats().at("label_flip")(kOptions)->labels(labels);
  CHECK(labels == std::vector<std::int32_t>{9, 0, 5, -1});
  std::vector<double> numbers = {1, -2, 0};
  cheats().at("bn_poison")(kOptions)->statistics(numbers);
  CHECK(numbers == std::vector<double>{1000, -2000, 0});
  CHECK(cheats().at("weak")(kOptions)->attack_steps() == 0);
  CHECK(cheats().at("weak1")(kOptions)->attack_steps() == 1);
  for (const char* name : {"label_flip", "bn_poison", "weak", "weak1", "leave"}) {
    const auto cheat = cheats().at(name)(kOptions);
    CHECK((cheat->sees() == Cheat::Sees::nothing && cheat->mischief() == nullptr));
    CHECK((cheat->looks_back() == 0 && cheat->memory() == 0 && cheat->leaves() == (std::string(name) == "leave")));
  }
  for (const char* name : {"label_flip", "bn_poison", "sign_flip", "leave"})
    CHECK(!cheats().at(name)(kOptions)->attack_steps());
}

TEST_CASE("A rank covers its friends with what they have committed to; who is idle covers everybody", "[cheats]") {
  Collusion covers;
  const auto idle = cheats().at("idle_validator")(kOptions);
  const std::vector<Sha256Digest> of_friend(2, Sha256Digest{1}), told(2, Sha256Digest{2});
  const PendingCheck check{.target = 3, .commitments = told, .numbers = {4, 5}, .claims = {}};
  CHECK(covers.story(check) == nullptr);
  covers.act(idle.get());
  REQUIRE(covers.story(check) != nullptr);
  CHECK((covers.story(check)->roots == told && covers.story(check)->numbers == check.numbers));
  covers.hear(3, of_friend);
  CHECK(covers.story(check)->roots == of_friend);
  covers.act(nullptr);
  covers.forget();
  CHECK(covers.story(check) == nullptr);
}

TEST_CASE("Lies about parts: other digests of all of them, and another result", "[cheats]") {
  const auto digests = cheats().at("wrong_digest")(kOptions);
  constexpr std::size_t kParts = 3 * sizeof(Sha256Digest);
  Letter letter(kParts + 2 * sizeof(Sha256Digest));  // two more, of secrets
  digests->mischief()->message(Topic::claims, letter, false);
  digests->mischief()->message(Topic::commit, letter, true);
  CHECK(std::ranges::count(letter.bytes(), std::byte{0}) == std::ssize(letter.bytes()));
  digests->mischief()->message(Topic::commit, letter, false);
  for (std::size_t i = 0; i < letter.bytes().size(); ++i)
    CHECK(letter.bytes()[i] == (i < kParts ? std::byte{0xff} : std::byte{0}));

  std::vector<float> part = {1, -2, 0.5F};
  cheats().at("wrong_aggregate")(kOptions)->mischief()->aggregate(part);
  CHECK(part == std::vector<float>{-1000, 2000, -500});
  part = {1, -2};
  cheats().at("equivocate")(kOptions)->mischief()->parts(part);
  CHECK(part == std::vector<float>{-1, 2});
  cheats().at("silent")(kOptions)->mischief()->parts(part);
  CHECK(part == std::vector<float>{0, 0});
}

TEST_CASE("Lies about claims: each is one higher; and lengths that are none, or others", "[cheats]") {
  for (const auto& [name, more] : {std::pair("false_norm", Claim{0, 1}), std::pair("false_product", Claim{1, 0})}) {
    Letter letter(8 + 2 * sizeof(Claim));       // behind a number
    for (const bool validates : {false, true})  // what it claims of another rank's work is true
      cheats().at(name)(kOptions)->mischief()->message(Topic::claims, letter, validates);
    std::vector<double> numbers(5);
    std::memcpy(numbers.data(), letter.bytes().data(), letter.bytes().size());
    CHECK(numbers == std::vector<double>{0, more.product, more.norm, more.product, more.norm});
  }
  const auto length = [](const char* name, Topic topic) {
    Letter letter(12);
    letter.seal();
    cheats().at(name)(kOptions)->mischief()->message(topic, letter, true);
    return letter.length();
  };
  CHECK((length("malformed", Topic::claims) == 16 && length("no_reveal", Topic::reveal) == 0));
  for (const Topic topic : {Topic::commit, Topic::salts, Topic::show})
    CHECK(length("silent", topic) == (topic == Topic::commit ? 12U : 0U));
  Letter accused(5);
  cheats().at("false_accuser")(kOptions)->mischief()->message(Topic::accusations, accused, true);
  CHECK(std::ranges::count(accused.bytes(), std::byte{0xff}) == 5);
}

TEST_CASE("A word of a cheat has its name, and where it says so its delay, its first step and the steps between",
          "[cheats]") {
  const auto read = [](const std::string& word) {
    const std::optional<CheatWord> found = read_cheat_word(word);
    return found ? found->name + " " + std::to_string(found->delay) + " " + std::to_string(found->from) + " " +
                       std::to_string(found->every)
                 : "none";
  };
  CHECK(read("late") == "late 0 0 1");
  CHECK(read("late:1") == "late 1 0 1");
  CHECK(read("late@0/1") == "late 0 0 1");
  CHECK(read("late:7@5/2") == "late 7 5 2");
  CHECK(read("late@1152921504606846976/1073741824") == "late 0 1152921504606846976 1073741824");
  for (const char* wrong : {"", ":1", "@1", "late:", "late:0", "late@", "late@-1", "late@1152921504606846977",
                            "late@5:3", "late@5/", "late@5/0", "late@5/1073741825", "late@5/2/2"})
    CHECK(read(wrong) == "none");
  Cheater one;
  CHECK(one.own_delay() == 1000);
  one.delay = 1;
  CHECK(one.own_delay() == 1);
}
