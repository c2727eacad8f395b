#include <iostream>
#include <new>
#include <string>

#include "dat/communicator.hpp"
#include "dat/config.hpp"
#include "dat/error.hpp"
#include "dat/provenance.hpp"
#include "options/first_screen.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"
#include "waiting.hpp"

namespace {

int run(const dat::Command& command, int argc, char** argv) {
  using Verb = dat::Command::Verb;
  switch (command.verb) {
    case Verb::train:
      return dat::run_training(command, argc, argv);
    case Verb::eval:
      return dat::run_evaluation(command, argc, argv);
    case Verb::bench:
      return dat::run_bench(command, argc, argv);
    case Verb::doctor:
      return dat::run_doctor(command, argc, argv);
    case Verb::forecast:
      return dat::run_forecast(command, argc, argv);
    case Verb::validate:
      return dat::run_validation(command, argc, argv);
    case Verb::data_convert:
    case Verb::data_synthetic:
    case Verb::data_inspect:
      return dat::run_data(command, argc, argv);
    case Verb::plot:
      return dat::run_plot(command, argc, argv);
    case Verb::slurm:
      return dat::run_slurm(command, argc, argv);
    case Verb::export_network:
      return dat::run_export(command, argc, argv);
    case Verb::import_network:
      return dat::run_import(command, argc, argv);
    case Verb::version:
      return dat::print_once(dat::version_text);
    case Verb::print:
      break;
  }
  return dat::print_once([&] { return command.text; });
}

}  // namespace

int main(int argc, char** argv) {
  dat::wait_briefly(argv);
  using dat::ExitCode;
  const auto complain = [](const std::string& message, ExitCode code) {
    if (dat::rank_from_environment() == 0) std::cerr << "dat_hpc: error: " + message + "\n";
    return static_cast<int>(code);
  };
  try {
    // Somebody who types the bare name wants to know what it is; a launcher wants it to train.
    if (argc <= 1 && !dat::launched()) return dat::print_once(dat::first_screen);
    const dat::Command command = dat::parse_command_line(argc, argv);
    for (const std::string& warning : command.warnings)
      if (dat::rank_from_environment() == 0) std::cerr << "dat_hpc: warning: " + warning + "\n";
    return run(command, argc, argv);
  } catch (const dat::Error& error) {
    return complain(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return complain("not enough memory; choose a smaller --batch, --micro-batch or --width", ExitCode::device);
  } catch (const std::exception& error) {
    return complain(std::string("a library failed: ") + error.what(), ExitCode::device);
  }
}
