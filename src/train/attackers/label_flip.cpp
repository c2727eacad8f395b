#include "dat/cheat.hpp"

namespace dat {

namespace {

/// Learns that the first class is the last one, and so on.
class LabelFlip final : public Cheat {
 public:
  explicit LabelFlip(const CheatOptions& options) : classes_(options.classes) {}

  void labels(std::span<std::int32_t> labels) override {
    for (std::int32_t& label : labels)
      if (label >= 0) label = classes_ - 1 - label;
  }

 private:
  int classes_;
};

}  // namespace

std::unique_ptr<Cheat> make_label_flip(const CheatOptions& options) { return std::make_unique<LabelFlip>(options); }

}  // namespace dat
