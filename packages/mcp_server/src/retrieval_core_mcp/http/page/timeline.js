// The stages of a search in the order in which they began, each with a bar on one scale. Parallel stages lie below each
// other; failed attempts are hatched; a line stands at the deadline.

import { h, headCell, numberCell, table } from "./dom.js";
import { STAGES, TEXT, shortNumber } from "./words.js";

const FAR = 2;
const MOST_DROPPED = 50;

export function timeline({ stages, execution, deadline_ms: deadline }) {
  const end = ({ started_ms: started, milliseconds }) => (started ?? 0) + milliseconds;
  const whole = Math.max(...stages.map(end), execution.latency_ms, 1e-6);
  const isNear = deadline != null && deadline <= whole * FAR;
  const scale = isNear ? Math.max(whole, deadline) : whole;
  const percent = (milliseconds) => `${(Math.max(0, Math.min(scale, milliseconds)) / scale) * 100}%`;
  const began = ({ started_ms: started }) => started ?? 0;
  const inOrder = [...stages].sort((one, other) => began(one) - began(other));
  const row = (stage) => [
    headCell(stage.stage, stage.round > 1 && h("span", { class: "soft" }, ` ${stage.round}`)),
    track(stage, isNear && deadline, percent),
    numberCell(`${shortNumber(stage.milliseconds)} ms`),
    numberCell(counts(stage)),
    happened(stage),
  ];
  const titles = TEXT.stageColumns(shortNumber(scale));
  const isKnown = deadline != null;
  return [
    isKnown && h("p", { class: "small soft" }, TEXT.deadline(shortNumber(deadline), isNear, (whole / deadline) * 100)),
    table(TEXT.stages, titles, inOrder.map(row), "plain stages"),
  ];
}

function counts({ count_in: from, count_out: to }) {
  if (to == null) return "";
  return from == null ? `${to}` : `${from} → ${to}`;
}

function track({ stage, started_ms: started, milliseconds, error, failed = [] }, deadline, percent) {
  const isKnown = started != null;
  const place = (from, length) => ({ insetInlineStart: percent(from), inlineSize: percent(length) });
  const kind = `${stage.split(": ").at(-1)}${error ? " is-failed" : ""}`;
  return [
    isKnown &&
      h("span", { class: "visually-hidden" }, TEXT.fromTo(shortNumber(started), shortNumber(started + milliseconds))),
    h(
      "span",
      { class: "track", "aria-hidden": "true" },
      isKnown && h("i", { class: kind, style: place(started, milliseconds) }),
      failed.map((each) =>
        h("i", { class: "is-failed", title: each.error, style: place(each.started_ms, each.milliseconds) }),
      ),
      deadline !== false && h("i", { class: "deadline", style: { insetInlineStart: percent(deadline) } }),
    ),
  ];
}

function happened(stage) {
  const told = [];
  const failed = stage.failed ?? [];
  if (stage.error) told.push(h("span", { class: "notice" }, stage.error));
  failed.forEach(({ milliseconds, error }, place) => {
    const isTold = error === stage.error && place === failed.length - 1;
    if (!isTold) told.push(TEXT.attemptFailed(place + 1, shortNumber(milliseconds), error));
  });
  if (stage.attempts > 1) told.push(TEXT.attempts(stage.attempts));
  if (stage.decision) told.push(stage.decision);
  if (stage.dropped?.length) told.push(dropped(stage.dropped));
  if (!told.length) return h("span", { class: "soft" }, STAGES[stage.stage.split(": ").at(-1)] ?? "");
  return told.flatMap((each, place) => (place ? [" · ", each] : [each]));
}

function dropped(all) {
  const one = (each) =>
    typeof each === "string" ? each : [each.id ?? each.chunk_id, each.reason].filter(Boolean).join(": ");
  return h(
    "details",
    {},
    h("summary", {}, TEXT.dropped(all.length)),
    h(
      "ul",
      {},
      all.slice(0, MOST_DROPPED).map((each) => h("li", {}, one(each))),
    ),
    all.length > MOST_DROPPED && h("p", {}, TEXT.andMore(all.length - MOST_DROPPED)),
  );
}
