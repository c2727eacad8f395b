#include "measure/calibrate.hpp"

#include <algorithm>
#include <cmath>

#include "dat/codec.hpp"
#include "forecast/forecast.hpp"
#include "launch.hpp"
#include "measure/repeat.hpp"
#include "reduce/sums/sums.hpp"
#include "reduce/transport/message.hpp"
#include "train/statistics/batch_statistics.hpp"

namespace dat {

namespace {

[[nodiscard]] double median(std::vector<double> values) { return summarize(std::move(values)).median; }

/// Number of times that all ranks do work that needs all of them and takes this one `one` seconds.
[[nodiscard]] int agreed_runs(Communicator& world, double one, double seconds, double least, double most) {
  return static_cast<int>(world.minimum(static_cast<std::int64_t>(std::clamp(seconds / one, least, most))));
}

/// Seconds of one call, the least of as many as fit into the time.
template <class F>
[[nodiscard]] double least_seconds(Backend& backend, double seconds, const F& work) {
  const auto once = [&] {
    work();
    backend.wait();
  };
  return 1e-3 * repeat({.seconds = seconds, .least = 3, .most = 50}, once).least;
}

/// The parts of the whole step, in runs of it.
void measure_step(Communicator& world, TrainingStep& step, double seconds, Calibration& c) {
  PhaseTimer& timer = step.trainer().timer();
  std::vector<double> data, attack, select, update;
  const auto once = [&] {
    static_cast<void>(timer.take());
    static_cast<void>(step.trainer().step(false));
    const auto of = timer.take();
    const auto add = [&](std::vector<double>& all, Phase phase) { all.push_back(of[static_cast<std::size_t>(phase)]); };
    add(data, Phase::data);
    add(attack, Phase::attack);
    add(select, Phase::select);
    add(update, Phase::update);
  };
  const double begin = now_ms();
  once();
  const int runs = agreed_runs(world, 1e-3 * (now_ms() - begin), seconds, 2, 30);
  for (int run = 0; run < runs; ++run) once();
  c.data = median(data);
  c.attack = median(attack);
  c.select = median(select);
  c.update = median(update);
}

/// The training pass, tensor by tensor, in the order in which their gradients are finished.
void measure_passes(TrainingStep& step, double seconds, Calibration& c, std::vector<int>& order) {
  Backend& backend = step.backend();
  Replica& replica = step.trainer().replica();
  const Parameters& parameters = replica.model().parameters;
  const int n = step.options().micro_batch;
  TrainingProgram& program = replica.training(n);
  const float* images = replica.images().clean;
  const ActiveSet all = ActiveSet::all(parameters.layers());
  const std::vector<float> dlogits(static_cast<std::size_t>(std::int64_t{n} * replica.classes()),
                                   1.0F / static_cast<float>(n));
  std::vector<Backend::Ticket> stamps;
  const std::function<void(int)> ready = [&](int segment) {
    order.push_back(segment);
    stamps.push_back(backend.stamp());
  };
  std::vector<double> forward, rest;
  std::vector<std::vector<double>> between(parameters.segments.size());
  const auto once = [&] {
    order.clear();
    stamps.clear();
    const Backend::Ticket begin = backend.stamp();
    program.forward(images);
    const Backend::Ticket middle = backend.stamp();
    backend.copy_to_device(program.dlogits(), dlogits.data(), dlogits.size() * sizeof(float));
    stamps.push_back(backend.stamp());
    program.backward(images, {.weights = &all, .gradients = parameters.gradients, .ready = &ready});
    stamps.push_back(backend.stamp());
    backend.wait();
    const auto elapsed = [&](Backend::Ticket from, Backend::Ticket to) {
      static_cast<void>(backend.passed(to));
      return backend.seconds(from, to);
    };
    forward.push_back(elapsed(begin, middle));
    for (std::size_t k = 0; k < between.size(); ++k) between[k].push_back(elapsed(stamps[k], stamps[k + 1]));
    rest.push_back(elapsed(stamps[between.size()], stamps.back()));
  };
  once();  // a backend that records does so now
  forward.clear();
  rest.clear();
  for (std::vector<double>& one : between) one.clear();
  static_cast<void>(repeat({.seconds = seconds, .least = 3, .most = 50, .warm = true}, once));

  const double passes = c.backward_passes;
  c.forward = passes * median(forward);
  double pass = median(rest);
  const std::vector<double> weights = program.weight_gradient_seconds(images, parameters.gradients);
  for (std::size_t k = 0; k < between.size(); ++k) {
    const Segment& segment = parameters.segments[static_cast<std::size_t>(order[k])];
    const double seconds_of_layer = median(between[k]);
    c.layers.push_back(
        {.name = segment.name,
         .elements = segment.size,
         .backward = seconds_of_layer,
         // Measured alone: noise must not make it longer than what it is a part of.
         .weight_gradient = std::min(weights[static_cast<std::size_t>(segment.layer)], seconds_of_layer)});
    pass += seconds_of_layer;
  }
  c.backward = passes * pass;
}

/// One codec, once for each way in which its messages may meet: encoding and decoding cost the same.
void measure_codec(Backend& backend, const Parameters& parameters, const std::vector<int>& order,
                   const std::string& name, double seconds, Calibration& c) {
  const std::unique_ptr<Codec> codec = codecs().at(name)(backend, parameters, {});
  const std::size_t segments = parameters.segments.size();
  const int rounds = codec->rounds();
  TensorTables tables;
  Message messages(backend, parameters, rounds);
  tables.reserve(backend, parameters);
  messages.reserve();
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(rounds), 0);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t k = 0; k < segments; ++k) {
      messages.begin(k, round) = bytes[static_cast<std::size_t>(round)];
      bytes[static_cast<std::size_t>(round)] += codec->bytes(parameters.segments[k], round);
    }
  messages.select(ActiveSet::all(parameters.layers()));
  Calibration::Codec cost{
      .name = name, .rounds = rounds, .exact = codec->exact(), .bytes = std::vector<std::int64_t>(segments, 0)};
  const auto elements = static_cast<double>(parameters.size);
  for (int round = 0; round < rounds; ++round) {
    const MessageTensors tensors =
        messages.range(tables, 0, static_cast<int>(segments),
                       {.round = round, .bytes = bytes[static_cast<std::size_t>(round)]}, round);
    for (std::size_t k = 0; k < segments; ++k)
      cost.bytes[k] += codec->bytes(parameters.segments[static_cast<std::size_t>(order[k])], round);
    void* const message = backend.allocate(static_cast<std::size_t>(tensors.bytes), "codec");
    const double of_one = seconds / (2 * rounds);
    cost.encode +=
        least_seconds(backend, of_one, [&] { codec->encode(tensors, parameters.gradients, message); }) / elements;
    cost.decode +=
        least_seconds(backend, of_one, [&] { codec->decode(tensors, message, 1.0F, parameters.gradients); }) / elements;
  }
  for (const std::string& transport : transports_of(*codec)) {
    cost.transport = transport;
    if (transport != codec->transport()) cost.name = name + "/" + transport;
    c.codecs.push_back(cost);
  }
}

