#include <xxhash.h>

#include "aggregation_reference.hpp"
#include "allocations.hpp"
#include "catch.hpp"
#include "communicate/hang/flight_recorder.hpp"
#include "reduce/transport/parts_watch.hpp"
#include "reduction_case.hpp"
#include "world.hpp"

using namespace dat;
using namespace dat::test;

// CHECK only: a rank that leaves a test early would leave the others waiting.

namespace {

std::uint64_t hash(const std::vector<float>& values) {
  return XXH3_64bits(values.data(), values.size() * sizeof(float));
}

/// The numbers of the active layers, in a type of the caller's.
template <class T = float>
std::vector<T> active_of(const Parameters& p, const ActiveSet& active, const float* block) {
  std::vector<T> values;
  for (const Segment& segment : p.segments)
    if (active.active(segment.layer))
      values.insert(values.end(), block + segment.begin, block + segment.begin + segment.size);
  return values;
}

}  // namespace

TEST_CASE("Active gradients become the mean over ranks, the others stand still, and the bytes are those sent",
          "[reducer]") {
  ReductionCase f(world());
  const Parameters& p = f.model.parameters;
  for (const bool overlap : {false, true})
    for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{8} << 20}) {
      GradientReducer reducer = f.reducer({.bucket_elements = bucket, .overlap = overlap});
      for (std::uint32_t draw = 0; draw < 6; ++draw) {
        const ActiveSet active = random_active(p.layers(), draw, static_cast<float>(draw) / 5);
        const auto ours = f.reduce(reducer, active, draw);
        std::vector<double> mean(ours.size(), 0.0), size(ours.size(), 0.0);
        for (int rank = 0; rank < world().size(); ++rank) {
          const auto part = f.gradient_of(rank, draw);
          for (std::size_t i = 0; i < part.size(); ++i) {
            mean[i] += double(part[i]) / world().size();
            size[i] += std::abs(double(part[i])) / world().size();
          }
        }
        const auto mine = f.gradient_of(world().rank(), draw);
        std::int64_t elements = 0, wrong = 0;
        for (const Segment& segment : p.segments) {
          const bool is_active = active.active(segment.layer);
          elements += is_active ? segment.size : 0;
          for (const std::size_t i : elements_of(segment)) {
            // Two numbers have one sum. Of more: size - 1 additions, 1/size and the product, one rounding each.
            wrong += !is_active            ? ours[i] != mine[i]
                     : world().size() <= 2 ? ours[i] != static_cast<float>(mean[i])
                                           : std::abs(ours[i] - mean[i]) > (world().size() + 1) * 0x1p-24 * size[i];
          }
        }
        INFO("buckets of " << bucket << (overlap ? ", overlapped" : "") << ", draw " << draw);
        CHECK((wrong == 0 && reducer.elements() == elements));
        CHECK(reducer.bytes_sent() == (world().size() > 1 ? 4 * elements : 0));
        CHECK((reducer.seconds_under_way() > 0) == (overlap && world().size() > 1 && elements > 0));
        CHECK((draw > 0 || elements == 0));
        CHECK(world().agree(hash(active_of(p, active, ours.data()))));
      }
    }
}

TEST_CASE("What a bucket's communication is for is told by its first and its last tensor", "[reducer]") {
  if (world().size() == 1) return;
  ReductionCase f(world());
  const std::vector<Segment>& segments = f.model.parameters.segments;
  for (const std::size_t layers : {std::size_t{1}, std::size_t{2}, segments.size()}) {
    GradientReducer reducer = f.reducer({.bucket_elements = f.model.parameters.size});
    ActiveSet active = ActiveSet::all(f.model.parameters.layers());
    std::fill(active.scale.begin() + static_cast<std::ptrdiff_t>(layers), active.scale.end(), 0.0F);
    (void)f.reduce(reducer, active, 1);
    CHECK(text_of(FlightRecorder::of_process().kept().back())
              .ends_with(" (gradients " + segments.front().name +
                         (layers > 1 ? " to " + segments[layers - 1].name : "") + ")"));
  }
}

