#include "measure/bench_file.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "dat/error.hpp"
#include "files/bytes.hpp"
#include "files/outside_json.hpp"
#include "files/whole_number.hpp"

namespace dat {

MeasuredStep read_measured_step(const std::string& path) {
  const auto file = open_bytes(path);
  constexpr std::int64_t kMost = 8 << 20;
  require(file->size() <= kMost, ExitCode::data, path, ": is no bench.json, which has at most ", kMost, " bytes");
  std::string text(static_cast<std::size_t>(file->size()), ' ');
  file->read(0, text.data(), std::ssize(text));
  MeasuredStep step;
  try {
    const nlohmann::json found = parsed_json(text);
    step.network = found.at("network").get<std::string>();
    step.size = count_in<int>(found.at("size"));
    step.images_per_s =
        1e3 * found.at("batch").get<double>() / found.at("times").at("step").at("median_ms").get<double>();
  } catch (const std::exception&) {
    fail(ExitCode::data, path, ": is no bench.json of a whole measurement; 'dat_hpc bench --out DIR' makes one");
  }
  require(std::isfinite(step.images_per_s) && step.images_per_s > 0 && step.size > 0, ExitCode::data, path,
          ": its step has no time");
  step.network = in_one_line(step.network);
  return step;
}

}  // namespace dat
