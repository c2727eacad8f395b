// Archives as they were downloaded. Their files are put into a folder of their own, where the forms find them.

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "data/arrays/inflate.hpp"
#include "data/convert/forms.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr std::int64_t kMostTimes = 1000;  // the archive's bytes: what it holds
constexpr int kMostFiles = 100'000, kMostLevels = 16, kMostPictures = 100;
constexpr std::size_t kBlock = 1U << 18U;
constexpr std::int64_t kFirstBytes = 512;  // first bytes, which tell archives apart

bool is_tar(const std::string& bytes) { return bytes.find("ustar", 257) == 257; }

/// Returns whether `path` ends in one of these, in any case of letters.
bool ends_in(std::string path, std::initializer_list<const char*> ends) {
  for (char& c : path) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::any_of(ends, [&](const char* end) { return path.ends_with(end); });
}

/// A file that is written from its begin to its end.
class NewFile {
 public:
  explicit NewFile(const fs::path& path) : path_(path.string()) {
    constexpr int kOwn = 0600;
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kOwn);
    const bool strange =
        errno == EEXIST || errno == ENAMETOOLONG || errno == EISDIR || errno == ENOTDIR || errno == ENOENT;
    require(fd_ != -1, strange ? ExitCode::data : ExitCode::io, path_, ": cannot be made: ", system_reason(errno));
  }
  ~NewFile() { ::close(fd_); }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  void add(std::string_view bytes) const { write_bytes(fd_, bytes, path_); }

 private:
  std::string path_;
  int fd_;
};

/// Data that gzip packed, whose checksum the library would not check. Errors wait until the library has returned.
struct Unpacked {
  explicit Unpacked(const ByteSource& source) : stream(source, 0, source.size(), Wrapping::gzip, source.name()) {}
  InflateStream stream;
  std::vector<char> block = std::vector<char>(kBlock);
  std::exception_ptr failure{};
};

la_ssize_t read_unpacked(archive*, void* data, const void** block) {
  auto* unpacked = static_cast<Unpacked*>(data);
  *block = unpacked->block.data();
  la_ssize_t bytes = ARCHIVE_FATAL;
  try {
    bytes = unpacked->stream.read_some(unpacked->block.data(), std::ssize(unpacked->block));
  } catch (...) {
    unpacked->failure = std::current_exception();
  }
  return bytes;
}

/// Takes an archive apart.
class Unpacking {
 public:
  Unpacking(const std::string& path, const std::string& folder)
      : path_(path), folder_(folder), source_(open_bytes(path)), reader_(archive_read_new(), archive_read_free) {
    require(reader_ != nullptr, ExitCode::data, path_, ": no memory to read it");
    left_ = kMostTimes * source_->size();
    archive* reader = reader_.get();
    // For a library that is not there a program would be started, which a warning says: then its packing is not known.
    const std::unique_ptr<archive, decltype(&archive_read_free)> asked(archive_read_new(), archive_read_free);
    for (const auto filter :
         {archive_read_support_filter_bzip2, archive_read_support_filter_xz, archive_read_support_filter_zstd})
      if (filter(asked.get()) == ARCHIVE_OK) filter(reader);
    for (const auto form :
         {archive_read_support_format_tar, archive_read_support_format_zip, archive_read_support_format_7zip,
          archive_read_support_format_rar, archive_read_support_format_rar5, archive_read_support_format_raw})
      static_cast<void>(form(reader));
  }