TEST_CASE("Every codec works with every aggregator, in any buckets, and all ranks find the same", "[reducer]") {
  ReductionCase f(world());
  const Parameters& p = f.model.parameters;
  for (const std::string codec : {"float32", "coarse"})
    for (const std::string aggregator : {"mean", "largest", "twice the largest"}) {
      if (codec == "float32" && aggregator == "mean") continue;  // MPI adds them, in its own order: above
      for (const bool overlap : {false, true})
        for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{8} << 20}) {
          GradientReducer reducer = f.reducer({.bucket_elements = bucket, .overlap = overlap}, codec, aggregator);
          ReductionReference reference(f, codec, aggregator);
          for (std::int64_t step = 0; step < 4; ++step) {
            const ActiveSet active =
                random_active(p.layers(), static_cast<std::uint32_t>(step), static_cast<float>(step) / 3);
            const auto ours = f.reduce(reducer, active, step);
            INFO(codec << ", " << aggregator << ", buckets of " << bucket << (overlap ? ", overlapped" : "")
                       << ", step " << step);
            CHECK(differing(ours, reference.step(active, step)) == 0);
            std::int64_t bytes = 0;
            for (const Segment& segment : p.segments)
              if (active.active(segment.layer))
                bytes += codec == "coarse" ? 4 + (segment.size + 3) / 4 * 4 : 4 * segment.size;
            CHECK(reducer.bytes_sent() == (world().size() > 1 ? bytes : 0));
            if (test_device() == "cpu") CHECK(f.early == (overlap ? reducer.bytes_sent() : 0));
            CHECK(world().agree(hash(active_of(p, active, ours.data()))));
          }
        }
    }
}

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// `gradient` where the rank has the layer, NaN elsewhere: nobody may read that.
std::vector<float> own_gradient(const Parameters& p, std::vector<float> gradient, const ActiveSet& own) {
  for (const Segment& segment : p.segments)
    if (!own.active(segment.layer)) std::fill_n(gradient.begin() + segment.begin, segment.size, kNaN);
  return gradient;
}

/// Layers of each rank; of the last one none at all where `draw` is 0, and of some layers nobody.
std::vector<ActiveSet> layers_of_ranks(const Parameters& p, std::uint32_t draw) {
  std::vector<ActiveSet> all;
  for (int rank = 0; rank < world().size(); ++rank)
    all.push_back(random_active(p.layers(), 100 * draw + static_cast<std::uint32_t>(rank), 0.4F));
  if (draw == 0) std::fill(all.back().scale.begin(), all.back().scale.end(), 0.0F);
  for (ActiveSet& one : all) one.scale[draw % one.scale.size()] = 0;
  return all;
}

}  // namespace

TEST_CASE("Ranks with layers of their own: the mean over all of them, in any transport, and the bytes by hand",
          "[reducer]") {
  ReductionCase f(world());
  const Parameters& p = f.model.parameters;
  const auto me = static_cast<std::size_t>(world().rank());
  const double ranks = world().size();
  for (const std::string transport : {"dense", "union", "allgather"})
    for (const std::string codec : {"float32", "coarse"})
      for (const bool overlap : {false, true})
        for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{8} << 20}) {
          if (transport == "dense" && codec == "coarse") continue;  // it remembers, and is refused
          GradientReducer reducer =
              f.reducer({.bucket_elements = bucket, .overlap = overlap, .mask_transport = transport}, codec);
          // What a codec that is not exact leaves out comes later: only its first step has a plain bound.
          for (std::uint32_t draw = 0; draw < (codec == "coarse" ? 1U : 4U); ++draw) {
            const auto layers = layers_of_ranks(p, draw);
            const auto mine = own_gradient(p, f.gradient_of(world().rank(), draw), layers[me]);
            const auto ours = f.reduce(reducer, layers, draw, mine);
            INFO(transport << ", " << codec << ", buckets of " << bucket << (overlap ? ", overlapped" : "") << ", draw "
                           << draw);
            std::vector<std::vector<float>> of_rank;
            for (int rank = 0; rank < world().size(); ++rank) of_rank.push_back(f.gradient_of(rank, draw));
            std::int64_t wrong = 0, own = 0, any = 0;
            std::vector<float> result;
            for (const Segment& segment : p.segments) {
              const auto has = [&](std::size_t rank) { return layers[rank].active(segment.layer); };
              bool drawn = false;
              double norms = 0;
              for (std::size_t rank = 0; rank < layers.size(); ++rank) {
                drawn = drawn || has(rank);
                norms += has(rank) ? norm_of(of_rank[rank], segment) / ranks : 0;
              }
              own += has(me) ? segment.size : 0;
              any += drawn ? segment.size : 0;
              for (const std::size_t i : elements_of(segment)) {
                if (!drawn) {  // left alone; dense: the mean of nothing but zeros
                  if (world().size() > 1 || codec == "coarse")
                    wrong += transport == "dense" ? ours[i] != 0 : !std::isnan(ours[i]);
                  continue;
                }
                double mean = 0, size = 0;
                float total = 0;  // in the order of the ranks
                for (std::size_t rank = 0; rank < layers.size(); ++rank)
                  if (has(rank)) {
                    mean += of_rank[rank][i] / ranks;
                    size += std::abs(double(of_rank[rank][i])) / ranks;
                    total += of_rank[rank][i];
                  }
                result.push_back(ours[i]);
                // A level of the coarse codec is a part in 127 of the tensor's norm. Else: size - 1 additions, 1/size
                // and the product, one rounding each; the gathered ones are added as they are here, bit for bit.
                if (codec == "coarse")
                  wrong += std::abs(ours[i] - mean) > norms / 127 * (1 + 1e-4);
                else if (transport == "allgather")
                  wrong += ours[i] != 1.0F / static_cast<float>(ranks) * total;
                else
                  wrong += std::abs(ours[i] - mean) > (ranks + 1) * 0x1p-24 * size;
              }
            }
            CHECK(wrong == 0);
            CHECK(world().agree(hash(result)));
            CHECK(reducer.elements() == own);
            if (codec == "float32")
              CHECK(reducer.bytes_sent() == (world().size() == 1 ? 0
                                                                 : 4 * (transport == "dense"   ? p.size
                                                                        : transport == "union" ? any
                                                                                               : own)));
          }
        }
}

