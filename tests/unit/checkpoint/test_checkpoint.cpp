#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "catch.hpp"
#include "dat/checkpoint.hpp"
#include "dat/file.hpp"
#include "dat/random.hpp"
#include "hdf5/hdf5.hpp"

using namespace dat;

namespace {

Checkpoint example(std::int64_t step) {
  Checkpoint checkpoint;
  for (const char* group : {"param", "optim/m", "bn"}) {
    for (const char* name : {"layer2.0.conv1.weight", "layer1.0.conv1.weight", "bn1.running_mean"}) {
      Checkpoint::Array array{std::string(group) + "/" + name, {3, 2, 5}, {}};
      const std::uint64_t key = checkpoint.arrays.size();
      for (std::uint32_t i = 0; i < 30; ++i) {
        // any bits but NaN
        const std::uint32_t bits = random_words(static_cast<std::uint64_t>(step), Purpose::shuffle, 0, key, i).v[0];
        const float value = std::bit_cast<float>(bits);
        array.values.push_back(value == value ? value : -0.0F);
      }
      array.values[0] = std::numeric_limits<float>::denorm_min();
      array.values[1] = -std::numeric_limits<float>::infinity();
      checkpoint.arrays.push_back(std::move(array));
    }
  }
  checkpoint.arrays.push_back({"bn/num_batches", {}, {7.0F}});
  checkpoint.doubles["log_weights"] = {0.1, -1e300, 5e-324};
  checkpoint.doubles["nothing"] = {};
  checkpoint.bytes["perturbations"] = {{2, 1, 3}, {0, 1, 127, 128, 254, 255}};
  checkpoint.bytes["none"] = {{0, 4}, {}};
  checkpoint.integers["step"] = step;
  checkpoint.integers["seed"] = std::numeric_limits<std::int64_t>::min();
  checkpoint.texts["config_toml"] = "lr = 0.1 # für alle\n" + std::string(100000, 'x');
  checkpoint.texts["empty"] = "";
  return checkpoint;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// nightly.sh asks for more.
std::uint32_t random_flips() {
  const char* count = std::getenv("DAT_TEST_FLIPS");
  return count != nullptr ? static_cast<std::uint32_t>(std::atoi(count)) : 1000;
}

/// Does `work` in a child process that is killed right after its n-th system call, counted from 1. False: it has ended
/// before.
bool killed_behind(int n, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(3);
    raise(SIGSTOP);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFSTOPPED(status));  // else the system does not let processes be traced
  ptrace(PTRACE_SETOPTIONS, child, nullptr, static_cast<long>(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
  for (int stops = 0; stops < 2 * n;) {  // one where a call begins, one where it ends
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) {
      REQUIRE(WIFEXITED(status));
      REQUIRE(WEXITSTATUS(status) == 0);
      return false;
    }
    stops += WSTOPSIG(status) == (SIGTRAP | 0x80);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return true;
}

void check_same(const Checkpoint& a, const Checkpoint& b) {
  REQUIRE(a.arrays.size() == b.arrays.size());
  for (const Checkpoint::Array& array : a.arrays)
    CHECK(same_bits(array.values, b.array(array.name, array.shape).values));
  REQUIRE(a.bytes.size() == b.bytes.size());
  for (const auto& [name, array] : a.bytes) {
    REQUIRE(b.bytes.count(name) == 1);
    CHECK((array.shape == b.bytes.at(name).shape && array.values == b.bytes.at(name).values));
  }
  CHECK((a.doubles == b.doubles && a.integers == b.integers && a.texts == b.texts));
}

}  // namespace

TEST_CASE("A checkpoint is read back bit for bit, arrays in their order, and the same content gives the same file") {
  const TemporaryFolder folder;
  const Checkpoint written = example(3);
  write_checkpoint(folder / "a.h5", written);
  write_checkpoint(folder / "b.h5", written);
  const Checkpoint read = read_checkpoint(folder / "a.h5");
  check_same(written, read);
  for (std::size_t i = 0; i < written.arrays.size(); ++i) CHECK(written.arrays[i].name == read.arrays[i].name);
  CHECK((read_bytes(folder / "a.h5") == read_bytes(folder / "b.h5") && check_seal(folder / "a.h5").empty()));
  write_checkpoint(folder / "nothing.h5", {});
  check_same({}, read_checkpoint(folder / "nothing.h5"));
}

TEST_CASE("An array that is missing or has another shape is Error(checkpoint)") {
  const Checkpoint checkpoint = example(1);
  CHECK(contains(error_of([&] { static_cast<void>(checkpoint.array("param/fc.weight", {3, 2, 5})); }), "4: "));
  const std::string error = error_of([&] { static_cast<void>(checkpoint.array("bn/bn1.running_mean", {30})); });
  CHECK(contains(error, "has the shape [3,2,5], not [30]"));
}

TEST_CASE("Truncation at any of 200 lengths and a flip of any bit of seal, header or data are detected before HDF5") {
  const TemporaryFolder folder;
  const std::string path = folder / "damaged.h5";
  write_checkpoint(folder / "whole.h5", example(5));
  const std::string whole = read_bytes(folder / "whole.h5");
  std::vector<std::size_t> lengths;
  for (std::size_t i = 0; i < 64; ++i) lengths.insert(lengths.end(), {i, i * whole.size() / 64, whole.size() - 1 - i});
  for (std::size_t i = 0; i < 8; ++i) lengths.push_back(kSealBytes - 4 + i);
  for (const std::size_t length : lengths) {
    write_bytes(path, whole.substr(0, length));
    CAPTURE(length);
    CHECK(!check_seal(path).empty());
    CHECK(error_of([&] { static_cast<void>(read_checkpoint(path)); }).substr(0, 3) == "4: ");
  }
  write_bytes(path, whole + "x");
  CHECK(contains(check_seal(path), "bytes instead of"));
  write_bytes(path, whole.substr(0, kSealBytes) + std::string(whole.size() - kSealBytes, '\0'));
  CHECK(!check_seal(path).empty());

  std::vector<std::size_t> bits(8 * (kSealBytes + 64));
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = i;
  for (std::uint32_t i = 0; i < random_flips(); ++i)
    bits.push_back(random_words(1, Purpose::shuffle, 0, 0, i).v[0] % (8 * whole.size()));
  std::string damaged = whole;
  int undetected = 0;
  for (const std::size_t bit : bits) {
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    write_bytes(path, damaged);
    undetected += check_seal(path).empty();
    damaged[bit / 8] = whole[bit / 8];
  }
  CHECK(undetected == 0);
  write_bytes(path, damaged);
  CHECK(check_seal(path).empty());
}

TEST_CASE("A sealed file of another kind is no checkpoint") {
  const TemporaryFolder folder;
  write_sealed(folder / "other.h5", [](const std::string& path) { write_bytes(path, std::string(600, 'x')); });
  CHECK(check_seal(folder / "other.h5").empty());
  CHECK(contains(error_of([&] { static_cast<void>(read_checkpoint(folder / "other.h5")); }), "not a whole HDF5 file"));
  CHECK(contains(error_of([&] { static_cast<void>(read_checkpoint(folder / "none.h5")); }), "4: "));
  const auto told_of = [&](const char* kind, int version) {  // without either where it is nothing
    write_sealed_hdf5(folder / "file.h5", [&](Hdf5File& file) {
      if (*kind != 0) file.set_text("/", "filetype", kind);
      if (version != 0) file.set_integer("/", "format_version", version);
      if (version == 2) file.write("state", {1}, std::vector<float>{1});
    });
    return error_of([&] { static_cast<void>(read_checkpoint(folder / "file.h5")); });
  };
  const auto told_of_weights = [&] { return error_of([&] { static_cast<void>(read_weights(folder / "file.h5")); }); };
  CHECK(told_of("", 2).ends_with("is a file of kind 'unknown', not a checkpoint"));
  CHECK(read_weights(folder / "file.h5").arrays.front().name == "param/state");
  CHECK(told_of("dataset", 2).ends_with("; name the run or the checkpoint of a network, and give images with --data"));
  CHECK(told_of_weights().ends_with("is a file of kind 'dataset', not weights"));
  CHECK(contains(told_of("weights", 0), "is a file of kind 'weights'"));
  CHECK(contains(told_of_weights(), "holds no weights"));
  CHECK(told_of("checkpoint", 2) == "4: " + folder / "file.h5" + ": state is no group");
  for (const int version : {0, 1, 3})
    CHECK(contains(told_of("checkpoint", version), "has the checkpoint format " + std::to_string(version) + ", "));
}

TEST_CASE("A folder keeps the last three checkpoints and gives the newest") {
  const TemporaryFolder folder;
  const CheckpointFolder checkpoints(folder / "ckpt", false);
  const auto silent = [](const std::string& warning) { FAIL(warning); };
  CHECK(!checkpoints.newest(silent).has_value());
  for (const std::int64_t step : {0, 8, 9, 100, 999'999'999, 1'000'000'000}) {
    checkpoints.save(step, example(step));
    check_same(example(step), checkpoints.newest(silent).value());
  }
  CHECK(entries_in(folder / "ckpt") ==
        files_in(folder / "ckpt", {"latest", "step-000000100.h5", "step-1000000000.h5", "step-999999999.h5"}));
  CHECK(read_bytes(folder / "ckpt/latest") == "step-1000000000.h5\n");
  check_same(example(100), CheckpointFolder::newest_in(folder / "ckpt", silent, 100).value());
  CHECK(!CheckpointFolder::newest_in(folder / "ckpt", silent, 99));
}

TEST_CASE("Best networks of one step number, in two counts of steps, are both kept while checkpoints name them") {
  const TemporaryFolder folder;
  const CheckpointFolder files(folder / "ckpt", false);
  const auto best = [](std::int64_t step, std::int64_t bytes) {
    return BestRecord{.accuracy = 0.5, .step = step, .bytes = bytes};
  };
  const auto save = [&](std::int64_t step, const BestRecord& record, bool as_best) {
    Checkpoint state = example(step);
    record.save(state);
    if (as_best) return files.save_best(state);
    state.integers["step"] = step;
    files.save(step, state);
  };
  save(16, best(0, 100), true);
  save(17, best(0, 100), false);
  save(16, best(0, 200), true);
  save(18, best(0, 200), false);
  save(19, best(19, 300), true);
  CHECK(files.restore_best(best(0, 100)));
  for (int again = 0; again < 2; ++again) CHECK(files.restore_best(best(0, 200)));
  CHECK_FALSE(files.restore_best(best(0, 300)));
  save(30, best(30, 300), true);
  for (const std::int64_t step : {31, 32, 33}) {  // the third pushes out the one that names the best of step 0
    CHECK(std::filesystem::exists(folder / "ckpt/best-000000000.h5"));
    save(step, best(30, 300), false);
  }
  CHECK(!std::filesystem::exists(folder / "ckpt/best-000000000.h5"));
  for (const std::int64_t step : {34, 35}) save(step, best(step, 300), true);  // no checkpoint names the first
  CHECK(!std::filesystem::exists(folder / "ckpt/best-000000034.h5"));
}

TEST_CASE("A damaged newest checkpoint is named and the one before it taken; all damaged is Error(checkpoint)") {
  const TemporaryFolder folder;
  const CheckpointFolder checkpoints(folder.path(), false);
  const std::vector<std::string> names = {"step-000000010.h5", "step-000000020.h5", "step-000000030.h5"};
  for (const std::int64_t step : {10, 20, 30}) checkpoints.save(step, example(step));
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& warning) { warnings.push_back(warning); };

  std::filesystem::resize_file(folder / names[2], 1000);
  check_same(example(20), checkpoints.newest(warn).value());
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], names[2]));

  write_bytes(folder / names[1], "");
  warnings.clear();
  check_same(example(10), checkpoints.newest(warn).value());
  REQUIRE(warnings.size() == 2);
  CHECK(contains(warnings[1], names[1]));

  SECTION("all damaged") {
    std::string bytes = read_bytes(folder / names[0]);
    bytes[bytes.size() / 2] ^= 4;
    write_bytes(folder / names[0], bytes);
    const std::string error = error_of([&] { static_cast<void>(checkpoints.newest(warn)); });
    CHECK((error.substr(0, 3) == "4: " && contains(error, folder.path())));
  }
  SECTION("the run goes on from the whole one, and the damaged later ones do not push it out") {
    checkpoints.save(15, example(15));
    CHECK(folder.names() == std::vector<std::string>{"latest", "step-000000010.h5", "step-000000015.h5"});
    check_same(example(15), checkpoints.newest(warn).value());
  }
  SECTION("a stale `latest` misleads nobody") {
    write_bytes(folder / "latest", "step-000000099.h5\n");
    check_same(example(10), checkpoints.newest(warn).value());
  }
}

