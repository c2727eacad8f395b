#pragma once

#include <string>

namespace dat {

/// Returns whether a file begins as HDF5 files do. Error(data): it cannot be read.
[[nodiscard]] bool is_hdf5(const std::string& file);

/// "dat_hpc data convert SOURCE NAME.h5", in single quotes, as a shell understands it.
[[nodiscard]] std::string convert_command(const std::string& source);

/// Error(data): there is no file at `path` that a run could read, but a source for convert_dataset, or several names in
/// one; the message says what to do. Its reader finds out whether the file is whole.
void require_data_file(const std::string& path);

}  // namespace dat
