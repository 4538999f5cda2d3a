import { h, shortNumber } from "./dom.js";

const FAR = 2;

// The stages of a run in the order in which they began, each with a bar from its beginning to its end, on one scale. Those
// that ran side by side lie below each other; attempts that failed are hatched; a line stands at the deadline.
export function timeline({ stages, execution, deadline_ms: deadline }, meaning, happened) {
  const end = ({ started_ms: started, milliseconds }) => (started ?? 0) + milliseconds;
  const whole = Math.max(...stages.map(end), execution.latency_ms, 1e-6);
  const isNear = deadline !== undefined && deadline <= whole * FAR;
  const scale = isNear ? Math.max(whole, deadline) : whole;
  const percent = (milliseconds) => `${(Math.max(0, Math.min(scale, milliseconds)) / scale) * 100}%`;
  const counts = ({ count_in: from, count_out: to }) => (to === undefined ? "" : from === undefined ? `${to}` : `${from} → ${to}`);
  const inOrder = stages.map((stage, place) => ({ stage, place })).sort((one, other) => (one.stage.started_ms ?? 0) - (other.stage.started_ms ?? 0) || one.place - other.place).map(({ stage }) => stage);
  return [deadline !== undefined && h("p", { class: "small soft" }, limit(deadline, whole, isNear)),
    h("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Timeline" }, h("table", { class: "stages" }, h("caption", { class: "visually-hidden" }, "Stages of the search, in the order in which they began"),
      h("thead", {}, h("tr", {}, ["stage", `0 to ${shortNumber(scale)} ms`, "time", "passages", "what happened"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, inOrder.map((stage) => h("tr", {},
        h("th", { scope: "row", title: meaning[stage.stage] ?? "" }, stage.stage, stage.round > 1 ? h("span", { class: "soft" }, ` ${stage.round}`) : ""),
        h("td", {}, track(stage, isNear && deadline, percent)), h("td", { class: "number" }, `${shortNumber(stage.milliseconds)} ms`), h("td", { class: "number" }, counts(stage)),
        h("td", {}, happened(stage)))))))];
}

function track(stage, deadline, percent) {
  const { started_ms: started, milliseconds, failed = [] } = stage;
  const known = started !== undefined;
  const kind = stage.stage.split(": ").at(-1);
  return [h("span", { class: "visually-hidden" }, known ? `from ${shortNumber(started)} to ${shortNumber(started + milliseconds)} ms` : ""),
    h("span", { class: "track", "aria-hidden": "true" },
      known && h("i", { class: `${kind}${stage.error ? " is-failed" : ""}`, style: { insetInlineStart: percent(started), inlineSize: percent(milliseconds) } }),
      failed.map((each) => h("i", { class: "is-failed", title: each.error, style: { insetInlineStart: percent(each.started_ms), inlineSize: percent(each.milliseconds) } })),
      deadline !== false && h("i", { class: "deadline", style: { insetInlineStart: percent(deadline) } }))];
}

function limit(deadline, whole, isNear) {
  const told = `The deadline is ${shortNumber(deadline)} ms after the beginning`;
  return isNear ? `${told}: the line in each row.` : `${told}, far beyond the right edge: ${shortNumber((whole / deadline) * 100)} % of it were used.`;
}
