#include "catch.hpp"
#include "record/progress_line.hpp"

using namespace dat;

namespace {

RunFacts facts_of_run() {
  RunFacts facts;
  facts.total_steps = 100000;
  facts.epochs = 200;
  facts.warmup_epochs = 1;
  return facts;
}

StepRecord step(std::int64_t number, double loss, double accuracy, std::int64_t images) {
  StepRecord record;
  record.step = number;
  record.epoch = 11;
  record.loss_adv = loss;
  record.acc_adv = accuracy;
  record.images = images;
  record.seconds[static_cast<std::size_t>(Phase::attack)] = 0.75;
  record.seconds[static_cast<std::size_t>(Phase::other)] = 0.25;
  record.seconds[static_cast<std::size_t>(Phase::evaluate)] = 1000;
  record.seconds[static_cast<std::size_t>(Phase::checkpoint)] = 1000;
  return record;
}

std::string text(ProgressLine& line, ProgressLine::Clock::time_point now, int columns = 200) {
  fmt::memory_buffer buffer;
  line.write(buffer, facts_of_run(), now, columns);
  return buffer.data();
}

}  // namespace

TEST_CASE("A line of progress has the means since the line before, and a speed without evaluations", "[report]") {
  ProgressLine line;
  const ProgressLine::Clock::time_point start(std::chrono::hours(1));
  const auto at = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  line.add(step(40001, 3, 0.25, 1), at(0));
  CHECK(line.waited(at(7)) == 7);
  CHECK(text(line, at(0)) == "step 40001/100000  epoch 12 of 200 (1 warm-up)  loss 3.0000  acc 25.00 %");
  // 50 images of loss 2 and 150 of loss 1 are 200 of 1.25; a step that was skipped has no figures, but its time.
  line.add(step(40002, 2, 0.5, 50), at(2));
  line.add(step(40003, 1, 0.75, 150), at(4));
  line.add(step(40004, std::numeric_limits<double>::quiet_NaN(), 0, 100), at(6));
  // 300 images in 3 x 1 s; 59,996 steps of 2 s are 33 h 19 min 52 s.
  CHECK(text(line, at(6)) ==
        "step 40004/100000  epoch 12 of 200 (1 warm-up)  loss 1.2500  acc 68.75 %  100 images/s  ETA 33 h 19 min");
  CHECK(line.waited(at(7)) == 1);
  line.add(step(40005, 1, 0, 10), at(8));
  CHECK(text(line, at(8)) ==
        "step 40005/100000  epoch 12 of 200 (1 warm-up)  loss 1.0000  acc 0.00 %  10 images/s  ETA 33 h 19 min");
  line.begin_anew();
  line.add(step(40001, 4, 0.5, 100), at(9));
  CHECK(text(line, at(9)) == "step 40001/100000  epoch 12 of 200 (1 warm-up)  loss 4.0000  acc 50.00 %");
}

TEST_CASE("The end of a run stays on a narrow terminal", "[report]") {
  ProgressLine line;
  const ProgressLine::Clock::time_point start(std::chrono::hours(1));
  line.add(step(40001, 3, 0.25, 100), start);
  int seconds = 0;
  const auto next = [&](int columns) {
    seconds += 2;
    line.add(step(40001 + seconds / 2, 3, 0.25, 50), start + std::chrono::seconds(seconds));
    return text(line, start + std::chrono::seconds(seconds), columns);
  };
  CHECK(next(102) ==
        "step 40002/100000  epoch 12 of 200 (1 warm-up)  loss 3.0000  acc 25.00 %  50 images/s  ETA 33 h 19 min");
  CHECK(next(101) == "step 40003/100000  epoch 12 of 200  loss 3.0000  acc 25.00 %  50 images/s  ETA 33 h 19 min");
  CHECK(next(79) == "step 40004/100000  loss 3.0000  acc 25.00 %  50 images/s  ETA 33 h 19 min");
  CHECK(next(72) == "step 40005/100000  loss 3.0000  acc 25.00 %  ETA 33 h 19 min");
  CHECK(next(59) == "step 40006/100000  acc 25.00 %  ETA 33 h 19 min");
  CHECK(next(46) == "step 40007/100000  ETA 33 h 19 min");
  CHECK(next(20) == "ETA 33 h 19 min");
  CHECK(next(5) == "ETA 3");
  fmt::memory_buffer evaluation;
  line.write_evaluation(evaluation, facts_of_run(), start + std::chrono::seconds(seconds + 2), 60, 0.254);
  CHECK(std::string(evaluation.data()) == "step 40009/100000  evaluation 25 %  ETA 37 h 29 min");  // steps of 2.25 s
  CHECK(line.waited(start + std::chrono::seconds(seconds + 5)) == 3);
}

TEST_CASE("Durations have their units", "[report]") {
  std::string all;
  for (const double seconds : {-1., 0., 59.9, 184., 60., 3600., 48 * 3600 - 1., 48 * 3600., 5 * 86400. + 2 * 3600 + 59})
    all += duration_text(seconds) + "|";
  CHECK(all == "0 s|0 s|59 s|3 min 04 s|1 min 00 s|1 h 00 min|47 h 59 min|2 d 00 h|5 d 02 h|");
  for (const double longest : {1e300, std::nan("")}) CHECK(duration_text(longest) == "1157407 d 09 h");
}
