// Runs side by side and on a page, of records whose figures are known by hand.

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
  std::tie(one.weights, one.attack, one.attack_steps) = std::tuple(weights, attack, 10);
  std::tie(one.restarts, one.eps, one.alpha) = std::tuple(attack == "pgd10" ? 1 : 5, 8.0 / 255, 2.0 / 255);
  std::tie(one.clean_acc, one.adv_acc, one.images) = std::tuple(clean, attacked, 8);
  return one;
}

std::string told(int ranks) {
  return "{\"ranks\":" + std::to_string(ranks) + ",\"hashes_of_images\":{\"test\":\"abc\"}}";
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
      step.record.epoch = static_cast<int>((i - 1) / 2);
      step.record.wall_time = 2 * static_cast<double>(i);
      step.record.acc_adv = i % 2 == 1 ? 0.5 : 0.25;
      step.record.images = 10 * i;
      step.record.bytes_sent = 1'000'000 * i;
      step.record.seconds.fill(0);
      step.record.seconds[static_cast<std::size_t>(Phase::attack)] = static_cast<double>(i);
      for (const Phase phase : {Phase::encode, Phase::exposed, Phase::decode})
        step.record.seconds[static_cast<std::size_t>(phase)] = 1;
      report.step(step.get());
    }
    report.evaluation(evaluations);
    more(report);
    write_bytes(facts.folder + "/results.h5", "");
    return facts.folder;
  }
};

/// The body of a page in one line, without ends of cells and rows.
std::string body_of(const std::string& path) {
  std::string text = read_bytes(path);
  text.erase(0, text.find("<h1>"));
  for (const std::string tag : {"</th>", "</td>", "<tr>", "</tr>", "<thead>", "</thead>", "<tbody>", "</tbody>", "\n"})
    for (std::size_t at = 0; (at = text.find(tag, at)) != std::string::npos;) text.erase(at, tag.size());
  return text;
}

}  // namespace

TEST_CASE_METHOD(Runs, "Runs side by side have the figures of their records", "[results]") {
  write("a", 13, "lr = 0.1\nseed = 1\n", told(1),
        {evaluation(12, .5, .25), evaluation(13, .75, .625), evaluation(13, .75, .5, "pgd20"),
         evaluation(13, .875, .375, "pgd10", "average")});
  write("b", 12, "lr = 0.1\nseed = 2\nbatch = 8\n", told(2),
        {evaluation(12, .5, .25), evaluation(12, .5, .125, "pgd20")});
  write("c_%^\\", 10, "lr = 0.01\nseed = 1\n", told(2), {});
  write("d", 12, "lr = 0.1\nseed = 3\nbatch = 8\n", told(2), {evaluation(12, 1, .5)});
  const auto of = [&](const std::vector<std::string>& names) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(folder / name);
    return read_subjects(paths);
  };
  // Steps 11 to 13; 11 and 12; of ten steps all. Figures compare those of equal options on fewer ranks.
  const std::vector<Subject> each = of({"a", "b", "c_%^\\"});
  CHECK(text_of(compare(each, "")) ==
        R"(Options that differ
run      lr  batch  seed
a       0.1   auto     1
b       0.1      8     2
c_%^\  0.01   auto     1

Runs
run    state  ranks  batch  steps  seconds  images/s  efficiency  reduction %  MB/step  train %
a       done      1    120     13     39.0       8.0       1.000         20.0   12.000    50.00
b       done      2    115     12     36.0       7.9       0.496         20.7   11.500    36.96
c_%^\   done      2     55     10     20.0       6.5           -         35.3    5.500    36.84

8 test images, hash abc; pgd10, eps 8/255, alpha 2/255, 1 restart; 95 % intervals of Wilson
run         step  clean %   95 % interval  pgd10 %   95 % interval  train - attacked
a             13    75.00  [40.93, 92.85]    62.50  [30.57, 86.32]            -12.50
a, average    13    87.50  [52.91, 97.76]    37.50  [13.68, 69.43]             12.50
b             12    50.00  [21.52, 78.48]    25.00   [7.15, 59.07]             11.96

8 test images, hash abc; pgd20, eps 8/255, alpha 2/255, 5 restarts; 95 % intervals of Wilson
run  step  clean %   95 % interval  pgd20 %   95 % interval  train - attacked
a      13    75.00  [40.93, 92.85]    50.00  [21.52, 78.48]              0.00
b      12    50.00  [21.52, 78.48]    12.50   [2.24, 47.09]             24.46
)");
  const std::vector<Subject> last = of({"c_%^\\"});
  CHECK(latex_of(compare(last, "")) ==
        "% Runs\n\\begin{tabular}{lrrrrrrrrr}\n\\hline\n"
        "run & state & ranks & batch & steps & seconds & images/s & reduction \\% & MB/step & train \\% \\\\\n\\hline\n"
        "c\\_\\%\\^{}\\textbackslash{} & done & 2 & 55 & 10 & 20.0 & 6.5 & 35.3 & 5.500 & 36.84 \\\\\n"
        "\\hline\n\\end{tabular}\n");
  const std::string row = ",1,1,done,2,55,10,20,6.470588235,,35.29411765,5.5,36.84210526,,,,,,,,,,,,,,,,,,\n";
  CHECK(csv_of(compare(last, "")).ends_with("\n\"c_%^\\\"" + row));
  // Student's interval of two: 75 +- 12.7062 * 35.355 / sqrt(2).
  const std::vector<Subject> seeds = of({"a", "b", "d"});
  const std::string rows = text_of(compare(seeds, "lr"));
  INFO(rows);
  CHECK(contains(rows,
                 "\nlr=0.1, batch=auto, 1 rank               1    75.00          -                  -    62.50  "
                 "        -                  -            -12.50\n"));
  CHECK(contains(rows,
                 "\nlr=0.1, batch=8, 2 ranks                 2    75.00      35.36  [-242.66, 392.66]    37.50  "
                 "    17.68  [-121.33, 196.33]             -0.54\n"));
  CHECK(contains(rows, "\nlr=0.1, batch=8, 2 ranks    2 done      2    115     12     36.0 "));
}

