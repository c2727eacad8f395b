#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <span>

#include "assess/certification/certification.hpp"
#include "communicate/together.hpp"
#include "dat/error.hpp"
#include "noisy_image.hpp"

namespace dat {

namespace {

using Clock = std::chrono::steady_clock;

template <class T>
[[nodiscard]] T* put_on_device(Backend& backend, const std::vector<T>& values) {
  T* const to = backend.allocate_array<T>(std::ssize(values), "noise");
  backend.copy_to_device(to, values.data(), std::span(values).size_bytes());
  return to;
}

}  // namespace

Certifier::Certifier(Communicator& ranks, Replica& replica, double sigma, bool grid, int blocks)
    : ranks_(ranks), replica_(replica), blocks_(blocks) {
  const std::int64_t pass = replica.frozen().n();
  batch_.count = 1;
  batch_.make_room(batch_.count, replica.images().layout.elements());
  logits_.resize(static_cast<std::size_t>(pass * replica.classes()));
  if (!grid) return;
  grid_ = grid_noise(sigma);
  entries_ = put_on_device(replica.backend(), grid_.entries);
  guide_ = put_on_device(replica.backend(), grid_.guide);
  host_unknown_.resize(static_cast<std::size_t>(pass * replica.images().layout.fours()));
  unknown_ = replica.backend().allocate_array<std::uint8_t>(std::ssize(host_unknown_), "noise");
}

CertificationResult Certifier::run(const CertificationWork& work, const Options& options) {
  work_ = work;
  std::vector<ImageVotes> all(work_.images.size(), ImageVotes(work_.plan, replica_.classes()));
  together(ranks_, [&] {
    for (const CertificationEntry& entry : options.found) enter(entry, all);
  });
  const auto width = static_cast<std::size_t>(replica_.classes()) + 1;
  Progress progress{.images = work_.images.size()};
  for (;;) {
    const auto begin = Clock::now();
    const std::vector<Block> blocks = next_blocks(all);
    if (blocks.empty()) break;
    std::vector<std::int64_t> votes(blocks.size() * width);
    for (std::size_t k = static_cast<std::size_t>(ranks_.rank()); k < blocks.size();
         k += static_cast<std::size_t>(ranks_.size()))
      count(blocks[k], votes.data() + k * width);
    ranks_.sum(votes.data(), std::ssize(votes));
    CertificationEntry entry;
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      const auto of_block = std::span(votes).subspan(k * width, width);
      require(of_block.back() == 0, ExitCode::numerical, "the logits of image ", work_.images[blocks[k].image],
              " are not finite in ", of_block.back(), " samples: a certificate of this network means nothing");
      entry.images.push_back(work_.images[blocks[k].image]);
      entry.blocks.push_back(blocks[k].number);
      entry.votes.emplace_back(of_block.begin(), of_block.end() - 1);
      progress.samples += work_.plan.samples_of(blocks[k].number);
    }
    entry.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    enter(entry, all);
    if (options.entry) options.entry(entry);
    if (!options.progress) continue;
    progress.finished =
        static_cast<std::size_t>(std::ranges::count_if(all, [](const ImageVotes& image) { return image.finished(); }));
    double done = 0;
    for (const ImageVotes& image : all)
      done += image.finished() ? 1.0 : static_cast<double>(image.done()) / static_cast<double>(work_.plan.blocks());
    progress.part = done / static_cast<double>(all.size());
    options.progress(progress);
  }
  CertificationResult result;
  result.images = work_.images;
  for (std::size_t i = 0; i < work_.images.size(); ++i) {
    result.labels.push_back(work_.dataset->label(work_.images[i]));
    result.certificates.push_back(all[i].certificate());
  }
  return result;
}

/// One block of each of the first open images; where there are too few of these, further blocks of theirs.
std::vector<Certifier::Block> Certifier::next_blocks(const std::vector<ImageVotes>& all) const {
  const auto wanted = static_cast<std::size_t>(blocks_) * static_cast<std::size_t>(ranks_.size());
  std::vector<Block> ahead, blocks;  // ahead: next block of each open image, after those that were looked at
  for (std::size_t image = 0; image < all.size(); ++image)
    if (!all[image].finished()) ahead.push_back({image, 0});
  for (bool found = true; found;) {
    found = false;
    for (Block& next : ahead) {
      if (blocks.size() == wanted) return blocks;
      while (all[next.image].knows(next.number)) ++next.number;
      if (next.number == work_.plan.blocks()) continue;
      blocks.push_back({next.image, next.number++});
      found = true;
    }
  }
  return blocks;
}

