#pragma once

// What tests of a run's record write, and read again.

#include <unistd.h>

#include "catch.hpp"
#include "dat/report.hpp"
#include "hdf5/hdf5.hpp"
#include "record/history.hpp"

namespace dat {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

inline RunFacts facts_in(const std::string& folder) {
  RunFacts facts;
  facts.folder = folder;
  facts.config_toml = "lr = 0.1\n";
  facts.provenance_json = "{\"git_sha1\":\"abc\"}\n";
  facts.layer_names = {"conv1.weight", "layer1.0.conv1.weight", "linear.bias"};
  facts.layer_costs = {0.5, 2.25, 0.25};
  facts.layer_sizes = {432, 2304, 10};
  facts.ranks = 2;
  facts.total_steps = 5;
  facts.steps_per_epoch = 3;
  facts.epochs = 2;
  facts.warmup_epochs = 1;
  facts.quiet = true;
  return facts;
}

/// A step whose numbers need all digits, with the vectors that it points to.
struct RecordedStep {
  StepRecord record;
  std::vector<float> scale;
  std::vector<double> p, norms;

  explicit RecordedStep(std::int64_t number) {
    const auto x = static_cast<double>(number);
    record.step = number;
    record.epoch = static_cast<int>((number - 1) / 3);
    record.steps_per_epoch = 3;
    record.wall_time = x / 3;
    record.lr = 0.1 * x;
    record.loss_adv = std::exp(x / 7);
    record.loss_clean = number % 2 == 0 ? kNaN : std::sqrt(x);
    record.acc_adv = 1 / (1 + x);
    record.acc_clean = 2 / (3 + x);
    record.images = 128;
    for (std::size_t i = 0; i < kPhases; ++i) record.seconds[i] = x * std::sin(static_cast<double>(i) + 1) + 10;
    record.active_elements = 432 + (number % 2) * 2304;
    record.bytes_sent = 4 * record.active_elements;
    record.bytes_other = (std::int64_t{1} << 40) + number;
    record.weight_gradients = number + 7;
    record.attack_passes = 10 * number;
    record.eps = x / 11;
    p = {1.0, 0.3 + 0.01 * x, 0.1};
    scale = {1.0F, static_cast<float>(number % 2 == 0 ? 0 : 1 / p[1]), 0.0F};
    norms = {x / 11, x / 13, 99};
  }
  [[nodiscard]] const StepRecord& get() {
    record.scale = &scale;
    record.p = &p;
    record.norms = &norms;
    return record;
  }
};

/// Makes results.h5 of the record in a folder.
inline void write_results(const RunFacts& facts) { write_results(facts, read_history(facts.folder)); }

inline std::vector<double> reals(const Hdf5File& file, const std::string& name) {
  Shape shape;
  return file.read<double>(name, shape);
}
inline std::vector<std::int64_t> integers(const Hdf5File& file, const std::string& name) {
  Shape shape;
  return file.read<std::int64_t>(name, shape);
}

/// Sends what goes to the terminal, or to standard error, to a file while it lives.
class CapturedOutput {
 public:
  explicit CapturedOutput(const std::string& path, int stream = STDOUT_FILENO)
      : stream_(stream), saved_((std::fflush(stdout), dup(stream))) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    dup2(fileno(file), stream);
    std::fclose(file);
  }
  ~CapturedOutput() {
    std::fflush(stdout);
    dup2(saved_, stream_);
    close(saved_);
  }

 private:
  int stream_, saved_;
};

/// A run in a folder with a name that wants quotes, and what the terminal is told meanwhile.
struct Recorded {
  TemporaryFolder folder;
  CapturedOutput output{folder / "output"};
  RunFacts facts = facts_in(folder / "a new/it's a \"run\" `false` $(false)");

  [[nodiscard]] std::string read(const std::string& name) const { return read_bytes(facts.folder + "/" + name); }
  [[nodiscard]] Hdf5File results() const { return Hdf5File::open(facts.folder + "/results.h5", ExitCode::data); }
  [[nodiscard]] std::string shown() const {
    std::fflush(stdout);
    return read_bytes(folder / "output");
  }
};

}  // namespace dat
