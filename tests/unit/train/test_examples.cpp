#include "catch.hpp"
#include "single.hpp"
#include "train/examples/example_source.hpp"

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
  [[nodiscard]] std::int64_t kept_bytes() const override { return 13; }
  [[nodiscard]] std::int64_t checkpoint_bytes(int ranks) const override { return 14 * ranks; }
  [[nodiscard]] std::string dropped() const override { return "this"; }
  [[nodiscard]] std::size_t places() const override { return 15; }
  void fetch(Backend::Ticket& ticket) override { ticket = 16; }
  void write(double* to, int unit) override { *to = 17.0 + unit; }
  void read(const double* from) override { note("read", static_cast<std::int64_t>(*from)); }
  void save(Checkpoint& checkpoint) override { checkpoint.integers["there"] = 18; }
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

struct Writes final : ReplicatedState {
  void device(const std::string&, float*, std::int64_t) override {}
  void host(const std::string&, void*, std::size_t) override {}
  [[nodiscard]] bool writes() const override { return true; }
};

}  // namespace

TEST_CASE("What wraps a source of examples hands on all that it does not do itself", "[trainer]") {
  std::string calls;
  auto source = std::make_unique<Asked>(calls);
  const Asked& of = *source;
  WrappedExamples wrapper(std::move(source));
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
        "device 1; start 2; begin 3; ahead 4; trained 0; back 0; close 0; read 5; restore 18; forget 0; share 1; "
        "replicated 1; ");
  CHECK((wrapper.stop_wanted() && wrapper.generators() == &of.record && wrapper.dropped() == "this"));
  CHECK((wrapper.bytes_sent() == 11 && wrapper.attack_passes() == 12 && wrapper.kept_bytes() == 13));
  CHECK((wrapper.checkpoint_bytes(3) == 42 && wrapper.places() == 15));
  Backend::Ticket ticket = 0;
  wrapper.fetch(ticket);
  double number = 0;
  wrapper.write(&number, 2);
  CHECK((ticket == 16 && number == 19));
}