void Certifier::enter(const CertificationEntry& entry, std::vector<ImageVotes>& all) const {
  for (std::size_t k = 0; k < entry.images.size(); ++k) {
    const auto found = std::ranges::lower_bound(work_.images, entry.images[k]);
    const std::int64_t block = entry.blocks[k];
    const Votes& votes = entry.votes[k];
    const bool fits = found != work_.images.end() && *found == entry.images[k] && block >= 0 &&
                      block < work_.plan.blocks() && std::ssize(votes) == replica_.classes();
    const double sum = std::accumulate(votes.begin(), votes.end(), 0.0);  // counts in a file may be anything
    require(fits && sum <= static_cast<double>(work_.plan.samples_of(block)), ExitCode::data,
            "the journal has votes for image ", entry.images[k], " that cannot be; remove the journal to begin anew");
    ImageVotes& image = all[static_cast<std::size_t>(found - work_.images.begin())];
    require(image.finished() || !image.knows(block), ExitCode::data, "the journal has block ", block, " of image ",
            entry.images[k], " twice; remove the journal to begin anew");
    image.enter(block, votes);
    image.add_seconds(entry.seconds / static_cast<double>(entry.images.size()));
  }
}

void Certifier::add_noise(std::int64_t image, std::int64_t block, std::int64_t first, std::int64_t samples) {
  const Buffers& images = replica_.images();
  const kernels::NoisySamples noisy{
      .image = images.clean,
      .x = images.x_adv,
      .layout = images.layout,
      .seed = work_.plan.seed,
      .purpose = block < work_.plan.candidate_blocks() ? Purpose::candidate : Purpose::certification,
      .id = static_cast<std::uint64_t>(image),
      .first_sample = static_cast<std::uint32_t>(first)};
  const Device device = images.backend.device();
  if (!work_.plan.grid) {
    const kernels::NormalNoise noise{noisy, static_cast<float>(work_.plan.sigma)};
    return each(device, samples * noise.rows(), noise);
  }
  each(device, samples * images.layout.fours(),
       kernels::TableNoise{noisy, entries_, guide_, grid_.half, grid_.low, grid_.high, unknown_});
}

void Certifier::count(const Block& block, std::int64_t* votes) {
  FrozenProgram& network = replica_.frozen();
  Backend& backend = replica_.backend();
  const std::int64_t image = work_.images[block.image], samples = work_.plan.samples_of(block.number),
                     classes = replica_.classes();
  const std::int64_t groups = replica_.images().layout.fours();
  work_.dataset->read(image, batch_.pixels.data());
  replica_.images().load(batch_, 0, nullptr);
  for (std::int64_t first = 0; first < samples; first += network.n()) {
    const std::int64_t count = std::min<std::int64_t>(network.n(), samples - first);
    add_noise(image, block.number, work_.plan.first_of(block.number) + first, count);
    network.forward(replica_.images().x_adv, static_cast<int>(count));
    backend.copy_to_host(logits_.data(), network.logits(), static_cast<std::size_t>(count * classes) * sizeof(float));
    if (work_.plan.grid) backend.copy_to_host(host_unknown_.data(), unknown_, static_cast<std::size_t>(count * groups));
    for (std::int64_t k = 0; k < count; ++k) {
      const auto row = logits_.begin() + k * classes;
      if (!std::all_of(row, row + classes, [](float logit) { return std::isfinite(logit); })) {
        ++votes[classes];
        continue;
      }
      const auto unknown = host_unknown_.begin() + k * groups;
      if (work_.plan.grid && std::any_of(unknown, unknown + groups, [](std::uint8_t flag) { return flag != 0; }))
        continue;
      ++votes[std::max_element(row, row + classes) - row];
    }
  }
}

}  // namespace dat
