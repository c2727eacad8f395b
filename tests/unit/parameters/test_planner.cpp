#include "catch.hpp"
#include "dat/planner.hpp"

using namespace dat;

namespace {

struct Life {
  std::size_t bytes;
  int first, last;
};

std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

TEST_CASE("Buffers that are alive together never share bytes, whatever their sizes and lives", "[planner]") {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Planner planner;
    std::vector<Life> lives;
    const int instructions = 1 + static_cast<int>(random() % 40);
    const int buffers = 1 + static_cast<int>(random() % 60);
    for (int k = 0; k < buffers; ++k) {
      const std::size_t bytes = 1 + random() % 2000;
      const Planner::Buffer buffer = planner.add(bytes);
      REQUIRE(buffer == k);
      Life life{bytes, instructions, -1};
      for (int touches = 1 + static_cast<int>(random() % 3); touches > 0; --touches) {
        const int instruction = static_cast<int>(random() % static_cast<unsigned>(instructions));
        planner.touch(buffer, instruction);
        life.first = std::min(life.first, instruction);
        life.last = std::max(life.last, instruction);
      }
      lives.push_back(life);
    }
    const std::size_t block = planner.place();
    std::size_t sum = 0, largest_live = 0;
    for (const Life& life : lives) sum += rounded(life.bytes);
    for (int now = 0; now < instructions; ++now) {
      std::size_t live = 0;
      for (const Life& life : lives) live += life.first <= now && now <= life.last ? life.bytes : 0;
      largest_live = std::max(largest_live, live);
    }
    CHECK((block <= sum && block >= largest_live));
    for (int a = 0; a < buffers; ++a) {
      const Life& one = lives[static_cast<std::size_t>(a)];
      REQUIRE((planner.offset(a) % 64 == 0 && planner.offset(a) + one.bytes <= block));
      for (int b = 0; b < a; ++b) {
        const Life& other = lives[static_cast<std::size_t>(b)];
        const bool together = one.first <= other.last && other.first <= one.last;
        const bool apart =
            planner.offset(a) + one.bytes <= planner.offset(b) || planner.offset(b) + other.bytes <= planner.offset(a);
        REQUIRE((!together || apart));
      }
    }
  }
}

TEST_CASE("A chain of equal buffers needs the room of two, buffers alive at once that of all", "[planner]") {
  Planner chain, crowd;
  for (int k = 0; k < 10; ++k) {
    for (const int instruction : {k, k + 1}) chain.touch(k == instruction ? chain.add(4096) : k, instruction);
    crowd.touch(crowd.add(4096), 0);
  }
  CHECK(chain.place() == 2 * 4096);
  float block[2048];
  CHECK(chain.at<float>(block, 1) == block + chain.offset(1) / sizeof(float));
  CHECK((chain.at<float>(block, -1) == nullptr && crowd.place() == 10 * 4096));
  Planner exact;  // the last one fits between the two before, to the byte
  for (const auto& [bytes, first] : {std::pair(128, 1), std::pair(192, 0), std::pair(256, 0), std::pair(128, 1)}) {
    const Planner::Buffer buffer = exact.add(static_cast<std::size_t>(bytes));
    for (const int instruction : {first, bytes > 192 ? 0 : 1}) exact.touch(buffer, instruction);
  }
  CHECK((exact.place() == 256 + 192 && Planner().place() == 0));
}