  void run() {
    if (beginning_of(*source_, 2) == "\x1f\x8b") unpacked_ = std::make_unique<Unpacked>(*source_);
    check(unpacked_ ? archive_read_open2(reader_.get(), unpacked_.get(), nullptr, read_unpacked, nullptr, nullptr)
                    : archive_read_open_filename(reader_.get(), path_.c_str(), kBlock));
    for (archive_entry* entry = nullptr; check(archive_read_next_header(reader_.get(), &entry)) != ARCHIVE_EOF;)
      take(entry);
    archive* reader = reader_.get();
    const bool tar = (archive_format(reader) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
    // A tar has zeros after its last entry. The library takes the end of the file for the tar's.
    require(!tar || archive_filter_bytes(reader, 0) > archive_read_header_position(reader), ExitCode::data, path_,
            " is cut off: nothing ends it after its last file; copy it anew");
    require(written_ > 0 || inner_.empty(), ExitCode::data, path_, ": holds an archive, ", inner_,
            "; unpack it and convert that, or, where it has images (JPEG, PNG), take 'dat_hpc data index'");
    if (!unpacked_) return;
    while (unpacked_->stream.read_some(unpacked_->block.data(), std::ssize(unpacked_->block))) {
    }
    unpacked_->stream.end();
  }

 private:
  /// Throws what was wrong. Returns the library's answer else.
  la_ssize_t check(la_ssize_t status) {
    if (unpacked_ && unpacked_->failure) std::rethrow_exception(unpacked_->failure);
    if (status >= 0 || status == ARCHIVE_WARN) return status;
    const char* const why = archive_error_string(reader_.get());
    fail(ExitCode::data, path_, ": cannot be unpacked: ", why != nullptr ? in_one_line(why) : "no reason is known");
  }

  /// The path of an entry, which is a stranger's: below the folder.
  [[nodiscard]] fs::path place_of(archive_entry* entry) const {
    const char* name = archive_entry_pathname(entry);
    if (name == nullptr) name = archive_entry_pathname_utf8(entry);
    require(name != nullptr, ExitCode::data, path_, ": has a name that cannot be read");
    if (archive_format(reader_.get()) == ARCHIVE_FORMAT_RAW) return fs::path(path_).stem();  // "x" of "folder/x.gz"
    const fs::path place = fs::path(name).lexically_normal();
    const bool leaves = place.is_absolute() || std::ranges::find(place, "..") != place.end();
    require(!leaves, ExitCode::data, path_, ": ", in_one_line(name), " leaves the archive's folder");
    require(std::distance(place.begin(), place.end()) <= kMostLevels, ExitCode::data, path_, ": ", in_one_line(name),
            " lies more than ", kMostLevels, " folders deep");
    return place;
  }

  void take(archive_entry* entry) {
    const fs::path place = place_of(entry);
    const std::string name = in_one_line(place.string());
    if (archive_entry_filetype(entry) == AE_IFDIR) return;
    require(archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr, ExitCode::data,
            path_, ": ", name, " is no file but a link or the like; unpack the archive and give the folder");
    require(archive_entry_is_encrypted(entry) == 0, ExitCode::data, path_, ": ", name, " is encrypted");
    require(++files_ <= kMostFiles, ExitCode::data, path_, ": has more than ", kMostFiles, " files");
    const bool image = ends_in(name, {".jpg", ".jpeg", ".png", ".tar"});
    if (image && ++images_ > kMostPictures) refuse_images();
    if (ends_in(name, {".tar"})) inner_ = name;
    if (image || place.filename() == "unlabeled_X.bin") return;
    require_room(archive_entry_size(entry), name);  // 0 where it is not known
    std::error_code error;
    fs::create_directories(folder_ / place.parent_path(), error);
    require(!error, error.value() == ENOTDIR || error.value() == EEXIST ? ExitCode::data : ExitCode::io, path_, ": ",
            name, ": its folder cannot be made: ", system_reason(error.value()));
    require(!fs::is_regular_file(fs::symlink_status(folder_ / place, error)), ExitCode::data, path_, ": ", name,
            " is in it twice; unpack the archive and give the folder");
    const NewFile file(folder_ / place);
    ++written_;
    std::vector<char> block(kBlock);
    while (const la_ssize_t bytes = archive_read_data(reader_.get(), block.data(), block.size())) {
      check(bytes == ARCHIVE_WARN ? la_ssize_t{ARCHIVE_FAILED} : bytes);  // a checksum that does not fit
      require_room(bytes, name);
      left_ -= bytes;
      file.add({block.data(), static_cast<std::size_t>(bytes)});
    }
  }

  void require_room(std::int64_t bytes, const std::string& name) const {
    require(bytes >= 0 && bytes <= left_, ExitCode::data, path_, ": ", name, " makes more than ", kMostTimes,
            " bytes of each byte of the archive: it is damaged, or was made to fill disks");
    std::error_code error;
    const fs::space_info space = fs::space(folder_, error);
    require(error || bytes <= static_cast<std::int64_t>(space.available), ExitCode::io, path_, ": ", name, " has ",
            bytes, " bytes, and there are only ", space.available, " left where the output is to be: disk full");
  }

  [[noreturn]] void refuse_images() const {
    const bool as_it_is = is_tar(beginning_of(*source_, kFirstBytes));
    const std::string of = as_it_is ? quoted_word(path_) : "FOLDER";
    fail(ExitCode::data, path_, ": holds images that are files of their own (JPEG, PNG); 'dat_hpc data index ", of,
         " OUT.h5' makes a data file of ", as_it_is ? "it" : "the folder in which you unpack it");
  }

  std::string path_;
  fs::path folder_;
  std::unique_ptr<ByteSource> source_;
  std::unique_ptr<archive, decltype(&archive_read_free)> reader_;
  std::unique_ptr<Unpacked> unpacked_;
  std::int64_t left_ = 0;  ///< bytes that may still be written
  int files_ = 0, images_ = 0, written_ = 0;
  std::string inner_;  ///< a tar in it; empty: none
};

}  // namespace

bool is_archive(const std::string& file) {
  const std::string begin = beginning_of(*open_bytes(file), kFirstBytes);
  if (begin.starts_with("PK\x03\x04")) return ends_in(file, {".zip"});  // an .npz is a zip archive, too
  constexpr std::string_view kBegins[] = {"\x1f\x8b"sv,         "BZh"sv,        "\xfd\x37zXZ\0"sv,
                                          "\x28\xb5\x2f\xfd"sv, "7z\xbc\xaf"sv, "Rar!"sv};
  return is_tar(begin) || std::ranges::any_of(kBegins, [&](auto magic) { return begin.starts_with(magic); });
}

void unpack_archive(const std::string& archive, const std::string& folder) { Unpacking(archive, folder).run(); }

}  // namespace dat
