// Runs side by side and on a page, of records whose figures are known by hand.

#include <sys/stat.h>

#include "catch.hpp"
#include "dat/events.hpp"
#include "environment.hpp"
#include "unit/record/recorded.hpp"
#include "verbs/report/page.hpp"
#include "verbs/report/report.hpp"
#include "verbs/results/tables.hpp"

using namespace dat;

namespace {

EvaluationRecord evaluation(std::int64_t step, double clean, double attacked, const std::string& attack = "pgd10",
                            const std::string& weights = "raw") {
  EvaluationRecord one{.step = step, .epoch = step / 3, .wall_time = 3.0 * static_cast<double>(step)};
  std::tie(one.weights, one.attack, one.attack_steps) = std::tuple(weights, attack, attack == "none" ? 0 : 10);
  std::tie(one.restarts, one.eps, one.alpha) = std::tuple(attack == "pgd10" ? 1 : 5, 8.0 / 255, 2.0 / 255);
  std::tie(one.clean_acc, one.adv_acc, one.images) = std::tuple(clean, attacked, 8);
  return one;
}

struct Runs {
  TemporaryFolder folder;
  CapturedOutput output{folder / "output"};

  /// A finished run, in whose step i a rank takes i + 3 seconds, 3 of them for the others, and all ranks 10 i images.
  std::string write(
      const std::string& name, std::int64_t steps, const std::string& toml, const std::string& provenance,
      const std::vector<EvaluationRecord>& evaluations, const std::function<void(Report&)>& more = [](Report&) {}) {
    RunFacts facts = facts_in(folder / name);
    facts.config_toml = toml;
    facts.provenance_json = provenance;
    Report report(facts, -1);
    for (std::int64_t i = 1; i <= steps; ++i) {
      RecordedStep step(i);
      const auto x = static_cast<double>(i);
      StepRecord& record = step.record;
      std::tie(record.epoch, record.images, record.bytes_sent) = std::tuple((i - 1) / 2, 10 * i, 1'000'000 * i);
      std::tie(record.wall_time, record.acc_adv) = std::tuple(2 * x, i % 2 == 1 ? 0.5 : 0.25);
      record.seconds = {0, x, 0, 0, 1, 1, 1, 0, 0, 0, 9};  // attack; encode, exposed, decode; evaluate, after the step
      report.step(step.get());
    }
    report.evaluation(evaluations);
    more(report);
    write_bytes(facts.folder + "/results.h5", "");
    return facts.folder;
  }
};

/// The body of a page in one line, with a bar for tags that have no numbers.
std::string body_of(const std::string& path) {
  const std::string page = read_bytes(path);
  std::string text;
  for (std::size_t at = page.find("<h1>"), end = 0; at < page.size(); at = end) {
    end = page[at] == '<' ? page.find('>', at) + 1 : page.find('<', at);
    std::string part = page.substr(at, end - at);
    std::erase(part, '\n');
    if (part.starts_with('<') && part.find_first_of("0123456789") == std::string::npos)
      part = text.ends_with('|') ? "" : "|";
    text += part;
  }
  return text;
}

}  // namespace

