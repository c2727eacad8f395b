#include "catch.hpp"
#include "codec.hpp"
#include "low_rank.hpp"
#include "reduction_case.hpp"
#include "spectral.hpp"

using namespace dat;
using namespace dat::test;

// One rank without MPI: what a codec does to a gradient. Several: tests/mpi/test_codec.cpp.

namespace {

/// Every codec with every transport that it allows.
std::vector<Way> ways() {
  std::vector<Way> all;
  for (const std::string& codec : codecs().names()) {
    ReductionCase f;
    for (const std::string& transport : transports_of(*f.codec(codec))) all.push_back({codec, transport});
  }
  return all;
}

/// What becomes of a gradient in this step.
std::vector<float> pass(ReductionCase& f, const Way& way, const std::vector<float>& gradient, std::int64_t step = 0) {
  GradientReducer reducer = f.reducer({.bucket_elements = 3000, .codec_transport = way.transport}, way.codec);
  return f.reduce(reducer, ActiveSet::all(f.model.parameters.layers()), step, gradient);
}

ActiveSet layer_alone(const Parameters& p, int layer) {
  ActiveSet active = ActiveSet::all(p.layers());
  std::fill(active.scale.begin(), active.scale.end(), 0.0F);
  active.scale[static_cast<std::size_t>(layer)] = 1;
  return active;
}

const Segment& named(const Parameters& p, const std::string& name) {
  return *std::find_if(p.segments.begin(), p.segments.end(), [&](const Segment& one) { return one.name == name; });
}

/// A gradient whose tensors have this rank, one or two, as matrices [shape[0]][the rest], where they are matrices.
std::vector<float> of_rank(int rank, const Parameters& p) {
  std::vector<float> gradient = random_values(p.size, 4);
  for (const Segment& segment : p.segments) {
    if (segment.shape.size() < 2) continue;
    const std::int64_t rows = segment.shape[0], cols = segment.size / rows;
    const auto a = random_values(2 * rows, 5), b = random_values(2 * cols, 6);
    for (std::int64_t i = 0; i < segment.size; ++i) {
      const auto row = static_cast<std::size_t>(i / cols), col = static_cast<std::size_t>(i % cols);
      gradient[static_cast<std::size_t>(segment.begin + i)] =
          a[2 * row] * b[2 * col] + (rank > 1 ? 0.5F * a[2 * row + 1] * b[2 * col + 1] : 0);
    }
  }
  return gradient;
}

}  // namespace

TEST_CASE("bf16 and f16: the nearest number of the type, half a unit in the last place away at most", "[codec]") {
  ReductionCase f;
  auto gradient = random_values(f.model.parameters.size, 1);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = std::ldexp(gradient[i], static_cast<int>(i % 36) - 22);
  for (const auto& [codec, digits, least] : {std::tuple{"bf16", 8, -126}, std::tuple{"f16", 11, -14}})
    for (const std::string transport : {"gather", "two_sided"}) {  // to round twice is to round once
      const auto result = pass(f, {codec, transport}, gradient);
      std::int64_t wrong = 0, rounded = 0;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const double g = gradient[i], unit = std::ldexp(1.0, std::max(std::ilogb(g), least) - digits + 1);
        wrong += !(std::abs(result[i] - g) <= unit / 2) || std::remainder(result[i], unit) != 0;
        rounded += result[i] != gradient[i];
      }
      INFO(codec << ", " << transport);
      CHECK((wrong == 0 && rounded > 0));
    }
}

