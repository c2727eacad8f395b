#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "batch/attacker.hpp"
#include "dat/loader.hpp"
#include "train/examples/examples.hpp"
#include "train/examples/old_weights.hpp"
#include "train/generators/generator.hpp"
#include "train/generators/orders.hpp"
#include "train/generators/versions.hpp"
#include "train/plan/goal.hpp"
#include "train/plan/replica_of.hpp"

namespace dat {

namespace {

/// Examples that generators attack (--generators): gives them each version of the weights, orders the micro-batches of
/// this step and of as many to come as --staleness says, and takes what they answer. It reads and cuts out itself all
/// else that it needs beside the attacked images. With --deterministic the versions that an attack runs on follow the
/// rule of OldWeights, so images have the bits of LocalExamples, whoever makes them and whenever; the versions are
/// state then, and an attack that is under way when a run ends is made once more. Without, the newest version counts
/// that a generator has, and none is older than --staleness says.
class RemoteExamples final : public ExampleSource {
 public:
  explicit RemoteExamples(const ExampleParts& parts);
  RemoteExamples(const RemoteExamples&) = delete;
  RemoteExamples& operator=(const RemoteExamples&) = delete;

  void keep_on_device(const std::uint8_t* pixels) override { attacker_.keep_on_device(pixels); }
  void start(std::int64_t step) override;
  void begin(std::int64_t step) override;
  const Batch* next() override;
  void trained() override { orders_.take_answers(); }
  void close() override;
  [[nodiscard]] bool stop_wanted() const override { return orders_.stop_wanted(); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return version_bytes_ + orders_.counts().bytes; }
  [[nodiscard]] std::int64_t attack_passes() const override { return passes_; }
  [[nodiscard]] const GeneratorRecord* generators() const override { return &record_; }

  [[nodiscard]] std::size_t places() const override { return kCounts + ages_.size(); }
  void write(double* to, int unit) override;
  void read(const double* from) override;

  void save(Checkpoint& checkpoint) override {
    if (kept_) kept_->save(checkpoint);
  }
  void restore(const Checkpoint& checkpoint) override {
    if (kept_) kept_->restore(checkpoint);
  }
  void share(Communicator& ranks) override {
    if (kept_) kept_->share(ranks);
  }

 private:
  static constexpr std::size_t kCounts = 3;
  static constexpr int kSpansOfSteps = 32;  ///< a picture has no room for more
  /// Copies the images of an answer to the device.
  void put(AnswerPacket& packet);

  Communicator& ranks_;
  const Dataset& dataset_;
  LoaderOptions loading_;
  Plan plan_;
  Replica& replica_;
  Attacker attacker_;  ///< loads images, which others have attacked
  PhaseTimer& timer_;
  Staleness staleness_;
  Orders orders_;
  VersionSender versions_;
  std::unique_ptr<OldWeights> kept_;  ///< null: no rule
  std::unique_ptr<Loader> loader_;
  const HostBatch* batch_ = nullptr;
  int next_ = 0;               ///< next of its micro-batches
  std::vector<float> turned_;  ///< [images of a micro-batch], in the layout of this device
  bool open_ = false;