TEST_CASE("A group of some of the ranks reduces among them", "[reducer]") {
  // All but rank 0: what a ban leaves.
  const auto group = world().subgroup(world().rank() == 0 ? Communicator::kNoColor : 0, 0);
  if (group != nullptr) {
    ReductionCase f(*group);
    const ActiveSet active = random_active(f.model.parameters.layers(), 4, 0.7F);
    for (const std::string codec : {"float32", "coarse"}) {
      GradientReducer reducer = f.reducer({.bucket_elements = 1000}, codec, "twice the largest");
      ReductionReference reference(f, codec, "twice the largest");
      CHECK(differing(f.reduce(reducer, active, 1), reference.step(active, 1)) == 0);
    }
  }
  world().barrier();
}

TEST_CASE("Aggregators get what each rank's codec leaves of its gradient, and its weight", "[reducer]") {
  /// Lets an aggregator see what is given to it, and keeps it.
  class Witness final : public Aggregator {
   public:
    Witness(Backend& backend, std::unique_ptr<Aggregator> aggregator)
        : backend_(backend), aggregator_(std::move(aggregator)) {}
    [[nodiscard]] bool keeps_one() const override { return false; }
    void aggregate(const Contributions& all) override {
      seen = to_host(backend_, all.gradients, all.stride * world().size());
      weights.assign(all.weights.begin(), all.weights.end());
      aggregator_->aggregate(all);
    }
    [[nodiscard]] std::int64_t memory(int ranks) const override { return aggregator_->memory(ranks); }
    std::vector<float> seen;
    std::vector<double> weights;

   private:
    Backend& backend_;
    std::unique_ptr<Aggregator> aggregator_;
  };
  ReductionCase f(world());
  const Parameters& p = f.model.parameters;
  const auto ranks = static_cast<std::size_t>(world().size());
  std::vector<double> weights;
  for (std::size_t rank = 0; rank < ranks; ++rank) weights.push_back(rank == 1 ? 2.5 : 1);
  for (const std::string codec : {"float32", "bf16", "f16", "int8", "terngrad", "atomo"})
    for (const std::string& name : aggregators().names()) {
      if (name == "mean") continue;
      const bool overlap = name == "median" || name == "krum";
      AggregationCase all{.gradients = {}, .weights = weights, .mixing = name == "centered_clip"};
      all.faults = faults_of(name, -1, world().size());
      const auto taken = [&] {
        std::int64_t bytes = 0;
        for (const auto& [purpose, size] : f.backend->allocations())
          if (purpose == "gradient message" || purpose == "gradients of all ranks" || purpose == "aggregator")
            bytes += static_cast<std::int64_t>(size);
        return bytes;
      };
      const std::int64_t before = taken();
      auto made = std::make_unique<Witness>(
          *f.backend,
          aggregators().at(name)(*f.backend, p,
                                 {.ranks = world().size(),
                                  .faults = all.faults,
                                  .settings = {.aggregator_tau = all.tau, .aggregator_mixing = all.mixing}}));
      const Witness& witness = *made;
      GradientReducer reducer(*f.backend, world(), p, f.gradients, f.codec(codec), std::move(made),
                              {.bucket_elements = 1000, .overlap = overlap, .weights = weights});
      CHECK((reducer.transport() == "gather" && taken() - before == reducer.memory(world().size())));
      for (const std::int64_t step : {0, 1, 2}) {  // the last one without any layer
        const ActiveSet active =
            random_active(p.layers(), static_cast<std::uint32_t>(step) + 3, step < 2 ? 0.6F : 0.0F);
        const auto ours = f.reduce(reducer, active, step);
        const auto values_of = [&](const float* block) { return active_of<double>(p, active, block); };
        INFO(codec << ", " << name << ", step " << step);
        CHECK(witness.weights == weights);
        all.gradients.clear();
        for (std::size_t rank = 0; rank < ranks; ++rank)
          all.gradients.push_back(values_of(witness.seen.data() + rank * static_cast<std::size_t>(p.size)));
        const Vector own = values_of(f.gradient_of(world().rank(), step).data());
        if (codec == "float32") CHECK(all.gradients[static_cast<std::size_t>(world().rank())] == own);
        const Vector result = values_of(ours.data());
        CHECK(distance_to_right(name, all, result) <= 3e-6 * (1 + length(result)));
        CHECK(world().agree(hash(active_of(p, active, ours.data()))));
      }
    }
}

