#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "options/command_line.hpp"

namespace dat {

/// A command line that has been read: what is to be done.
struct Command {
  std::string verb;                               ///< word of the row, or "version" or "print"
  std::function<int(int argc, char** argv)> run;  ///< returns the exit code. Error
  std::string text{};                             ///< print: what is printed
  std::vector<std::string> warnings{};            ///< about the command line
  VerbText descriptions{};                        ///< text and options of the verb, where the line asks for them alone
};

/// Behaviour of a verb in a launch of several processes.
enum class Launch : std::uint8_t {
  alone,    ///< each process for itself, wherever it is started
  together  ///< all of them with one command line, whose mistakes the first one reports
};

/// A row of the table of verbs. A verb is a file of this folder, with its options, what reads them and what it does,
/// and a line of verbs.def.
struct Verb {
  std::string name;     ///< "eval", "data convert"
  std::string summary;  ///< text for the first screen
  std::function<Command(const std::vector<std::string>& words)>
      parse;  ///< reads what stands after the name. Error(usage)
  Launch launch = Launch::alone;
};

/// The command of a line that has been read: what `run` does; without it, what the line is to print.
[[nodiscard]] Command command_of(const std::string& verb, const CommandLine& line,
                                 std::function<int(int argc, char** argv)> run);

/// The first words of all verbs, in the order of the help.
[[nodiscard]] std::vector<std::string> first_words();

/// parse: reads the options of the verb; returns nothing where something is to be printed instead. run: does what they
/// ask for, and returns the exit code. A verb that needs a launch initialises MPI, is collective over its ranks, and
/// prints its messages itself; the others work in every process that is started, and may throw.
template <class Order>
[[nodiscard]] Verb make_verb(const std::string& name, const std::string& summary,
                             std::optional<Order> (*parse)(CommandLine& line),
                             int (*run)(const Order& order, int argc, char** argv), Launch launch = Launch::alone) {
  return {name, summary,
          [name, parse, run](const std::vector<std::string>& words) {
            CommandLine line(name, words, first_words());
            std::optional<Order> order = parse(line);
            if (!order) return command_of(name, line, nullptr);
            return command_of(
                name, line, [order = std::move(*order), run](int argc, char** argv) { return run(order, argc, argv); });
          },
          launch};
}

}  // namespace dat