/// Replaces computing times of this rank by the means over the ranks. Sums of parts stay sums of parts.
void average(Communicator& world, Calibration& c) {
  std::vector<double*> places = {&c.data, &c.attack, &c.forward, &c.backward, &c.select, &c.update};
  for (Calibration::Layer& layer : c.layers) places.insert(places.end(), {&layer.backward, &layer.weight_gradient});
  for (Calibration::Codec& codec : c.codecs) places.insert(places.end(), {&codec.encode, &codec.decode});
  std::vector<double> values;
  for (const double* place : places) values.push_back(*place);
  world.sum(values.data(), std::ssize(values));
  for (std::size_t k = 0; k < places.size(); ++k) *places[k] = values[k] / world.size();
}

/// Message sizes in bytes: a number, for the latency, and those that buckets of so many bytes may have. Not between:
/// small messages slip through where a network is shaped or buffers, and would be half of the fit.
[[nodiscard]] std::vector<double> sizes_up_to(double most) {
  std::vector<double> sizes = {sizeof(float)};
  for (double part = 16; part >= 1; part /= 2) sizes.push_back(sizeof(float) * std::ceil(most / part / sizeof(float)));
  return sizes;
}

/// Half of the time of a message to rank `other` and back, against its bytes: what ranks 0 and `other` find. The other
/// ranks wait.
[[nodiscard]] Link measure_link(Communicator& world, int other, std::vector<float>& buffer, double seconds) {
  constexpr int kTag = 7;
  std::vector<double> times;
  const std::vector<double> sizes = sizes_up_to(sizeof(float) * static_cast<double>(buffer.size()));
  for (const double size : sizes) {
    const auto bytes = static_cast<std::size_t>(size);
    const auto there_and_back = [&] {
      if (world.rank() == 0) {
        world.send(buffer.data(), bytes, other, kTag);
        world.receive(buffer.data(), bytes, other, kTag);
      } else if (world.rank() == other) {
        world.receive(buffer.data(), bytes, 0, kTag);
        world.send(buffer.data(), bytes, 0, kTag);
      }
    };
    world.barrier();
    there_and_back();
    world.barrier();
    double begin = now_ms();
    there_and_back();
    const bool takes_part = world.rank() == 0 || world.rank() == other;
    const double one = takes_part ? 1e-3 * (now_ms() - begin) : 0;  // 0: as many as the others want
    const int runs = agreed_runs(world, one, seconds / static_cast<double>(sizes.size()), 3, 200);
    std::vector<double> samples;
    for (int run = 0; run < runs; ++run) {
      begin = now_ms();
      there_and_back();
      samples.push_back(1e-3 * (now_ms() - begin) / 2);
    }
    times.push_back(median(samples));
  }
  double found[] = {0, 0};
  if (world.root()) {
    const Line line = fit_line(sizes, times);
    found[0] = std::max(0.0, line.intercept);
    found[1] = 1 / line.slope;
  }
  world.broadcast(found, sizeof found);
  return {.latency = found[0], .bandwidth = found[1]};
}

