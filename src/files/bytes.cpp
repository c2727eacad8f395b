#include "files/bytes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "dat/file.hpp"

namespace dat {

namespace {

class FileBytes final : public ByteSource {
 public:
  FileBytes(std::string path, ExitCode code)
      : path_(std::move(path)), code_(code), file_(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    // A pipe would have it wait for a writer.
    require(file_ != -1, code_, path_, ": cannot be opened: ", system_reason(errno));
    struct stat status {};
    const bool known = ::fstat(file_, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
      ::close(file_);
      fail(code_, path_, ": not a file");
    }
    size_ = static_cast<std::int64_t>(status.st_size);
  }
  ~FileBytes() override { ::close(file_); }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  [[nodiscard]] const std::string& name() const override { return path_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::int64_t offset, void* to, std::int64_t bytes) const override {
    for (std::int64_t done = 0; done < bytes;) {
      const ssize_t got = TEMP_FAILURE_RETRY(
          ::pread(file_, static_cast<char*>(to) + done, static_cast<std::size_t>(bytes - done), offset + done));
      require(got >= 0, code_, path_, ": cannot be read: ", system_reason(errno));
      require(got > 0, code_, path_, ": ends at byte ", offset + done, ", where more should follow: it is cut off");
      done += got;
    }
  }

 private:
  std::string path_;
  ExitCode code_;
  int file_;
  std::int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string& path, ExitCode code) {
  return std::make_unique<FileBytes>(path, code);
}

std::string beginning_of(const ByteSource& source, std::int64_t most) {
  std::string bytes(static_cast<std::size_t>(std::min(most, source.size())), ' ');
  source.read(0, bytes.data(), std::ssize(bytes));
  return bytes;
}

void PartStream::read(void* to, std::int64_t bytes) {
  require(bytes <= end_ - at_, ExitCode::data, source_.name(), ": the array at byte ", at_, " is too short");
  source_.read(at_, to, bytes);
  at_ += bytes;
}

}  // namespace dat
