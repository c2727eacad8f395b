#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dat/reducer.hpp"

namespace dat {

/// A reducer that makes something of this rank's gradient before another one makes one gradient of all. Announcements
/// of segments are held back until the gradient is what it shall be. It hands on all that it does not do otherwise.
class WrappedReducer : public Reducer {
 public:
  explicit WrappedReducer(std::unique_ptr<Reducer> of_ranks) : of_ranks_(std::move(of_ranks)) {}

  [[nodiscard]] float* place(int unit) override { return of_ranks_->place(unit); }
  void ready(int /*segment*/) override {}
  [[nodiscard]] std::span<float* const> own() override { return of_ranks_->own(); }
  [[nodiscard]] std::int64_t elements() const override { return of_ranks_->elements(); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return of_ranks_->bytes_sent(); }
  [[nodiscard]] std::string transport() const override { return of_ranks_->transport(); }
  [[nodiscard]] double bytes_sent(const std::vector<double>& probabilities, int ranks) const override {
    return of_ranks_->bytes_sent(probabilities, ranks);
  }
  [[nodiscard]] std::int64_t memory(int ranks) const override { return of_ranks_->memory(ranks); }
  [[nodiscard]] std::int64_t added_up(int ranks) const override { return of_ranks_->added_up(ranks); }
  [[nodiscard]] double seconds_under_way() const override { return of_ranks_->seconds_under_way(); }
  [[nodiscard]] std::vector<State> state() const override { return of_ranks_->state(); }

 protected:
  [[nodiscard]] Reducer& of_ranks() { return *of_ranks_; }

 private:
  std::unique_ptr<Reducer> of_ranks_;
};

}  // namespace dat
