// What is drawn of an answer: its marks in places of its text, what is to be doubted, the line of trust, and a copy.

import { offsets } from "./text.js";
import { DOUBTS, KINDS, citationOf, count, duration, isPdf, level } from "./words.js";

// Return the marks over an answer's text, in units: `doubt` for a sentence, `chip` or `invented` for a `[n]` that the
// service names, and for the same number where a written sentence repeats it. What is extracted may quote such numbers.
// A number that the answer's sources don't have may still be one of the passages.
export function marksOf(answer, passages = []) {
  const at = offsets(answer.text);
  const span = ([start, end]) => ({ start: at(start), end: at(end) });
  const marks = [];
  for (const sentence of answer.sentences ?? []) {
    const doubt = doubtOf(sentence);
    if (doubt) marks.push({ kind: "doubt", ...span(sentence.span), ...doubt });
    for (const each of sentence.attributions ?? []) {
      if (!each.marker) continue;
      const source =
        each.citation ?? [...(answer.sources ?? []), ...passages].find(({ number }) => number === each.number);
      const kind = each.problem === "unknown" || !source ? "invented" : "chip";
      const mark = { kind, number: each.number, source, problem: each.problem ?? null };
      const first = span(each.marker);
      marks.push({ ...mark, ...first });
      if (answer.kind !== "written") continue;
      const { start, end } = span(sentence.span);
      const said = `[${each.number}]`;
      for (
        let next = answer.text.indexOf(said, start);
        next >= 0 && next < end;
        next = answer.text.indexOf(said, next + 1)
      )
        if (next !== first.start) marks.push({ ...mark, start: next, end: next + said.length });
    }
  }
  return marks;
}

// Return why a sentence is doubted, with the words that decide, or null.
export function doubtOf(sentence) {
  const { check } = sentence;
  const problems = (sentence.attributions ?? []).map(({ problem }) => problem).filter(Boolean);
  let problem = null;
  if (check?.verdict === "contradicted" || problems.includes("contradicted")) problem = "contradicted";
  else if (check?.verdict === "not_found" || sentence.needs_source) problem = "unsupported";
  else if (problems.length) problem = problems[0];
  if (!problem) return null;
  return { problem, reason: check?.reason || DOUBTS[problem] || problem, quote: check?.quote?.text ?? "" };
}

// Return the line of trust, as far as it is known. Only written texts have a confidence of their own.
export function trustOf(answer, { relevance, milliseconds } = {}) {
  const checks = answer?.checks ?? [];
  const found = relevance ?? answer?.confidence?.retrieval;
  return [
    found != null && `Relevance ${level(found)}`,
    answer?.confidence && answer.kind === "written" && `confidence ${level(answer.confidence.value)}`,
    checks.length > 0 && `${checks.filter(({ matches }) => matches).length}/${checks.length} citations verified`,
    milliseconds !== undefined && duration(milliseconds),
  ].filter(Boolean);
}

export function copyOf(answer, indexOf = () => "") {
  const sources = (answer.sources ?? []).map((source) => {
    const quotes = (source.quotes ?? []).map(({ text }) => `\n    “${text.trim()}”`).join("");
    const title = source.title && !isPdf(source) ? `${source.title}, ` : "";
    return `[${source.number}] ${title}${citationOf({ ...source, index: indexOf(source) })}${quotes}`;
  });
  return sources.length ? `${answer.text.trim()}\n\n${sources.join("\n")}\n` : `${answer.text.trim()}\n`;
}

export function kindOf({ kind, fallbacks }) {
  const hasFailed = kind === "extracted" && (fallbacks ?? []).some(({ step }) => step === kind);
  return KINDS[hasFailed ? "failed" : kind] ?? "";
}

export function summaryOfDoubts(answer) {
  const sentences = answer.sentences ?? [];
  const doubted = sentences.filter(doubtOf).length;
  return doubted ? `${doubted} of ${count(sentences.length, "sentence")} to check` : "";
}