TEST_CASE("int8: 127 levels of the norm; the reference's example", "[codec]") {
  ReductionCase f;
  const Segment& bias = named(f.model.parameters, "linear.bias");
  const auto at = static_cast<std::size_t>(bias.begin);
  auto gradient = random_values(f.model.parameters.size, 1);
  std::fill_n(gradient.begin() + bias.begin, bias.size, 0.0F);
  const float example[] = {0.3F, -0.4F, 0, 1.2F};  // norm 1.3: 29.3077, 39.0769, 0 and 117.2308 levels
  std::copy(std::begin(example), std::end(example), gradient.begin() + bias.begin);
  std::map<int, int> first, second, last;
  const int draws = cases(4000, 400);
  GradientReducer reducer = f.reducer({.codec_transport = "gather"}, "int8");
  const ActiveSet only = layer_alone(f.model.parameters, bias.layer);
  for (int step = 0; step < draws; ++step) {
    const auto result = f.reduce(reducer, only, step, gradient);
    const auto level = [&](std::size_t k) {
      const double exact = result[at + k] / 1.3 * 127;
      CHECK(std::abs(exact - std::round(exact)) < 1e-4);
      return static_cast<int>(std::round(exact));
    };
    ++first[level(0)];
    ++second[level(1)];
    ++last[level(3)];
    CHECK(level(2) == 0);
  }
  // 5 standard deviations of a binomial number.
  const auto fits = [&](const std::map<int, int>& found, int level, double p) {
    const int up = found.contains(level) ? found.at(level) : 0;
    return std::abs(up - p * draws) < 5 * std::sqrt(draws * p * (1 - p));
  };
  CHECK((first.size() == 2 && first.contains(29) && fits(first, 30, 0.3077)));
  CHECK((second.size() == 2 && second.contains(-39) && fits(second, -40, 0.0769)));
  CHECK((last.size() == 2 && last.contains(117) && fits(last, 118, 0.2308)));
  // A number that is the whole norm has the highest level, exactly, and its neighbours have none.
  for (const float one : {0.5F, -0.25F}) {
    std::fill_n(gradient.begin() + bias.begin, bias.size, 0.0F);
    gradient[at + 1] = one;
    const auto result = f.reduce(reducer, only, 0, gradient);
    for (const std::size_t i : elements_of(bias)) CHECK(result[i] == gradient[i]);
  }
}

TEST_CASE("int8 and TernGrad: a group of elements writes its own word, and the first one that of the size",
          "[codec][cpu]") {
  using Words = std::array<std::uint32_t, 3>;
  constexpr std::uint32_t kMark = 0x12345678;
  const std::int64_t element = 0, six = 6, more = 22, byte = 0;
  std::vector<float> gradient(24, 2.0F);
  gradient[4] = gradient[20] = -2;
  gradient[5] = gradient[21] = 0;
  alignas(Words) std::byte message[sizeof(Words)];
  const auto written = [&](const auto& kernel, std::int64_t i) {
    Words words{kMark, kMark, kMark};
    std::memcpy(message, words.data(), sizeof(Words));
    kernel(0, i);
    std::memcpy(words.data(), message, sizeof(Words));
    return words;
  };
  const double sums[] = {4, 0, 0}, none[] = {0, 0, 0}, scale[] = {2, 0, 0}, nan[] = {std::nan(""), 0, 0};
  const auto int8 = [&](const double* squares) {
    return kernels::QuantiseLevels{gradient.data(), message, &element, &six, &byte, squares, 0, {}};
  };
  CHECK(written(int8(sums), 0) == Words{0x40000000, 0xffffffff, kMark});  // 2.0F, and four times the highest level
  CHECK((written(int8(sums), 4) == Words{kMark, kMark, 0xfe} && written(int8(none), 0) == Words{0, 0x01010101, kMark}));
  CHECK((written(int8(none), 4) == Words{kMark, kMark, 0} && written(int8(nan), 0)[1] == 0xffffffff));
  const kernels::Ternary ternary{gradient.data(), message, &element, &more, &byte, scale, 0, {}};
  CHECK(written(ternary, 0) == Words{0x40000000, 0xaaaaa4aa, kMark});
  CHECK(written(ternary, 16) == Words{kMark, kMark, 0x4aa});
}

