// The stages of a search in the order in which they began, each with a bar on one scale; failed attempts are hatched.

import { h, headCell, numberCell, table } from "./dom.js";
import { STAGES, TEXT, shortNumber } from "./words.js";

const FAR = 2;
const MOST_DROPPED = 50;

export function timeline({ stages, execution, deadline_ms: deadline }) {
  const inOrder = stages
    .map((each) => ({ started_ms: 0, failed: [], ...each, kind: each.stage.split(": ").at(-1) }))
    .sort((one, other) => one.started_ms - other.started_ms);
  const endOf = (stage) => stage.started_ms + stage.milliseconds;
  const whole = Math.max(...inOrder.map(endOf), execution.latency_ms, 1e-6);
  const isNear = deadline <= whole * FAR;
  const scale = isNear ? Math.max(whole, deadline) : whole;
  const percent = (milliseconds) => `${(milliseconds / scale) * 100}%`;
  const piece = (kind, { started_ms: from, milliseconds, error }) =>
    h("i", {
      class: `${kind} ${error ? "is-failed" : ""}`,
      title: error,
      style: { insetInlineStart: percent(from), inlineSize: percent(milliseconds) },
    });
  const row = (stage) => [
    headCell(stage.stage, stage.round > 1 && h("span.soft", ` ${stage.round}`)),
    [
      h("span.visually-hidden", TEXT.fromTo(shortNumber(stage.started_ms), shortNumber(endOf(stage)))),
      h(
        "span.bar.track",
        { "aria-hidden": "true" },
        piece(stage.kind, stage),
        stage.failed.map((each) => piece("", each)),
        isNear && piece("deadline", { started_ms: deadline, milliseconds: 0 }),
      ),
    ],
    numberCell(`${shortNumber(stage.milliseconds)} ms`),
    numberCell([stage.count_in, stage.count_out].filter((each) => each != null).join(" → ")),
    happened(stage),
  ];
  return [
    deadline && h("p.small.soft", TEXT.deadline(shortNumber(deadline), isNear, (whole / deadline) * 100)),
    table(TEXT.stages, TEXT.stageColumns(shortNumber(scale)), inOrder.map(row), "stages"),
  ];
}

function happened({ kind, error, failed, attempts, decision, dropped }) {
  const isNews = (each, place) => each.error !== error || place < failed.length - 1;
  const told = [
    error && h("span.notice", error),
    ...failed
      .filter(isNews)
      .map((each, place) => TEXT.attemptFailed(place + 1, shortNumber(each.milliseconds), each.error)),
    attempts > 1 && TEXT.attempts(attempts),
    decision,
    dropped && listOf(dropped),
  ].filter(Boolean);
  return told.length ? told.flatMap((each) => [" · ", each]).slice(1) : h("span.soft", STAGES[kind] ?? "");
}

function listOf(dropped) {
  const one = ({ id, reason }) => h("li", [id, reason].filter(Boolean).join(": "));
  return h(
    "details",
    h("summary", TEXT.dropped(dropped.length)),
    h("ul", dropped.slice(0, MOST_DROPPED).map(one)),
    dropped.length > MOST_DROPPED && h("p", TEXT.andMore(dropped.length - MOST_DROPPED)),
  );
}
