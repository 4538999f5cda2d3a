// What is searched: the indexes, their size, state and fields, each asked once; and the header that names it.

import { get, part } from "./api.js";
import { bdi, h, link, select } from "./dom.js";
import { CLOSED, mergeFields, several } from "./query.js";
import { change, fetched, forget, once } from "./store.js";
import { joined } from "./text.js";
import { MODES, TEXT, chunks, documents } from "./words.js";

const AGAIN_AFTER = 5_000;
const LAST_AFTER = 300_000;

// Return the record of the indexes. While one is being indexed and the tab is visible, it is read again: every few
// seconds, more rarely while nothing changes, and after about a quarter of an hour without a change no more.
export function indexes() {
  return once("indexes", [], async (signal, keep) => {
    const ask = () => get("/v1/indexes", {}, signal);
    let [found, pause] = [await ask(), AGAIN_AFTER];
    keep(found);
    while (found.indexes.some(isIndexing) && !signal.aborted) {
      if (pause > LAST_AFTER) return { ...found, isStuck: true };
      await new Promise((resolve) => setTimeout(resolve, pause));
      if (document.hidden)
        await new Promise((resolve) => addEventListener("visibilitychange", resolve, { once: true }));
      const next = await ask().catch(() => found);
      const isSame = JSON.stringify(next) === JSON.stringify(found);
      pause = isSame ? pause * 1.5 : AGAIN_AFTER;
      found = next;
      if (!isSame) keep(found);
    }
    return found;
  });
}

function isIndexing({ points_count: total, indexed_vectors_count: embedded, vector_size: width }) {
  return width > 0 && total > 0 && embedded < total;
}

const known = () => indexes().value?.indexes ?? [];

export function asked(state, all) {
  const names = several(state);
  return names.length ? names : [state.index || all[0]?.name].filter(Boolean);
}

export function contents(name) {
  return fetched("contents", `/v1/indexes/${part(name)}/fields`);
}

export function forgetContents() {
  forget("indexes", "contents", "documents", "search", "answer");
}

export function fieldsOf(state) {
  const all = indexes();
  const records = all.value ? asked(state, all.value.indexes).map(contents) : [all];
  const { problem } = records.find((record) => record.problem) ?? {};
  if (problem || !records.every(({ value }) => value)) return { problem };
  return { fields: mergeFields(records.flatMap(({ value }) => value.fields)) };
}

export function unusable(info) {
  if (info?.status === "red") return TEXT.red;
  return info?.points_count === 0 ? TEXT.empty : "";
}

export function notice(state) {
  const all = known();
  const [first] = asked(state, all);
  const told = unusable(all.find(({ name }) => name === first));
  return told && h("p.notice", told);
}

export function corpus(state) {
  const all = known();
  const names = asked(state, all);
  const infos = all.filter(({ name }) => names.includes(name));
  if (!infos.length) return null;
  const sum = (values) =>
    values.some((value) => value == null) ? null : values.reduce((one, other) => one + other, 0);
  const found = sum(names.map((name) => contents(name).value?.documents));
  const total = sum(infos.map((info) => info.points_count));
  const waiting = infos.filter(isIndexing);
  const share = sum(waiting.map((info) => info.indexed_vectors_count)) / sum(waiting.map((info) => info.points_count));
  const facts = [
    found !== null && documents(found),
    total !== null && chunks(total),
    waiting.length > 0 && TEXT.embedding(`${Math.floor(share * 100)}%`, indexes().value.isStuck),
  ];
  const which = link(TEXT.ofIndexes(names.length, all.length), openSettings, { class: "link small" });
  return h(
    "span",
    h("strong", bdi(corpusName(names, all))),
    all.length > 1 && [" ", which],
    h("span.soft", " ", joined(...facts)),
  );
}

function openSettings() {
  const menu = document.querySelector("details.menu");
  menu.open = true;
  menu.querySelector("fieldset input")?.focus();
}

function corpusName(names, all) {
  if (names.length === 1) return contents(names[0]).value?.name ?? names[0];
  return names.length === all.length ? TEXT.allIndexes : TEXT.someIndexes(names.length);
}

export function settings(state) {
  const all = known();
  const names = asked(state, all);
  const mode = select(TEXT.searchBy, Object.entries(MODES), state.mode, (value) => change({ mode: value }), {
    id: "mode",
  });
  const top = h("input", {
    type: "number",
    id: "top",
    min: 1,
    max: 100,
    value: state.top,
    placeholder: "5",
    onchange: ({ target }) => target.checkValidity() && change({ top: target.value }),
  });
  const onchange = (event) => choose(event, all);
  const box = ({ name }) => {
    const field = { type: "checkbox", id: `index-${name}`, value: name, checked: names.includes(name), onchange };
    return h("label", h("input", field), " ", bdi(name));
  };
  return [
    h("label", TEXT.searchBy, " ", mode),
    h("label", TEXT.resultCount, " ", top),
    all.length > 1 && h("fieldset", h("legend", TEXT.chosenIndexes), all.map(box)),
  ];
}

// One index, or several that are searched as one; the last one can't be left out.
function choose({ target }, all) {
  const isAlone = (name) => /[\s:]/.test(name); // whose name can't stand before an id
  const boxes = [...target.closest("fieldset").querySelectorAll(":checked")].map(({ value }) => value);
  const stays = (name) => name === target.value || !target.checked || !(isAlone(target.value) || isAlone(name));
  const chosen = boxes.filter(stays);
  if (!chosen.length) {
    target.checked = true;
    return;
  }
  const isOne = chosen.length === 1;
  const index = isOne && chosen[0] !== all[0].name ? chosen[0] : "";
  change({ index, indexes: isOne ? "" : chosen.join(" "), ...CLOSED, filters: "", talk: "" });
}
