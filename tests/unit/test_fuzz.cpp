// The targets of tests/fuzz on their corpus and on mutants of it. libFuzzer goes further: nightly.sh.

#include "allocations.hpp"
#include "catch.hpp"
#include "dat/random.hpp"
#include "data_path.hpp"
#include "fuzz/targets.hpp"

using namespace dat;

namespace {

/// Some bytes changed, cut out, repeated or taken from elsewhere.
std::string mutant_of(const std::string& whole, std::uint32_t number) {
  std::string bytes = whole;
  const std::uint32_t changes = 1 + number % 5;
  for (std::uint32_t k = 0; k < changes && !bytes.empty(); ++k) {
    const Philox4 words = random_words(11, Purpose::shuffle, 0, k, number);
    const std::size_t at = words.v[0] % bytes.size(),
                      length = 1 + words.v[1] % std::min<std::size_t>(16, bytes.size() - at);
    switch (words.v[2] % 6) {
      case 0:
        bytes.erase(at, length);
        break;
      case 1:
        bytes.insert(at, bytes.substr(words.v[3] % bytes.size(), length));
        break;
      case 2:
        bytes.resize(at);
        break;
      default:
        bytes[at] = static_cast<char>(words.v[3] % 3 == 0 ? static_cast<int>(words.v[3] >> 24)
                                                          : (bytes[at] ^ (1 << (words.v[3] / 3 % 8))));
        break;
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("Whatever bytes come from outside, the answer is a value or an Error, and no claim of theirs takes memory") {
  const char* count = std::getenv("DAT_FUZZ_MUTANTS");  // nightly.sh asks for more
  const std::uint32_t mutants = count != nullptr ? static_cast<std::uint32_t>(std::atoi(count)) : 150;
  for (const fuzz::Target& target : fuzz::kTargets) {
    CAPTURE(target.name);
    std::vector<std::string> corpus;
    for (const auto& entry :
         std::filesystem::directory_iterator(test::data_path("fuzz/corpus/" + std::string(target.name))))
      corpus.push_back(read_bytes(entry.path().string()));
    REQUIRE(corpus.size() >= 3);
    std::sort(corpus.begin(), corpus.end());
    for (const std::string& whole : corpus)
      for (std::uint32_t i = 0; i <= mutants; ++i) {
        const std::string bytes = i == 0 ? whole : mutant_of(whole, i);
        constexpr std::size_t kMost = 512 << 20;  // in all; files of the corpus are small
        const std::size_t before = allocated_bytes;
        target.run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
        if (const std::size_t taken = allocated_bytes - before; taken > kMost) FAIL(taken << " bytes of memory, " << i);
      }
  }
}
