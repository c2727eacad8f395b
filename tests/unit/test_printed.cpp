#include <iostream>

#include "catch.hpp"
#include "printed.hpp"

using namespace dat;

TEST_CASE("What a terminal would obey is not printed", "[report]") {
  const struct {
    std::string text, printed;
  } cases[] = {
      {"plain\n\ttext ~", "plain\n\ttext ~"},
      {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xb1 \xc2\xa0", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xb1 \xc2\xa0"},
      {std::string("\0\a\b\v\f\r\033[2J\x7f", 11),
       "??????"
       "?[2J?"},
      {"\xc2\x80|\xc2\x9b|\xc2\x9f", "?|?|?"},        // C1
      {"\x9b|\xff|\xe9t\xe9", "?|?|?t?"},             // bytes of Latin-1
      {"\xc0\x9b|\xe0\x82\x9b", "??|???"},            // longer forms of what is shorter
      {"\xed\xa0\x80|\xf4\x90\x80\x80", "???|????"},  // half a pair; after the last character
      {"\x80|\xf5\x80\x80\x80|\xf0\x8f\xbf\xbf|\xe2\x82\xc0|\xc3\xc0", "?|????|????|???|??"},
      {"cut \xe2\x82", "cut ??"},
  };
  for (const auto& one : cases) {
    CHECK(without_controls(one.text) == one.printed);
    CHECK(without_controls(one.printed) == one.printed);
  }
  const std::string ends =
      "\xe0\xa0\x80\xed\x9f\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xc3\x80";  // next to what is refused
  CHECK(without_controls(ends) == ends);
  CHECK(in_one_line("a\n\tb\r") == "a  b?");
}

TEST_CASE("What is printed to be kept is printed as it is, or not at all", "[report]") {
  const std::string plain = "a\n\tb \xc3\xa9\n";
  CHECK(unchanged(plain) == plain);
  CHECK(contains(message_of([] { (void)unchanged("first\nout = \"r\xe9\"\nlast"); }),
                 "in the line 'out = \"r?\"'; rename"));
  CHECK(contains(message_of([] { (void)unchanged("\afirst\nlast"); }), "in the line '?first'; rename"));
}

TEST_CASE("Standard output is cleaned, and characters may come in pieces", "[report]") {
  std::ostringstream out;
  std::streambuf* const before = std::cout.rdbuf(out.rdbuf());
  clean_output();
  std::cout << "a\033b\n"
            << '\xe2' << std::flush << "\x82"
            << "\xac " << '\x9b' << "\xc3"
            << "\n"
            << std::flush;
  std::cout.put('\x7f').put('.');
  const bool good = std::cout.good();
  delete std::cout.rdbuf(before);
  CHECK(good);
  CHECK(out.str() == "a?b\n\xe2\x82\xac ??\n?.");
}

TEST_CASE("What is said on standard error is one line", "[report]") {
  std::ostringstream errors;
  std::streambuf* const before = std::cerr.rdbuf(errors.rdbuf());
  say("warning: \a of x\nFinal: clean_acc=1.0 VALID");
  std::cerr.rdbuf(before);
  CHECK(errors.str() == "dat_hpc: warning: ? of x Final: clean_acc=1.0 VALID\n");
}
