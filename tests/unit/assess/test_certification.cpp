#include "assess/certification/certification.hpp"
#include "catch.hpp"
#include "smoothing/bounds.hpp"

using namespace dat;

namespace {

constexpr std::int64_t kBlock = CertificationPlan::kBlock;

[[nodiscard]] CertificationPlan plan_with(std::int64_t n0, std::int64_t n, std::vector<double> radii = {}) {
  return {.sigma = 0.5, .n0 = n0, .n = n, .radii = std::move(radii)};
}

/// Enters all blocks in this order; each of them votes by `votes_of`.
template <class Votes>
[[nodiscard]] Certificate answer(const CertificationPlan& plan, const Votes& votes_of,
                                 std::vector<std::int64_t> order = {}) {
  ImageVotes image(plan, 3);
  if (order.empty())
    for (std::int64_t block = 0; block < plan.blocks(); ++block) order.push_back(block);
  for (const std::int64_t block : order)
    if (!image.finished() && !image.knows(block)) image.enter(block, votes_of(block));
  CHECK(image.finished());
  return image.certificate();
}

}  // namespace

TEST_CASE("Blocks share out the samples of each kind", "[certification]") {
  const CertificationPlan plan = plan_with(300, 1000);
  CHECK((plan.candidate_blocks() == 2 && plan.blocks() == 6));
  std::vector<std::int64_t> sizes, firsts;
  for (std::int64_t block = 0; block < plan.blocks(); ++block) {
    sizes.push_back(plan.samples_of(block));
    firsts.push_back(plan.first_of(block));
  }
  CHECK(sizes == std::vector<std::int64_t>{256, 44, 256, 256, 256, 232});
  CHECK(firsts == std::vector<std::int64_t>{0, 256, 0, 256, 512, 768});
  CertificationPlan predicts = plan;
  predicts.predicts = true;
  CHECK((predicts.candidate_blocks() == 0 && predicts.blocks() == 4));
  for (const auto& [samples, blocks] : {std::pair{255, 1}, {256, 1}, {257, 2}}) {
    CHECK((plan_with(samples, 1).candidate_blocks() == blocks && plan_with(1, samples).blocks() == 1 + blocks));
  }
}

TEST_CASE("The first samples choose the class, the others bound its probability", "[certification]") {
  const CertificationPlan plan = plan_with(300, 1000);
  // Class 2 is chosen by both blocks together; after the first of them, class 1 has more votes.
  const Certificate c = answer(plan, [&](std::int64_t block) {
    if (block < 2) return block == 0 ? Votes{10, 46, 200} : Votes{0, 34, 10};
    return block < 5 ? Votes{0, 6, 250} : Votes{0, 232, 0};
  });
  CHECK((c.votes == 750 && c.samples == 1000 && c.prediction == 2));
  CHECK((c.lower == clopper_pearson_lower(750, 1000, 0.001) && c.radius == certified_radius(c.lower, 0.5)));
}

TEST_CASE("Of equal votes the lowest class counts, and half of the votes is not enough", "[certification]") {
  const CertificationPlan plan = plan_with(100, 256);
  const auto with = [&](Votes first, Votes others) {
    return answer(plan, [&](std::int64_t block) { return block == 0 ? first : others; });
  };
  CHECK(with({20, 40, 40}, {0, 250, 6}).prediction == 1);
  const Certificate abstains = with({0, 100, 0}, {100, 130, 26});
  CHECK((abstains.prediction == Certificate::kAbstains && abstains.radius == 0 && abstains.votes == 130));
}

TEST_CASE("A prediction needs more votes than a fair coin gives", "[certification]") {
  CertificationPlan plan = plan_with(100, 100);
  plan.predicts = true;
  const auto with = [&](const Votes& votes) { return answer(plan, [&](std::int64_t) { return votes; }); };
  CHECK((with({33, 67, 0}).prediction == 1 && with({34, 66, 0}).prediction == Certificate::kAbstains));
  CHECK(with({10, 0, 0}).prediction == Certificate::kAbstains);  // 90 samples are not known
  CHECK(with({0, 0, 11}).prediction == 2);
}

