#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dat/dataset.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "data/convert/forms.hpp"
#include "data/data_file.hpp"
#include "files/confined.hpp"
#include "hdf5/hdf5_reader.hpp"

namespace dat {
namespace {

namespace fs = std::filesystem;

/// Options that not every form takes.
enum Takes : unsigned { kLabels = 1, kLabelBytes = 2, kVal = 4 };

/// A form of source. The first one in the table that fits is taken.
struct Form {
  bool folder;  ///< else a file
  const char* what;
  bool (*fits)(const std::string& source);
  void (*convert)(const ConvertOptions& options);
  unsigned takes;
};
constexpr Form kForms[] = {
    {true, "a folder of CIFAR's pickles", has_cifar_pickles, convert_cifar_pickles, 0},
    {true, "a folder of idx files", has_idx_files, convert_idx_files, 0},
    {true, "a folder of binary records", has_records, convert_records, kLabelBytes},
    {true, "a folder of SVHN's files", has_svhn, convert_svhn, 0},
    {true, "a folder of STL-10's files", has_stl10, convert_stl10, 0},
    {false, "a set of idx files", is_idx, convert_idx, 0},
    {false, "an HDF5 file", is_hdf5, convert_hdf5, kVal},
    {false, "a MATLAB file", is_mat, convert_mat, 0},
    {false, "a file of arrays", is_arrays, convert_arrays, kLabels | kVal},
};

/// The form of a source; null: none. Error(data): a folder has several.
const Form* form_of(const std::string& source) {
  std::error_code error;
  const bool folder = fs::is_directory(source, error);
  const Form* found = nullptr;
  for (const Form& form : kForms) {
    if (form.folder != folder || (found != nullptr && !folder) || !form.fits(source)) continue;
    require(found == nullptr, ExitCode::data, source, ": is ", found == nullptr ? "" : found->what, " and ", form.what,
            " in one; give each set a folder of its own");
    found = &form;
  }
  return found;
}

void refuse_options(const ConvertOptions& options, const Form& form) {
  const struct {
    const char* name;
    bool given;
    Takes what;
    const char* belongs_to;
  } all[] = {
      {"--labels", !options.labels.empty(), kLabels, "a .npy file of images"},
      {"--label-bytes", options.label_bytes != 0, kLabelBytes, "a folder of binary records"},
      {"--val", options.val != "leave", kVal, "a file with validation images"},
  };
  for (const auto& option : all)
    require(!option.given || (form.takes & option.what) != 0, ExitCode::usage, option.name, " is for ",
            option.belongs_to, ", and ", options.source, " is ", form.what, "; leave it off");
}

/// The folder below this one that has a form, else, if `deep`, one below those: where an archive or torchvision put a
/// set.
std::string folder_inside(const fs::path& folder, bool deep = true) {
  std::error_code error;
  std::set<std::string> inside;
  constexpr std::size_t kMost = 100;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error) && inside.size() < kMost) inside.insert(entry.path().string());
  for (const std::string& path : inside)
    if (form_of(path) != nullptr) return path;
  for (const std::string& path : inside)
    if (const std::string found = deep ? folder_inside(path, false) : ""; !found.empty()) return found;
  return {};
}

[[noreturn]] void refuse_folder(const std::string& folder) {
  const std::string inside = folder_inside(folder);
  fail(ExitCode::data, folder,
       ": this folder has none of the forms that are known: data_batch_1.bin ... or train.bin (CIFAR's binary "
       "version), data_batch_1 ... or train (its Python version), train-images-idx3-ubyte ... (MNIST's, EMNIST's, "
       "QMNIST's), train_32x32.mat (SVHN's), train_X.bin (STL-10's)",
       inside.empty() ? "; data/README.md lists them all" : "; but one below has: " + convert_command(inside));
}

/// All files that may be read.
std::vector<std::string> inputs_of(const ConvertOptions& options) {
  std::error_code error;
  std::vector<std::string> files = {options.source, options.labels};
  for (const auto& entry : fs::directory_iterator(options.source, error)) files.push_back(entry.path().string());
  if (!fs::is_directory(options.source, error) && is_idx(options.source))
    for (const std::string& path : idx_files(options.source)) files.push_back(path);
  return files;
}

std::int64_t bytes_of(const std::vector<std::string>& files) {
  return std::accumulate(files.begin(), files.end(), std::int64_t{}, [](std::int64_t bytes, const std::string& path) {
    std::error_code error;  // of what is no file
    const std::uintmax_t size = fs::file_size(path, error);
    return error ? bytes : bytes + static_cast<std::int64_t>(size);
  });
}

