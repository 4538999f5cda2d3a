// What is drawn of an answer: its marks in places of its text, what is to be doubted, the line of trust, and a copy.

import { joined, offsets } from "./text.js";
import { DOUBTS, KINDS, citationOf, count, duration, isPdf, level } from "./words.js";

// Return the marks over an answer's text, in units: `doubt` for a sentence, `chip` for a `[n]` that the service names,
// and for the same number where a written sentence repeats it. What is extracted may quote such numbers. A number that
// the answer's sources don't have may still be one of the passages, and has no source if it is invented.
export function marksOf({ text, kind, sentences = [], sources = [] }, passages = []) {
  const at = offsets(text);
  const span = ([start, end]) => ({ start: at(start), end: at(end) });
  const marks = [];
  for (const sentence of sentences) {
    const { start, end } = span(sentence.span);
    const doubt = doubtOf(sentence);
    if (doubt) marks.push({ kind: "doubt", start, end, ...doubt });
    for (const { number, marker, citation, problem } of sentence.attributions ?? []) {
      if (!marker) continue;
      const source = citation ?? [...sources, ...passages].find((each) => each.number === number);
      const mark = { kind: "chip", number, source, problem: problem ?? (!source && "unknown") };
      const first = span(marker);
      marks.push({ ...mark, ...first });
      const repeated = kind === "written" ? text.slice(start, end).matchAll(`\\[${number}\\]`) : [];
      for (const said of repeated) {
        const place = start + said.index;
        if (place !== first.start) marks.push({ ...mark, start: place, end: place + said[0].length });
      }
    }
  }
  return marks;
}

export function doubtOf({ check, attributions = [], needs_source: isBare }) {
  const problems = attributions.map((each) => each.problem);
  let problem = problems.find(Boolean);
  if ([check?.verdict, ...problems].includes("contradicted")) problem = "contradicted";
  else if (check?.verdict === "not_found" || isBare) problem = "unsupported";
  return problem ? { problem, reason: check?.reason || DOUBTS[problem], quote: check?.quote?.text } : null;
}

// Return the line of trust, as far as it is known. Only written texts have a confidence of their own.
export function trustOf({ kind, checks = [], confidence, relevance, latency_ms: time }) {
  return joined(
    relevance?.value != null && `Relevance ${level(relevance.value)}`,
    kind === "written" && confidence && `confidence ${level(confidence.value)}`,
    checks.length > 0 && `${checks.filter(({ matches }) => matches).length}/${checks.length} citations verified`,
    time !== undefined && duration(time),
  );
}

export function copyOf({ text, sources = [] }, indexOf = () => "") {
  const told = sources.map((source) => {
    const quotes = (source.quotes ?? []).map((quote) => `\n    “${quote.text.trim()}”`);
    const title = source.title && !isPdf(source) ? `${source.title}, ` : "";
    return `[${source.number}] ${title}${citationOf({ ...source, index: indexOf(source) })}${quotes.join("")}`;
  });
  return [text.trim(), "", ...told].join("\n");
}

export function kindOf({ kind, fallbacks = [] }) {
  return KINDS[fallbacks.some(({ step }) => step === "extracted") ? "failed" : kind];
}

export function summaryOfDoubts({ sentences = [] }) {
  const doubted = sentences.filter(doubtOf).length;
  return doubted ? `${doubted} of ${count(sentences.length, "sentence")} to check` : "";
}