TEST_CASE("ATOMO: each pair of columns has a sum of products for each block of rows, and nothing else is written",
          "[codec][cpu]") {
  const kernels::Spectrum spectrum{.rows = 4, .inputs = 2, .pair = 2, .atoms = 1};
  CHECK((spectrum.pairs() == 3 && spectrum.blocks() == 1));
  const float matrix[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::int64_t element = 0;
  std::vector<double> sums(8, -7), whole(8, -7);
  const kernels::SpectralMemory memory{sums.data(), whole.data(), nullptr, nullptr};
  for (std::int64_t i = 0; i < 8; ++i) kernels::GramOfBlocks{&spectrum, memory, matrix, &element}(0, i);
  for (std::int64_t i = 0; i < 8; ++i) kernels::GramOfTensor{&spectrum, memory, &element}(0, i);
  CHECK(sums == std::vector<double>{84, 100, 120, -7, -7, -7, -7, -7});
  CHECK(whole == std::vector<double>{84, 100, 100, 120, -7, -7, -7, -7});
}

TEST_CASE("PowerSGD: rows become orthogonal, however small and near each other they are", "[codec][cpu]") {
  constexpr std::size_t kRows = 16;
  const std::int32_t chunks[] = {0, 1};
  const kernels::Factors factors{.rows = kRows, .rank = 2};
  for (const float size : {1.0F, 1e-37F, 0.0F}) {  // of 0 they are random, and of either sign
    std::vector<float> p = random_values(2 * kRows, 1);
    for (std::size_t j = 0; j < kRows; ++j) p[j] *= size, p[kRows + j] = p[j] * (1 + 1e-5F * p[kRows + j]);
    kernels::Orthonormalise{&factors, chunks, 0, p.data(), {}}(0);
    const auto [low, high] = std::minmax_element(p.begin(), p.begin() + kRows);
    CHECK((*low < 0 && *high > 0 && p[0] != 0));
    CHECK(std::abs(std::inner_product(p.begin(), p.begin() + kRows, p.begin() + kRows, 0.0)) < 1e-6);
  }
}

TEST_CASE("int8, TernGrad without clipping and ATOMO are unbiased", "[codec]") {
  ReductionCase f;
  f.codec_options.settings.codec_clip = 0;
  const Parameters& p = f.model.parameters;
  const auto gradient = random_values(p.size, 3);
  const ActiveSet all = ActiveSet::all(p.layers());
  constexpr int kDraws = 80;
  REQUIRE(p.size * kDraws > 1000000);
  for (const Way& way : {Way{"int8", "gather"}, Way{"int8", "two_sided"}, Way{"terngrad", "gather"},
                         Way{"terngrad", "two_sided"}, Way{"atomo", "gather"}}) {
    GradientReducer reducer = f.reducer({.bucket_elements = 3000, .codec_transport = way.transport}, way.codec);
    // Of each tensor and of all, draw by draw: the sum of the errors, of those of positive gradients, and their product
    // with the gradient.
    const std::size_t groups = p.segments.size() + 1, kinds = 3;
    std::vector<std::vector<double>> sums(groups * kinds, std::vector<double>(kDraws));
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto result = f.reduce(reducer, all, draw, gradient);
      for (std::size_t k = 0; k < p.segments.size(); ++k)
        for (std::int64_t j = p.segments[k].begin; j < p.segments[k].begin + p.segments[k].size; ++j) {
          const auto i = static_cast<std::size_t>(j);
          const double error = double(result[i]) - gradient[i];
          for (const std::size_t group : {k, groups - 1}) {
            sums[group * kinds][static_cast<std::size_t>(draw)] += error;
            sums[group * kinds + 1][static_cast<std::size_t>(draw)] += gradient[i] > 0 ? error : 0;
            sums[group * kinds + 2][static_cast<std::size_t>(draw)] += error * gradient[i];
          }
        }
    }
    double worst = 0, worst_of_all = 0;
    for (std::size_t k = 0; k < sums.size(); ++k) {
      double mean = 0, variance = 0;
      for (const double sum : sums[k]) mean += sum / kDraws;
      for (const double sum : sums[k]) variance += std::pow(sum - mean, 2) / (kDraws - 1);
      // Rounding: f32 numbers below 1 that add up to less than the number of elements.
      const double sigmas = std::abs(mean) / (std::sqrt(variance / kDraws) + 0x1p-22 * std::sqrt(p.size));
      worst = std::max(worst, sigmas);
      if (k / kinds == groups - 1) worst_of_all = std::max(worst_of_all, sigmas);
    }
    INFO(text(way) << ": " << worst_of_all << " standard deviations, of a single tensor " << worst);
    CHECK(worst_of_all < 4);
    CHECK(worst < 4.5);  // of some thirty
  }
}

