#include "dat/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "checkpoint/checkpoint_file.hpp"
#include "dat/error.hpp"
#include "dat/file.hpp"
#include "hdf5/hdf5.hpp"

namespace dat {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFormat = 2;
constexpr std::size_t kKept = 3;
constexpr const char *kBestAccuracy = "best", *kBestDataset = "state/best", *kBestStep = "best_step",
                     *kBestBytes = "best_bytes";
const std::string kSeries = "step-", kBest = "best-", kSuffix = ".h5", kBestFile = "best.h5";

std::string file_name(const std::string& prefix, std::int64_t step) {
  return fmt::format("{}{:09}{}", prefix, step, kSuffix);
}

// step and path, newest first
std::vector<std::pair<std::int64_t, std::string>> checkpoints_in(const std::string& folder,
                                                                 const std::string& prefix = kSeries) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    std::int64_t step{};
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
    if (step >= 0 && name == file_name(prefix, step)) found.emplace_back(step, entry.path().string());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

// Datasets of float32 below `group`, in the order in which they were written.
void read_arrays(const Hdf5Reader& file, const std::string& group, std::vector<Checkpoint::Array>& arrays) {
  for (const std::string& name : file.list(group)) {
    const std::string path = group + "/" + name;
    if (file.is_group(path)) {
      read_arrays(file, path, arrays);
      continue;
    }
    Checkpoint::Array& array = arrays.emplace_back();
    array.name = path;
    array.values = file.read<float>(path, array.shape);
  }
}

std::uintmax_t bytes_needed(const Checkpoint& checkpoint) {
  constexpr std::size_t kPerObject = 1024, kFile = 1 << 16;  // HDF5's headers and trees, generously
  std::size_t bytes = kFile;
  for (const auto& array : checkpoint.arrays) bytes += array.values.size() * sizeof(float) + kPerObject;
  for (const auto& [name, array] : checkpoint.bytes) bytes += array.values.size() + kPerObject;
  for (const auto& [name, values] : checkpoint.doubles) bytes += values.size() * sizeof(double) + kPerObject;
  for (const auto& [name, value] : checkpoint.texts) bytes += value.size() + kPerObject;
  return bytes + checkpoint.integers.size() * kPerObject;
}

// Record of a file, without the seal and the arrays. Empty: it has none, or cannot be read.
std::optional<BestRecord> best_record_in(const std::string& path) {
  try {
    const Hdf5Reader file = Hdf5Reader::open(path, ExitCode::checkpoint);
    Checkpoint only;
    Shape shape;
    only.doubles[kBestAccuracy] = file.read<double>(kBestDataset, shape);
    for (const char* name : {kBestStep, kBestBytes})
      if (const auto value = file.integer("state", name)) only.integers[name] = *value;
    return BestRecord::of(only);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void move_file(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  require(!error, ExitCode::io, from.string(), ": cannot be renamed: ", system_reason(error.value()));
}

}  // namespace

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

BestRecord BestRecord::of(const Checkpoint& checkpoint) {
  BestRecord best;
  for (const auto& [name, values] : checkpoint.doubles)
    if (name == kBestAccuracy && values.size() == 1) best.accuracy = values.front();
  for (const auto& [name, value] : checkpoint.integers) {
    if (name == kBestStep) best.step = value;
    if (name == kBestBytes) best.bytes = value;
  }
  return best;
}

void BestRecord::save(Checkpoint& checkpoint) const {
  checkpoint.doubles[kBestAccuracy] = {accuracy};
  checkpoint.integers[kBestStep] = step;
  checkpoint.integers[kBestBytes] = bytes;
}

const Checkpoint::Array& Checkpoint::array(const std::string& name, const std::vector<std::int64_t>& shape) const {
  const auto found = std::ranges::find_if(arrays, [&](const Array& array) { return array.name == name; });
  require(found != arrays.end(), ExitCode::checkpoint, "the checkpoint has no array ", name,
          "; it belongs to another network or optimizer");
  require(found->shape == shape, ExitCode::checkpoint, "the checkpoint's array ", name, " has the shape ",
          shape_text(found->shape), ", not ", shape_text(shape), "; it belongs to another network");
  return *found;
}

void write_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  write_sealed_hdf5(path, [&](Hdf5File& file) {
    file.set_text("/", "filetype", "checkpoint");
    file.set_integer("/", "format_version", kFormat);
    for (const auto& [name, value] : checkpoint.texts) file.set_text("/", name, value);
    for (const auto& array : checkpoint.arrays) file.write(array.name, array.shape, array.values);
    for (const auto& [name, array] : checkpoint.bytes) file.write("state/" + name, array.shape, array.values);
    for (const auto& [name, values] : checkpoint.doubles)
      file.write("state/" + name, {static_cast<std::int64_t>(values.size())}, values);
    for (const auto& [name, value] : checkpoint.integers) file.set_integer("state", name, value);
  });
}

Checkpoint read_checkpoint(const std::string& path) {
  const std::string damage = check_seal(path);
  require(damage.empty(), ExitCode::checkpoint, path, ": the checkpoint ", damage);
  return read_checkpoint(Hdf5Reader::open(path, ExitCode::checkpoint));
}

Checkpoint read_checkpoint(const Hdf5Reader& file) {
  const std::string& path = file.path();
  const std::string kind = file.text("/", "filetype").value_or("unknown");
  require(kind == "checkpoint", ExitCode::checkpoint, path, ": is a file of kind '", kind, "', not a checkpoint",
          kind == "dataset" ? "; name the run or the checkpoint of a network, and give images with --data" : "");
  const std::int64_t version = file.integer("/", "format_version").value_or(0);
  require(version == kFormat, ExitCode::checkpoint, path, ": has the checkpoint format ", version,
          ", this program knows ", kFormat);

  Checkpoint checkpoint;
  for (const std::string& name : file.attribute_names("/")) {
    if (name == "filetype") continue;
    if (auto value = file.text("/", name)) checkpoint.texts[name] = std::move(*value);
  }
  for (const std::string& group : file.list("/"))
    if (group != "state") read_arrays(file, group, checkpoint.arrays);
  if (file.has("state")) {
    for (const std::string& name : file.list("state")) {
      const std::string dataset = "state/" + name;
      Shape shape;
      if (file.info(dataset).kind == Hdf5Info::Kind::u8) {
        Checkpoint::Bytes& array = checkpoint.bytes[name];
        array.values = file.read<std::uint8_t>(dataset, array.shape);
      } else {
        checkpoint.doubles[name] = file.read<double>(dataset, shape);
      }
    }
    for (const std::string& name : file.attribute_names("state"))
      if (const auto value = file.integer("state", name)) checkpoint.integers[name] = *value;
  }
  return checkpoint;
}

Checkpoint read_weights(const std::string& path) {
  if (!has_seal(path)) return read_weights(Hdf5Reader::open(path, ExitCode::checkpoint));
  const std::string damage = check_seal(path);
  require(damage.empty(), ExitCode::checkpoint, path, ": the file ", damage);
  const Hdf5Reader file = Hdf5Reader::open(path, ExitCode::checkpoint);
  // A state_dict that was converted has a seal, too.
  return file.text("/", "filetype") == "checkpoint" ? read_checkpoint(file) : read_weights(file);
}

Checkpoint read_weights(const Hdf5Reader& file) {
  const std::string& path = file.path();
  const std::string kind = file.text("/", "filetype").value_or("weights");
  require(kind == "weights", ExitCode::checkpoint, path, ": is a file of kind '", kind, "', not weights");
  Checkpoint weights;
  for (const std::string& name : file.list("/")) {
    require(!file.is_group(name), ExitCode::checkpoint, path, ": has the group ", name,
            ", but a state_dict is one dataset a tensor (docs/manual/export_import.md has the format)");
    const Hdf5Info info = file.info(name);
    if (name.ends_with(kBatchCounter) && file.elements(name) == 1 &&
        (info.kind == Hdf5Info::Kind::integer || info.kind == Hdf5Info::Kind::real)) {
      Shape shape;
      std::int64_t& batches = weights.integers["batches_tracked"];
      batches = std::max(batches, info.kind == Hdf5Info::Kind::integer ? file.read<std::int64_t>(name, shape)[0]
                                                                       : count_of(file.read<double>(name, shape)[0]));
      continue;
    }
    if (info.kind == Hdf5Info::Kind::integer && file.elements(name) == 1) continue;  // counts something else
    Checkpoint::Array& array = weights.arrays.emplace_back();
    array.name = (is_statistic(name) ? "bn/" : "param/") + name.substr(name.starts_with("module.") ? 7 : 0);
    array.values = file.read<float>(name, array.shape);
  }
  require(!weights.arrays.empty(), ExitCode::checkpoint, path,
          ": holds no weights (docs/manual/export_import.md has the format)");
  return weights;
}

std::string place_of_checkpoint(const std::string& path) {
  std::error_code unreadable;
  return !path.empty() && fs::exists(path + "/ckpt", unreadable) ? path + "/ckpt" : path;
}

Checkpoint find_checkpoint(const std::string& path, const std::function<void(const std::string&)>& warn) {
  std::error_code unreadable;
  if (!fs::is_directory(path, unreadable)) {
    require(!fs::is_regular_file(path, unreadable) || has_seal(path), ExitCode::checkpoint, path,
            ": is no checkpoint of dat_hpc (it has no seal), or its first bytes are damaged; of a network of another ",
            "program 'dat_hpc import ", quoted_word(path), " --out NEW.h5' makes one");
    return read_checkpoint(path);
  }
  const std::string folder = place_of_checkpoint(path);
  std::optional<Checkpoint> newest = CheckpointFolder::newest_in(folder, warn);
  require(newest.has_value(), ExitCode::checkpoint, "there is no checkpoint in ", folder);
  return std::move(*newest);
}

CheckpointFolder::CheckpointFolder(std::string folder, bool goes_on) : folder_(std::move(folder)) {
  make_folder(folder_);
  require(goes_on || !any_in(folder_), ExitCode::usage, folder_, " holds checkpoints of another run, which would be ",
          "lost: choose another --out");
  remove_temporaries(folder_);
}

bool CheckpointFolder::any_in(const std::string& folder) { return !checkpoints_in(folder).empty(); }

void CheckpointFolder::save_best(const Checkpoint& checkpoint) const {
  const fs::path path = fs::path(folder_) / kBestFile;
  const std::optional<BestRecord> before = best_record_in(path.string());
  if (before && before->step >= 0 && is_named(*before)) {  // it stays at hand for the checkpoint that names it
    std::int64_t number = before->step;
    while (fs::exists(fs::path(folder_) / file_name(kBest, number))) ++number;
    move_file(path, fs::path(folder_) / file_name(kBest, number));
  }
  write(kBestFile, checkpoint);
}

bool CheckpointFolder::restore_best(const BestRecord& best) const {
  const fs::path path = fs::path(folder_) / kBestFile;
  if (best_record_in(path.string()) == best) return true;
  for (const auto& [number, other] : checkpoints_in(folder_, kBest))
    if (best_record_in(other) == best) {
      move_file(other, path);
      return true;
    }
  return false;
}

Checkpoint CheckpointFolder::best() const { return read_checkpoint((fs::path(folder_) / kBestFile).string()); }

bool CheckpointFolder::is_named(const BestRecord& best) const {
  const auto series = checkpoints_in(folder_);
  return std::ranges::any_of(series, [&](const auto& one) { return best_record_in(one.second) == best; });
}

void CheckpointFolder::save(std::int64_t step, const Checkpoint& checkpoint) const {
  write(file_name(kSeries, step), checkpoint);
  name_newest(step);
  std::size_t kept = 0;
  for (const auto& [other, old] : checkpoints_in(folder_)) {
    if (other <= step && kept++ < kKept) continue;
    std::error_code ignored;  // one too many does no harm
    fs::remove(old, ignored);
  }
  for (const auto& [of, old] : checkpoints_in(folder_, kBest)) {
    const std::optional<BestRecord> best = best_record_in(old);
    std::error_code ignored;
    if (!best || !is_named(*best)) fs::remove(old, ignored);
  }
}

void CheckpointFolder::remove_behind(std::int64_t step) const {
  bool any = false;
  for (const auto& [later, path] : checkpoints_in(folder_)) {
    if (later <= step) break;
    std::error_code error;
    fs::remove(path, error);
    require(!error, ExitCode::io, path, ": cannot be removed: ", system_reason(error.value()));
    any = true;
  }
  if (any) name_newest(step);
}

void CheckpointFolder::name_newest(std::int64_t step) const {
  write_text_atomically((fs::path(folder_) / "latest").string(), file_name(kSeries, step) + "\n");
}

void CheckpointFolder::write(const std::string& name, const Checkpoint& checkpoint) const {
  std::error_code unknown;  // what is free counts as endless then
  const std::uintmax_t needed = bytes_needed(checkpoint), available = fs::space(folder_, unknown).available;
  const auto kib = [](std::uintmax_t bytes) { return bytes >> 10U; };
  require(available >= needed, ExitCode::io, folder_, ": disk full: a checkpoint needs ", kib(needed), " KiB, ",
          kib(available), " KiB are free");
  const std::string path = (fs::path(folder_) / name).string();
  write_checkpoint(path, checkpoint);
  const std::string damage = check_seal(path);
  require(damage.empty(), ExitCode::io, path, ": the checkpoint just written ", damage);
}

std::optional<Checkpoint> CheckpointFolder::newest_in(const std::string& folder,
                                                      const std::function<void(const std::string&)>& warn,
                                                      std::int64_t last) {
  auto found = checkpoints_in(folder);
  std::erase_if(found, [last](const auto& one) { return one.first > last; });
  if (found.empty()) return std::nullopt;
  for (const auto& [step, path] : found) {
    try {
      Checkpoint checkpoint = read_checkpoint(path);
      const auto of = checkpoint.integers.find("step");
      require(of != checkpoint.integers.end() && of->second == step, ExitCode::checkpoint, path,
              ": the checkpoint is that of another step than its name says");
      return checkpoint;
    } catch (const Error& error) {
      warn(std::string(error.what()) + "; trying the one before it");
    }
  }
  fail(ExitCode::checkpoint, folder, ": none of the ", found.size(),
       " checkpoints is whole; restore one, or start anew in another folder");
}

}  // namespace dat
