#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dat/error.hpp"
#include "dat/number.hpp"

namespace dat {

/// An option of the command line that counts with a member of a family: the member reads it, or can do what it asks
/// for. With members that do not name it the option is refused, or says nothing.
struct Setting {
  std::string option;  ///< name without dashes
  /// Meaning of `auto` for the member, a value or a formula as the help shows it; for an option without `auto` the only
  /// value that the member takes. Empty: neither.
  std::string value{};
};

/// Setting of an option among these; null: there is none.
[[nodiscard]] inline const Setting* setting_of(const std::vector<Setting>& settings, const std::string& option) {
  const auto found = std::ranges::find_if(settings, [&](const Setting& s) { return s.option == option; });
  return found == settings.end() ? nullptr : &*found;
}
/// Setting::value of an option as a number. None: it is a formula, or there is none.
[[nodiscard]] inline std::optional<double> number_of(const std::vector<Setting>& settings, const std::string& option) {
  const Setting* const found = setting_of(settings, option);
  double number{};
  return found != nullptr && read_fraction(found->value, number) ? std::optional(number) : std::nullopt;
}

/// Descriptions that the members of a family give of themselves.
class Family {
 public:
  struct About {
    std::string name;
    std::vector<Setting> settings;
    std::string cites;
  };
  /// Members in the order of the family's table.
  [[nodiscard]] const std::vector<About>& members() const { return members_; }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all = where([](const std::string&) { return true; });
    std::ranges::sort(all);
    return all;
  }
  /// The members of which this is true, in the order of the family's table.
  template <class Is>
  [[nodiscard]] std::vector<std::string> where(const Is& is) const {
    std::vector<std::string> all;
    for (const About& member : members_)
      if (is(member.name)) all.push_back(member.name);
    return all;
  }
  /// Members that name an option.
  [[nodiscard]] std::vector<std::string> readers(const std::string& option) const {
    return where([&](const std::string& name) { return reads(name, option); });
  }
  [[nodiscard]] std::vector<std::string> others(const std::string& option) const {
    return where([&](const std::string& name) { return !reads(name, option); });
  }
  [[nodiscard]] bool reads(const std::string& name, const std::string& option) const {
    return setting_of(settings(name), option) != nullptr;
  }
  /// Publication in which a member was proposed, or the one that it follows; empty: none is known, or there is no such
  /// member.
  [[nodiscard]] std::string cites(const std::string& name) const { return about(name).cites; }
  /// Settings that a member names; empty, where there is no such member.
  [[nodiscard]] const std::vector<Setting>& settings(const std::string& name) const { return about(name).settings; }

 protected:
  explicit Family(std::vector<About> members) : members_(std::move(members)) {}

 private:
  [[nodiscard]] const About& about(const std::string& name) const {
    static const About nobody{};
    for (const About& one : members_)
      if (one.name == name) return one;
    return nobody;
  }

  std::vector<About> members_;
};

/// The members of one family (attacks, selectors, optimizers, ...), by name. A new member is one line in its family's
/// table: its name, what makes it, the options that count with it, and the publication that it follows. `what` is the
/// family's name in messages.
template <class Signature>
class Registry : public Family {
 public:
  struct Row {
    std::string name;
    std::function<Signature> make;
    std::vector<Setting> settings{};
    std::string cites{};
  };
  Registry(std::string what, const std::vector<Row>& rows) : Family(members_of(rows)), what_(std::move(what)) {
    for (const Row& row : rows) make_[row.name] = row.make;
  }

  /// Error(usage) for an unknown name; the message lists the known ones.
  [[nodiscard]] const std::function<Signature>& at(const std::string& name) const {
    const auto found = make_.find(name);
    if (found != make_.end()) return found->second;
    std::string known;
    for (const auto& [key, make] : make_) known += (known.empty() ? "" : ", ") + key;
    fail(ExitCode::usage, "unknown ", what_, " '", name, "'; known: ", known);
  }

 private:
  [[nodiscard]] static std::vector<About> members_of(const std::vector<Row>& rows) {
    std::vector<About> all;
    for (const Row& row : rows) all.push_back({row.name, row.settings, row.cites});
    return all;
  }

  std::string what_;
  std::map<std::string, std::function<Signature>> make_;
};

}  // namespace dat
