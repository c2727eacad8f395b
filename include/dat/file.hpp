#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dat {

/// The reason behind an errno, for messages: "disk full" for ENOSPC and EDQUOT, else the system's words.
[[nodiscard]] std::string system_reason(int error_number);

/// The folder in which the file of this path lies; ".": of a name alone.
[[nodiscard]] std::string folder_around(const std::string& path);

/// Writes `path` so that a reader sees the old file or the new one, never a part: `write` fills a temporary file in the
/// same folder, which is fsync'ed and renamed. Error(io) with the reason (disk full, no permission); the old file
/// stays.
void write_atomically(const std::string& path, const std::function<void(const std::string& temporary)>& write);
/// Writes what `write` puts into a stream in the same way.
void write_stream_atomically(const std::string& path, const std::function<void(std::ostream& file)>& write);
/// Writes a text in the same way.
void write_text_atomically(const std::string& path, const std::string& text);

/// Writes all of these bytes at the end of what was written, or at a place of the file. path: the file's name in
/// messages. Error(io) with the reason; a part may be written then.
void write_bytes(int file, std::string_view bytes, const std::string& path, std::optional<std::int64_t> at = {});

/// Text of a file that a run has written, which is small; nothing where it cannot be read, is above 16 MiB, or is no
/// file.
[[nodiscard]] std::optional<std::string> small_file(const std::string& path);
/// Paths of what is in a folder, in their order, as far as it can be read.
[[nodiscard]] std::vector<std::string> entries_in(const std::string& folder);

/// A word of a command in a message, as a shell understands it, in double quotes where it needs any, and without what a
/// terminal would obey.
[[nodiscard]] std::string quoted_word(const std::string& word);

/// Error(usage): a file that a command is going to write is one that it reads. To be called before anything is written.
/// A folder among the inputs stands for itself and the files right in it; an empty path stands for nothing.
void require_apart(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs);
/// The paths of these names in a folder; an empty path has none.
[[nodiscard]] std::vector<std::string> files_in(const std::string& folder, std::initializer_list<const char*> names);

/// Makes a folder, and those that it lies in, where they are not there yet; an empty path names none. Error(io).
void make_folder(const std::string& path);

/// Removes the temporary files that a killed writer left in a folder; with a name, only those for the file of that
/// name, and folders, too. Error(io).
void remove_temporaries(const std::string& folder, const std::string& of = "");
/// Removes what killed writers of a file have left beside it. Error(io).
void remove_temporaries_of(const std::string& path);

/// A new folder, which goes with all that is in it. Its path begins with `begin`.
class OwnFolder {
 public:
  /// failure: message where it cannot be made, before the reason. Error(io).
  OwnFolder(const std::string& begin, const std::string& failure);
  ~OwnFolder();
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Writes as write_atomically() does an HDF5 file that `write` creates with a user block of kSealBytes: the block
/// receives a magic word, the file's length and the SHA-256 of everything after the block but what is left out.
constexpr std::size_t kSealBytes = 512;
void write_sealed(const std::string& path, const std::function<void(const std::string& temporary)>& write);

/// A part of a file that its seal leaves out, so that no start has to read it: what lies there has hashes of its own.
/// The seal lists these parts, and its hash covers the list.
struct SealGap {
  std::int64_t offset = 0, bytes = 0;
  bool operator==(const SealGap&) const = default;
};
/// Excludes these parts from the seal, in this order, which is that in the file; kMostGaps at most. Called inside
/// write_sealed, after all else is written. Error(io).
constexpr std::size_t kMostGaps = 4;
void leave_out(const std::string& temporary, const std::vector<SealGap>& gaps);

/// Checks the seal with plain reads, before any HDF5 call. Returns an empty string where the file is whole, else what
/// is wrong with it. gaps: receives what the seal leaves out; null: nothing may be.
[[nodiscard]] std::string check_seal(const std::string& path, std::vector<SealGap>* gaps = nullptr);

/// Returns whether a file begins as a sealed one does.
[[nodiscard]] bool has_seal(const std::string& path);

[[nodiscard]] std::string sha256_hex(const void* data, std::size_t bytes);

/// SHA-256 over several pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void add(const void* data, std::size_t bytes);
  [[nodiscard]] std::array<std::uint8_t, 32> digest();  ///< ends the hash; what is added next begins another one
  [[nodiscard]] std::string hex();                      ///< digest(), written down

 private:
  void* context_;
};

}  // namespace dat
