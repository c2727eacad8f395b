#pragma once

#include "train/attackers/cheating.hpp"

namespace dat {

/// A part of the step's message, of whose numbers a rank that cheats says something else.
class FalseNumbers final : public MessagePart {
 public:
  FalseNumbers(MessagePart& part, const Cheating& cheating) : part_(part), cheating_(cheating) {}

  [[nodiscard]] std::size_t places() const override { return part_.places(); }
  void fetch(Backend::Ticket& ticket) override { part_.fetch(ticket); }
  void write(double* to, int unit) override {
    part_.write(to, unit);
    if (Cheat* cheat = cheating_.now()) cheat->statistics({to, places()});
  }
  void read(const double* from) override { part_.read(from); }
  [[nodiscard]] Estimate estimate() const override { return part_.estimate(); }
  bool read_each(const RankNumbers& said) override { return part_.read_each(said); }

 private:
  MessagePart& part_;
  const Cheating& cheating_;
};

}  // namespace dat
