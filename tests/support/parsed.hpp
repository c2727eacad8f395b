#pragma once

#include "catch.hpp"
#include "dat/config.hpp"
#include "options/train/parse.hpp"
#include "verbs/data/data.hpp"
#include "verbs/networks/networks.hpp"
#include "verbs/parsers.hpp"
#include "verbs/results/plot.hpp"
#include "verbs/slurm/slurm.hpp"
#include "verbs/verbs.hpp"

namespace dat::test {

/// What a command line was read as. Only the options of its verb are meaningful.
struct Parsed {
  std::string verb, text;  ///< as in Command
  std::vector<std::string> warnings{};
  TrainOptions train{};  ///< train, validate, slurm
  std::set<std::string> given{};
  EvalOptions eval{};
  ConvertOptions convert{};
  SyntheticOrder synthetic{};
  InspectOptions inspect{};
  PlotOptions plot{};
  BenchOptions bench{};
  SlurmOptions slurm{};
  ForecastOptions forecast{};
  ExportOptions exported{};
  ImportOptions imported{};
  std::string resolved_toml{};  ///< train, validate, slurm, eval: every option
};

/// As the program reads them, and once more by the verb itself, which gives its options away.
inline Parsed parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"dat_hpc"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const Command command = parse_command_line(static_cast<int>(argv.size()), argv.data());
  Parsed result{.verb = command.verb, .text = command.text, .warnings = command.warnings};
  if (command.verb == "print" || command.verb == "version") return result;
  const std::size_t named = command.verb.find(' ') != std::string::npos               ? 2
                            : !arguments.empty() && arguments.front() == command.verb ? 1
                                                                                      : 0;
  CommandLine line(command.verb, {arguments.begin() + static_cast<std::ptrdiff_t>(named), arguments.end()}, {});
  const auto is = [&](const char* verb) { return command.verb == verb; };
  const auto take = [&](const TrainOrder& order) {
    result.train = order.options;
    result.given = order.given;
    result.resolved_toml = toml_of(order.options);
  };
  if (is("train") || is("validate")) take(parse_training(line, "").value());
  if (is("slurm")) {
    const SlurmOrder order = parse_slurm(line).value();
    take(order.training);
    result.slurm = order.job;
  }
  if (is("eval")) {
    result.eval = parse_eval(line).value();
    result.resolved_toml = toml_of(result.eval);
  }
  if (is("data convert")) result.convert = parse_convert(line).value();
  if (is("data synthetic")) result.synthetic = parse_synthetic(line).value();
  if (is("data inspect")) result.inspect = parse_inspect(line).value();
  if (is("plot")) result.plot = parse_plot(line).value();
  if (is("bench")) result.bench = parse_bench(line).value();
  if (is("forecast")) result.forecast = parse_forecast(line).value();
  if (is("export")) result.exported = parse_export(line).value();
  if (is("import")) result.imported = parse_import(line).value();
  return result;
}

/// The words of a line, which spaces separate.
inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}
inline Parsed parse_line(const std::string& line) { return parse(words_of(line)); }

}  // namespace dat::test
