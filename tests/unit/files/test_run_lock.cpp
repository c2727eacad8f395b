#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "catch.hpp"
#include "dat/run_lock.hpp"

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

TEST_CASE("folders that are made at the same moment are several", "[report]") {
  const TemporaryFolder temporary;
  const std::string wanted = temporary / "runs/now";
  std::vector<std::string> made(8);
  {
    std::vector<std::jthread> starts;
    for (std::string& path : made) starts.emplace_back([&] { path = make_new_folder(wanted); });
  }
  std::sort(made.begin(), made.end());
  std::vector<std::string> expected = {wanted};
  for (int k = 2; k <= 8; ++k) expected.push_back(wanted + "-" + std::to_string(k));
  CHECK(made == expected);
  { const RunLock lock(made[0], nobody, true); }
  CHECK(!fs::exists(made[0]));  // a start that failed leaves nothing
  CHECK(make_new_folder(wanted) == wanted);
}

TEST_CASE("a folder that was made anew is not taken from its new owner", "[report]") {
  const TemporaryFolder temporary;
  const std::string run = temporary / "run";
  auto first = std::make_unique<RunLock>(run, nobody);
  fs::remove_all(run);
  const RunLock second(run, nobody);
  first.reset();
  CHECK(locked(run));
}

namespace {

/// "CODE: what"; "none": it is alone.
std::string not_alone(int file, std::int64_t bytes, const std::string& path) {
  return error_of([&] { require_alone(file, bytes, path); });
}

}  // namespace

TEST_CASE("who has left another length in a file is not alone", "[report]") {
  const TemporaryFolder temporary;
  const std::string path = temporary / "file";
  write_bytes(path, "three");
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  CHECK(not_alone(file, 5, path) == "none");
  for (const std::int64_t bytes : {4, 6})
    CHECK(not_alone(file, bytes, path).starts_with("2: another process is writing into " + path));
  fs::rename(path, temporary / "moved");
  CHECK(not_alone(file, 5, path).starts_with("2: " + path + " was removed, or moved"));
  write_bytes(path, "three");  // of another process
  CHECK(not_alone(file, 5, path).starts_with("2: " + path + " was removed, or moved"));
  close(file);
}

TEST_CASE("what a full disk has not kept is no other process's doing", "[report]") {
  const TemporaryFolder temporary;
  const std::string path = temporary / "file";
  REQUIRE(mkfifo(path.c_str(), 0666) == 0);  // it has 0 bytes, and fdatasync() fails
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  CHECK(not_alone(file, 0, path) == "none");
  CHECK(not_alone(file, 5, path).starts_with("9: cannot write " + path));
  close(file);
}