TEST_CASE("Butterfly: each rank aggregates its part of the step's message, in any buckets, and the bytes by hand",
          "[reducer]") {
  ReductionCase f(world());
  const Parameters& p = f.model.parameters;
  const std::int64_t ranks = world().size(), me = world().rank();
  std::vector<double> weights;
  for (int rank = 0; rank < world().size(); ++rank) weights.push_back(rank == 1 ? 2.5 : 1);
  const std::int64_t longest = (p.size + ranks - 1) / ranks;
  for (const std::string name : {"mean", "median", "trimmed_mean", "centered_clip"})
    for (const bool overlap : {false, true})
      for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{8} << 20}) {
        const AggregatorOptions options{
            .ranks = world().size(), .faults = faults_of(name, -1, world().size()), .settings = {.aggregator_tau = 3}};
        GradientReducer reducer(
            *f.backend, world(), p, f.gradients, f.codec("float32"), aggregators().at(name)(*f.backend, p, options),
            {.bucket_elements = bucket, .overlap = overlap, .codec_transport = "butterfly", .weights = weights});
        CHECK(reducer.transport() == "butterfly");
        if (ranks > 1)
          CHECK(reducer.memory(world().size()) ==
                4 * (p.size + (ranks + 1) * longest) +
                    aggregators().at(name)(*f.backend, p, options)->memory(world().size()));
        CHECK(reducer.bytes_sent(Vector(static_cast<std::size_t>(p.layers()), 1.0), 4) == 6.0 * double(p.size));
        for (const std::int64_t step : {0, 1, 2}) {
          const ActiveSet active =
              random_active(p.layers(), static_cast<std::uint32_t>(step) + 3, static_cast<float>(step) / 2);
          // The message: the layers, the last one first.
          const auto message_of = [&](const float* block) {
            Vector values;
            for (std::size_t k = p.segments.size(); k-- > 0;)
              if (const Segment& segment = p.segments[k]; active.active(segment.layer))
                values.insert(values.end(), block + segment.begin, block + segment.begin + segment.size);
            return values;
          };
          const std::int64_t before = world().bytes_given();
          const auto ours = f.reduce(reducer, active, step);
          const Vector result = message_of(ours.data());
          const auto elements = std::ssize(result), part = elements * (me + 1) / ranks - elements * me / ranks;
          INFO(name << ", buckets of " << bucket << (overlap ? ", overlapped" : "") << ", step " << step);
          CHECK(reducer.bytes_sent() == (ranks > 1 ? 4 * (elements - part + (ranks - 1) * part) : 0));
          // What all ranks get is given to MPI once.
          CHECK(world().bytes_given() - before == (ranks > 1 ? 4 * elements : 0));
          Vectors of_ranks;
          for (int rank = 0; rank < world().size(); ++rank)
            of_ranks.push_back(message_of(f.gradient_of(rank, step).data()));
          for (std::int64_t j = 0; j < ranks; ++j) {
            const auto cut = [&](const Vector& whole) {
              return Vector(whole.begin() + elements * j / ranks, whole.begin() + elements * (j + 1) / ranks);
            };
            AggregationCase all{.gradients = {}, .weights = weights};
            all.faults = options.faults;
            all.tau = options.settings.aggregator_tau;
            for (const Vector& one : of_ranks) all.gradients.push_back(cut(one));
            if (elements == 0) continue;
            CHECK(distance_to_right(name, all, cut(result)) <= 3e-6 * (1 + length(cut(result))));
          }
          std::int64_t touched = 0;
          const auto mine = f.gradient_of(world().rank(), step);
          for (const Segment& segment : p.segments)
            for (std::int64_t k = segment.begin; k < segment.begin + segment.size && !active.active(segment.layer); ++k)
              touched += ours[static_cast<std::size_t>(k)] != mine[static_cast<std::size_t>(k)];
          CHECK(touched == 0);
          CHECK(world().agree(hash(std::vector<float>(result.begin(), result.end()))));
        }
      }
  // Who measures whole gradients stays with gather; so do messages of codecs that lose something.
  const auto refused = [&](const std::string& codec, std::unique_ptr<Aggregator> aggregator) {
    return error_of([&] {
      GradientReducer(*f.backend, world(), p, f.gradients, f.codec(codec), std::move(aggregator),
                      {.codec_transport = "butterfly"});
    });
  };
  const auto make = [&](const std::string& name, bool mixing) {
    return aggregators().at(name)(*f.backend, p, {.ranks = world().size(), .settings = {.aggregator_mixing = mixing}});
  };
  CHECK(
      refused("float32", make("krum", false)) ==
      "2: --codec-transport butterfly does not work with an aggregator that measures whole gradients, which wants the "
      "messages of all ranks: leave it off, or choose gather");
  CHECK(refused("float32", make("median", true)) == refused("float32", make("krum", false)));
  CHECK(refused("int8", make("median", false)) ==
        "2: the messages of this --codec do not meet by --codec-transport butterfly, but by: gather, two_sided; choose "
        "that, or another codec");
}

