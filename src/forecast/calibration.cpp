#include "forecast/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "dat/error.hpp"
#include "dat/transport_names.hpp"
#include "files/outside_json.hpp"
#include "files/whole_number.hpp"

namespace dat {

namespace {

using nlohmann::ordered_json;

constexpr const char* kFileType = "dat_hpc calibration";
constexpr int kFormat = 2;
constexpr std::size_t kMostBytes = 8 << 20, kMostLayers = 10000, kMostCodecs = 64, kMostLetters = 200;
constexpr double kMostSeconds = 1e6;
constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

/// A place in the file, for messages: "FILE: layers[3]".
class Place {
 public:
  Place(const ordered_json& value, std::string path) : value_(value), path_(std::move(path)) {}

  [[nodiscard]] Place at(const char* key) const {
    check(value_.is_object(), "must be an object");
    const auto found = value_.find(key);
    check(found != value_.end(), std::string("lacks '") + key + "'");
    return {*found, path_ + ": " + key};
  }
  [[nodiscard]] bool has(const char* key) const { return value_.contains(key); }
  [[nodiscard]] std::vector<Place> list(std::size_t least, std::size_t most) const {
    check(value_.is_array(), "must be a list");
    check(value_.size() >= least && value_.size() <= most,
          fmt::format("must have {} to {} entries, not {}", least, most, value_.size()));
    std::vector<Place> all;
    for (const ordered_json& one : value_) all.emplace_back(one, path_ + "[" + std::to_string(all.size()) + "]");
    return all;
  }
  [[nodiscard]] double number(double low, double high) const {
    check(value_.is_number(), "must be a number");
    const double number = value_.get<double>();
    check(std::isfinite(number) && number >= low && number <= high,
          "must be a number from " + ordered_json(low).dump() + " to " + ordered_json(high).dump());
    return number;
  }
  [[nodiscard]] double seconds() const { return number(0, kMostSeconds); }
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) const {
    const std::optional<std::int64_t> number = whole_number(value_, low, high);
    check(number.has_value(), fmt::format("must be a whole number from {} to {}", low, high));
    return *number;
  }
  [[nodiscard]] bool boolean() const {
    check(value_.is_boolean(), "must be true or false");
    return value_.get<bool>();
  }
  /// Printable, since it will be printed.
  [[nodiscard]] std::string text() const {
    check(value_.is_string(), "must be a string");
    auto text = value_.get<std::string>();
    check(!text.empty() && text.size() <= kMostLetters &&
              std::ranges::all_of(text, [](unsigned char c) { return c > 0x20 && c < 0x7f; }),
          "must be 1 to " + std::to_string(kMostLetters) + " printable characters without blanks");
    return text;
  }
  void check(bool condition, const std::string& problem) const {
    require(condition, ExitCode::data, path_, " ", problem, "; make the file anew with 'dat_hpc forecast --out DIR'");
  }
  [[nodiscard]] const ordered_json& value() const { return value_; }

 private:
  const ordered_json& value_;
  std::string path_;
};

constexpr std::pair<const char*, double Calibration::*> kSeconds[] = {
    {"data", &Calibration::data},         {"attack", &Calibration::attack}, {"forward", &Calibration::forward},
    {"backward", &Calibration::backward}, {"select", &Calibration::select}, {"update", &Calibration::update}};

[[nodiscard]] ordered_json to_json(const Link& link) {
  return {{"latency", link.latency}, {"bandwidth", link.bandwidth}};
}

[[nodiscard]] Link link_from(const Place& place) {
  return {.latency = place.at("latency").number(0, 100), .bandwidth = place.at("bandwidth").number(1, 1e15)};
}

[[nodiscard]] Calibration::Codec codec_from(const Place& place, std::size_t layers) {
  Calibration::Codec codec{.name = place.at("name").text()};
  codec.transport = place.at("transport").text();
  const std::vector<std::string> known = transport_names();
  place.at("transport")
      .check(std::ranges::find(known, codec.transport) != known.end(),
             fmt::format("must be {}", fmt::join(known, " or ")));
  codec.rounds = static_cast<int>(place.at("rounds").integer(1, 16));
  codec.exact = place.at("exact").boolean();
  codec.encode = place.at("encode").number(0, 1);
  codec.decode = place.at("decode").number(0, 1);
  for (const Place& bytes : place.at("bytes").list(layers, layers))
    codec.bytes.push_back(bytes.integer(0, kMostElements));
  return codec;
}

}  // namespace

std::int64_t Calibration::elements() const {
  std::int64_t sum = 0;
  for (const Layer& layer : layers) sum += layer.elements;
  return sum;
}

std::optional<Link> Calibration::window_of(int ranks_on_node) const {
  if (!window) return {};
  const double share = static_cast<double>(ranks_on_node) / ranks;
  return Link{.latency = window->latency, .bandwidth = window->bandwidth / share};
}