TEST_CASE_METHOD(Runs, "Runs side by side have the figures of their records", "[results]") {
  const std::string a = write("a", 13, "lr = 0.1\n", R"({"ranks":1})", {}),
                    b = write("b", 12, "lr = 0.1\nseed = 2\nbatch = 8\n", R"({"ranks":2})", {}),
                    c = write("c_%^\\", 10, "lr = 0.01\n", R"({"ranks":2})", {});
  // Steps 11 to 13; 11 and 12; of ten steps all. Figures compare those of equal options on fewer ranks.
  const std::vector<Subject> all = read_subjects({a, b, c}), last = read_subjects({c + "/"});
  CHECK(contains(text_of(compare(all, "")), R"(c_%^\  0.01   auto     1

Runs
run    state  ranks  batch  steps  seconds  images/s  efficiency  reduction %  MB/step  train %
a       done      1    120     13     26.0       8.0       1.000         20.0   12.000    50.00
b       done      2    115     12     24.0       7.9       0.496         20.7   11.500    36.96
c_%^\   done      2     55     10     20.0       6.5           -         35.3    5.500    36.84
)"));
  CHECK(text_of(compare(read_subjects({b, c}), ""))
            .starts_with("Options that differ\noption    b  c_%^\\\nlr      0.1   0.01\nbatch     8   auto\n"
                         "seed      2      1\n\nRuns\nrun "));
  CHECK(latex_of(compare(last, "")) ==
        "% Runs\n\\begin{tabular}{lrrrrrrrrr}\n\\hline\n"
        "run & state & ranks & batch & steps & seconds & images/s & reduction \\% & MB/step & train \\% \\\\\n\\hline\n"
        "c\\_\\%\\^{}\\textbackslash{} & done & 2 & 55 & 10 & 20.0 & 6.5 & 35.3 & 5.500 & 36.84 \\\\\n"
        "\\hline\n\\end{tabular}\n");
  const std::string d = write("d", 12, "lr = 0.1\n", R"({"ranks":4})", {});
  CHECK(read_subjects({b, d})[1].efficiency == Approx(0.5).epsilon(1e-12));  // as many images/s on twice the ranks
  CHECK(last[0].megabytes == Approx(5.5).epsilon(1e-12));
  CHECK(ranks_of_run(b, {{"generators", "1"}}) == 1);  // the other one attacks for it
  // An accuracy that none can be is no figure, and one of one image is.
  EvaluationRecord odd = evaluation(1, 1.5, 1);
  odd.images = 1;
  const auto networks = read_subjects({write("odd", 1, "lr = 0.1\n", R"({"ranks":1})", {odd})})[0].networks;
  REQUIRE((networks.size() == 1 && networks[0].figures.size() == 1));
  CHECK((networks[0].figures[0].name == "pgd10" && networks[0].figures[0].right == 1));
  write_bytes(c + "/.lock", R"({"host": "n01", "process": 1, "starts": 1, "evaluated": null, "code": 7})");
  CHECK(read_subjects({c})[0].state == "failed 7");
}

TEST_CASE("Rows are in the order of an option's numbers, then of its words", "[results]") {
  const auto run = [](const std::string& rate, const std::string& seed, int ranks = 1, const char* batch = "16") {
    return Compared{.name = "run", .settings = {{"lr", rate}, {"seed", seed}, {"batch", batch}}, .ranks = ranks};
  };
  const std::vector<Compared> all = {run("10", "1"), run("9", "1"),    run("fast", "1"),         {.name = "of nobody"},
                                     run("9", "2"),  run("9", "3", 2), run("fast", "1", 1, "8"), {.name = "another"}};
  std::vector<const Compared*> members;
  for (const Compared& one : all) members.push_back(&one);
  std::vector<std::pair<std::string, std::vector<std::size_t>>> found;
  for (const Group& group : groups_by("lr", members)) found.emplace_back(group.name, group.members);
  CHECK(found == decltype(found){{"lr=9, batch=16, 1 rank", {1, 4}},
                                 {"lr=9, batch=16, 2 ranks", {5}},
                                 {"lr=10", {0}},
                                 {"lr=fast, batch=16, 1 rank", {2}},
                                 {"lr=fast, batch=8, 1 rank", {6}},
                                 {"of nobody", {3}},
                                 {"another", {7}}});
  // A switch of developers, a setting of a selector, and what changes no number make no rows.
  for (const std::string by : {"bucket", "selector:p_min", "out"})
    CHECK(code_of([&] { (void)groups_by(by, members); }) == ExitCode::usage);
}

TEST_CASE_METHOD(Runs, "A page has what a run's files say", "[results]") {
  const test::Environment path("PATH", "/nowhere");  // without gnuplot
  const std::string run =
      write("r", 12, "lr = 0.1\nout = \"x\"\n",
            R"({"ranks":2,"command_line":["dat_hpc","train","--recipe=trades","--out","a b"],)"
            R"("hashes_of_images":{"test":"abc"},"deep":{"a":{"b":{"c":{"d":1}}}},"flag":true,"list":["x",[1]]})",
            {evaluation(6, .5, .25), evaluation(12, .75, .5), evaluation(12, .75, .125, "pgd20"),
             evaluation(12, .75, .25, "pgd10", "average"), evaluation(12, .75, .625, "pgd20", "average")},
            [](Report& report) {
              report.tell(StragglerRecord{3, 1, true, 2.5, "h"});
              report.tell(StragglerRecord{9, 1, false, kNaN, "h"});
              report.tell(BanRecord{2, 1, -1, "a<b"});
            });
  write_bytes(run + "/ckpt/step-000000006.h5", "");
  write_bytes(run + "/run.log",
              "T0 run folder r, 12 steps\nT1 step 1/12  loss\nT2 run folder r, 12 steps, going on after step 4\n"
              "T3 run folder r, going on after step 5 of other\nT4 evaluation at step 6, x\nT5 warning: <odd>\n"
              "T6 Run r\nT6 ranks 1\nT6 Final: clean VALID\nnoblank\nT7 \nT8 last word");
  CHECK(write_report({run}, "", run + "/report.html") == 0);
  CHECK(body_of(run + "/report.html") ==
        R"(<h1>r</h1>|<h3>r</h3>|75.00 %| clean |[40.93, 92.85]|25.00 %| after pgd10, eps 8/255, alpha 2/255, 1 )"
        R"(restart |[7.15, 59.07]|8 test images, hash abc, average weights, step 12: Wilson&#39;s 95 % intervals|)"
        R"(recipe trades, TRADES (Zhang et al., ICML 2019)|<h2>Figures</h2>|Runs|run|state|ranks|batch|steps|seconds|)"
        R"(images/s|reduction %|MB/step|train %|r|done|2|115|12|36.0|7.9|20.7|11.500|36.96|8 test images, hash abc; )"
        R"(pgd10, eps 8/255, alpha 2/255, 1 restart; 95 % intervals of Wilson|run|step|clean %|95 % interval|pgd10 %|)"
        R"(95 % interval|train - attacked|r|12|75.00|[40.93, 92.85]|50.00|[21.52, 78.48]|-13.04|r, average|12|75.00|)"
        R"([40.93, 92.85]|25.00|[7.15, 59.07]|11.96|8 test images, hash abc; pgd20, eps 8/255, alpha 2/255, 5 )"
        R"(restarts; 95 % intervals of Wilson|run|step|clean %|95 % interval|pgd20 %|95 % interval|train - attacked|r|)"
        R"(12|75.00|[40.93, 92.85]|12.50|[2.24, 47.09]|24.46|r, average|12|75.00|[40.93, 92.85]|62.50|[30.57, 86.32]|)"
        R"(-25.54|Options of r beside the program&#39;s own|option|value|without it|lr|0.1|0.01|<h2>Curves, time and )"
        R"(layers</h2>|r has no pictures: gnuplot was not found; &#39;dat_hpc plot&#39; says more|<h2>Time line</h2>)"
        R"(<h3>r</h3>|<svg class="strip" role="img" aria-label="time line" viewBox="0 0 1000 90"><line x1="20" )"
        R"(y1="30" x2="980" y2="30" stroke="currentColor"/><line x1="500" y1="24" x2="500" y2="36" )"
        R"(stroke="currentColor"/><line x1="980" y1="24" x2="980" y2="36" stroke="currentColor"/><rect x="496" y="38" )"
        R"(width="8" height="8" fill="#009e73"/><circle cx="180" cy="16" r="5" fill="#d55e00">|step 2: banned rank 1, )"
        R"(in step 2, by all: a&lt;b|<circle cx="260" cy="16" r="5" fill="#d55e00">|step 3: slow rank 1, 2.5 times as )"
        R"(long as the others, from about step 3|<path d="M340 50 l6 12 h-12 z" fill="#0072b2">|step 4: restart gone )"
        R"(on from here at T2|<circle cx="740" cy="16" r="5" fill="#d55e00">|step 9: in time rank 1 keeps up with the )"
        R"(others again|<text x="20" y="82" fill="currentColor">0|<text x="980" y="82" text-anchor="end" )"
        R"(fill="currentColor">step 12|Lines: evaluations. Squares: checkpoints that are there. Triangles: restarts. )"
        R"(Circles: the other events below.|Events|step|event|what|2|banned|rank 1, in step 2, by all: a&lt;b|3|slow|)"
        R"(rank 1, 2.5 times as long as the others, from about step 3|4|restart|gone on from here at T2|9|in time|)"
        R"(rank 1 keeps up with the others again|What the run has said|UTC|line|T0|run folder r, 12 steps|T2|run )"
        R"(folder r, 12 steps, going on after step 4|T3|run folder r, going on after step 5 of other|T5|warning: )"
        R"(&lt;odd&gt;|T6|Final: clean VALID|T8|last word|<h2>Provenance</h2>|Program, machine, command, data|r|ranks|)"
        R"(2|command_line|dat_hpc train --recipe=trades --out &#39;a b&#39;|hashes_of_images: test|abc|deep: a: b: c|)"
        R"(...|flag|true|list|x ...|All options of r|lr = 0.1out = &quot;x&quot;|)");
  // A command that is no list of words names no recipe.
  write_bytes(run + "/provenance.json", R"({"ranks":2,"command_line":"--recipe=trades"})");
  CHECK(write_report({run}, "", run + "/report.html") == 0);
  CHECK(!contains(body_of(run + "/report.html"), "|recipe trades"));
  // Published figures of two lines; where no picture can be made; an option without a value.
  write_bytes(run + "/config.resolved.toml", "milestones = []\n");
  test::Environment temporary("TMPDIR", "/none");
  CHECK(write_report({run}, "", run + "/report.html") == 0);
  CHECK(contains(body_of(run + "/report.html"), "|r has no pictures: filesystem error: "));
  CHECK(contains(body_of(run + "/report.html"), "|milestones|(empty)|75,90,95|"));
  temporary.set("TMPDIR", "/proc");
  std::string many;
  for (int k = 0; k < 300; ++k) many += fmt::format(R"(,"n{}":"v")", k);
  write_bytes(run + "/provenance.json", R"({"ranks":2,"command_line":["--recipe","imagenet_dat_fgsm"])" + many + "}");
  CHECK(write_report({run}, "", run + "/report.html") == 0);
  CHECK(contains(body_of(run + "/report.html"), "|n197|v|All options of r|"));  // 200 facts
  CHECK(contains(body_of(run + "/report.html"), "859 s of them communication. Not trained here.|"));
  CHECK(contains(body_of(run + "/report.html"), "r has no pictures: cannot create a folder for pictures in /proc: "));
  CHECK(!contains(body_of(run + "/report.html"), "says more"));
  // Beside a run without a step there is nothing to draw.
  for (const auto& [name, steps, evaluated, drawn, recipe, said] :
       {std::tuple("begun", 0, false, "r</h3>|r", "finetune_cifar",
                   "001 or .01 for the last layer alone). Not trained here.|"),
        {"one", 1, false, "All runs</h3>|all runs", "lost", "|recipe lost, which "},
        {"two", 1, true, "All runs</h3>|all runs", "lost",
         "|recipe lost, which this version of the program does not have|"}}) {
    const std::string other =
        fmt::format(R"({{"ranks":2,"late":1,"hashes_of_images":[],"command_line":["--recipe","{}"]}})", recipe);
    const std::vector<EvaluationRecord> clean(evaluated, evaluation(1, .75, .75, "none"));
    const std::string two = write(name, steps, "lr = 0.1\n", other, clean);
    write_bytes(two + "/run.log", "T0 run folder two, going on after step 0\n");
    CHECK(write_report({run, two}, "", run + "/two.html") == 0);
    const std::string body = body_of(run + "/two.html");
    CHECK(contains(body, std::string("<h2>Curves, time and layers</h2><h3>") + drawn + " has no"));
    CHECK((contains(body, said) && contains(body, "|n197|v|-|late|-|1|")));
    CHECK((contains(body, "|0|restart|gone on from here at T0|") && contains(body, "\">step 1|") == (steps == 1)));
    CHECK(contains(body, "|75.00 %| clean |[40.93, 92.85]|8 test images, hash unknown in ") == evaluated);
    CHECK(contains(body,
                   "; attacks: pgd10 / pgd20 / clean; balls: eps 8/255 / none; steps and restarts: alpha 2/255, 1 "
                   "restart / alpha 2/255, 5 restarts / none|") == evaluated);
  }
  // A log that is no plain file is none.
  std::filesystem::remove(run + "/run.log");
  REQUIRE(::mkfifo((run + "/run.log").c_str(), 0600) == 0);
  CHECK(write_report({run}, "", run + "/report.html") == 0);
  CHECK(!contains(body_of(run + "/report.html"), "What the run has said"));
}

TEST_CASE("A page's texts are texts, its pictures' names its own, and what has no room is named", "[results]") {
  const auto body = [](const Page& page) {
    const std::string text = page.text(), begin = "</h1>\n", end = "</body>\n</html>\n";
    REQUIRE(text.ends_with(end));
    const std::size_t at = text.find(begin) + begin.size();
    return text.substr(at, text.size() - end.size() - at);
  };
  CHECK(html_text("a<b> & \"c\" 'd'\033") == "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;?");
  CHECK(png_address("ab") == "data:image/png;base64,YWI=");
  CHECK(png_address("abcdefghi") == "data:image/png;base64,YWJjZGVmZ2hp");
  for (const auto& [cell, kind] : {std::pair(std::string(25, 'w'), " class=\"words\""), {std::string(24, 'w'), ""}}) {
    Page page("t");
    page.table({"none", {"a"}});  // no rows
    page.table({"t",
                {"a", "b", "c", "d", "e"},
                {{std::string(25, 'w'), cell, "-1.25 of something much longer", "[1, 2] of something much longer",
                  "7 of something much, much longer"}}});
    CHECK(body(page).starts_with("<div class=\"wide\"><table" + std::string(kind) + "><caption>t</caption>\n<thead>"));
  }
  Page words("t");
  words.heading(2, "<a");
  words.paragraph("b&");
  words.paragraph("c", "faint");
  words.folded("d>", "e\"");
  words.table({"t", {"a"}, {{"b"}, {""}}});
  CHECK(body(words) ==
        "<h2>&lt;a</h2>\n<p>b&amp;</p>\n<p class=\"faint\">c</p>\n"
        "<details><summary>d&gt;</summary><pre>e&quot;</pre></details>\n"
        "<div class=\"wide\"><table><caption>t</caption>\n<thead><tr><th scope=\"col\">a</th></tr></thead>\n<tbody>\n"
        "<tr><td>b</td></tr>\n<tr><td></td></tr>\n</tbody></table></div>\n");
  Page page("t");
  page.chart(
      "<?xml?><svg width='1' viewBox=\"0 0 9 9\">\n<title>T</title><g id=\"g1\"> <use xlink:href='#g1'/>"
      "<text> a </text>\t\n<path style='fill:url(#g1)'/><image xlink:href=\"data:image/png;base64,AA\"/></g></svg>",
      "a \"picture\"");
  CHECK(body(page) ==
        "<div class=\"wide\"><svg class=\"chart\" role=\"img\" aria-label=\"a &quot;picture&quot;\" "
        "viewBox=\"0 0 9 9\"><g id=\"c1-g1\">\n<use href='#c1-g1'/><text> a </text>\n<path style='fill:url(#c1-g1)'/>"
        "<image href=\"data:image/png;base64,AA\"/></g></svg>\n</div>\n");
  CHECK(code_of([&] { page.chart("<svg width='1'><g></g></svg>", ""); }) == ExitCode::device);
  CHECK(code_of([&] { page.chart("<svg viewBox=\"0\"><g href=\"a.png\"></g></svg>", ""); }) == ExitCode::data);
  Page full("t");
  full.html(std::string(Page::kMostBytes - 1, ' '), "most of it");
  full.html("x", "the last one");
  const std::string longest(200, 'n');
  full.html("y", longest + "n");
  for (int k = 2; k <= 50; ++k) full.html("y", std::to_string(k));
  CHECK(body(full).ends_with("; 49; 50</p>\n"));
  full.html("y", "51");
  CHECK(contains(body(full),
                 " x<p class=\"alarm\">The page would be larger than 2 MB, and is without: " + longest + "; 2; 3; "));
  CHECK(body(full).ends_with("; 49; 50; and 1 more</p>\n"));
}
