#pragma once

namespace dat {

/// Opens /dev/null in place of standard input, output and error where whoever starts the program has closed them. Else
/// the next file that is opened would be one of them, and would be given what is printed. Reading there, or writing,
/// fails as it did: who prints a result says that it is lost, and a training goes on. To be called first.
void open_standard_descriptors();

/// Keeps SIGTERM, SIGUSR1 and SIGINT back, also while the program starts itself anew (wait_briefly), until
/// release_signals(): by then somebody has said what becomes of them (run/signals.hpp).
void hold_signals();
void release_signals();

/// Sees to it that threads which wait for each other in a parallel loop spin for kSpinMicroseconds at most and sleep
/// then. The default of GNU OpenMP is some milliseconds: on a machine where others compute, too, a thread then holds a
/// core that the thread it waits for could have. Nothing happens where the environment says how to wait
/// (OMP_WAIT_POLICY, GOMP_SPINCOUNT). The library reads its environment before main, so the program starts itself anew,
/// in the same process; to be called before anything is begun. argv: main's, with its null after.
void wait_briefly(char** argv);

/// docs/performance.md, "Threads that wait", says what it is measured by.
inline constexpr double kSpinMicroseconds = 200;

}  // namespace dat
