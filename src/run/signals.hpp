#pragma once

namespace dat {

/// Catches SIGTERM, SIGUSR1 and SIGINT from now on. While the program starts (reads files, plans, waits for the
/// folder), the first signal ends it at once, with code 75. Comes first in main, which has held them back so far
/// (start.hpp): a job that has just begun may receive a signal to make room already.
void catch_signals();

/// Lets the run outlive readers of its output from now on: run.log has every line.
void outlive_readers();

/// The run is about to write: a signal asks for an end after the step from now on. Job systems send it several times
/// within a moment; one that comes seconds after the first means it: it ends the program at once.
void finish_step_on_signal();

/// Returns whether a signal has asked for an end.
[[nodiscard]] bool signalled();

}  // namespace dat
