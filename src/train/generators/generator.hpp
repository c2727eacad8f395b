#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "batch/attacker.hpp"
#include "dat/communicator.hpp"
#include "dat/config.hpp"
#include "dat/error.hpp"
#include "dat/loader.hpp"
#include "replica/replica.hpp"
#include "train/examples/old_weights.hpp"
#include "train/generators/messages.hpp"
#include "train/generators/versions.hpp"
#include "train/plan/plan.hpp"
#include "train/plan/splits.hpp"
#include "train/plan/step_method.hpp"

namespace dat {

/// Error(usage): more generators than micro-batches that can be under way at once. plan: of the trainers.
void require_work(const TrainOptions& options, const Plan& plan);
/// Bytes on a generator's device. plan: of the trainers; ranks: any group.
[[nodiscard]] std::int64_t generator_memory(const TrainOptions& options, const Plan& plan, const Dataset& images,
                                            Communicator& ranks);

/// Messages from a generator to trainers: some answers may be under way at once.
class Answers {
 public:
  /// most: bytes after the header of an answer. The references must outlive it.
  Answers(Communicator& launch, Backend& backend, std::size_t most);

  /// A packet that nothing is under way of, to be filled and sent before the next call. Waits for one.
  [[nodiscard]] AnswerPacket& packet();
  /// Sends that packet, with so many bytes after the header: images, or none.
  void send(int trainer, std::size_t behind = 0);
  /// Waits until all have arrived.
  void finish();

 private:
  static constexpr int kUnderWay = 8;
  struct One {
    AnswerPacket packet;
    Request request{};
  };

  Communicator& launch_;
  std::vector<One> all_;
  std::size_t next_ = 0;
};

/// A rank that attacks for those that train: has the network to be attacked alone, without gradients and optimizer, and
/// the versions of its weights that trainers send. It reads the images itself. It continues with that one of several
/// micro-batches which is wanted first and whose next weights are there, so where attacks take newer weights between
/// iterations it works on several steps in turn.
class Generator {
 public:
  /// launch: all ranks of the launch; outlives this. Plans everything. Error(usage), Error(data), Error(device).
  Generator(Communicator& launch, const TrainOptions& options);

  /// Does the work that trainers order, until `called` has an exit code, which is returned, and no trainer is at work.
  /// As soon as `stop` says that the run is to stop, trainers receive that. Error(communication): a message is not as
  /// it must be.
  [[nodiscard]] ExitCode serve(const std::function<std::optional<ExitCode>()>& called,
                               const std::function<bool()>& stop);

  /// Sets the observer that is called after each stretch of iterations, with their number and seconds.
  void tell(std::function<void(int iterations, double seconds)> observer) { observer_ = std::move(observer); }

  [[nodiscard]] Replica& replica() { return replica_; }
  [[nodiscard]] const Splits& splits() const { return splits_; }

 private:
  /// A micro-batch that a trainer has ordered.
  struct Task {
    bool wanted = false;
    std::int64_t step = 0;
    int trainer = 0, unit = 0;
    int done = 0;                    ///< iterations
    std::int64_t passes = 0;         //
    double seconds = 0, began = 0;   //
    float* eta = nullptr;            ///< [micro_batch], on the device; null: attacks are made in one piece
    std::vector<std::int32_t> ages;  ///< [iterations]
  };
  struct Trainer {
    bool open = false;
    bool told_to_stop = false;
    std::optional<std::int64_t> pauses_behind{};  ///< versions after which this generator reports that it pauses
  };

  void look_for_messages();
  void obey(int trainer, const Order& order);
  /// Gives up tasks of steps that are done.
  void drop_old();
  void give_up(Task& task);
  void pause_where_told();
  void tell_stop();
  [[nodiscard]] bool working() const;

  [[nodiscard]] std::int64_t version_of(const Task& task, int iteration) const;
  /// The one to go on with; null: none can be gone on with.
  [[nodiscard]] Task* next_task();
  void go_on(Task& task);
  /// Puts its images, and what the attack has reached, where the network is asked.
  void load(Task& task);
  void answer(Task& task);
  [[nodiscard]] int waiting() const;

  Communicator& launch_;
  Splits splits_;
  int trainers_, own_trainer_;  ///< own: who sends the weights
  Plan plan_;
  StepMethod method_;
  Replica replica_;
  Staleness staleness_;
  bool rule_, parted_;  ///< rule: versions follow it, else the newest counts; parted: weights change within an attack
  const std::uint8_t* pixels_;  ///< pixels of the training set, on the device; null: they are read
  Attacker attacker_;
  BatchReader reader_;
  StepsUnderWay under_way_;  ///< steps of a trainer that are under way

  std::vector<Trainer> all_;
  std::vector<Task> tasks_;         ///< [trainers][places]
  std::vector<HostBatch> batches_;  ///< [trainers][steps under way]
  std::vector<std::int64_t> batch_steps_;
  std::vector<std::vector<bool>> units_read_;  ///< units read of each batch, by micro-batch
  ReceivedVersions versions_;
  Answers answers_;
  const Task* loaded_ = nullptr;
  double idle_ = 0;
  std::function<void(int, double)> observer_;  ///< null: nobody
  std::function<bool()> stop_;
};

}  // namespace dat
