#include "catch.hpp"
#include "device.hpp"
#include "random_values.hpp"
#include "single.hpp"
#include "train/examples/example_source.hpp"
#include "train/examples/old_weights.hpp"

using namespace dat;

namespace {

/// Source that writes down what is asked of it, and has an answer of its own to everything.
class Asked final : public ExampleSource {
 public:
  explicit Asked(std::string& calls) : calls_(calls) {}
  void keep_on_device(const std::uint8_t* pixels) override { note("device", *pixels); }
  void start(std::int64_t step) override { note("start", step); }
  void begin(std::int64_t step) override { note("begin", step); }
  const Batch* next() override { return &batch; }
  void look_ahead(std::int64_t step) override { note("ahead", step); }
  void trained() override { note("trained", 0); }
  void take_back() override { note("back", 0); }
  void close() override { note("close", 0); }
  [[nodiscard]] bool stop_wanted() const override { return true; }
  [[nodiscard]] std::int64_t bytes_sent() const override { return 11; }
  [[nodiscard]] std::int64_t attack_passes() const override { return 12; }
  [[nodiscard]] const GeneratorRecord* generators() const override { return &record; }
  [[nodiscard]] std::int64_t checkpoint_bytes(int ranks) const override { return 14 * ranks; }
  [[nodiscard]] std::string dropped() const override { return "this"; }
  [[nodiscard]] std::size_t places() const override { return 15; }
  void fetch(Backend::Ticket& ticket) override { ticket = 16; }
  void write(double* to, int unit) override { *to = 17.0 + unit; }
  void read(const double* from) override { note("read", static_cast<std::int64_t>(*from)); }
  void save(Checkpoint& checkpoint) override { checkpoint.integers["there"] += 18; }
  void restore(const Checkpoint& checkpoint) override { note("restore", checkpoint.integers.at("there")); }
  void forget_step_under_way() override { note("forget", 0); }
  void share(Communicator& ranks) override { note("share", ranks.size()); }
  void replicated(ReplicatedState& state) override { note("replicated", state.writes() ? 1 : 0); }

  Batch batch;
  GeneratorRecord record;

 private:
  void note(const char* what, std::int64_t number) { calls_ += what + (" " + std::to_string(number)) + "; "; }
  std::string& calls_;
};

/// A wrapper with this state of its own.
struct Around final : WrappedExamples {
  Around(std::unique_ptr<ExampleSource> source, Stateful& state) : WrappedExamples(std::move(source)), mine(state) {}
  Stateful& own() override { return mine; }
  Stateful& mine;
};

struct Writes final : ReplicatedState {
  void device(const std::string&, float*, std::int64_t) override {}
  void host(const std::string&, void*, std::size_t) override {}
  [[nodiscard]] bool writes() const override { return true; }
};

}  // namespace

TEST_CASE("What wraps a source of examples hands on all that it does not do itself", "[trainer]") {
  std::string calls, own_calls;
  auto source = std::make_unique<Asked>(calls);
  const Asked& of = *source;
  Asked own(own_calls);
  Around wrapper(std::move(source), own);
  const std::uint8_t pixel = 1;
  wrapper.keep_on_device(&pixel);
  wrapper.start(2);
  wrapper.begin(3);
  CHECK(wrapper.next() == &of.batch);
  wrapper.look_ahead(4);
  wrapper.trained();
  wrapper.take_back();
  wrapper.close();
  const double sum = 5;
  wrapper.read(&sum);
  Checkpoint checkpoint;
  wrapper.save(checkpoint);
  wrapper.restore(checkpoint);
  wrapper.forget_step_under_way();
  wrapper.share(test::single());
  Writes state;
  wrapper.replicated(state);
  CHECK(calls ==
        "device 1; start 2; begin 3; ahead 4; trained 0; back 0; close 0; read 5; restore 36; forget 0; share 1; "
        "replicated 1; ");
  CHECK(own_calls == "restore 36; share 1; ");
  CHECK((wrapper.stop_wanted() && wrapper.generators() == &of.record && wrapper.dropped() == "this"));
  CHECK((wrapper.bytes_sent() == 11 && wrapper.attack_passes() == 12));
  CHECK((wrapper.checkpoint_bytes(3) == 42 && wrapper.places() == 15));
  Backend::Ticket ticket = 0;
  wrapper.fetch(ticket);
  double number = 0;
  wrapper.write(&number, 2);
  CHECK((ticket == 16 && number == 19));
}

namespace {

/// A network whose numbers say of which step they are.
struct Numbered {
  void set(std::int64_t step) {
    const auto fill = [&](float* to, std::int64_t count, double number) {
      const std::vector<float> all(static_cast<std::size_t>(count), static_cast<float>(number));
      replica.backend().copy_to_device(to, all.data(), all.size() * sizeof(float));
    };
    fill(model.parameters.values, model.parameters.size, static_cast<double>(step));
    fill(model.running_mean, model.graph.statistics, static_cast<double>(step) + 0.25);
    fill(model.running_variance, model.graph.statistics, static_cast<double>(step) + 0.5);
  }
  [[nodiscard]] double step() {
    const auto first = [&](const float* of) { return test::to_host(replica.backend(), of, 1)[0]; };
    const float step = first(model.parameters.values);
    CHECK(first(model.running_mean) == step + 0.25F);
    CHECK(first(model.running_variance) == step + 0.5F);
    return step;
  }
  Replica replica{{.backend = {.device = test::test_device(), .threads = 1},
                   .network = "small_cnn",
                   .width = 16,
                   .images = {.size = 8, .channels = 3, .classes = 10, .class_names = {}},
                   .micro_batch = 1,
                   .training_batches = {1}}};
  Model& model = replica.model();
};

}  // namespace

