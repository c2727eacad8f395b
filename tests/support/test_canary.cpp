#include "catch.hpp"

TEST_CASE("This check fails, and ctest expects that it is seen to fail", "[.canary]") { CHECK(1 + 1 == 3); }
