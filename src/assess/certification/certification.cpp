#include "assess/certification/certification.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "assess/journal.hpp"
#include "dat/error.hpp"
#include "files/outside_json.hpp"
#include "files/whole_number.hpp"
#include "smoothing/bounds.hpp"

namespace dat {

std::int64_t CertificationPlan::first_of(std::int64_t block) const {
  return (block < candidate_blocks() ? block : block - candidate_blocks()) * kBlock;
}

std::int64_t CertificationPlan::samples_of(std::int64_t block) const {
  return std::min(kBlock, (block < candidate_blocks() ? n0 : n) - first_of(block));
}

void ImageVotes::enter(std::int64_t block, Votes votes) {
  early_.emplace(block, std::move(votes));
  for (auto at = early_.begin(); !finished_ && at != early_.end() && at->first == next_; at = early_.erase(at))
    take(at->first, at->second);
}

void ImageVotes::take(std::int64_t block, const Votes& votes) {
  ++next_;
  for (std::size_t c = 0; c < counts_.size(); ++c) counts_[c] += votes[c];
  const std::int64_t candidates = plan_->candidate_blocks();
  if (block >= candidates) {
    certificate_.samples += plan_->samples_of(block);
    look(next_ == plan_->blocks());
  } else if (next_ == candidates) {
    chosen_ = static_cast<int>(std::ranges::max_element(counts_) - counts_.begin());
    std::ranges::fill(counts_, 0);
  }
}

void ImageVotes::look(bool last) {
  finished_ = last;
  if (plan_->predicts) {
    if (last) predict();
    return;
  }
  Certificate& c = certificate_;
  c.votes = counts_[static_cast<std::size_t>(chosen_)];
  if (plan_->sequential()) look_at_radii();
  if (!finished_) return;
  if (!plan_->sequential()) c.lower = clopper_pearson_lower(c.votes, c.samples, plan_->alpha);
  if (c.lower <= 0.5) return;
  c.prediction = chosen_;
  c.radius = certified_radius(c.lower, plan_->sigma);
}

void ImageVotes::look_at_radii() {
  Certificate& c = certificate_;
  const double bound = std::log(1 / plan_->alpha);
  const double seen = static_cast<double>(c.votes) / static_cast<double>(c.samples);
  c.decided.resize(plan_->radii.size());
  bool open = false;
  for (std::size_t r = 0; r < plan_->radii.size(); ++r) {
    if (c.decided[r] == 0) {
      const double q = normal_cdf(plan_->radii[r] / plan_->sigma);
      if (mixture_evidence(c.votes, c.samples, q) >= bound) c.decided[r] = q < seen ? 1 : -1;
    }
    open = open || c.decided[r] == 0;
  }
  // Bounds seen at one look hold at all of them, so the largest one counts.
  c.lower = std::max(c.lower, mixture_lower(c.votes, c.samples, plan_->alpha));
  finished_ = finished_ || !open;
}

void ImageVotes::predict() {
  Certificate& c = certificate_;
  const auto top = std::ranges::max_element(counts_);
  c.votes = *top;
  const auto place = static_cast<std::size_t>(top - counts_.begin());
  std::int64_t second = 0;
  for (std::size_t other = 0; other < counts_.size(); ++other)
    if (other != place) second = std::max(second, counts_[other]);
  c.lower = fair_coin_p_value(c.votes, c.votes + second);
  if (c.lower <= plan_->alpha) c.prediction = static_cast<int>(place);
}

std::int64_t CertificationResult::certified(double radius) const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < images.size(); ++i) count += correct(i) && certificates[i].radius >= radius;
  return count;
}

std::int64_t CertificationResult::abstained() const {
  return std::ranges::count_if(certificates,
                               [](const Certificate& c) { return c.prediction == Certificate::kAbstains; });
}

double CertificationResult::average_radius() const {
  double sum = 0;
  for (std::size_t i = 0; i < images.size(); ++i) sum += correct(i) ? certificates[i].radius : 0;
  return sum / static_cast<double>(images.size());
}

std::int64_t CertificationResult::samples() const {
  return std::accumulate(certificates.begin(), certificates.end(), std::int64_t{0},
                         [](std::int64_t sum, const Certificate& c) { return sum + c.samples; });
}

std::string line_of(const CertificationEntry& entry) {
  const nlohmann::ordered_json json = {
      {"seconds", entry.seconds}, {"images", entry.images}, {"blocks", entry.blocks}, {"votes", entry.votes}};
  return json.dump();
}

std::vector<CertificationEntry> read_certification_journal(const std::string& lines, const std::string& name) {
  std::vector<CertificationEntry> all;
  read_lines(lines, name, [&](const std::string& line) {
    const auto json = parsed_json(line);
    CertificationEntry& entry = all.emplace_back();
    json.at("seconds").get_to(entry.seconds);
    entry.images = counts_in<std::int64_t>(json.at("images"));
    entry.blocks = counts_in<std::int64_t>(json.at("blocks"));
    for (const auto& votes : json.at("votes")) entry.votes.push_back(counts_in<std::int64_t>(votes));
    require(entry.blocks.size() == entry.images.size() && entry.votes.size() == entry.images.size(), ExitCode::data,
            "its lists are not of one length");
  });
  return all;
}

}  // namespace dat
