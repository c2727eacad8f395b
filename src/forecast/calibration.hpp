#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dat/codec.hpp"

namespace dat {

/// A way from rank to rank: a message of n bytes takes latency + n / bandwidth seconds.
struct Link {
  double latency = 0;                                          ///< seconds
  double bandwidth = std::numeric_limits<double>::infinity();  ///< bytes a second, each way
  [[nodiscard]] double seconds(double bytes) const { return latency + bytes / bandwidth; }
};

/// Costs of a step of a training run, as one rank has measured them: the basis of forecasts. Seconds are seconds of one
/// rank in one step unless something else is said.
struct Calibration {
  /// A tensor of the network. Layers stand in the order in which the last backward pass finishes their gradients.
  struct Layer {
    std::string name{};
    std::int64_t elements = 1;
    double backward = 0;  ///< seconds of one backward pass, since the gradient before this one was finished
    /// The part of these seconds that is saved where the layer does not take part; at most `backward`.
    double weight_gradient = 0;
  };
  struct Codec {
    std::string name{};  ///< name as for --codec; with a transport that is not the codec's first, "NAME/TRANSPORT"
    std::string transport = "sum";
    int rounds = 1;                     ///< messages of a step, with transport `sum`
    bool exact = false;                 ///< one rank has nothing to encode
    double encode = 0, decode = 0;      ///< seconds of an element, all rounds
    std::vector<std::int64_t> bytes{};  ///< [layers] bytes of the message, as MPI gets it, all rounds
  };

  nlohmann::ordered_json about = nlohmann::ordered_json::object();  ///< subject of the measurement, for people
  int ranks = 1;                                                    ///< ranks that measured
  int batch = 1;                                                    ///< images of a rank
  int image_size = 32;                                              ///< height = width of the images, of 3 channels
  double data = 0, attack = 0, forward = 0, backward = 0, select = 0, update = 0;
  int attack_iterations = 1;      ///< iterations of which `attack` consists
  int backward_passes = 1;        ///< passes of which `backward` consists
  std::int64_t step_message = 0;  ///< bytes of the StepMessage, which is summed after the gradients
  std::vector<Layer> layers;
  std::vector<Codec> codecs;            ///< float32 is one of them
  std::optional<Link> between, within;  ///< ranks of different nodes, and of one node; empty: not measured
  std::optional<Link> window;  ///< a sum of so many bytes of `ranks` in the memory of a node; empty: not measured
  double reduction = std::numeric_limits<double>::infinity();  ///< bytes a second that a rank adds up in a sum

  [[nodiscard]] std::int64_t elements() const;
  /// The window of a node with so many ranks: all of them read and write the same memory.
  [[nodiscard]] std::optional<Link> window_of(int ranks_on_node) const;
  [[nodiscard]] double compute() const { return data + attack + forward + backward + select + update; }
  /// Error(usage): there is no such codec; the message names those there are.
  [[nodiscard]] const Codec& codec(const std::string& name) const;
};

[[nodiscard]] nlohmann::ordered_json to_json(const Calibration& calibration);
/// The calibration that to_json() has written as `text`. The text is not trusted: every type, size and range is
/// checked. `where` names it in messages. Error(data).
[[nodiscard]] Calibration calibration_from(const std::string& text, const std::string& where);
/// The calibration in a file of at most 8 MB, checked as calibration_from() does. Error(data).
[[nodiscard]] Calibration read_calibration(const std::string& path);

}  // namespace dat