TEST_CASE_METHOD(Runs, "A page has what a run's files say", "[results]") {
  const test::Environment path("PATH", "/nowhere");  // without gnuplot
  const std::string run =
      write("r", 12, "lr = 0.1\nout = \"x\"\n",
            R"({"ranks":2,"command_line":["dat_hpc","train","--recipe=trades","--out","a b"],)"
            R"("hashes_of_images":{"test":"abc"},"deep":{"a":{"b":{"c":{"d":1}}}},"flag":true,"list":["x",[1]]})",
            {evaluation(6, .5, .25), evaluation(12, .75, .5), evaluation(12, .75, .125, "pgd20"),
             evaluation(12, .75, .625, "pgd10", "average"), evaluation(12, .75, .25, "pgd20", "average")},
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
  std::string page = body_of(run + "/report.html");
  const std::size_t figures = page.find("<h2>Figures");  // the tables of compare
  page.erase(figures, page.find("<div class=\"wide\"><table><caption>Options of") - figures);
  CHECK(page ==
        R"(<h1>r</h1><div class="cards"><article class="card"><h3>r</h3><p><b>75.00 %</b> clean <span class="faint">)"
        R"([40.93, 92.85]</span></p><p><b>25.00 %</b> after pgd20, eps 8/255, alpha 2/255, 5 restarts <span )"
        R"(class="faint">[7.15, 59.07]</span></p><p class="faint">8 test images, hash abc, average weights, step 12: )"
        R"(Wilson&#39;s 95 % intervals</p><p class="faint">recipe trades, TRADES (Zhang et al., ICML 2019)</p>)"
        R"(</article></div><div class="wide"><table><caption>Options of r beside the program&#39;s own</caption><th )"
        R"(scope="col">option<th scope="col">value<th scope="col">without it<td>lr<td>0.1<td>0.01</table></div><h2>)"
        R"(Curves, time and layers</h2><p class="alarm">r has no pictures: gnuplot was not found; &#39;dat_hpc )"
        R"(plot&#39; says more</p><h2>Time line</h2><h3>r</h3><div class="wide"><svg class="strip" role="img" )"
        R"(aria-label="time line" viewBox="0 0 1000 90"><line x1="20" y1="30" x2="980" y2="30" stroke="currentColor"/>)"
        R"(<line x1="500" y1="24" x2="500" y2="36" stroke="currentColor"/><line x1="980" y1="24" x2="980" y2="36" )"
        R"(stroke="currentColor"/><rect x="496" y="38" width="8" height="8" fill="#009e73"/><circle cx="180" cy="16" )"
        R"(r="5" fill="#d55e00"><title>step 2: banned rank 1, in step 2, by all: a&lt;b</title></circle><circle )"
        R"(cx="260" cy="16" r="5" fill="#d55e00"><title>step 3: slow rank 1, 2.5 times as long as the others, from )"
        R"(about step 3</title></circle><path d="M340 50 l6 12 h-12 z" fill="#0072b2"><title>step 4: restart gone on )"
        R"(from here at T2</title></path><circle cx="740" cy="16" r="5" fill="#d55e00"><title>step 9: in time rank 1 )"
        R"(keeps up with the others again</title></circle><text x="20" y="82" fill="currentColor">0</text><text )"
        R"(x="980" y="82" text-anchor="end" fill="currentColor">step 12</text></svg></div><p class="faint">Lines: )"
        R"(evaluations. Squares: checkpoints that are there. Triangles: restarts. Circles: the other events below.</p>)"
        R"(<div class="wide"><table class="words"><caption>Events</caption><th scope="col">step<th scope="col">)"
        R"(event<th scope="col">what<td>2<td>banned<td>rank 1, in step 2, by all: a&lt;b<td>3<td>slow<td>rank 1, 2.5 )"
        R"(times as long as the others, from about step 3<td>4<td>restart<td>gone on from here at T2<td>9<td>in )"
        R"(time<td>rank 1 keeps up with the others again</table></div><div class="wide"><table class="words"><caption>)"
        R"(What the run has said</caption><th scope="col">UTC<th scope="col">line<td>T0<td>run folder r, 12 steps<td>)"
        R"(T2<td>run folder r, 12 steps, going on after step 4<td>T3<td>run folder r, going on after step 5 of )"
        R"(other<td>T5<td>warning: &lt;odd&gt;<td>T6<td>Final: clean VALID<td>T8<td>last word</table></div><h2>)"
        R"(Provenance</h2><div class="wide"><table class="words"><caption>Program, machine, command, data</caption>)"
        R"(<th scope="col"><th scope="col">r<td>ranks<td>2<td>command_line<td>dat_hpc train --recipe=trades --out )"
        R"(&#39;a b&#39;<td>hashes_of_images: test<td>abc<td>deep: a: b: c<td>...<td>flag<td>true<td>list<td>x )"
        R"(...</table></div><details><summary>All options of r</summary><pre>lr = 0.1out = &quot;x&quot;</pre>)"
        R"(</details></body></html>)");
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
  const auto has_words = [&](const std::string& cell) {
    Page page("t");
    page.table({"none", {"a", "b"}});  // no rows
    page.table({"t", {"a", "b"}, {{std::string(25, 'w'), cell}}});
    return body(page).starts_with("<div class=\"wide\"><table class=\"words\"><caption>t</caption>\n<thead><tr>");
  };
  CHECK(has_words(std::string(25, 'w')));
  for (const std::string cell : {"ww of something, ww of a", "-1.25 of something much longer",
                                 "[1, 2] of something much longer", "7 of something much, much longer", "-", ""})
    CHECK(!has_words(cell));
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
  for (const int more : {50, 51}) {
    Page full("t");
    full.html(std::string(Page::kMostBytes - 1, ' '), "most of it");
    full.html("x", "the last one");
    for (int k = 1; k <= more; ++k) full.html("y", std::to_string(k));
    const std::string text = body(full);
    CHECK(contains(text, " x<p class=\"alarm\">The page would be larger than 2 MB, and is without: 1; 2; 3; "));
    CHECK(text.ends_with(more == 50 ? "; 49; 50</p>\n" : "; 49; 50; and 1 more</p>\n"));
  }
}
