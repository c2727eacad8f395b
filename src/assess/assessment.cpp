#include "assess/assessment.hpp"

namespace dat {

Assessment::Assessment(Communicator& ranks, Replica& replica, const EvaluationAttacks& attacks,
                       Evaluator::Dealing dealing, int shown)
    : ranks_(ranks), replica_(replica), attacks_(attacks), dealing_(dealing), shown_(shown) {}

void Assessment::add(const std::string& split, const Dataset& images, const std::uint8_t* pixels) {
  evaluators_.emplace_back(split, std::make_unique<Evaluator>(ranks_, images, pixels, replica_.images(),
                                                              replica_.evaluated(), dealing_, shown_));
}

std::vector<EvaluationRecord> Assessment::run(std::uint64_t seed) {
  std::vector<EvaluationRecord> all;
  for (const auto& [split, evaluator] : evaluators_) {
    const EvaluationResult result = evaluator->run(attacks_, seed);
    for (EvaluationRecord& record : result.records(attacks_)) {
      record.split = split;
      all.push_back(record);
    }
  }
  return all;
}

}  // namespace dat