TEST_CASE("TernGrad: a sign times one scale, the largest magnitude, or 2.5 standard deviations if that is less",
          "[codec]") {
  ReductionCase f;
  const Parameters& p = f.model.parameters;
  auto gradient = random_values(p.size, 3);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = std::pow(gradient[i], 9.0F);  // few are large
  for (const double clip : {0.0, 2.5}) {
    f.codec_options.settings.codec_clip = clip;
    const auto result = pass(f, {"terngrad", "gather"}, gradient);
    std::int64_t wrong = 0, clipped = 0;
    for (const Segment& segment : p.segments) {
      double mean = 0, square = 0, largest = 0;
      for (const std::size_t i : elements_of(segment)) {
        const double g = gradient[i];
        mean += g / static_cast<double>(segment.size);
        square += g * g / static_cast<double>(segment.size);
        largest = std::max(largest, std::abs(g));
      }
      const double limit = clip * std::sqrt(square - mean * mean);
      const double scale = clip > 0 ? std::min(limit, largest) : largest;
      clipped += scale < largest;
      for (const std::size_t i : elements_of(segment)) {
        const double found = result[i], g = gradient[i];
        wrong += found != 0 && !(std::abs(std::abs(found) - scale) <= 1e-6 * scale && found * g > 0);
        wrong += found == 0 && std::abs(g) >= scale * (1 + 1e-6);
      }
    }
    CHECK((wrong == 0 && (clipped > 0) == (clip > 0)));
  }
}

TEST_CASE("PowerSGD: decoded plus error is gradient plus error of the step before", "[codec]") {
  ReductionCase f;
  const Parameters& p = f.model.parameters;
  for (const int rank : {1, 2, 4}) {
    f.codec_options.settings.codec_rank = rank;
    GradientReducer reducer = f.reducer({.bucket_elements = 3000}, "powersgd");
    const auto error = [&] { return to_host(*f.backend, reducer.state().front().data, p.size); };
    const Reducer::State q = reducer.state().back();
    const auto first = to_host(*f.backend, q.data, q.count);
    const double squares = std::inner_product(first.begin(), first.end(), first.begin(), 0.0);
    CHECK(squares / static_cast<double>(q.count) == Approx(1).margin(0.1));  // standard normal numbers
    std::int64_t wrong = 0, compressed = 0;
    for (std::int64_t step = 0; step < 5; ++step) {
      const ActiveSet active = random_active(p.layers(), static_cast<std::uint32_t>(step), step == 0 ? 1.1F : 0.6F);
      const auto before = error(), gradient = f.gradient_of(0, step);
      const auto result = f.reduce(reducer, active, step, gradient);
      const auto after = error();
      for (const Segment& segment : p.segments)
        for (const std::size_t i : elements_of(segment)) {
          const double input = double(gradient[i]) + before[i], output = double(result[i]) + after[i];
          if (!active.active(segment.layer))
            wrong += after[i] != before[i] || result[i] != gradient[i];
          else  // the sum and the difference are rounded once each
            wrong += std::abs(input - output) > 0x1p-24 * (std::abs(input) + std::abs(after[i])) * 1.0001;
          compressed += after[i] != 0;
          if (segment.shape.size() == 1 && active.active(segment.layer)) wrong += result[i] != gradient[i];
        }
    }
    INFO("rank " << rank);
    CHECK((wrong == 0 && compressed > 0));
  }
}

TEST_CASE("PowerSGD: of a gradient of its rank nothing is left out, nor two steps after one that was zero", "[codec]") {
  // Of width 64, the first convolution as a matrix [64][27] has two elements for each of its factor's sixteenths.
  const auto [width, rank] = GENERATE(std::pair(16, 2), std::pair(64, 16));
  ReductionCase f(single(), width);
  const Parameters& p = f.model.parameters;
  const auto gradient = of_rank(2, p);
  const ActiveSet all = ActiveSet::all(p.layers());
  for (const bool zero_first : {false, true}) {
    f.codec_options.settings.codec_rank = rank;
    GradientReducer reducer = f.reducer({}, "powersgd");
    if (zero_first) {
      const auto nothing = f.reduce(reducer, all, 0, std::vector<float>(gradient.size(), 0.0F));
      CHECK(std::all_of(nothing.begin(), nothing.end(), [](float value) { return value == 0; }));
      const auto found = f.reduce(reducer, all, 1, gradient);  // with a random P, from which Q comes
      GradientReducer other = f.reducer({}, "powersgd");
      (void)f.reduce(other, all, 0, std::vector<float>(gradient.size(), 0.0F));
      CHECK(differing(f.reduce(other, all, 2, gradient), found) > 0);
    }
    (void)f.reduce(reducer, all, 2, gradient);
    const auto error = to_host(*f.backend, reducer.state().front().data, p.size);
    double worst = 0;
    for (const Segment& segment : p.segments)
      worst = std::max(worst, norm_of(error, segment) / norm_of(gradient, segment));
    INFO("rank " << rank << (zero_first ? ", after zero" : ", at once"));
    CHECK(worst < 1e-3);  // f32 factors, 6e-8; the condition of P is some thousand: Q is random
  }
}

