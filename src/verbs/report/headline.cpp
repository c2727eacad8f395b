#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "files/outside_json.hpp"
#include "options/recipes.hpp"
#include "verbs/report/sections.hpp"

namespace dat {

namespace {

/// The recipe that a run's command names; empty: none.
[[nodiscard]] std::string recipe_of_run(const Subject& run) {
  const auto all = json_or_discarded(run.provenance);
  if (!all.contains("command_line") || !all["command_line"].is_array()) return "";
  std::string recipe;
  bool next = false;
  for (const nlohmann::json& one : all["command_line"]) {
    const std::string word = one.is_string() ? one.get<std::string>() : "";
    if (next) recipe = word;
    if (word.starts_with("--recipe=")) recipe = word.substr(9);
    next = word == "--recipe";
  }
  return recipe;
}

/// What a recipe's head says of published figures: "clean 87.11, AutoAttack 54.92 (RobustBench)."; empty: nothing.
[[nodiscard]] std::string published_in(const std::string& toml) {
  std::istringstream lines(toml);
  std::string text;
  for (std::string line; std::getline(lines, line) && line.starts_with("#");) {
    const bool begins = line.starts_with("# Published: ");
    if (!begins && text.empty()) continue;
    if (!begins && (line == "#" || line.starts_with("# Not as ") || line.starts_with("#  "))) break;
    text += (text.empty() ? "" : " ") + line.substr(begins ? 13 : 2);
  }
  return text.substr(0, text.find(" Not as published"));
}

[[nodiscard]] std::string published_text(const std::string& name) {
  const std::vector<Recipe>& all = recipes();
  const auto found = std::ranges::find_if(all, [&](const Recipe& one) { return one.name == name; });
  if (found == all.end()) return "recipe " + name + ", which this version of the program does not have";
  const std::string published = published_in(found->text);
  return "recipe " + name + ", " + found->about + (published.empty() ? "" : "; published: " + published);
}

[[nodiscard]] std::string figure_html(const Accuracy& one, const std::string& name) {
  if (one.figures.empty()) return "";
  return fmt::format("<p><b>{:.2f} %</b> {} <span class=\"faint\">{}</span></p>\n", one.percent.mean, html_text(name),
                     html_text(interval_text(one.percent.interval)));
}

/// The block and the figures of a row that say most: of the averaged weights where there are any, under the attack that
/// leaves least.
[[nodiscard]] std::pair<const FigureBlock*, const RowFigures*> strongest_of(const Comparison& comparison,
                                                                            const ComparedRow& row) {
  std::pair<const FigureBlock*, const RowFigures*> best;
  const auto key = [](const RowFigures& one) {
    return std::tuple(one.weights != "average", one.attacked.figures.empty(), one.attacked.percent.mean);
  };
  for (const FigureBlock& block : comparison.blocks)
    for (const RowFigures& one : block.entries)
      if (one.row == &row && (best.second == nullptr || key(one) < key(*best.second))) best = {&block, &one};
  return best;
}

[[nodiscard]] std::string card_html(const Comparison& comparison, const ComparedRow& row) {
  std::string text = "<article class=\"card\"><h3>" + html_text(row.name) + "</h3>\n";
  const Subject& first = *row.subjects.front();
  if (!first.failure.empty()) return text + "<p class=\"alarm\">" + html_text(first.failure) + "</p></article>\n";
  if (const auto [block, one] = strongest_of(comparison, row); one != nullptr) {
    const Figure& about = block->about;
    text += figure_html(one->clean, "clean");
    text += figure_html(one->attacked,
                        "after " + about.name + ", " + about.ball + (about.rest.empty() ? "" : ", " + about.rest));
    text +=
        "<p class=\"faint\">" +
        html_text(about.set + ", " + one->weights + " weights" +
                  (comparison.grouped ? fmt::format(", {} seeds: means, Student's 95 % intervals", one->subjects.size())
                                      : fmt::format(", step {}: Wilson's 95 % intervals", one->step))) +
        "</p>\n";
  } else {
    text += "<p>No evaluation yet.</p>\n";
  }
  if (!first.evaluation) {
    for (const Subject* run : row.subjects)
      if (!run->done)
        text += "<p class=\"alarm\">" +
                html_text((row.subjects.size() > 1 ? run->name + ": " : "") + "Not at its end, " + run->state) +
                ".</p>\n";
    if (const std::string recipe = recipe_of_run(first); !recipe.empty())
      text += "<p class=\"faint\">" + html_text(published_text(recipe)) + "</p>\n";
  }
  return text + "</article>\n";
}

}  // namespace

void add_headline(Page& page, const Comparison& comparison) {
  std::string cards = "<div class=\"cards\">\n";
  for (const ComparedRow& row : comparison.rows) cards += card_html(comparison, row);
  page.html(cards + "</div>\n", "the headline");
}

}  // namespace dat