TEST_CASE("A sequence ends once each radius is decided, wherever further blocks come from", "[certification]") {
  const CertificationPlan plan = plan_with(100, 100'000, {0.1, 0.5, 1.5});  // the second one is decided last
  std::mt19937_64 words(3);
  std::vector<Votes> votes;
  for (std::int64_t block = 0; block < plan.blocks(); ++block) {
    std::binomial_distribution<std::int64_t> right(plan.samples_of(block), 0.9);
    const std::int64_t count = right(words);
    votes.push_back({plan.samples_of(block) - count, 0, count});
  }
  const auto of = [&](std::int64_t block) { return votes[static_cast<std::size_t>(block)]; };
  const auto all_of = [](const Certificate& c) {  // but the time
    return std::tuple(c.prediction, c.radius, c.votes, c.samples, c.lower, c.decided);
  };
  const Certificate straight = answer(plan, of);
  CHECK((straight.samples < 10'000 && straight.samples % kBlock == 0 && straight.prediction == 2));
  CHECK(straight.decided == std::vector<int>{1, 1, -1});  // Phi(r / .5): .579, .841, .999
  CHECK((straight.radius >= 0.5 && straight.radius < 1.5));
  for (int shuffle = 0; shuffle < 20; ++shuffle) {
    std::vector<std::int64_t> order;
    for (std::int64_t block = 0; block < plan.blocks(); ++block) order.push_back(block);
    std::shuffle(order.begin(), order.end(), words);
    CHECK(all_of(answer(plan, of, order)) == all_of(straight));
  }
}

TEST_CASE("A sequence that decides nothing ends with its samples", "[certification]") {
  const double p = 0.9;
  const CertificationPlan plan = plan_with(100, 2000, {0.5 * normal_quantile(p)});
  const Certificate c = answer(plan, [&](std::int64_t block) {
    const std::int64_t all = plan.samples_of(block), right = std::llround(p * static_cast<double>(all));
    return Votes{right, all - right, 0};
  });
  CHECK((c.samples == 2000 && c.decided == std::vector<int>{0} && c.prediction == 0));
  CHECK((c.radius > 0 && c.radius < plan.radii[0]));
  // A radius is decided once the evidence is 1/alpha, and no earlier.
  for (std::int64_t right = 180; right <= kBlock; ++right) {
    const auto votes = [&](std::int64_t) { return Votes{right, kBlock - right, 0}; };
    const bool decided = answer(plan_with(100, kBlock, {0.5}), votes).decided != std::vector<int>{0};
    CHECK(decided == (mixture_evidence(right, kBlock, normal_cdf(1)) >= std::log(1 / 0.001)));
  }
}

TEST_CASE("An entry of the journal is read as it was written, a damaged one refused", "[certification]") {
  const CertificationEntry entry{.seconds = 1.5, .images = {0, 20}, .blocks = {3, 0}, .votes = {{1, 2}, {3, 4}}};
  const auto read = read_certification_journal(line_of(entry) + "\n" + line_of(entry) + "\n", "certify.journal");
  REQUIRE(read.size() == 2);
  CHECK((read[1].images == entry.images && read[1].blocks == entry.blocks && read[1].votes == entry.votes));
  CHECK(read[1].seconds == 1.5);
  for (const char* line : {"{}", "{\"seconds\":1,\"images\":[0],\"blocks\":[],\"votes\":[]}", "[1",
                           "{\"seconds\":1,\"images\":[1e30],\"blocks\":[0],\"votes\":[[1]]}",
                           "{\"seconds\":1,\"images\":[0],\"blocks\":[0],\"votes\":[[-1]]}"}) {
    const auto reading = [&] { (void)read_certification_journal(std::string(line) + "\n", "certify.journal"); };
    CHECK(message_of(reading, ExitCode::data).starts_with("certify.journal: line 2 is damaged"));
  }
}