TEST_CASE("ATOMO: a matrix of few atoms comes through whole; others are chosen by the best probabilities", "[codec]") {
  ReductionCase f;
  const Parameters& p = f.model.parameters;
  const Segment& linear = named(p, "linear.weight");  // of less than 32 classes: [classes][features] as it stands
  const auto begin = static_cast<std::size_t>(linear.begin), size = static_cast<std::size_t>(linear.size);
  const auto cols = size / static_cast<std::size_t>(linear.shape[0]);
  for (const auto& [rank, atoms, classes] : {std::tuple(1, 1, 10), {2, 3, 10}, {2, 3, 40}}) {  // 40: more than features
    ReductionCase of(single(), 16, classes);
    of.codec_options.settings.codec_rank = atoms;
    const Segment& matrix = named(of.model.parameters, "linear.weight");
    const auto gradient = of_rank(rank, of.model.parameters), exact = pass(of, {"atomo", "gather"}, gradient);
    double off = 0;
    for (const std::size_t i : elements_of(matrix)) off += std::pow(double(exact[i]) - gradient[i], 2);
    INFO("rank " << rank << ", " << classes << " classes");
    CHECK(std::sqrt(off) < 1e-4 * norm_of(gradient, matrix));
  }

  // Rows that are orthogonal are the atoms. Norms 8, 4, 2, 1, ...: with three atoms the largest is certain; the others
  // share two.
  f.codec_options.settings.codec_rank = 3;
  std::vector<float> gradient(static_cast<std::size_t>(p.size), 0.0F);
  const auto classes = static_cast<std::size_t>(linear.shape[0]);
  std::vector<double> norms;
  for (std::size_t row = 0; row < classes; ++row) {
    norms.push_back(8 * std::pow(0.5, static_cast<double>(row)));
    gradient[begin + row * cols + 2 * row] = static_cast<float>(norms.back());
  }
  double rest = 0;
  for (std::size_t row = 1; row < classes; ++row) rest += norms[row];
  std::vector<double> probabilities{1};
  for (std::size_t row = 1; row < classes; ++row) probabilities.push_back(std::min(1.0, 2 * norms[row] / rest));
  if (probabilities[1] == 1)
    for (std::size_t row = 2; row < classes; ++row) probabilities[row] = norms[row] / (rest - norms[1]);
  constexpr int kDraws = 3000;
  std::vector<int> chosen(classes, 0);
  std::int64_t wrong = 0;
  GradientReducer reducer = f.reducer({}, "atomo");
  for (int draw = 0; draw < kDraws; ++draw) {
    const auto result = f.reduce(reducer, layer_alone(p, linear.layer), draw, gradient);
    int atoms = 0;
    for (std::size_t row = 0; row < classes; ++row) {
      const double value = result[begin + row * cols + 2 * row];
      if (std::abs(value) < 1e-3 * norms[row]) continue;
      ++atoms;
      ++chosen[row];
      wrong += std::abs(value - norms[row] / probabilities[row]) > 1e-4 * norms[row] / probabilities[row];
    }
    wrong += atoms != 3;
  }
  CHECK(wrong == 0);
  for (std::size_t row = 0; row < classes; ++row) {
    const double q = probabilities[row];
    INFO("atom " << row << ": " << chosen[row] << " of " << kDraws << ", p " << q);
    CHECK(std::abs(chosen[row] - q * kDraws) <= 4 * std::sqrt(kDraws * q * (1 - q)));
  }
}

