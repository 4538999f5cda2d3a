// Files that are dropped on the page: each is sent and indexed, and goes on if another view is shown.

import { Problem, address, stream } from "./api.js";
import { bdi, h, link, say } from "./dom.js";
import { forgetContents } from "./corpus.js";
import { changed } from "./store.js";
import { TEXT, size } from "./words.js";

const AT_ONCE = 2;
const sent = [];
let revision = 0;
let underWay = 0;

// What is sent ends with the page, so the browser asks before it leaves.
const stay = (event) => event.preventDefault();

export const uploadsKey = () => revision;

function tell(line, values) {
  Object.assign(line, values);
  revision += 1;
  changed();
}

export function uploads(index, accepted) {
  const take = (files) => send(index, accepted, [...files]);
  const choose = h("input", {
    type: "file",
    multiple: true,
    accept: accepted.suffixes.join(),
    class: "visually-hidden",
    id: "files",
    tabIndex: -1,
    "aria-label": TEXT.filesToIndex,
    onchange: () => take(choose.files),
  });
  const kinds = accepted.suffixes.map((each) => each.slice(1)).join(", ");
  const area = h(
    "div",
    { class: "drop" },
    TEXT.dropHere,
    " ",
    link(TEXT.chooseFiles, () => choose.click(), { id: "choose" }),
    choose,
    h(
      "details",
      { class: "small" },
      h("summary", {}, TEXT.accepted(size(accepted.max_bytes)), " ", TEXT.kinds),
      h("p", {}, kinds),
    ),
  );
  const over = (isOver) => (event) => {
    event.preventDefault();
    area.classList.toggle("is-over", isOver);
  };
  area.addEventListener("dragover", over(true));
  area.addEventListener("dragleave", over(false));
  area.addEventListener("drop", (event) => {
    over(false)(event);
    take(event.dataTransfer.files);
  });
  return area;
}

export function uploaded(index) {
  const lines = sent
    .filter((line) => line.index === index)
    .map(({ name, bytes, told, share, isOver, isFailed }) =>
      h(
        "li",
        { class: isFailed ? "is-failed" : "" },
        bdi(name),
        h("span", { class: "soft" }, ` ${size(bytes)} · `),
        h(isFailed ? "strong" : "span", {}, told),
        " ",
        !isOver && h("progress", { "aria-label": name, value: share }),
      ),
    );
  return h("ul", { class: "uploads small", "aria-label": TEXT.addedFiles }, lines);
}

async function send(index, accepted, files) {
  const waiting = files.map((file) => {
    const line = { index, name: file.name, bytes: file.size, told: TEXT.waiting, isOver: false, isFailed: false };
    sent.push(line);
    return { file, line };
  });
  tell({}, {});
  addEventListener("beforeunload", stay);
  underWay += 1;
  let [indexed, failed] = [0, 0];
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      if (await one(index, accepted, next.file, next.line)) indexed += 1;
      else failed += 1;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  underWay -= 1;
  if (!underWay) removeEventListener("beforeunload", stay);
  say(TEXT.uploadsOver(indexed, failed));
  if (indexed) forgetContents();
}

async function one(index, { suffixes, max_bytes: most }, file, line) {
  const ending = file.name.includes(".") ? file.name.slice(file.name.lastIndexOf(".")).toLowerCase() : "";
  let last = { reason: TEXT.noReason };
  try {
    if (!suffixes.includes(ending)) throw new Problem("request", [TEXT.unreadableKind]);
    if (file.size > most) throw new Problem("request", [TEXT.tooLarge(size(file.size), size(most))]);
    tell(line, { told: TEXT.sending });
    await stream(address("/v1/files", { name: file.name, index }), file, (event) => {
      last = event;
      if (event.type === "received") tell(line, { told: TEXT.reading });
      if (event.type === "progress") tell(line, { told: TEXT.progress(event), share: shareOf(event) });
    });
    if (last.type !== "done") throw new Problem("failed", [last.reason]);
    tell(line, { told: TEXT.indexed(last), isOver: true });
    return true;
  } catch (problem) {
    tell(line, { told: TEXT.notIndexed(Problem.of(problem).message), isOver: true, isFailed: true });
    return false;
  }
}

function shareOf({ embedded, to_embed: all }) {
  return all ? embedded / all : undefined;
}
