#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "catch.hpp"
#include "dat/run_lock.hpp"
#include "dat/tick.hpp"

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
  CHECK((read_bytes(run + "/metrics.jsonl") == "{}\n" && fs::exists(run + "/.lock") && !locked(run)));
}

TEST_CASE("who waits for a start that fails holds the folder afterwards", "[report]") {
  const TemporaryFolder temporary;
  const std::string run = temporary / "run";
  auto first = std::make_unique<RunLock>(run, nobody);
  std::unique_ptr<RunLock> second;
  int waits = 0;
  std::uint64_t passed = 0;
  // The folder goes away while the second has the lock's file open.
  std::thread other([&] {
    ticking = true;
    const std::uint64_t before = ticks;
    second = std::make_unique<RunLock>(run, [&](const std::string&) {
      ++waits;
      passed = ticks - before;
      first.reset();
    });
  });
  other.join();
  CHECK((waits == 1 && passed == 1));  // who only looks is gone the second time
  CHECK(locked(run));                  // not a lock on the file that the first has removed
}

TEST_CASE("a lock says to whoever looks who holds it, how often the run was started, and how it ended", "[report]") {
  const TemporaryFolder temporary;
  const std::string run = temporary / "run";
  using Held = LockSeen::Held;
  CHECK(look_at_lock(run).held == Held::no);
  const auto says = [&](const std::string& host, std::int64_t starts, int code, double evaluated) {
    const Writer now = look_at_lock(run).writer;
    CHECK((now.host == host && now.starts == starts && now.code == code && now.evaluated == evaluated));
    CHECK(now.process == (host.empty() ? 0 : getpid()));
  };
  {
    RunLock lock(run, nobody);
    CHECK(look_at_lock(run).held == Held::yes);
    says("", 0, -1, -1);
    sign_off(run, 3);  // nobody has signed
    says("", 0, -1, -1);
    lock.sign("n01", false);
    lock.note_evaluation(0);
    says("n01", 1, -1, 0);
    lock.note_evaluation(0.5);  // too soon
    says("n01", 1, -1, 0);
    lock.note_evaluation(1);
    says("n01", 1, -1, -1);
    lock.note_evaluation(0);  // the next one begins
    says("n01", 1, -1, 0);
    lock.note_evaluation(1);
    says("n01", 1, -1, -1);
    write_bytes(run + "/metrics.jsonl", "");
    lock.sign_off(75);
    says("n01", 1, 75, -1);
    lock.note_evaluation(0);  // another rank may be the one that has noted the code
    says("n01", 1, 75, -1);
    CHECK(fs::file_size(run + "/.lock") == 512);
  }
  CHECK(look_at_lock(run).held == Held::no);
  RunLock lock(run, nobody), other(temporary / "other", nobody);
  lock.sign("n02", true);
  says("n02", 2, -1, -1);
  other.sign("n03", true);
  fs::copy_file(temporary / "other/.lock", run + "/.lock", fs::copy_options::overwrite_existing);
  lock.sign_off(7);  // another process has signed: it is the run's
  says("n03", 2, -1, -1);
  sign_off(run, 7);
  sign_off(run, 6);
  says("n03", 2, 7, -1);
  write_bytes(run + "/.lock", "{\"host\":\"n01\",\"process\":1");  // a part
  says("", 0, -1, -1);
}

TEST_CASE("what a lock's file says counts as far as a lock could have said it", "[report]") {
  const TemporaryFolder temporary;
  const std::string run = temporary / "run";
  const auto says = [&](const std::string& process, const std::string& starts, const std::string& part,
                        const std::string& code) {
    write_bytes(run + "/.lock", R"({"host":"h","process":)" + process + R"(,"starts":)" + starts + R"(,"evaluated":)" +
                                    part + R"(,"code":)" + code + "}");
    const Writer now = look_at_lock(run).writer;
    std::ostringstream text;
    if (!now.host.empty()) text << now.process << " " << now.starts << " " << now.evaluated << " " << now.code;
    return text.str();
  };
  CHECK((says("7", "2", "null", "null") == "7 2 -1 -1" && says("7", "0", "1", "-1") == "7 0 1 -1"));
  CHECK(says("7", "1000000000", "0.5", "0") == "7 1000000000 -1 0");
  CHECK(says("7", "2", "\"x\"", "255") == "7 2 -1 255");
  const char* none[][4] = {
      {"7.5", "2", "null", "null"},        {"7", "\"2\"", "null", "null"}, {"7", "-1", "null", "null"},
      {"7", "1000000001", "null", "null"}, {"7", "2", "1.5", "null"},      {"7", "2", "\"x\"", "null"},
      {"7", "2", "null", "256"},           {"7", "2", "null", "-2"},       {"7", "2", "null", "1.5"}};
  for (const auto& [process, starts, part, code] : none) CHECK(says(process, starts, part, code).empty());
  CHECK(look_at_lock(run + "/.lock").held == LockSeen::Held::no);  // of a file
  fs::remove(run + "/.lock");
  fs::create_symlink(".lock", run + "/.lock");
  CHECK(look_at_lock(run).held == LockSeen::Held::unknown);
  fs::remove(run + "/.lock");
  RunLock lock(run, nobody);
  lock.sign("h", false);
  sign_off(run, 0);
  lock.sign(std::string(500, 'h'), false);  // for which there is no room
  CHECK(look_at_lock(run).writer.code == 0);
  const std::string others = R"({"host":"","process":,"starts":1,"evaluated":null})" + std::to_string(getpid());
  for (const std::size_t bytes : {480, 481}) {  // the most, and more
    lock.sign(std::string(bytes - others.size(), 'h'), false);
    CHECK(look_at_lock(run).writer.host.size() == 480 - others.size());
  }
  fs::create_directories(temporary / "other/.lock");
  CHECK(error_of([&] { const RunLock no(temporary / "other", nobody); }).starts_with("9: cannot open "));
  CHECK(error_of([&] { static_cast<void>(make_new_folder(temporary / std::string(300, 'x'))); }).starts_with("9: "));
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
  CHECK((not_alone(file, 0, path) == "none" && not_alone(file, 5, path).starts_with("9: cannot write " + path)));
  close(file);
}
