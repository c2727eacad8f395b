#include <chrono>
#include <exception>
#include <string>
#include <thread>

#include "communicate/together.hpp"
#include "dat/communicator.hpp"
#include "dat/error.hpp"
#include "printed.hpp"
#include "run/signals.hpp"
#include "start.hpp"
#include "verbs/ranks.hpp"
#include "verbs/verbs.hpp"

int main(int argc, char** argv) {
  dat::open_standard_descriptors();
  dat::hold_signals();
  dat::wait_briefly(argv);
  if (dat::trains(argc, argv)) dat::catch_signals();
  dat::release_signals();
  dat::clean_output();
  using dat::ExitCode;
  bool speaks = dat::speaks(argc, argv);
  const auto complain = [&speaks](const std::string& message, ExitCode code) {
    if (speaks)
      dat::say("error: " + message);
    else
      std::this_thread::sleep_for(std::chrono::seconds(1));  // launchers end rank 0 when the first rank has ended
    return static_cast<int>(code);
  };
  try {
    // Somebody who types the bare name wants to know what it is; a launcher wants it to train.
    if (argc <= 1 && !dat::launched()) return dat::print_once(dat::first_screen);
    const dat::Command command = dat::parse_command_line(argc, argv);
    for (const std::string& warning : command.warnings)
      if (speaks) dat::say("warning: " + warning);
    speaks = true;
    return command.run(argc, argv);
  } catch (const std::exception&) {
    const dat::Error error = dat::current_error();
    return complain(error.what(), error.code());
  }
}