TEST_CASE("Every codec: zeros come through as zeros, and what is not finite is seen", "[codec]") {
  ReductionCase f;
  const Parameters& p = f.model.parameters;
  for (const Way& way : ways()) {
    INFO(text(way));
    std::vector<float> gradient(static_cast<std::size_t>(p.size), 0.0F);
    const auto zeros = pass(f, way, gradient);
    CHECK(std::all_of(zeros.begin(), zeros.end(), [](float value) { return value == 0; }));
    for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::int64_t unseen = 0;
      for (const Segment& segment : p.segments) {
        gradient = random_values(p.size, 1);
        gradient[static_cast<std::size_t>(segment.begin + segment.size / 2)] = wrong;
        const auto result = pass(f, way, gradient);
        unseen += std::none_of(result.begin() + segment.begin, result.begin() + segment.begin + segment.size,
                               [](float value) { return !std::isfinite(value); });
      }
      CHECK(unseen == 0);
    }
  }
}

TEST_CASE("Every codec: a step depends on seed and step alone, and buckets do not matter", "[codec]") {
  ReductionCase f;
  const auto gradient = f.gradient_of(0, 1);
  for (const Way& way : ways()) {
    INFO(text(way));
    const auto result = pass(f, way, gradient, 7);
    CHECK(differing(pass(f, way, gradient, 7), result) == 0);
    GradientReducer whole = f.reducer({.codec_transport = way.transport}, way.codec);
    CHECK(differing(f.reduce(whole, ActiveSet::all(f.model.parameters.layers()), 7, gradient), result) == 0);
    const bool random = way.codec == "int8" || way.codec == "terngrad" || way.codec == "atomo";
    CHECK((differing(pass(f, way, gradient, 8), result) > 0) == random);
    f.codec_options.seed = 6;
    CHECK((differing(pass(f, way, gradient, 7), result) > 0) == (random || way.codec == "powersgd"));
    f.codec_options.seed = 5;
  }
}

TEST_CASE("Transports of codecs: those that do not go together are refused", "[codec]") {
  ReductionCase f;
  const auto refusal = [&](const std::string& codec, const std::string& way, const std::string& masks,
                           const std::string& aggregator) {
    return message_of([&] { (void)f.reducer({.mask_transport = masks, .codec_transport = way}, codec, aggregator); });
  };
  CHECK(contains(refusal("int8", "ring", "", "mean"), "known: auto, sum, gather, two_sided"));
  for (const std::string codec : {"bf16", "f16", "int8", "terngrad", "atomo"})
    CHECK(contains(refusal(codec, "sum", "", "mean"), "choose that, or another codec"));
  CHECK(contains(refusal("atomo", "two_sided", "", "mean"), "but by: gather"));
  CHECK(contains(refusal("powersgd", "gather", "", "mean"), "but by: sum"));
  CHECK(contains(refusal("powersgd", "auto", "", "largest"), "leave that off"));
  CHECK(contains(refusal("powersgd", "auto", "allgather", "mean"), "--mask per_worker:allgather"));
  CHECK(contains(refusal("powersgd", "auto", "dense", "mean"), "choose union"));
  CHECK(contains(refusal("bf16", "two_sided", "", "largest"), "not the mean"));
  CHECK(contains(refusal("int8", "two_sided", "allgather", "mean"), "--mask per_worker:allgather"));
  CHECK(contains(message_of([&] { (void)f.reducer({.codec_transport = "gather", .node_sums = "nccl"}); }),
                 "--node-sums nccl adds messages up"));
  for (const Way& way : ways()) CHECK(refusal(way.codec, way.transport, "union", "mean").empty());
  for (const std::string codec : {"float32", "bf16", "f16", "int8", "terngrad", "atomo"}) {
    CHECK((refusal(codec, "auto", "", "largest").empty() && refusal(codec, "auto", "allgather", "mean").empty()));
  }
}

