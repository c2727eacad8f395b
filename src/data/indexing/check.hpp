#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/images/image.hpp"
#include "data/images/image_files.hpp"
#include "data/images/members.hpp"
#include "data/indexing/indexing.hpp"

namespace dat {

/// Reads and decodes images of a source.
class MemberReader {
 public:
  MemberReader(const Members& members, int threads, std::function<void(double part)> progress);

  /// Result of the check of an image.
  struct Checked {
    ImageShape shape;
    bool png = false;
    std::uint64_t hash = 0;  ///< XXH3-64 of its bytes
    std::string damage;      ///< "PATH: why"; empty: none
  };
  /// Checks the members with these numbers. done: the part of all work that was done before; part: that this is.
  [[nodiscard]] std::vector<Checked> check(std::span<const std::size_t> numbers, double done, double part) const;
  /// Checks all members.
  [[nodiscard]] std::vector<Checked> check_all(double part) const;
  [[nodiscard]] const ImageFiles& files() const { return files_; }

  /// The bytes of a member. Error(data).
  void read(std::size_t number, std::vector<std::uint8_t>& to) const;
  /// Reads again a member that has been checked. Error(data): it has changed.
  void read_again(std::size_t number, const Checked& as, std::vector<std::uint8_t>& to) const;
  /// Says that so much of all work is done.
  void tell(double done) const;

 private:
  [[nodiscard]] std::string named(std::size_t number, const std::string& text) const;

  const Members& members_;
  ImageFiles files_;
  int threads_;
  std::function<void(double part)> progress_;
};

/// Descriptions of damage.
[[nodiscard]] std::vector<std::string> damage_among(const std::vector<MemberReader::Checked>& seen);

/// The images of a source, checked for a file at options.output, where it can be written. part: as of check_all().
/// Errors: as of the functions below.
struct CheckedSource {
  CheckedSource(const IndexOptions& options, double part);

  Members members;
  MemberReader reader;
  std::vector<MemberReader::Checked> seen;
  Indexed made;  ///< account of those that are whole
};

/// Error(io): a file cannot be written there. Existing files stay.
void require_writable(const std::string& output);

/// The images of a source, of two classes at least.
[[nodiscard]] Members members_to_index(const std::string& source);

/// Account of the images of a source that are taken. whole: of each member, whether it is. Error(data): none is.
[[nodiscard]] Indexed account_of(const std::string& source, const Members& members, const std::vector<bool>& whole);

/// Writes the list of damaged images, and takes an old one away. Error(data): there are some, and they are not to be
/// left out.
void list_damage(const IndexOptions& options, const std::string& list, const std::vector<std::string>& damage);

}  // namespace dat
