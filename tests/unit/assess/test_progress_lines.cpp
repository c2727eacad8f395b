#include <iostream>
#include <regex>

#include "assess/progress_lines.hpp"
#include "catch.hpp"

using namespace dat;

TEST_CASE("Lines of progress say how far an evaluation is, until it is done", "[report]") {
  std::ostringstream errors;
  std::streambuf* const before = std::cerr.rdbuf(errors.rdbuf());
  for (const double interval : {0.0, 1e9}) {
    ProgressLines lines(interval, 8);
    for (const std::int64_t done : {2, 8}) lines(done);
    for (const double part : {0.0, 0.5, 1.0}) lines("on the way", part);
    for (const auto& [runs, part] : {std::pair(2, 0.25), std::pair(1, 0.5), std::pair(1, 1.0)})
      lines({.attack = "pgd", .run = 1, .runs = runs, .done = 3, .images = 7, .right = 5, .seconds = 30, .part = part});
  }
  ProgressLines seldom(1e6, 8, ProgressLines::Clock::now() - std::chrono::seconds(1'500'000));
  for (const std::int64_t done : {4, 6}) seldom(done);  // one line in a million seconds
  std::cerr.rdbuf(before);
  // The first two times are three times and once those that have passed: next to nothing, where the test is not
  // delayed.
  CHECK(std::regex_match(errors.str(), std::regex("25 % of the images  ETA [^\n]*s\n"
                                                  "on the way  ETA [^\n]*s\n"
                                                  "pgd, run 1 of 2: 3 of 7 images, 5 right  ETA 1 min 30 s\n"
                                                  "pgd: 3 of 7 images, 5 right  ETA 30 s\n"
                                                  "50 % of the images  ETA [^\n]*\n")));
}
