#include "assess/assessment.hpp"

#include <algorithm>

namespace dat {

Assessment::Assessment(Communicator& ranks, Replica& replica, const EvaluationAttacks& attacks,
                       Evaluator::Dealing dealing, int shown)
    : ranks_(ranks), replica_(replica), attacks_(attacks), dealing_(dealing), shown_(shown) {}

void Assessment::add(const std::string& split, const Dataset& images, const std::uint8_t* pixels) {
  evaluators_.emplace_back(split, std::make_unique<Evaluator>(ranks_, images, pixels, replica_.images(),
                                                              replica_.evaluated(), dealing_, shown_));
}

std::vector<EvaluationRecord> Assessment::run(std::uint64_t seed, const std::function<void(double)>& progress) {
  std::vector<EvaluationRecord> all;
  std::int64_t images = 0, before = 0;
  for (const auto& one : evaluators_) images += one.second->dataset().size();
  for (const auto& one : evaluators_) {
    Evaluator& evaluator = *one.second;
    const std::int64_t size = evaluator.dataset().size();
    const EvaluationResult result = evaluator.run(attacks_, seed, [&](std::int64_t done) {
      const std::int64_t of_all = before + std::min(done * ranks_.size(), size);
      if (progress) progress(static_cast<double>(of_all) / static_cast<double>(images));
    });
    before += size;
    for (EvaluationRecord& record : result.records(attacks_)) {
      record.split = one.first;
      all.push_back(record);
    }
  }
  return all;
}

}  // namespace dat