TEST_CASE("What a killed writer left is removed, and other files are not touched") {
  const TemporaryFolder folder;
  write_bytes(folder / ".step-000000007.h5.tmp-0123456789abcdef", "half");
  std::filesystem::create_directories(folder / ".mine.tmp-1/kept");
  write_bytes(folder / "step-7.h5", "not ours");
  write_bytes(folder / "notes.txt", "mine");
  const CheckpointFolder checkpoints(folder.path(), false);
  CHECK(folder.names() == std::vector<std::string>{".mine.tmp-1", "notes.txt", "step-7.h5"});
  CHECK(std::filesystem::is_directory(folder / ".mine.tmp-1/kept"));
  CHECK(!checkpoints.newest([](const std::string&) {}).has_value());
}

TEST_CASE("A checkpoint that cannot be written is Error(io) and leaves the old ones and no part of itself") {
  const TemporaryFolder folder;
  const CheckpointFolder checkpoints(folder.path(), false);
  checkpoints.save(1, example(1));
  const auto size = std::filesystem::file_size(folder / "step-000000001.h5");
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (rlim_t part = 0; part < 20; ++part) {
    const rlimit small{part * size / 20, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string error = error_of([&] { checkpoints.save(2, example(2)); });
    setrlimit(RLIMIT_FSIZE, &limit);
    CAPTURE(part, error);
    CHECK((error.substr(0, 3) == "9: " && contains(error, "step-000000002.h5")));
    CHECK(folder.names() == std::vector<std::string>{"latest", "step-000000001.h5"});
  }
  const rlimit small{2000, limit.rlim_max};  // less than an attribute has, which goes to disk at the end
  setrlimit(RLIMIT_FSIZE, &small);
  const auto write = [](Hdf5File& file) { file.set_text("/", "text", std::string(5000, 'x')); };
  const std::string error = error_of([&] { write_sealed_hdf5(folder / "text", write); });
  setrlimit(RLIMIT_FSIZE, &limit);
  CHECK(contains(error, "text: cannot write the file: "));
  CHECK(contains(error_of([] { (void)Hdf5File::create("/proc/none.h5"); }),
                 "9: /proc/none.h5: cannot create the file: "));
  std::signal(SIGXFSZ, handler);
  const auto silent = [](const std::string& warning) { FAIL(warning); };
  check_same(example(1), checkpoints.newest(silent).value());
  checkpoints.save(3, example(3));
  check_same(example(3), checkpoints.newest(silent).value());
  CHECK(error_of([] { CheckpointFolder("/proc/none", false); }).substr(0, 3) == "9: ");
  // There is no space in /proc. The file needs 64 KiB, and each part 1 KiB beside its values.
  Checkpoint parts;
  parts.arrays = {{"a", {1024}, std::vector<float>(1024)}};
  parts.bytes["b"] = {{1024}, std::vector<std::uint8_t>(1024)};
  parts.doubles["c"].resize(1024);
  parts.integers["d"] = 1;
  parts.texts["e"].resize(1024);
  CHECK(error_of([&] { CheckpointFolder("/proc", true).save(1, parts); }) ==
        "9: /proc: disk full: a checkpoint needs 83 KiB, 0 KiB are free");
}

TEST_CASE("Checkpoints after the one that a run goes on from go before its record is cut") {
  const TemporaryFolder folder;
  const CheckpointFolder checkpoints(folder.path(), false);
  for (const std::int64_t step : {4, 8, 12}) checkpoints.save(step, example(step));
  checkpoints.remove_behind(13);
  CHECK((folder.names().size() == 4 && read_bytes(folder / "latest") == "step-000000012.h5\n"));
  checkpoints.remove_behind(4);
  CHECK(folder.names() == std::vector<std::string>{"latest", "step-000000004.h5"});
  CHECK(read_bytes(folder / "latest") == "step-000000004.h5\n");
}

TEST_CASE("A kill after any system call of a checkpoint's writing leaves a good checkpoint, and the next one works") {
  const TemporaryFolder folder;
  const std::string kept = folder / "kept", run = folder / "run";
  {
    const CheckpointFolder checkpoints(kept, false);
    for (const std::int64_t step : {1, 2, 3}) checkpoints.save(step, example(step));
  }
  const auto silent = [](const std::string& warning) { FAIL(warning); };
  const Checkpoint next = example(4);
  std::int64_t newest = 0;
  int calls = 0;
  for (bool killed = true; killed;) {
    std::filesystem::remove_all(run);
    std::filesystem::copy(kept, run);
    const CheckpointFolder checkpoints(run, true);
    killed = killed_behind(++calls, [&] { checkpoints.save(4, next); });
    const Checkpoint found = checkpoints.newest(silent).value();
    const std::int64_t step = found.integers.at("step");
    CAPTURE(calls, step);
    // The old one or the new one, and whole. (Which of them does not follow from `calls` alone: memory takes calls of
    // its own, and not the same number each time.)
    REQUIRE((step == 3 || step == 4));
    newest = step;
    check_same(example(step), found);
    if (calls % 8 != 0 && killed) continue;
    const CheckpointFolder again(run, true);
    again.save(5, example(5));
    check_same(example(5), again.newest(silent).value());
    for (const auto& entry : std::filesystem::directory_iterator(run))
      REQUIRE(!contains(entry.path().filename().string(), ".tmp-"));
  }
  CHECK(newest == 4);
  CHECK(calls > 60);  // create, write, flush, read back, rename, flush, and the same for `latest`
}

TEST_CASE("A checkpoint under the name of another one is refused, and the one before it taken") {
  const TemporaryFolder folder;
  const CheckpointFolder checkpoints(folder.path(), false);
  for (const std::int64_t step : {10, 20, 30}) checkpoints.save(step, example(step));
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& warning) { warnings.push_back(warning); };
  std::filesystem::rename(folder / "step-000000030.h5", folder / "held");
  std::filesystem::rename(folder / "step-000000020.h5", folder / "step-000000030.h5");
  std::filesystem::rename(folder / "held", folder / "step-000000020.h5");
  check_same(example(10), checkpoints.newest(warn).value());
  REQUIRE(warnings.size() == 2);
  CHECK(contains(warnings[0], "step-000000030.h5: the checkpoint is that of another step"));
}
