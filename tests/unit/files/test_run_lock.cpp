#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <thread>

#include "catch.hpp"
#include "dat/run_lock.hpp"
#include "temporary_folder.hpp"

using namespace dat;
namespace fs = std::filesystem;

namespace {

void nobody(const std::string& message) { FAIL("waited: " << message); }

bool locked(const std::string& folder) {
  const int file = open((folder + "/.lock").c_str(), O_WRONLY | O_CLOEXEC);
  const bool taken = file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  return taken;
}

}  // namespace

TEST_CASE("a start that wrote nothing leaves nothing", "[report]") {
  const TemporaryFolder temporary;
  const std::string run = temporary / "run";
  {
    const RunLock lock(run, nobody);
    CHECK(locked(run));
  }
  CHECK(!fs::exists(run));

  fs::create_directory(run);  // not the lock's own: it stays
  { const RunLock lock(run, nobody); }
  CHECK((fs::exists(run) && fs::is_empty(run)));

  {
    const RunLock lock(run, nobody);
    write_bytes(run + "/metrics.jsonl", "{}\n");
  }
  CHECK(read_bytes(run + "/metrics.jsonl") == "{}\n");
  CHECK((fs::exists(run + "/.lock") && !locked(run)));
}

TEST_CASE("who waits for a start that fails holds the folder afterwards", "[report]") {
  const TemporaryFolder temporary;
  const std::string run = temporary / "run";
  auto first = std::make_unique<RunLock>(run, nobody);
  std::unique_ptr<RunLock> second;
  int waits = 0;
  // The folder goes away while the second has the lock's file open.
  std::thread other([&] {
    second = std::make_unique<RunLock>(run, [&](const std::string&) {
      ++waits;
      first.reset();
    });
  });
  other.join();
  CHECK(waits == 1);
  CHECK(locked(run));  // not a lock on the file that the first has removed
}
