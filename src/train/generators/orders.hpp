#pragma once

#include <optional>
#include <vector>

#include "dat/communicator.hpp"
#include "dat/report.hpp"
#include "train/examples/old_weights.hpp"
#include "train/generators/dealing.hpp"
#include "train/generators/messages.hpp"
#include "train/plan/plan.hpp"

namespace dat {

/// Orders of a trainer for generators, and the answers: each micro-batch is ordered once, or once more where its
/// generator is late, and of its answers the first one counts.
class Orders {
 public:
  struct Parts {
    Communicator& ranks;  ///< the trainers; generators are those of the launch after them
    const Plan& plan;
    Replica& replica;
    const Staleness& staleness;
    int generators;
    bool by_rule;  ///< true: the versions on which attacks have run must be those of the rule
  };
  /// The references must outlive it.
  explicit Orders(const Parts& parts);

  /// Effects of orders since forget().
  struct Counts {
    std::int64_t bytes = 0;        ///< sent
    std::int64_t dealt_again = 0;  ///< micro-batches
    double waited = 0;             ///< seconds
    double idle = 0;               ///< seconds of generators
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  /// Spans of the generators' work since forget(), as far as there is room for them.
  [[nodiscard]] const std::vector<AttackSpan>& spans() const { return spans_; }
  void forget() {
    counts_ = {};
    spans_.clear();
  }

  /// All generators: steps begin with number `step`, and versions with number `first`.
  void begin(std::int64_t step, std::int64_t first);
  /// Orders the micro-batches of all steps up to this one.
  void deal_up_to(std::int64_t step);
  /// Takes what has been answered, without waiting. Error(communication): an answer is not what was ordered.
  void take_answers();
  /// The answer for a micro-batch of the step whose answers are wanted first, valid until the next call. Waits for it.
  [[nodiscard]] AnswerPacket& wait_for(std::int64_t step, int unit);
  /// Returns whether a generator has reported that the run is to stop.
  [[nodiscard]] bool stop_wanted() const { return stop_wanted_; }
  /// Informs all generators that nothing is wanted any more; versions: how many have been sent since begin(). Returns
  /// when nothing of theirs is under way.
  void pause(std::int64_t versions);

 private:
  /// A micro-batch that has been ordered.
  struct Dealt {
    std::int64_t step = -1;
    int unit = 0;
    int generator = 0;  ///< generator that has been given it last
    bool answered = false;
    std::size_t packet = 0;  ///< packet with the answer
  };
  [[nodiscard]] int units() const { return plan_.micro_batches_of(ranks_.rank()); }
  [[nodiscard]] int launch_rank(int generator) const { return first_generator_ + generator; }
  void send(int generator, const Order& order);
  /// What a generator sends: one that stops within a message keeps no other from arriving.
  struct Receiving {
    std::optional<Communicator::Arrival> arrival;
    Request request;
    std::size_t packet;  ///< packet to receive into, where something arrives
  };
  /// Begins to receive an answer of a generator, where one has come.
  void receive_next(Receiving& from, int generator);
  /// Takes a received message.
  void take(Receiving& from);
  void require_right(AnswerPacket& packet, std::size_t bytes, int rank) const;
  void note(const AttackSpan& span);
  void deal_again(Dealt& dealt, double waited);

  Communicator &ranks_, &launch_;
  const Plan& plan_;
  const Staleness& staleness_;
  Layout layout_;                     ///< layout of the dataset's images
  int generators_, first_generator_;  ///< first: its rank in the launch
  bool by_rule_;
  StepsUnderWay under_way_;
  Dealing dealing_;
  std::vector<Dealt> dealt_;                   ///< micro-batches by StepsUnderWay::place()
  std::vector<AnswerPacket> packets_;          ///< one for each place, and some to receive into
  std::vector<std::size_t> free_;              ///< packets into which nothing is received
  std::vector<Receiving> receiving_;           ///< [generators]
  std::int64_t next_ = 0, first_version_ = 0;  ///< next: step to be dealt
  int paused_ = 0;
  bool stop_wanted_ = false;
  Counts counts_;
  std::vector<AttackSpan> spans_;
};

}  // namespace dat
