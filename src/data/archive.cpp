// Archives are unpacked by the tools that are there for it; what can be said is how, and what to do then.

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "data/arrays/inflate.hpp"
#include "data/forms.hpp"

namespace dat {

namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr std::size_t kBlock = 512, kBlocks = 16;  // of tar: their size, and how many are looked at

/// As many of the first bytes as there are.
std::string first_bytes(const ByteSource& source) {
  std::string bytes(static_cast<std::size_t>(std::min<std::int64_t>(kBlocks * kBlock, source.size())), ' ');
  source.read(0, bytes.data(), std::ssize(bytes));
  return bytes;
}

/// The first blocks of what gzip packed, as far as they can be had.
std::string first_unpacked(const ByteSource& source) {
  std::string bytes;
  try {
    InflateStream stream(source, 0, source.size(), Wrapping::gzip, source.name());
    for (std::size_t i = 0; i < kBlocks; ++i) {
      std::string block(kBlock, ' ');
      stream.read(block.data(), std::ssize(block));
      bytes += block;
    }
  } catch (const Error&) {  // it ends here
  }
  return bytes;
}

bool is_tar(const std::string& bytes) { return bytes.size() >= kBlock && bytes.substr(257, 5) == "ustar"; }
bool is_zip(const std::string& bytes) { return bytes.starts_with("PK\x03\x04"); }
bool is_gzip(const std::string& bytes) { return bytes.starts_with("\x1f\x8b"); }
bool is_other(const std::string& bytes) {  // bzip2, xz, 7z, rar
  for (const std::string_view magic : {"BZh"sv,
                                       "\xfd"
                                       "7zXZ\0"sv,
                                       "7z\xbc\xaf"sv, "Rar!"sv})
    if (bytes.starts_with(magic)) return true;
  return false;
}

/// The name of the first member of a tar or zip archive.
std::string first_member(std::string bytes) {
  while (is_tar(bytes)) {
    const bool more_of_next = std::string_view("xgLK").find(bytes[156]) != std::string_view::npos;
    if (!more_of_next) return bytes.substr(0, std::min<std::size_t>(100, bytes.find('\0')));
    std::size_t size = 0;
    for (std::size_t at = 124; at < 135 && bytes[at] >= '0' && bytes[at] <= '7'; ++at)
      size = size * 8 + static_cast<std::size_t>(bytes[at] - '0');
    bytes.erase(0, kBlock + (size + kBlock - 1) / kBlock * kBlock);
  }
  constexpr std::size_t kHeader = 30;
  if (!is_zip(bytes) || bytes.size() < kHeader) return {};
  const auto digit = [&](std::size_t at) { return std::size_t{static_cast<unsigned char>(bytes[at])}; };
  return bytes.substr(kHeader, digit(26) | digit(27) << 8);
}

/// "x" of "folder/x.tar.gz".
std::string without_endings(const std::string& path) {
  std::string name = fs::path(path).filename().string();
  for (const std::string_view ending : {".gz"sv, ".bz2"sv, ".xz"sv, ".tar"sv, ".tgz"sv, ".zip"sv, ".7z"sv, ".rar"sv})
    if (name.ends_with(ending) && name.size() > ending.size()) name.resize(name.size() - ending.size());
  return name;
}

}  // namespace

bool is_archive(const std::string& file) {
  const auto source = open_bytes(file);
  const std::string begin = first_bytes(*source);
  if (is_zip(begin)) return file.ends_with(".zip");  // an .npz is a zip archive, too
  return is_gzip(begin) || is_tar(begin) || is_other(begin);
}

void refuse_archive(const ConvertOptions& options) {
  const std::string& path = options.source;
  const auto source = open_bytes(path);
  const std::string begin = first_bytes(*source);
  const std::string inside = is_gzip(begin) ? first_unpacked(*source) : begin;
  const std::string word = quoted_word(path);
  if (is_gzip(begin) && inside.starts_with("\0\0\x08"sv)) {
    const fs::path folder = fs::path(path).parent_path();
    fail(ExitCode::data, path, ": one of MNIST's files alone; name the folder that has all four, packed or not: ",
         convert_command(folder.empty() ? "." : folder.string()));
  }
  if (is_gzip(begin) && !is_tar(inside) && !inside.empty())
    fail(ExitCode::data, path, ": is packed; unpack it first ('gunzip -k ", word, "'), then ",
         convert_command((fs::path(path).parent_path() / without_endings(path)).string()));
  // What the archive makes of itself: a folder of its own, one file, or many, which are better kept in a folder.
  std::string member = printable(first_member(inside)), made = without_endings(path);
  if (member.starts_with("./")) member.erase(0, 2);
  const bool zip = is_zip(begin), folder = member.find('/') != std::string::npos,
             one = member.ends_with(".npz") || member.ends_with(".mat");
  std::string unpack = (zip ? "unzip " : "tar xf ") + word;
  if (folder || one)
    made = member.substr(0, member.find('/'));
  else
    unpack = zip ? unpack + " -d " + quoted_word(made)
                 : "mkdir " + quoted_word(made) + " && " + unpack + " -C " + quoted_word(made);
  if (is_other(begin) && !path.ends_with(".bz2") && !path.ends_with(".xz")) unpack = "7z x " + word;
  std::string then = convert_command(made);
  if (made == "cifar-100-binary") then.insert(then.size() - 1, " --label-bytes 2");
  fail(ExitCode::data, path, ": is an archive; unpack it first ('", unpack, "'), then convert what it held: ", then);
}

}  // namespace dat
