#pragma once

namespace dat {

/// Sees to it that threads which wait for each other in a parallel loop spin for kSpinMicroseconds at most and sleep
/// then. The default of GNU OpenMP is some milliseconds: on a machine where others compute, too, a thread then holds a
/// core that the thread it waits for could have. Nothing happens where the environment says how to wait
/// (OMP_WAIT_POLICY, GOMP_SPINCOUNT). The library reads its environment before main, so the program starts itself anew,
/// in the same process; to be called before anything is begun. argv: main's, with its null after.
void wait_briefly(char** argv);

/// docs/performance.md, "Threads that wait", says what it is measured by.
inline constexpr double kSpinMicroseconds = 200;

}  // namespace dat
