#include "catch.hpp"
#include "options/help.hpp"
#include "options/shell/shell.hpp"
#include "options/values/hints.hpp"

using namespace dat;

namespace {

using Words = std::vector<std::string>;

/// Verbs of another program: options in all forms.
[[nodiscard]] std::vector<VerbText> kitchen() {
  const OptionText quiet{.names = {"-q", "--quiet"}, .about = "no words", .group = "Options"},
      pot{.names = {"POT", "--pot"}, .label = "FILE", .about = "the pot", .group = "Options"},
      pans{.names = {"--pans"}, .label = "PATH...", .about = ".first", .group = "Options", .several = true};
  OptionText out{.names = {"OUT"}, .label = "DIR", .about = "the out", .group = "Options", .values = {"flat"}},
      soup{.names = {"--soup"},
           .label = "KIND",
           .about = "what\nbroth:salt=N: spoons",
           .standard = "broth",
           .group = "Food",
           .values = {"broth", "stew", "broth"},
           .commas = true,
           .settings = {{"salt", {"broth"}, {"much"}, false}, {"hot", {"broth"}, {}, true}}};
  std::vector<VerbText> verbs = {
      {"cook", "make a meal", "Usage: cook\n  one\nend", {quiet, pot, soup}},
      {"data wash", "clean", "x.y-z\\", {quiet, pans, out}, {{"SOUP_X", "N", "re-cook", "1"}}}};
  soup.standard = "stew";
  out = {.names = {"OUT"}, .label = "DIR", .about = "another"};
  verbs.push_back({"eat", "dine", "Eat.", {quiet, pot, pans, soup, out}, {{"SOUP_X", "N", "re-cook", "1"}}});
  return verbs;
}

}  // namespace

TEST_CASE("An option in the help has its name in 30 columns, or a line of its own, and its text in 50", "[options]") {
  const std::string left(30, ' '), more(32, ' ');
  CHECK(option_lines("  --lr NUMBER", "the rate\nand a setting", "0.01") ==
        "  --lr NUMBER                 the rate [0.01]\n" + left + "and a setting\n");
  const std::string most(28, 'x'), word(39, 'w');
  CHECK(option_lines(most, "a", "") == most + "  a\n");
  CHECK(option_lines(most + "x", "a", "") == most + "x\n" + left + "a\n");
  // 80 columns are full.
  CHECK(option_lines("o", "12345678901 " + word, "") ==
        "o" + std::string(29, ' ') + "12345678901\n" + left + word + "\n");
  CHECK(option_lines("o", "1234567890 " + word + " b", "") ==
        "o" + std::string(29, ' ') + "1234567890 " + word + "\n" + left + "b\n");
  CHECK(option_lines("o", "a\n12345678 " + word + " " + word, "") ==
        "o" + std::string(29, ' ') + "a\n" + left + "12345678 " + word + "\n" + more + word + "\n");
  // A name that is longer than a line goes on after a bar, as long as there is one.
  std::string five, seven;
  for (int k = 0; k < 7; ++k) (k < 5 ? five : seven) += "123456789|";
  seven += five;
  CHECK(option_lines("  --value " + seven + five + "b", "a", "") ==
        "  --value " + seven + "\n" + left + five + "\n" + left + "b\n" + left + "a\n");
  CHECK(option_lines("  --value " + seven, "a", "") == "  --value " + seven + "\n" + left + "a\n");
  CHECK(option_lines(seven + std::string(90, 'c'), "a", "") ==
        seven + "\n" + left + std::string(90, 'c') + "\n" + left + "a\n");
}

TEST_CASE("Text is wrapped at 80 columns, and its lines stay apart", "[options]") {
  CHECK(wrapped("a b\nc", 2, "- ") == "- a b\n  c\n");
  const std::string half(40, 'h'), most(78, 'm'), more(90, 'w');
  CHECK(wrapped(half + " " + half.substr(1), 0) == half + " " + half.substr(1) + "\n");
  CHECK(wrapped(half + " " + half, 1) == " " + half + "\n " + half + "\n");
  CHECK(wrapped(most + " b", 2) == "  " + most + "\n  b\n");
  CHECK(wrapped(more + " b", 0) == more + "\nb\n");
}