TEST_CASE("No codec's message is longer than the numbers themselves, whatever its rank", "[codec]") {
  ReductionCase f;
  for (const std::string& name : codecs().names())
    for (const int rank : {0, 1, 9, 1000}) {
      f.codec_options.settings.codec_rank = rank;
      const auto codec = f.codec(name);
      for (const Segment& segment : f.model.parameters.segments) {
        std::int64_t bytes = 0;
        for (int round = 0; round < codec->rounds(); ++round) bytes += codec->bytes(segment, round);
        INFO(name << ", rank " << rank << ", " << segment.name);
        CHECK(bytes <= segment.size * std::int64_t{sizeof(float)});
      }
    }
  f.codec_options.settings.codec_rank = 0;  // their own
  const auto bytes = [&](const char* codec, const std::vector<int>& shape, int round = 0, int padding_in = 0) {
    const auto size = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    return f.codec(codec)->bytes(
        {.name = {}, .shape = shape, .module = {}, .block = {}, .size = size, .padding_in = padding_in}, round);
  };
  CHECK((bytes("bf16", {2}) == 4 && bytes("bf16", {3}) == 8 && bytes("int8", {4}) == 8 && bytes("int8", {5}) == 12));
  CHECK((bytes("terngrad", {16}) == 8 && bytes("terngrad", {17}) == 12));
  // Factors of two columns, of outputs and of all else, where they are shorter than the tensor; else this one first.
  for (const auto& [shape, first, second] : std::vector<std::tuple<std::vector<int>, int, int>>{
           {{16}, 16, 0}, {{4, 4}, 16, 0}, {{4, 5}, 8, 10}, {{1, 64}, 64, 0}, {{8, 6, 3, 3}, 16, 108}})
    CHECK((bytes("powersgd", shape) == 4 * first && bytes("powersgd", shape, 1) == 4 * second));
  // Three atoms of matrices of at most 32 columns, if that is shorter: two neighbouring inputs with their kernels, or
  // one; the shorter side; pieces of 16.
  for (const auto& [shape, padding_in, floats] :
       std::vector<std::tuple<std::vector<int>, int, int>>{{{16}, 0, 16},
                                                           {{8, 6, 3, 3}, 0, 3 * (24 + 18)},
                                                           {{8, 5, 3, 3}, 0, 3 * (40 + 9)},
                                                           {{8, 6, 3, 3}, 1, 3 * (48 + 9)},
                                                           {{4, 8, 5, 5}, 0, 3 * (32 + 25)},
                                                           {{8, 8, 4, 4}, 0, 3 * (32 + 32)},
                                                           {{8, 8, 7, 7}, 0, 3136},
                                                           {{2, 2, 3, 3}, 0, 36},
                                                           {{10, 32}, 0, 3 * (32 + 10)},
                                                           {{64, 16, 1, 1}, 0, 3 * (64 + 16)},
                                                           {{64, 32}, 4, 3 * (64 + 32)},
                                                           {{64, 48}, 0, 3 * (192 + 16)},
                                                           {{64, 48}, 4, 3072},
                                                           {{33, 35}, 0, 1155},
                                                           {{3, 8}, 0, 24}})
    CHECK(bytes("atomo", shape, 0, padding_in) == 4 * floats);
}

TEST_CASE("The memory of messages is what a reducer says", "[codec]") {
  for (const Way& way : ways()) {
    ReductionCase f;
    GradientReducer reducer = f.reducer({.codec_transport = way.transport}, way.codec);
    std::int64_t bytes = 0;
    for (const Backend::Allocation& one : f.backend->allocations())
      if (one.purpose == "gradient message" || one.purpose == "gradients of all ranks")
        bytes += static_cast<std::int64_t>(one.bytes);
    INFO(text(way));
    CHECK((reducer.memory(1) == bytes && reducer.added_up(1) == (way.codec == "powersgd" ? bytes : 0)));
    CHECK(reducer.added_up(2) == (way.transport == "sum" ? reducer.memory(2) : 0));
    if (way.transport == "gather" && way.codec != "float32")  // five of the tensors, and one of the message
      CHECK(std::ranges::count(f.backend->allocations(), "message tables", &Backend::Allocation::purpose) == 6);
    // Two messages, and two gradients, beside this rank's own message; or that alone.
    if (way.codec == "float32" && (way.transport == "gather" || way.transport == "sum"))
      CHECK(reducer.memory(2) == 4 * f.model.parameters.size * (way.transport == "gather" ? 5 : 1));
  }
}
