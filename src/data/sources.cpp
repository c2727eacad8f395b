// Files that runs are given as data, and are none.

#include "data/sources.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "files/bytes.hpp"

namespace dat {

namespace fs = std::filesystem;

bool is_hdf5(const std::string& path) {
  const auto file = open_bytes(path);
  char begin[8] = {};
  for (std::int64_t at = 0; at + std::ssize(begin) <= file->size(); at = at == 0 ? 512 : 2 * at) {
    file->read(at, begin, sizeof begin);
    if (std::equal(std::begin(begin), std::end(begin), "\x89HDF\r\n\x1a\n")) return true;
  }
  return false;
}

void require_data_file(const std::string& path) {
  std::error_code error;
  const auto type = fs::status(path, error).type();
  if (type == fs::file_type::not_found && path.find(',') != std::string::npos) {
    std::string apart = path;
    std::ranges::replace(apart, ',', ' ');
    fail(ExitCode::data, path, ": there is no such file; names of several files are separated by spaces: --data ",
         apart);
  }
  require(type != fs::file_type::directory, ExitCode::data, path,
          ": is a folder, and data files are files; of a set in a form that is known, ", convert_command(path),
          " makes one");
  require(type != fs::file_type::regular || is_hdf5(path), ExitCode::data, path,
          ": not a whole HDF5 file; of a set in another form that is known, ", convert_command(path), " makes one");
}

std::string convert_command(const std::string& source) {
  fs::path path = fs::path(source).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // a/b/
  std::string name = path.stem().string();
  if (name.ends_with(".tar")) name.resize(name.size() - 4);
  if (name.empty() || name == "." || name == ".." || name == "raw") name = "data";
  return "'dat_hpc data convert " + quoted_word(source) + " " + quoted_word(name + ".h5") + "'";
}

}  // namespace dat
