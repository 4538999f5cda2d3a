import { get } from "./api.js";
import { day, fill, h, shortNumber } from "./dom.js";
import { problems } from "./passages.js";
import { change } from "./state.js";

const AT_A_TIME = 50;

// What became of the last run of a test suite; asked for when somebody opens it.
export function lastReport() {
  const body = h("div", { role: "status" });
  const details = h("details", { class: "report" }, h("summary", {}, "The last suite's report"), body);
  details.addEventListener("toggle", async () => {
    if (!details.open || body.children.length) return;
    try {
      fill(body, shown(await get("/v1/suite-report")));
    } catch (problem) {
      fill(body, problems(problem));
    }
  });
  return details;
}

function shown(report) {
  const table = (names, rows) => h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": names[0] }, h("table", { class: "plain" }, h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))), rows));
  const rows = h("tbody", {});
  const more = h("p", {});
  const left = [...report.not_passed];
  const next = () => {
    rows.append(...left.splice(0, AT_A_TIME).map(({ query, problems: told, documents }) => h("tr", {}, h("td", {}, h("button", { class: "link", onclick: () => change({ q: query, tab: "passages", chunk: "", doc: "", of: "" }) }, h("bdi", {}, query))), h("td", {}, told.map((each) => h("div", { dir: "auto" }, each))), h("td", {}, documents.map((each) => h("div", {}, h("bdi", {}, each)))))));
    fill(more, left.length > 0 && h("button", { onclick: next }, "More"));
  };
  next();
  return [h("p", {}, h("strong", {}, h("bdi", {}, report.suite)), ` of ${day(report.timestamp)}: ${report.passed} of ${report.total} cases passed${report.skipped ? `, ${report.skipped} were left out` : ""}.`),
    Object.keys(report.means).length > 0 && h("p", { class: "small soft" }, Object.entries(report.means).map(([name, value]) => `${name} ${shortNumber(value)}`).join(" · ")),
    report.criteria.length > 0 && table(["criterion", "reached", "wanted", "verdict"], h("tbody", {}, report.criteria.map(({ code, text, value, target, verdict }) => h("tr", {}, h("th", { scope: "row" }, `${text} (${code})`), h("td", { class: "number" }, shortNumber(value)), h("td", { class: "number" }, shortNumber(target)), h("td", {}, verdict))))),
    report.not_passed.length > 0 && [table(["question that did not pass", "why", "found"], rows), more]];
}
