// The result of the last run of a test suite, loaded when somebody opens it.

import { get } from "./api.js";
import { h, link, table } from "./dom.js";
import { problems } from "./results.js";
import { change, once } from "./store.js";
import { TEXT, day, shortNumber } from "./words.js";

const AT_A_TIME = 50;

export function lastReport() {
  const body = h("div", { role: "status" });
  const details = h("details", { class: "report" }, h("summary", {}, TEXT.lastReport), body);
  details.addEventListener("toggle", show);
  addEventListener("changed", function again() {
    if (!details.isConnected) removeEventListener("changed", again);
    else show();
  });
  return details;

  function show() {
    if (!details.open || body.children.length) return;
    const record = once("report", [], (signal) => get("/v1/suite-report", {}, signal));
    if (record.problem) body.replaceChildren(...problems(record.problem));
    if (record.value) body.append(...shown(record.value).flat(2).filter(Boolean));
  }
}

function shown(report) {
  const rows = h("tbody", {});
  const more = h("p", {});
  const left = [...report.not_passed];
  const open = (query) => change({ q: query, tab: "", chunk: "", doc: "", of: "", at: "" });
  const one = ({ query, problems: told, documents }) =>
    h(
      "tr",
      {},
      h(
        "td",
        {},
        link(h("bdi", {}, query), () => open(query)),
      ),
      h(
        "td",
        {},
        told.map((each) => h("div", { dir: "auto" }, each)),
      ),
      h(
        "td",
        {},
        documents.map((each) => h("div", {}, h("bdi", {}, each))),
      ),
    );
  const next = () => {
    rows.append(...left.splice(0, AT_A_TIME).map(one));
    more.replaceChildren(...(left.length ? [h("button", { onclick: next }, TEXT.more)] : []));
  };
  next();
  const criterion = ({ code, text, value, target, verdict }) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, `${text} (${code})`),
      h("td", { class: "number" }, shortNumber(value)),
      h("td", { class: "number" }, shortNumber(target)),
      h("td", {}, verdict),
    );
  const means = Object.entries(report.means)
    .map(([name, value]) => `${name} ${shortNumber(value)}`)
    .join(" · ");
  return [
    h("p", {}, h("strong", {}, h("bdi", {}, report.suite)), TEXT.report(day(report.timestamp), report)),
    means && h("p", { class: "small soft" }, means),
    report.criteria.length > 0 && table(TEXT.criteria, TEXT.criteriaColumns, report.criteria.map(criterion)),
    report.not_passed.length > 0 && [table(TEXT.notPassed, TEXT.notPassedColumns, rows), more],
  ];
}
