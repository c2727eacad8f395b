#include <iostream>
#include <new>
#include <string>

#include "dat/communicator.hpp"
#include "dat/config.hpp"
#include "dat/error.hpp"
#include "dat/provenance.hpp"
#include "dat/report.hpp"
#include "dat/trainer.hpp"

namespace {

/// What the verbs without a launch print. Under a launcher only rank 0 does the work.
std::string run_tool(const dat::Command& command) {
  using Verb = dat::Command::Verb;
  std::string text;
  switch (command.verb) {
    case Verb::validate:
      return dat::validate_text(command);
    case Verb::data_convert:
      dat::convert_dataset(command.convert);
      return "wrote " + command.convert.output + "\n";
    case Verb::data_synthetic:
      dat::write_synthetic(command.synthetic.set, command.synthetic.output);
      return "wrote " + command.synthetic.output + "\n";
    case Verb::data_inspect:
      for (const std::string& path : command.inspect) text += dat::inspect_dataset(path);
      return text;
    case Verb::plot:
      for (const std::string& run : command.plot.runs) {
        for (const std::string& picture : dat::plot_run(run, command.plot.format)) text += picture + "\n";
      }
      if (command.plot.runs.size() > 1)
        for (const std::string& picture : dat::compare_runs(command.plot.runs, command.plot.out, command.plot.format))
          text += picture + "\n";
      return text;
    case Verb::version:
      return dat::version_text();
    default:
      return command.text;
  }
}

}  // namespace

int main(int argc, char** argv) {
  using dat::ExitCode;
  const bool root = dat::rank_from_environment() == 0;
  const auto complain = [root](const std::string& message, ExitCode code) {
    if (root) std::cerr << "dat_hpc: error: " + message + "\n";
    return static_cast<int>(code);
  };
  try {
    const dat::Command command = dat::parse_command_line(argc, argv);
    if (command.verb == dat::Command::Verb::train) return dat::run_training(command, argc, argv);
    if (command.verb == dat::Command::Verb::eval) return dat::run_evaluation(command, argc, argv);
    if (command.verb == dat::Command::Verb::bench) return dat::run_bench(command, argc, argv);
    if (command.verb == dat::Command::Verb::doctor) return dat::run_doctor();
    if (root) std::cout << run_tool(command) << std::flush;
    if (!std::cout) return complain("cannot write to standard output; is the disk full?", ExitCode::io);
    return static_cast<int>(ExitCode::done);
  } catch (const dat::Error& error) {
    return complain(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return complain("not enough memory; choose a smaller --batch, --micro-batch or --width", ExitCode::device);
  } catch (const std::exception& error) {
    return complain(std::string("a library failed: ") + error.what(), ExitCode::device);
  }
}