TEST_CASE("What may follow the words of a command line", "[options]") {
  const std::vector<VerbText> verbs = kitchen();
  const auto of = [&](const std::string& name) {
    return *std::ranges::find_if(verbs, [&](const VerbText& verb) { return verb.name == name; });
  };
  const std::string help = "help\toptions by VERB or WORD; --man: the manual page\n",
                    completion = "completion\tcompletion of options in bash or zsh\n",
                    all = "cook\tmake a meal\ndata\t\neat\tdine\n";
  for (const auto& [words, found] : std::vector<std::pair<Words, std::string>>{
           {{}, all + help + completion},
           {{"c"}, "cook\tmake a meal\n" + completion},
           {{"data", ""}, "wash\tclean\n"},
           {{"data", "dry", ""}, ""},
           {{"dig", ""}, ""},
           {{"help", ""}, all + "--man\tthe manual page, for man\n"},
           {{"completion", "z"}, "zsh\t\n"},
           {{"-"}, "--quiet\tno words\n--pot\tthe pot\n--soup\twhat\n"},
           {{"cook", ""}, ":files\n"},
           {{"cook", "-q", ""}, ":files\n"},
           {{"cook", "--s"}, "--soup\twhat\n"},
           {{"cook", "--soup", "b"}, "broth\t\n"},
           {{"cook", "--soup", "b", "b"}, ":files\n"},
           {{"cook", "--soup=broth,st"}, "--soup=broth,stew\t\n"},
           {{"cook", "--soap=b"}, ""},
           {{"cook", "--soup", "stew,broth:"}, "stew,broth:salt=\t\nstew,broth:salt=much\t\nstew,broth:hot\t\n"},
           {{"cook", "--soup", "broth:hot:s"}, "broth:hot:salt=\t\nbroth:hot:salt=much\t\n"},
           {{"cook", "--soup", "stew:"}, ""},
           {{"data", "wash", "--pans", "a", "b"}, ":files\n"},
           {{"data", "wash", "--pans", "--"}, "--quiet\tno words\n--pans\t.first\n"},
           {{"data", "wash", "a,f"}, ":folders\n"},
           {{"data", "wash", "O"}, ":folders\n"}}) {
    INFO(std::accumulate(words.begin(), words.end(), std::string("dat_hpc"),
                         [](const std::string& line, const std::string& word) { return line + " " + word; }));
    CHECK(completions(words, verbs, of) == found);
  }
}

TEST_CASE("The manual page says everything of every verb once", "[options]") {
  const std::string page = man_page(kitchen(), "0 .done\n  more\n'end", "1.2", "2026-11-28");
  CHECK(page.starts_with(".TH DAT_HPC 1 \"2026-11-28\" \"dat_hpc 1.2\" \"User Commands\"\n"));
  CHECK(page.substr(page.find(".SH VERBS\n")) == R"(.SH VERBS
.TP
\fBcook\fR
make a meal
.TP
\fBdata wash\fR
clean
.TP
\fBeat\fR
dine
.SH DAT_HPC cook
Usage: cook
  one
.br
end
.SS Options
.TP
\fB\-q\fR, \fB\-\-quiet\fR
no words
.TP
\fBPOT\fR, \fB\-\-pot\fR \fIFILE\fR
the pot
.SS Food
.TP
\fB\-\-soup\fR \fIKIND\fR
what [broth]
.br
broth:salt=N: spoons
.SH DAT_HPC data wash
x.y\-z\e
.SS Options
.TP
\fB\-\-pans\fR \fIPATH...\fR
\&.first
.TP
\fBOUT\fR
the out
.PP
And \-\-quiet as of cook.
.SH DAT_HPC eat
Eat.
.SS Food
.TP
\fB\-\-soup\fR \fIKIND\fR
what [stew]
.br
broth:salt=N: spoons
.TP
\fBOUT\fR
another
.PP
And \-\-quiet, \-\-pot as of cook; \-\-pans as of data wash.
.SH ENVIRONMENT
Switches for developers:
.TP
\fBSOUP_X\fR=\fIN\fR
re\-cook [1]
.SH EXIT STATUS
0 .done
  more
.br
\&'end
)");
}
