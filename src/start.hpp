#pragma once

namespace dat {

/// Opens /dev/null in place of standard input, output and error where whoever starts the program has closed them. Else
/// the next file that is opened would be one of them, and would be given what is printed. Reading there, or writing,
/// fails as it did: who prints a result says that it is lost, and a training goes on. To be called first.
void open_standard_descriptors();

/// Keeps SIGTERM, SIGUSR1 and SIGINT back, also while the program starts itself anew (waiting.hpp), until
/// release_signals(): by then somebody has said what becomes of them (run/signals.hpp).
void hold_signals();
void release_signals();

}  // namespace dat
