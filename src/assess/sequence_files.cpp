#include "assess/sequence_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <ranges>
#include <span>

#include "dat/error.hpp"
#include "dat/file.hpp"
#include "dat/tick.hpp"

namespace dat {

namespace {

constexpr int kSequenceFormat = 1;

void write_labels(Hdf5File& file, const std::string& group, const Dataset& images, const SequenceResult& result) {
  write_column<std::int64_t>(file, group + "label", std::views::iota(std::int64_t{}, std::ssize(result.images)),
                             [&](std::int64_t image) { return images.label(image); });
  write_column<std::uint8_t>(file, group + "robust", result.images, &SequenceResult::Image::robust);
}

}  // namespace

void write_sequence_results(const std::string& path, const Dataset& images, const SequenceResult& result,
                            const FileFacts& facts) {
  write_sealed_hdf5(path, [&](Hdf5File& file) {
    write_facts(file, "evaluation", kSequenceFormat, facts);
    write_labels(file, "image/", images, result);
    using Image = SequenceResult::Image;
    write_column<std::uint8_t>(file, "image/clean_correct", result.images,
                               [](const Image& image) { return image.broken_by != 0; });
    write_column<std::int64_t>(file, "image/broken_by", result.images, &Image::broken_by);
    write_column<std::int64_t>(file, "image/run", result.images, &Image::run);
    write_column<std::int64_t>(file, "image/prediction", result.images, &Image::prediction);
    write_column<double>(file, "image/distance", result.images, &Image::distance);
    std::vector<std::string> names;
    for (const SequenceResult::Row& row : result.rows) names.push_back(row.attack);
    file.write_texts("attack/name", names);
    using Row = SequenceResult::Row;
    write_column<std::int64_t>(file, "attack/runs", result.rows, &Row::runs);
    write_column<std::int64_t>(file, "attack/images", result.rows, &Row::images);
    write_column<std::int64_t>(file, "attack/broken", result.rows, &Row::broken);
    write_column<double>(file, "attack/accuracy", result.rows, &Row::accuracy);
    write_column<double>(file, "attack/seconds", result.rows, &Row::seconds);
    file.set_text("attack/seconds", "units", "s");
  });
}

AdversarialImages::AdversarialImages(const std::string& folder, const Dataset& images, bool begun)
    : images_(images), part_(folder + "/adversarial.part"), whole_(folder + "/adversarial.h5") {
  std::error_code ignored;
  const bool there = std::filesystem::exists(part_, ignored);
  finished_ = begun && !there && std::filesystem::exists(whole_, ignored);
  require(!begun || there || finished_, ExitCode::usage, folder, " has the journal of an evaluation whose images are ",
          "gone: adversarial.part is missing; remove the journal to begin anew");
  if (finished_) return;
  file_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | (begun ? 0 : O_TRUNC), 0666);
  require(file_ != -1, ExitCode::io, "cannot write ", part_, ": ", system_reason(errno));
}

AdversarialImages::~AdversarialImages() { ::close(file_); }

void AdversarialImages::unlink() { static_cast<void>(::unlink(part_.c_str())); }

void AdversarialImages::keep(std::int64_t image, const float* pixels_of, float confidence) {
  require(!finished_, ExitCode::usage, part_, " is missing, and the journal beside it is not at its end; remove the ",
          "journal to begin anew");
  std::vector<float> record(pixels_of, pixels_of + pixels());
  record.push_back(confidence);
  const std::size_t bytes = record_bytes();
  write_bytes(file_, {reinterpret_cast<const char*>(record.data()), bytes}, part_,
              image * static_cast<std::int64_t>(bytes));
}

void AdversarialImages::sync() {
  require(finished_ || ::fdatasync(file_) == 0, ExitCode::io, part_,
          ": cannot bring it to disk: ", system_reason(errno));
}

void AdversarialImages::finish(const SequenceResult& result, const FileFacts& facts) {
  if (finished_) return;
  const DatasetInfo& info = images_.info();
  write_sealed_hdf5(whole_, [&](Hdf5File& file) {
    write_facts(file, "adversarial images", kSequenceFormat, facts);
    write_labels(file, "", images_, result);
    file.declare<float>("images", {images_.size(), info.size, info.size, info.channels});
    file.declare<std::uint8_t>("clean", {images_.size(), info.size, info.size, info.channels});
    std::vector<std::uint8_t> clean(pixels());
    std::vector<float> record(pixels() + 1), confidence;
    for (std::int64_t id = 0; id < images_.size(); ++id) {
      tick();
      images_.read(id, clean.data());
      if (result.images[static_cast<std::size_t>(id)].broken_by > 0) {
        const std::size_t bytes = record_bytes();
        const ssize_t got = ::pread(file_, record.data(), bytes, static_cast<off_t>(id) * static_cast<off_t>(bytes));
        require(got == static_cast<ssize_t>(bytes), ExitCode::io, part_, " has become short");
        confidence.push_back(record.back());
      } else {
        confidence.push_back(std::nanf(""));
        std::ranges::transform(clean, record.begin(),
                               [](std::uint8_t byte) { return static_cast<float>(byte) / 255.0F; });
      }
      file.write_rows("images", id, std::span<const float>(record).first(pixels()));
      file.write_rows("clean", id, clean);
    }
    file.write("confidence", {images_.size()}, confidence);
  });
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
}

void KeptImages::write(const EvaluationAttacks& attacks, const EvaluationResult& result, const FileFacts& facts) {
  SequenceResult outcomes;
  for (std::size_t i = 0; i < result.clean.correct.size(); ++i) {
    SequenceResult::Image& image = outcomes.images.emplace_back();
    if (std::ranges::any_of(result.attacked, [&](const auto& one) { return one.correct[i] == 0; })) image.broken_by = 1;
    if (result.clean.correct[i] == 0) image.broken_by = 0;
  }
  std::string names;
  for (const EvaluationAttacks::Member& member : attacks.members()) names += (names.empty() ? "" : ", ") + member.name;
  FileFacts all = {
      {"attacks", names}, {"norm", name_of(attacks.norm())}, {"eps", fmt::format("{:.17g}", attacks.eps())}};
  all.insert(all.end(), facts.begin(), facts.end());
  images_.finish(outcomes, all);
}

}  // namespace dat
