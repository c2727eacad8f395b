#include "catch.hpp"
#include "communicate/nccl/library.hpp"

using namespace dat;

TEST_CASE("A version of NCCL is read as its header writes it", "[communicator]") {
  CHECK((nccl::version_text(2708) == "2.7.8" && nccl::version_text(2000) == "2.0.0"));
  CHECK((nccl::version_text(9999) == "9.9.99" && nccl::version_text(10000) == "1.0.0"));
  CHECK((nccl::version_text(21403) == "2.14.3" && nccl::version_text(23003) == "2.30.3"));
}

TEST_CASE("NCCL is found at run time, or the reason is told", "[communicator]") {
  std::string why;
  const nccl::Library* const library = nccl::library(why);
  CHECK((library == nullptr) == !why.empty());
  if (library == nullptr) CHECK(contains(why, "LD_LIBRARY_PATH"));
}