const Calibration::Codec& Calibration::codec(const std::string& name) const {
  std::string known;
  for (const Codec& codec : codecs) {
    if (codec.name == name) return codec;
    known += (known.empty() ? "" : ", ") + codec.name;
  }
  fail(ExitCode::usage, "the calibration has no codec '", name, "'; it has ", known);
}

ordered_json to_json(const Calibration& c) {
  ordered_json json{{"filetype", kFileType}, {"format_version", kFormat}, {"about", c.about},
                    {"ranks", c.ranks},      {"batch", c.batch},          {"image_size", c.image_size}};
  for (const auto& [name, part] : kSeconds) json["seconds"][name] = c.*part;
  json["attack_iterations"] = c.attack_iterations;
  json["backward_passes"] = c.backward_passes;
  json["step_message_bytes"] = c.step_message;
  for (const Calibration::Layer& layer : c.layers)
    json["layers"].push_back({{"name", layer.name},
                              {"elements", layer.elements},
                              {"backward", layer.backward},
                              {"weight_gradient", layer.weight_gradient}});
  for (const Calibration::Codec& codec : c.codecs)
    json["codecs"].push_back({{"name", codec.name},
                              {"transport", codec.transport},
                              {"rounds", codec.rounds},
                              {"exact", codec.exact},
                              {"encode", codec.encode},
                              {"decode", codec.decode},
                              {"bytes", codec.bytes}});
  json["network"] = ordered_json::object();
  if (c.between) json["network"]["between"] = to_json(*c.between);
  if (c.within) json["network"]["within"] = to_json(*c.within);
  if (c.window) json["network"]["window"] = to_json(*c.window);
  if (std::isfinite(c.reduction)) json["network"]["reduction"] = c.reduction;  // JSON has no infinity
  return json;
}

Calibration calibration_from(const std::string& text, const std::string& where) {
  const ordered_json json = json_or_discarded<ordered_json>(text);
  const Place file(json, where);
  file.check(!json.is_discarded(), "is not JSON, or cut off");
  file.check(file.at("filetype").value() == kFileType, std::string("is not of filetype '") + kFileType + "'");
  static_cast<void>(file.at("format_version").integer(kFormat, kFormat));
  Calibration c;
  c.about = file.at("about").value();
  file.at("about").check(c.about.is_object(), "must be an object");
  c.ranks = static_cast<int>(file.at("ranks").integer(1, 1 << 20));
  c.batch = static_cast<int>(file.at("batch").integer(1, 1 << 24));
  if (file.has("image_size")) c.image_size = static_cast<int>(file.at("image_size").integer(1, 1 << 12));
  const Place seconds = file.at("seconds");
  for (const auto& [name, part] : kSeconds) c.*part = seconds.at(name).seconds();
  file.at("seconds").check(c.compute() > 0, "must not all be 0");
  c.attack_iterations = static_cast<int>(file.at("attack_iterations").integer(0, 1 << 20));
  c.backward_passes = static_cast<int>(file.at("backward_passes").integer(1, 1 << 20));
  c.step_message = file.at("step_message_bytes").integer(0, kMostElements);
  double backward = 0;
  std::set<std::string> names;
  for (const Place& place : file.at("layers").list(1, kMostLayers)) {
    c.layers.push_back({.name = place.at("name").text(),
                        .elements = place.at("elements").integer(1, kMostElements / std::int64_t{kMostLayers}),
                        .backward = place.at("backward").seconds(),
                        .weight_gradient = place.at("weight_gradient").seconds()});
    place.at("name").check(names.insert(c.layers.back().name).second, "stands there twice");
    place.check(c.layers.back().weight_gradient <= c.layers.back().backward,
                "has a weight gradient that takes longer than its part of the backward pass");
    backward += c.layers.back().backward;
  }
  constexpr double kRounding = 1e-9;  // rounding of some thousand additions, and of decimals in a file
  file.at("layers").check(backward * c.backward_passes <= c.backward * (1 + kRounding) + 1e-12,
                          "take longer than the backward pass");
  names.clear();
  for (const Place& place : file.at("codecs").list(1, kMostCodecs)) {
    c.codecs.push_back(codec_from(place, c.layers.size()));
    place.at("name").check(names.insert(c.codecs.back().name).second, "stands there twice");
  }
  file.at("codecs").check(names.contains("float32"), "must have float32, which the others are compared with");
  const Place network = file.at("network");
  network.check(network.value().is_object(), "must be an object");
  if (network.has("between")) c.between = link_from(network.at("between"));
  if (network.has("within")) c.within = link_from(network.at("within"));
  if (network.has("window")) c.window = link_from(network.at("window"));
  if (network.has("reduction")) c.reduction = network.at("reduction").number(1, 1e18);
  return c;
}

Calibration read_calibration(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  require(file.is_open() && !file.bad(), ExitCode::data, "cannot read the calibration '", path,
          "'; check the path given to --calibration");
  require(static_cast<std::size_t>(file.gcount()) <= kMostBytes, ExitCode::data, path,
          " is no calibration: it has more ", "than ", kMostBytes >> 20, " MB");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return calibration_from(text, path);
}

}  // namespace dat