  std::int64_t step_ = 0, version_bytes_ = 0, own_passes_ = 0, passes_ = 0;
  std::vector<std::int64_t> ages_;  ///< [staleness + 1] iterations of this step on weights so old
  GeneratorRecord record_;
  int spans_told_ = 0;  ///< steps
};

RemoteExamples::RemoteExamples(const ExampleParts& parts)
    : ranks_(parts.ranks),
      dataset_(parts.images),
      loading_(loader_options(parts.options, parts.plan, data_threads(parts.options, parts.replica.backend()))),
      plan_(parts.plan),
      replica_(parts.replica),
      attacker_(replica_.images(), replica_, parts.method.attacks, nullptr),
      timer_(parts.timer),
      staleness_(staleness_of(parts.options, *parts.method.attacks.last().attack)),
      orders_({ranks_, plan_, replica_, staleness_, parts.options.generators, parts.options.deterministic}),
      versions_(ranks_, replica_, parts.options, [this] { orders_.take_answers(); }),
      kept_(parts.options.deterministic && staleness_.versions > 0 ? std::make_unique<OldWeights>(staleness_, replica_)
                                                                   : nullptr),
      turned_(static_cast<std::size_t>(plan_.micro_batch * replica_.images().layout.elements())),
      ages_(static_cast<std::size_t>(staleness_.versions) + 1) {
  require_work(parts.options, plan_);
}

void RemoteExamples::start(std::int64_t step) {
  loading_.pixels = attacker_.reads_pixels();
  loading_.first_step = step;
  loader_ = std::make_unique<Loader>(dataset_, ranks_.size(), ranks_.rank(), loading_);
  const int there = kept_ ? kept_->there_before(step) : 0;
  open_ = true;
  orders_.begin(step, step - there);
  for (int age = there; age > 0; --age) versions_.send(step - age, &kept_->before(step, age));
}

void RemoteExamples::begin(std::int64_t step) {
  step_ = step;
  orders_.forget();
  own_passes_ = 0;
  std::ranges::fill(ages_, 0);
  batch_ = &loader_->next();
  next_ = 0;
  timer_.lap(Phase::data);
  version_bytes_ = versions_.send(step, kept_ ? &kept_->begin(step) : nullptr);
  orders_.deal_up_to(std::min(step + staleness_.versions, plan_.steps - 1));
  timer_.lap(Phase::attack);
}

const Batch* RemoteExamples::next() {
  if (next_ == batch_->micro_batches) return nullptr;
  const Batch& batch = attacker_.load(*batch_, next_);
  timer_.lap(Phase::data);
  put(orders_.wait_for(step_, next_++));
  timer_.lap(Phase::attack);
  return &batch;
}

void RemoteExamples::put(AnswerPacket& packet) {
  const AnswerHeader& answer = packet.header();
  const std::int32_t* const ages = ages_in(packet);
  for (int iteration = 0; iteration < answer.ages; ++iteration) ++ages_[static_cast<std::size_t>(ages[iteration])];
  own_passes_ += answer.passes;
  const Layout& mine = replica_.images().layout;
  const auto count = static_cast<std::size_t>(answer.count * mine.elements());
  const float* const from =
      in_layout(images_in(packet), {mine.c, mine.h, mine.w, answer.block}, answer.count, mine, turned_.data());
  replica_.backend().copy_to_device(replica_.images().x_adv, from, count * sizeof(float));
}

void RemoteExamples::close() {
  if (!std::exchange(open_, false)) return;
  orders_.pause(versions_.sent());
  versions_.finish();
}

void RemoteExamples::write(double* to, int unit) {
  std::fill_n(to, places(), 0.0);
  if (unit != 0) return;
  to[0] = static_cast<double>(own_passes_);
  to[1] = static_cast<double>(orders_.counts().dealt_again);
  to[2] = orders_.counts().idle;
  std::ranges::copy(ages_, to + kCounts);
}

void RemoteExamples::read(const double* from) {
  passes_ = static_cast<std::int64_t>(from[0]);
  record_ = {.waited = orders_.counts().waited, .idle = from[2], .dealt_again = static_cast<std::int64_t>(from[1])};
  if (spans_told_ < kSpansOfSteps) {
    record_.spans = &orders_.spans();
    ++spans_told_;
  }
  double iterations = 0;
  for (int age = 0; age <= staleness_.versions; ++age) {
    const double those = from[kCounts + static_cast<std::size_t>(age)];
    iterations += those;
    record_.age_mean += age * those;
    if (those != 0) record_.age_max = age;
  }
  record_.age_mean /= std::max(iterations, 1.0);
}

}  // namespace

std::unique_ptr<ExampleSource> make_remote_examples(const ExampleParts& parts) {
  return std::make_unique<RemoteExamples>(parts);
}

}  // namespace dat