/// Seconds of sums over the ranks against bytes, as a step makes them, of messages up to `most` numbers. Empty: there
/// are no such sums here.
[[nodiscard]] std::optional<Line> measure_sums(Communicator& world, const SumKind& kind, const SumOptions& options,
                                               double seconds) {
  std::vector<double> times;
  const std::vector<double> sizes = sizes_up_to(sizeof(float) * static_cast<double>(options.longest));
  std::string why;
  const auto sums = kind.make(options, why);
  if (sums == nullptr) return {};
  for (const double size : sizes) {
    const auto count = static_cast<std::int64_t>(size) / std::int64_t{sizeof(float)};
    const auto sum = [&] {
      world.barrier();
      const double begin = now_ms();
      sums->start(0, count).wait();
      return 1e-3 * (now_ms() - begin);
    };
    static_cast<void>(sum());
    const int runs = agreed_runs(world, sum(), seconds / static_cast<double>(sizes.size()), 3, 200);
    std::vector<double> samples;
    for (int run = 0; run < runs; ++run) samples.push_back(sum());
    times.push_back(median(samples));
  }
  // Calls that begin together end with the last rank: rank 0's times will do, but for one that is done with its part.
  Line line = fit_line(sizes, times);
  world.broadcast(&line, sizeof line);
  return line;
}

/// Bytes a second that this rank's host adds to others: what is known of sums where there is nobody to sum with.
[[nodiscard]] double rate_of_adding(std::int64_t elements) {
  std::vector<float> a(static_cast<std::size_t>(elements), 1.0F), b(a);
  const double ms = repeat(Effort::runs(5), [&] {
                      for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
                    }).least;
  return 1e3 * sizeof(float) * static_cast<double>(a.size()) / std::max(ms, 1e-3);
}

void measure_network(Communicator& world, TrainingStep& step, double seconds, Calibration& c) {
  constexpr std::int64_t kMost = 1 << 25;  // numbers: 134 MB
  std::vector<float> buffer(static_cast<std::size_t>(std::min(c.elements(), kMost)), 1.0F);
  // The first rank beside another one on a node, and the first one of another node than rank 0's.
  const auto first = [&](bool is_one) { return static_cast<int>(world.minimum(is_one ? world.rank() : world.size())); };
  const int neighbour = first(world.node_rank() == 1), stranger = first(world.rank() > 0 && world.node_rank() == 0);
  const int links = (neighbour < world.size() ? 1 : 0) + (stranger < world.size() ? 1 : 0);
  const double of_each = seconds / (2 + links);  // and sums, in two ways
  if (neighbour < world.size()) c.within = measure_link(world, neighbour, buffer, of_each);
  if (stranger < world.size()) c.between = measure_link(world, stranger, buffer, of_each);
  const SumOptions options{.backend = step.backend(),
                           .ranks = world,
                           .bytes = std::ssize(buffer) * std::int64_t{sizeof(float)},
                           .longest = std::ssize(buffer),
                           .overlap = step.options().overlap};
  const Line sum = *measure_sums(world, sums().at("mpi")(), options, of_each);
  explain_sums(sum, world.size(), c.between ? *c.between : *c.within, c.reduction);
  if (c.between) return;  // time of MPI between nodes is no part of it
  if (const auto window = measure_sums(world, sums().at("window")(), options, of_each); window && window->slope > 0)
    c.window = {.latency = std::max(0.0, window->intercept), .bandwidth = 1 / window->slope};
}

}  // namespace

Calibration calibrate(Communicator& world, TrainingStep& step, double seconds) {
  const double begin = now_ms();
  const auto part = [&](double share) { return share * std::max(0.0, seconds - 1e-3 * (now_ms() - begin)); };
  Trainer& trainer = step.trainer();
  const Parameters& parameters = trainer.replica().model().parameters;
  const StepOptions& options = step.options();
  Calibration c;
  c.about = step.about();
  c.ranks = world.size();
  c.batch = options.batch;
  c.image_size = options.size;
  c.attack_iterations = trainer.method().attacks.most_gradients();
  const int passes = options.lambda > 0 ? 2 : 1;
  c.backward_passes = passes * (options.batch / options.micro_batch);
  // Means and variances of all channels in each pass that enters them, and some losses, in double precision.
  const int passes_entering = passes_in(trainer.method().entering_statistics());
  c.step_message = std::int64_t{sizeof(double)} * (2 * step.graph().statistics * passes_entering + 8);
  measure_step(world, step, part(0.4), c);
  std::vector<int> order;
  measure_passes(step, part(0.4), c, order);
  const std::vector<std::string> names = codecs().names();
  for (std::size_t k = 0; k < names.size(); ++k)
    measure_codec(step.backend(), parameters, order, names[k], part(0.3) / static_cast<double>(names.size()), c);
  average(world, c);
  if (world.size() > 1)
    measure_network(world, step, std::max(part(1), 0.1 * seconds), c);
  else
    c.reduction = rate_of_adding(c.elements());
  return c;
}

}  // namespace dat
