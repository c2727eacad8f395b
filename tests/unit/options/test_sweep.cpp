#include <string>
#include <vector>

#include "catch.hpp"
#include "errors.hpp"
#include "options/train/sweep.hpp"
#include "parsed.hpp"

using namespace dat;
using namespace dat::test;

namespace {

using Words = std::vector<std::string>;

[[nodiscard]] Words names(const std::string& sweep) {
  Words all;
  for (const SweepPoint& point : sweep_points(sweep, "grid")) all.push_back(point.name);
  return all;
}

[[nodiscard]] std::string refusal(const Words& words) {
  return message_of([&] { static_cast<void>(parse(words)); });
}

[[nodiscard]] std::string refusal_of(const std::string& sweep, const Words& common = {},
                                     const std::string& out = "grid") {
  return message_of([&] { static_cast<void>(sweep_trainings(sweep, out, common)); });
}

}  // namespace

TEST_CASE("A sweep has a point for each combination of values, in a folder that is named by them") {
  CHECK(names("seed=1,2,3  lr=0.05,0.1") ==
        Words{"seed=1,lr=0.05", "seed=1,lr=0.1", "seed=2,lr=0.05", "seed=2,lr=0.1", "seed=3,lr=0.05", "seed=3,lr=0.1"});
  CHECK(sweep_points("seed=1 lr=0.1", "a b/")[0].words == Words{"--seed=1", "--lr=0.1", "--out=a b/seed=1,lr=0.1"});
  // Values with commas, settings and slashes.
  CHECK(names("batch=512,128@12;256") == Words{"batch=512_128@12", "batch=256"});
  CHECK(names("selector=all,exp3:p_min=0.5 eps=4/255") ==
        Words{"selector=all,eps=4_255", "selector=exp3_p_min=0.5,eps=4_255"});
  for (const auto& [sweep, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "--sweep is empty"},
           {"seed", "'seed' is not NAME=VALUE,VALUE"},
           {"=1", "'=1' is not NAME=VALUE,VALUE"},
           {"--seed=1", "without dashes"},
           {"seed=", "a value of 'seed' is missing"},
           {"seed=1,,2", "a value of 'seed' is missing"},
           {"seed=1,2,1", "seed = 1 stands there twice"},
           {"seed=1 lr=1 seed=2", "seed stands there twice"},
           {"out=a,b", "--out is the folder of all points"},
           {"eps=4/255,4_255", "two points would have the folder eps=4_255"},
           {"data=" + std::string(250, 'a'), "more than 200 characters"},
           {"recipe=list", "its options ask for something to be printed"},
           {"$(id)=1;2 `id`=3", "sweep point"}}) {
    INFO(sweep);
    CHECK(contains(refusal_of(sweep), message));
  }
  std::string many = "seed=0";
  for (int k = 1; k < 1000; ++k) many += "," + std::to_string(k);
  CHECK(sweep_points(many, "grid").size() == kMostPoints);
  CHECK(contains(refusal_of(many + " lr=1,2"), "more than 1000 points"));
  CHECK(contains(refusal_of("seed=1", {}, ""), "needs --out DIR"));
}

TEST_CASE("Trainings of a sweep are read as if each were typed, and refused by the name of their point") {
  const std::vector<SweptTraining> all =
      sweep_trainings("loss=trades,mart batch=8,4@1;4 overlap=true,false", "grid", {"--lr", "0.3", "--beta", "5"});
  REQUIRE(all.size() == 8);
  CHECK(all[0].words == Words{"--lr", "0.3", "--beta", "5", "--loss=trades", "--batch=8,4@1", "--overlap=true",
                              "--out=grid/loss=trades,batch=8_4@1,overlap=true"});
  TrainOptions alone = parse(all[7].words).train;
  CHECK(all[7].options == alone);
  CHECK(alone.loss == "mart");
  CHECK(alone.batch == 4);
  CHECK(!alone.overlap);
  CHECK(all[0].options.overlap);
  CHECK(all[0].options.batch.at(1) == 4);
  CHECK(sweep_trainings("recipe=madry,trades", "grid", {})[1].options.loss == "trades");
  // --beta alone, without a loss that takes it, is no training.
  CHECK(contains(refusal_of("seed=1,2", {"--beta", "5"}), "sweep point seed=1: --beta works with"));
  CHECK(contains(refusal_of("sed=1,2"), "sweep point sed=1: unknown option '--sed'; did you mean '--seed'?"));
  CHECK(contains(refusal_of("lr=0.1,x"), "sweep point lr=x: option '--lr'"));
  CHECK(contains(refusal_of("lr=0.1,0.10"), "lr=0.1 and lr=0.10 are the same training"));
  CHECK(contains(refusal_of("seed=1,2", {"--seed", "3"}), "--sweep varies --seed, which is given beside it, too"));
  CHECK(contains(refusal_of("overlap=true,false", {"--overlap=true"}), "--sweep varies --overlap"));
}

TEST_CASE("A batch script has the options of a sweep, and further ones of sbatch that no shell obeys") {
  const SlurmOptions job = parse({"slurm", "--sweep", "loss=trades,mart", "--beta", "5", "--out", "grid", "--sbatch",
                                  "--qos=x  --constraint=[a100|h100*2]&ib --exclusive"})
                               .slurm;
  CHECK(job.train == Words{"--beta", "5"});
  CHECK(sbatch_words(job.sbatch) == Words{"--qos=x", "--constraint=[a100|h100*2]&ib", "--exclusive"});
  for (const std::string word :
       {"-p", "gpu", "--qos x", "--qos=$(id)", "--qos=`id`", "--qos='x'", "--qos=a;b", "--qos=a#b", "--qos=a\\b",
        "--Qos=1", "--=1", "--", "--qos=\"x", "--qos=>x", "--comment=é"}) {
    INFO(word);
    CHECK(contains(refusal({"slurm", "--sbatch", word}), "would not be read by Slurm as it is meant"));
  }
  for (const std::string own : {"--array=1-9", "--wrap=id", "--nodes=2", "--time=1"})
    CHECK(contains(refusal({"slurm", "--sbatch", own}), "is the script's own"));
  CHECK(contains(refusal({"slurm", "--sweep", "seed=1,2"}), "needs --out DIR"));
  const Parsed one = parse({"slurm", "--network", "small_cnn", "--width", "16", "--limit-train", "64"});
  SlurmOrder of_gpus{one.slurm, {one.train}};
  of_gpus.job.gpus_per_node = 1;
  CHECK(contains(script_of(of_gpus), "\n#SBATCH --gpus-per-node=1\n"));
  CHECK(contains(script_of(of_gpus), " MB for the process with CUDA.\n# Of the GPU: "));
}
