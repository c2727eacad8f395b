#include "dat/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>
#include <system_error>

#include "dat/error.hpp"
#include "dat/number.hpp"
#include "dat/tick.hpp"

namespace dat {
namespace {

namespace fs = std::filesystem;

// A file descriptor that is closed at the end. A pipe does not have it wait for a writer.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC)) {}
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ != -1; }

 private:
  int fd_;
};

void sync_to_disk(const std::string& path) {
  const Descriptor file(path, O_RDONLY);
  require(file.is_open() && ::fsync(file.get()) == 0, ExitCode::io, path,
          ": cannot bring it to disk: ", system_reason(errno));
}

constexpr std::string_view kMagic = "dat_hpc sealed file 1\nbytes ";

/// Content of a seal, but for its hash.
struct Seal {
  std::int64_t bytes = 0;
  std::vector<SealGap> gaps;
};
using SealBlock = std::array<char, kSealBytes>;

std::string text_of(const std::vector<SealGap>& gaps) {
  std::string text;
  for (const SealGap& gap : gaps)
    text += "without " + std::to_string(gap.offset) + " " + std::to_string(gap.bytes) + "\n";
  return text;
}

// The block is text, filled up with zeros, so that `head -1` on a file says what it is.
SealBlock seal_block(const Seal& seal, const std::string& hash) {
  SealBlock block{};
  std::snprintf(block.data(), block.size(), "%s%lld\n%ssha256 %s\n", kMagic.data(), static_cast<long long>(seal.bytes),
                text_of(seal.gaps).c_str(), hash.c_str());
  return block;
}

// Nothing where the block is none. What it says may be anything: see fits().
std::optional<Seal> seal_in(const SealBlock& block) {
  if (!std::equal(kMagic.begin(), kMagic.end(), block.begin())) return {};
  const char *at = block.data() + kMagic.size(), *const end = block.data() + block.size();
  const auto number = [&](std::int64_t& value, char behind) {
    const auto [last, error] = std::from_chars(at, end, value);
    if (error != std::errc() || last == end || *last != behind) return false;
    at = last + 1;
    return true;
  };
  constexpr std::string_view kWithout = "without ";
  Seal seal;
  if (!number(seal.bytes, '\n')) return {};
  while (std::string_view(at, static_cast<std::size_t>(end - at)).starts_with(kWithout)) {
    at += kWithout.size();
    SealGap& gap = seal.gaps.emplace_back();
    if (!number(gap.offset, ' ') || !number(gap.bytes, '\n')) return {};
  }
  return seal;
}

// Returns whether the gaps lie in the file, one after the other.
bool fits(const Seal& seal) {
  std::int64_t end = kSealBytes;
  for (const SealGap& gap : seal.gaps) {
    if (gap.offset < end || gap.offset > seal.bytes || gap.bytes <= 0 || gap.bytes > seal.bytes - gap.offset)
      return false;
    end = gap.offset + gap.bytes;
  }
  return seal.gaps.size() <= kMostGaps;
}

// Hash of the list of gaps, and of what follows the block but for these. Empty where reading failed (errno) or the file
// ended before its end.
std::string hash_after_block(int fd, const Seal& seal) {
  Sha256 hash;
  const std::string listed = text_of(seal.gaps);
  hash.add(listed.data(), listed.size());
  constexpr std::size_t kPiece = 1 << 20;
  std::vector<char> buffer(kPiece);
  const auto add = [&](std::int64_t at, std::int64_t end) {
    while (at < end) {
      const ssize_t got = TEMP_FAILURE_RETRY(
          ::pread(fd, buffer.data(), std::min(buffer.size(), static_cast<std::size_t>(end - at)), at));
      if (got <= 0) break;
      tick();
      hash.add(buffer.data(), static_cast<std::size_t>(got));
      at += got;
    }
    return at == end;
  };
  std::int64_t begin = kSealBytes;
  for (const SealGap& gap : seal.gaps) {
    if (!add(begin, gap.offset)) return {};
    begin = gap.offset + gap.bytes;
  }
  return add(begin, seal.bytes) ? hash.hex() : std::string();
}

bool read_seal(const Descriptor& file, SealBlock& block) {
  return ::pread(file.get(), block.data(), block.size(), 0) == static_cast<ssize_t>(block.size());
}

void write_block(const std::string& path, const Descriptor& file, const SealBlock& block) {
  const ssize_t written = ::pwrite(file.get(), block.data(), block.size(), 0);
  require(written == static_cast<ssize_t>(block.size()), ExitCode::io, path,
          ": cannot seal it: ", system_reason(errno));
}