TEST_CASE("Weights that are held are a copy of the network's, or change places with it", "[trainer]") {
  Numbered network;
  Model& model = network.model;
  const std::int64_t floats = model.parameters.size + 2 * model.graph.statistics;
  CHECK((HeldWeights::floats(model) == floats && HeldWeights::memory(model) == 4 * floats));
  HeldWeights held(network.replica, "test");
  network.set(4);
  held.keep();
  network.set(5);
  std::vector<float> here(static_cast<std::size_t>(floats)), there = here;
  held.copy_to_host(here.data());
  CHECK((here.front() == 4 && here[here.size() - 1] == 4.5F));
  const std::uint64_t version = model.parameters.version;
  held.exchange();
  CHECK((network.step() == 4 && model.parameters.version == version + 1));
  HeldWeights::copy_network_to_host(model, there.data());
  CHECK(there == here);
  held.give();
  CHECK((network.step() == 5 && model.parameters.version == version + 2));
  held.copy_from_host(here.data());
  held.give();
  CHECK(network.step() == 4);
}

TEST_CASE("Only an attack whose iterations are all made gets newer weights between them", "[trainer]") {
  TrainOptions options;
  options.staleness = 2;
  for (const int stop : {-1, 0}) {
    options.attack_stop = stop;
    const Staleness found = staleness_of(options, *attacks().at("pgd")({.steps = 3}));
    CHECK((found.versions == 2 && found.refresh == (stop < 0) && found.iterations == 3));
  }
  for (const char* one : {"fgsm", "none"}) CHECK(staleness_of(options, *attacks().at(one)({})).iterations == 1);
}

TEST_CASE("Attacks find the weights that the rule says, also after a checkpoint, and a step's own come back",
          "[trainer]") {
  Numbered network;
  const std::uint64_t& version = network.model.parameters.version;
  const Staleness rule{.versions = 2, .refresh = true, .iterations = 4};
  const int resumed = GENERATE(1, 2, 3, 5);  // steps before the checkpoint
  std::vector<OldWeights> all;
  all.reserve(2);
  all.emplace_back(rule, network.replica);
  for (int step = 0; step < 8; ++step) {
    if (step == resumed) {
      Checkpoint checkpoint, again;
      checkpoint.integers["step"] = again.integers["step"] = step;
      all.back().save(checkpoint);
      CHECK(checkpoint.integers.at("attack_versions") == std::min(resumed, 2));
      if (resumed > 1) checkpoint.integers["attack_versions"] = 7;  // more than there can be
      OldWeights& next = all.emplace_back(rule, network.replica);
      next.restore(checkpoint);
      next.share(test::single());
      if (step == 3) {  // else nobody asks before the state is saved again
        CHECK(next.there_before(step) == 2);
        CHECK(test::to_host(network.replica.backend(), next.before(step, 1).weights(), 1)[0] == 2);
      }
      next.save(again);
      CHECK(std::ranges::equal(again.arrays, checkpoint.arrays, {}, &Checkpoint::Array::values,
                               &Checkpoint::Array::values));
      CHECK(next.there_before(step) == std::min(resumed, 2));
    }
    OldWeights& weights = all.back();
    network.set(step);
    const HeldWeights& now = weights.begin(step);
    CHECK(&now == &weights.before(step, 0));
    const std::uint64_t before = version;
    weights.take_up();
    CHECK(network.step() == std::max(step - 2, 0));
    CHECK((version > before) == (step > 0));
    const std::uint64_t taken = version;
    std::vector<int> stretches;
    for (int done = 0; done < 4; done += stretches.back()) {
      stretches.push_back(weights.stretch(done));
      CHECK(network.step() == std::max(step - (done < 2 ? 2 : 1), 0));
      CHECK((version == taken) == (done == 0));
    }
    CHECK(stretches == (step < 2 ? std::vector<int>{4} : std::vector<int>{2, 2}));
    weights.put_back();
    CHECK(network.step() == step);
  }
  // Without any in the checkpoint, the first ones are the step's own; without newer ones in between, all are the
  // oldest.
  for (const bool refresh : {false, true}) {
    OldWeights oldest({.versions = 2, .refresh = refresh, .iterations = 1}, network.replica);
    Checkpoint none;
    if (refresh) none.integers["attack_versions"] = -1;
    oldest.restore(none);
    for (const int step : {6, 7, 8, 9}) {
      none.integers["step"] = step;
      oldest.save(none);
      CHECK(none.integers["attack_versions"] == std::min(step - 6, 2));
      network.set(step);
      (void)oldest.begin(step);
      oldest.take_up();
      CHECK(network.step() == std::max(step - 2, 6));
      CHECK(oldest.stretch(0) == (refresh ? 1 : 0));
      CHECK(network.step() == std::max(step - 2, 6));
      oldest.put_back();
    }
    CHECK(oldest.checkpoint_bytes() == 2 * HeldWeights::memory(network.model));
  }
}