TEST_CASE("Who watches parts is told each stage of a step, of one without layers too, and weighs the ranks",
          "[reducer]") {
  if (world().size() == 1) return;
  struct Watch final : PartsWatch {
    void encoded(std::int64_t step, std::int64_t size, const float*) override { tell({'e', step, size}); }
    void leaves(std::span<float> message) override { tell({'l', std::ssize(message)}); }
    void exchanged(float*, float*) override { tell({'x'}); }
    [[nodiscard]] std::span<const double> weights() const override { return last; }
    void aggregated(std::span<float> part) override { tell({'a', std::ssize(part)}); }
    void gathered(const float*) override { tell({'g'}); }
    void tell(std::initializer_list<std::int64_t> more) { told.insert(told.end(), more); }
    std::vector<std::int64_t> told;
    std::vector<double> last = std::vector<double>(static_cast<std::size_t>(world().size()));
  } watch;
  watch.last.back() = 1;
  ReductionCase f(world());
  const std::int64_t ranks = world().size(), me = world().rank(), size = f.model.parameters.size;
  GradientReducer reducer =
      f.reducer({.bucket_elements = size, .codec_transport = "butterfly", .watch = &watch}, "float32", "median");
  const int layers = f.model.parameters.layers();
  CHECK(differing(f.reduce(reducer, ActiveSet::all(layers), 1), f.gradient_of(world().size() - 1, 1)) == 0);
  (void)f.reduce(reducer, random_active(layers, 1, 0), 2);
  const std::int64_t part = size * (me + 1) / ranks - size * me / ranks;
  CHECK(watch.told ==
        std::vector<std::int64_t>{'e', 1, size, 'l', size, 'x', 'a', part, 'g', 'e', 2, 0, 'x', 'a', 0, 'g'});
}

TEST_CASE("An aggregator knows the step, and remembers the one before", "[reducer]") {
  ReductionCase f(world());
  const Parameters& p = f.model.parameters;
  const ActiveSet all = ActiveSet::all(p.layers());
  const auto mean_of = [&](std::int64_t step) {
    std::vector<float> mean(static_cast<std::size_t>(p.size), 0.0F);
    for (int rank = 0; rank < world().size(); ++rank) {
      const auto gradient = f.gradient_of(rank, step);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += gradient[i];
    }
    for (float& value : mean) value /= static_cast<float>(world().size());
    return mean;
  };
  const auto and_before = [](std::vector<float> mean, const std::vector<float>& before, std::int64_t step) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = mean[i] + before[i] / 2 + static_cast<float>(step);
    return mean;
  };
  GradientReducer straight = f.reducer({.bucket_elements = 1000}, "float32", "heavy");
  const auto first = f.reduce(straight, all, 4);
  CHECK(differing(first, and_before(mean_of(4), std::vector<float>(first.size(), 0.0F), 4)) == 0);
  CHECK((straight.state().size() == 1 && straight.state().front().of == "aggregator"));
  CHECK(differing(f.reduce(straight, all, 5), and_before(mean_of(5), first, 5)) == 0);
}