void seal(const std::string& path) {
  const Descriptor file(path, O_RDWR);
  struct stat status {};
  require(file.is_open() && ::fstat(file.get(), &status) == 0, ExitCode::io, path,
          ": cannot seal it: ", system_reason(errno));
  SealBlock block{};
  require(status.st_size > static_cast<off_t>(kSealBytes) && read_seal(file, block), ExitCode::io, path,
          ": has no room for a seal");
  Seal whole = seal_in(block).value_or(Seal{});  // seal with the gaps of leave_out()
  whole.bytes = status.st_size;
  assert(fits(whole));
  const std::string hash = hash_after_block(file.get(), whole);
  require(!hash.empty(), ExitCode::io, path, ": cannot read back what was written: ", system_reason(errno));
  write_block(path, file, seal_block(whole, hash));
}

EVP_MD_CTX* evp(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

std::string system_reason(int error_number) {
  if (error_number == ENOSPC || error_number == EDQUOT) return "disk full";
  return std::generic_category().message(error_number);
}

std::string folder_around(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

void write_atomically(const std::string& path, const std::function<void(const std::string& temporary)>& write) {
  const fs::path target(path);
  const std::string folder = folder_around(path);
  std::random_device random;
  std::array<char, 32> unique{};
  std::snprintf(unique.data(), unique.size(), ".tmp-%08x%08x", random(), random());
  const std::string temporary = (fs::path(folder) / ("." + target.filename().string() + unique.data())).string();

  struct stat status {};
  require(::stat(folder.c_str(), &status) == 0, ExitCode::io, path, ": cannot write into the folder ", folder, ": ",
          system_reason(errno));
  std::error_code ignored;
  const fs::file_status old = fs::status(target, ignored);
  require(!fs::exists(old) || fs::is_regular_file(old), ExitCode::io, path, ": is there already and is not a file");
  // A writer that gave up may still hold the file open: without the cut, its space would not become free.
  const auto remove = [&] {
    static_cast<void>(!::truncate(temporary.c_str(), 0));
    ::unlink(temporary.c_str());
  };
  try {
    write(temporary);
    sync_to_disk(temporary);
    require(std::rename(temporary.c_str(), path.c_str()) == 0, ExitCode::io, path,
            ": cannot be replaced: ", system_reason(errno));
  } catch (const Error& error) {
    remove();
    std::string message = error.what();
    if (const auto at = message.find(temporary); at != std::string::npos) message.replace(at, temporary.size(), path);
    throw Error(error.code(), message);
  } catch (...) {
    remove();
    throw;
  }
  sync_to_disk(folder);
}

void write_bytes(int file, std::string_view bytes, const std::string& path, std::optional<std::int64_t> at) {
  while (!bytes.empty()) {
    const ssize_t written = TEMP_FAILURE_RETRY(at ? ::pwrite(file, bytes.data(), bytes.size(), *at)
                                                  : ::write(file, bytes.data(), bytes.size()));
    require(written > 0, ExitCode::io, "cannot write ", path, ": ", system_reason(errno));
    bytes.remove_prefix(static_cast<std::size_t>(written));
    if (at) *at += written;
  }
}

std::optional<std::string> small_file(const std::string& path) {
  constexpr std::uintmax_t kMost = std::uintmax_t{16} << 20;
  std::error_code unreadable;
  if (!fs::is_regular_file(path, unreadable)) return {};  // a pipe would wait
  if (const auto bytes = fs::file_size(path, unreadable); unreadable || bytes > kMost) return {};
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return {};
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> entries_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    paths.push_back(entry->path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

void write_stream_atomically(const std::string& path, const std::function<void(std::ostream& file)>& write) {
  write_atomically(path, [&](const std::string& temporary) {
    std::ofstream file(temporary, std::ios::binary);
    write(file);
    file.close();
    require(file.good(), ExitCode::io, "cannot write ", temporary, ": ", system_reason(errno));
  });
}

void write_text_atomically(const std::string& path, const std::string& text) {
  write_stream_atomically(path, [&](std::ostream& file) { file << text; });
}

void make_folder(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  fs::create_directories(path, error);
  require(!error, ExitCode::io, "cannot create the folder ", path, ": ", system_reason(error.value()));
}

void remove_temporaries(const std::string& folder, const std::string& of) {
  std::error_code error;
  std::vector<fs::path> left_over;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool wanted = of.empty() ? name.find(".tmp-") != std::string::npos : name.starts_with("." + of + ".tmp-");
    std::error_code gone;
    // A folder that no name vouches for may be a person's.
    const bool kept = of.empty() && fs::is_directory(entry.symlink_status(gone));
    if (name.starts_with('.') && wanted && !kept) left_over.push_back(entry.path());
  }
  require(!error, ExitCode::io, folder, ": cannot list the folder: ", system_reason(error.value()));
  for (const fs::path& path : left_over) fs::remove_all(path, error);
}

void remove_temporaries_of(const std::string& path) {
  const std::string folder = folder_around(path);
  std::error_code error;
  const std::string of = fs::path(path).filename().string();
  if (!of.empty() && fs::is_directory(folder, error)) remove_temporaries(folder, of);
}

OwnFolder::OwnFolder(const std::string& begin, const std::string& failure) : path_(begin + "XXXXXX") {
  require(mkdtemp(path_.data()) != nullptr, ExitCode::io, failure, ": ", system_reason(errno));
}

OwnFolder::~OwnFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void write_sealed(const std::string& path, const std::function<void(const std::string& temporary)>& write) {
  write_atomically(path, [&](const std::string& temporary) {
    write(temporary);
    seal(temporary);
  });
}

bool has_seal(const std::string& path) {
  const Descriptor file(path, O_RDONLY);
  std::array<char, kMagic.size()> begin{};
  const ssize_t got = ::pread(file.get(), begin.data(), begin.size(), 0);
  return got == static_cast<ssize_t>(begin.size()) && std::equal(kMagic.begin(), kMagic.end(), begin.begin());
}

void leave_out(const std::string& temporary, const std::vector<SealGap>& gaps) {
  const Descriptor file(temporary, O_WRONLY);
  require(file.is_open(), ExitCode::io, temporary, ": cannot seal it: ", system_reason(errno));
  write_block(temporary, file, seal_block({0, gaps}, ""));
}

std::string check_seal(const std::string& path, std::vector<SealGap>* gaps) {
  const Descriptor file(path, O_RDONLY);
  struct stat status {};
  if (!file.is_open() || ::fstat(file.get(), &status) != 0) return "cannot be read: " + system_reason(errno);
  if (!S_ISREG(status.st_mode)) return "is not a file";
  SealBlock block{};
  if (!read_seal(file, block)) return "is cut off within the first " + std::to_string(kSealBytes) + " bytes";
  const std::optional<Seal> seal = seal_in(block);
  if (!seal) return "has no seal: it is of another kind, or its first bytes are damaged";
  if (seal->bytes != status.st_size)
    return "has " + std::to_string(status.st_size) + " bytes instead of " + std::to_string(seal->bytes);
  if (!fits(*seal) || (gaps == nullptr && !seal->gaps.empty())) return "is damaged: its seal leaves out what none does";
  const std::string hash = hash_after_block(file.get(), *seal);
  if (hash.empty()) return "cannot be read: " + system_reason(errno);
  if (seal_block(*seal, hash) != block) return "is damaged: its SHA-256 is not the one in its seal";
  if (gaps != nullptr) *gaps = seal->gaps;
  return {};
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  require(context_ != nullptr && EVP_DigestInit_ex(evp(context_), EVP_sha256(), nullptr) == 1, ExitCode::device,
          "OpenSSL offers no SHA-256");
}

Sha256::~Sha256() { EVP_MD_CTX_free(evp(context_)); }

void Sha256::add(const void* data, std::size_t bytes) { EVP_DigestUpdate(evp(context_), data, bytes); }

std::array<std::uint8_t, 32> Sha256::digest() {
  std::array<std::uint8_t, 32> digest{};
  EVP_DigestFinal_ex(evp(context_), digest.data(), nullptr);
  EVP_DigestInit_ex(evp(context_), nullptr, nullptr);  // begins the same hash anew
  return digest;
}

std::string Sha256::hex() { return fmt::format("{:02x}", fmt::join(digest(), "")); }

std::string sha256_hex(const void* data, std::size_t bytes) {
  Sha256 hash;
  hash.add(data, bytes);
  return hash.hex();
}

void require_apart(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs) {
  std::error_code unreadable;
  for (const std::string& output : outputs) {
    if (!fs::exists(output, unreadable)) continue;
    const auto check = [&](const std::string& input) {
      std::error_code none;  // a file that is not there counts as none
      require(!fs::equivalent(output, input, none), ExitCode::usage, output, ": would be written over ",
              input == output ? "the file that is read" : input + ", which is read and is the same file",
              "; give the result another name");
    };
    for (const std::string& input : inputs) {
      check(input);
      for (const std::string& path : entries_in(input))
        if (fs::is_regular_file(path, unreadable)) check(path);
    }
  }
}

std::vector<std::string> files_in(const std::string& folder, std::initializer_list<const char*> names) {
  std::vector<std::string> files;
  if (folder.empty()) return files;
  for (const char* name : names) files.push_back((fs::path(folder) / name).string());
  return files;
}

std::string quoted_word(const std::string& word) {
  if (!word.empty() && is_plain(word, "+,-./:=@_")) return word;
  std::string quoted = "\"";
  for (const char c : word) {
    if (std::string_view("\"\\$`").find(c) != std::string_view::npos) quoted += '\\';
    quoted += c >= 0 && c < ' ' ? '?' : c;
  }
  return quoted + "\"";
}

}  // namespace dat
