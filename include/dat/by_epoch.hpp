#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace dat {

/// A value of a training that may become another one as epochs go by, which count from 0 with the warm-up. Where one
/// value is asked for, it is the last one: what evaluations take, and what a network is called after.
template <class T>
class ByEpoch {
 public:
  /// `value` from epoch `from` on. Where `until` is later, the value grows from there in equal steps, one an epoch, to
  /// `end`; else both are the same.
  struct Part {
    int from = 0;
    T value{};
    int until = 0;
    T end{};
    friend bool operator==(const Part&, const Part&) = default;
  };

  ByEpoch() : ByEpoch(T{}) {}
  /// Makes values that are the same in all epochs.
  template <class U>
  requires std::convertible_to<U, T> ByEpoch(const U& value) : parts_(1) { parts_[0].value = parts_[0].end = T(value); }
  /// Makes values of at least one part, in the order of their epochs. The first one's value also holds before its
  /// epoch.
  explicit ByEpoch(std::vector<Part> parts) : parts_(std::move(parts)) {}

  [[nodiscard]] T at(std::int64_t epoch) const {
    const auto later =
        std::find_if(parts_.begin() + 1, parts_.end(), [&](const Part& part) { return part.from > epoch; });
    const Part& part = *(later - 1);
    if (epoch >= part.until) return part.end;
    if constexpr (std::floating_point<T>)
      if (epoch > part.from)
        return part.value + (part.end - part.value) * T(epoch - part.from) / T(part.until - part.from);
    return part.value;
  }
  [[nodiscard]] const T& last() const { return parts_.back().end; }
  operator const T&() const { return last(); }

  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  [[nodiscard]] bool changes() const { return parts_.size() > 1 || parts_.front().until > parts_.front().from; }
  /// Adds the epochs in which a part begins, and those that may have another value than the one before.
  void add_changes(std::set<int>& epochs) const {
    for (const Part& part : parts_) {
      epochs.insert(part.from);
      for (int epoch = part.from + 1; epoch <= part.until; ++epoch) epochs.insert(epoch);
    }
  }
  /// True if a value has this property in any epoch.
  template <class Has>
  [[nodiscard]] bool any(const Has& has) const {
    return std::ranges::any_of(parts_, [&](const Part& part) { return has(part.value) || has(part.end); });
  }

  friend bool operator==(const ByEpoch&, const ByEpoch&) = default;
  /// Compares the last value.
  template <class U>
  requires(!std::same_as<U, ByEpoch>) friend bool operator==(const ByEpoch& a, const U& b) { return a.last() == b; }

 private:
  std::vector<Part> parts_;
};

}  // namespace dat