/// Content of a data file in a line, and oddities of it; nothing for other HDF5 files.
Converted contents_of(const std::string& path) {
  const Hdf5Reader file = Hdf5Reader::open(path, ExitCode::data);
  std::string text;
  for (const char* split : kSplits) {
    const std::string images = std::string("/") + split + "/images";
    if (!file.has(images) || file.is_group(images)) continue;
    const Shape shape = file.info(images).shape;
    text += fmt::format("{}{} {} images of {}", text.empty() ? "" : ", ", shape[0], split,
                        fmt::join(std::span(shape).subspan(1), " x "));
  }
  const std::string source = file.text("/", "source").value_or("");
  Converted converted{text + (text.empty() || source.empty() ? "" : "; " + printable(source)), {}};
  if (!text.empty() && file.has("train")) {
    const auto train = open_dataset({path}, "train", 0);
    const auto test = file.has("test") ? open_dataset({path}, "test", 0) : nullptr;
    converted.remarks = class_remarks(*train, test.get());
  }
  return converted;
}

constexpr std::int64_t kLeastSeconds = 60;  // of a process, however little it reads

/// Converts in a process of its own, which 4 MB a second is slow for, a hundredfold of compressed data included.
void convert_confined(const ConvertOptions& options) {
  constexpr std::int64_t kBytesASecond = 4'000'000, kTimes = 3, kRoom = 64 << 20;
  const std::int64_t bytes = bytes_of(inputs_of(options));
  const Limits limits{.cpu_seconds = kLeastSeconds + bytes / kBytesASecond, .memory = kTimes * bytes + kRoom};
  confined(options.source, limits, [&] {
    const Form* form = form_of(options.source);
    if (form == nullptr) refuse_folder(options.source);
    refuse_options(options, *form);
    form->convert(options);
  });
}

/// Source inside the unpacked files of an archive: a folder, else the one file that may have a form.
std::string source_inside(const std::string& root, const std::string& archive) {
  if (form_of(root) != nullptr) return root;
  if (const std::string folder = folder_inside(root); !folder.empty()) return folder;
  std::vector<std::string> files, named;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    files.push_back(entry.path().string());
    constexpr const char* kEnds[] = {".pickle", ".pkl", ".npz", ".npy", ".mat", ".h5", ".hdf5"};
    const bool known = std::ranges::any_of(kEnds, [&](const char* end) { return entry.path().extension() == end; });
    if (known) named.push_back(files.back());
  }
  if (files.size() == 1 || named.size() == 1) return named.empty() ? files.front() : named.front();
  require(!named.empty(), ExitCode::data, archive,
          ": holds none of the forms that are known (data/README.md lists them); images that are files of their own "
          "(JPEG, PNG) are for 'dat_hpc data index'");
  fail(ExitCode::data, archive, ": holds ", named.size(),
       " files of which each could be meant; unpack it and name one");
}

/// A message about a file in `root`, as one about a file in the archive. Commands in it want the archive unpacked.
std::string told_of_archive(std::string message, const std::string& root, const std::string& archive) {
  const std::size_t command = message.find("'dat_hpc data convert ");
  if (command != std::string::npos && message.find(root, command) != std::string::npos)
    message.replace(command, std::string::npos, "unpack the archive for that");
  for (const auto& [from, to] : {std::pair{root + "/", archive + ": "}, std::pair{root, archive}})
    for (std::size_t at = 0; (at = message.find(from, at)) != std::string::npos; at += to.size())
      message.replace(at, from.size(), to);
  return message;
}

void convert_archive(const ConvertOptions& options) {
  remove_temporaries_of(options.output);
  const std::string beside = folder_around(options.output);
  const OwnFolder folder((fs::path(beside) / ("." + fs::path(options.output).filename().string() + ".tmp-")).string(),
                         options.output + ": cannot write into the folder " + beside);
  constexpr std::int64_t kPacked = 1'000'000, kMemory = 512 << 20;  // bytes a second, which is slow, and bytes
  const Limits limits{.cpu_seconds = kLeastSeconds + bytes_of({options.source}) / kPacked, .memory = kMemory};
  try {
    confined(options.source, limits, [&] { unpack_archive(options.source, folder.path()); });
    ConvertOptions inside = options;
    inside.source = source_inside(folder.path(), options.source);
    const bool again = fs::is_regular_file(inside.source) && !is_idx(inside.source) && is_archive(inside.source);
    require(!again, ExitCode::data, inside.source, " is an archive in an archive; unpack it and convert that");
    convert_confined(inside);
  } catch (const Error& error) {
    throw Error(error.code(), told_of_archive(error.what(), folder.path(), options.source));
  }
}

}  // namespace

Converted convert_dataset(const ConvertOptions& options) {
  std::error_code error;
  const auto kind = fs::status(options.source, error).type();
  require(kind == fs::file_type::directory || kind == fs::file_type::regular, ExitCode::data, options.source,
          ": there is no such folder or file");
  // A folder is not searched for data files: the one of an earlier call may lie there.
  if (kind != fs::file_type::directory || !has_seal(options.output))
    require_apart({options.output}, inputs_of(options));
  const bool archive = kind == fs::file_type::regular && !is_idx(options.source) && is_archive(options.source);
  try {
    archive ? convert_archive(options) : convert_confined(options);
  } catch (...) {
    remove_temporaries_of(options.output);
    throw;
  }
  return contents_of(options.output);
}

}  // namespace dat
