#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dat {

/// The first line of a file of the kernel's, such as /proc/sys/kernel/random/boot_id; empty where it cannot be read.
[[nodiscard]] std::string first_line(const char* path);
/// Target of a symbolic link; empty where there is none.
[[nodiscard]] std::string link_of(const char* path);

/// Start of a process in the kernel's ticks: with its number it names a process for ever. -1: there is none that still
/// runs.
[[nodiscard]] std::int64_t start_of_process(std::int64_t process);

/// Removes the files behind the shared memory that MPI has mapped here. Names: Open MPI 4 (vader), 5 (sm), UCX.
void remove_shared_memory();

/// Ends this process, and kills others half a second after that: a launcher reports the code of the first that ends. By
/// a child that does nothing but this, made without fork(), where MPI may have handlers; in a session of its own, since
/// launchers kill groups; and without files, whose end launchers wait for.
[[noreturn]] void exit_and_kill(int exit_code, const std::vector<pid_t>& processes);

}  // namespace dat
