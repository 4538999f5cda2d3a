// Files that are dropped on the page: each is sent and indexed, and goes on if another view is shown.

import { address, stream } from "./api.js";
import { bdi, h, link, say } from "./dom.js";
import { forgetContents } from "./corpus.js";
import { changed } from "./store.js";
import { TEXT, size } from "./words.js";

const AT_ONCE = 2;

export const sent = [];

// What is sent ends with the page, so the browser asks before it leaves.
const stay = (event) => event.preventDefault();

function tell(line, values) {
  Object.assign(line, values);
  changed();
}

export function uploads(index, accepted) {
  const choose = h("input", {
    type: "file",
    multiple: true,
    accept: accepted.suffixes.join(),
    class: "visually-hidden",
    id: "files",
    tabIndex: -1,
    "aria-label": TEXT.filesToIndex,
    onchange: () => send(index, accepted, choose.files),
  });
  const over = (event) => {
    event.preventDefault();
    area.classList.toggle("is-over", event.type === "dragover");
    if (event.type === "drop") send(index, accepted, event.dataTransfer.files);
  };
  const area = h(
    "div.drop.quiet",
    { ondragover: over, ondragleave: over, ondrop: over },
    TEXT.dropHere,
    " ",
    link(TEXT.chooseFiles, () => choose.click(), { id: "choose" }),
    choose,
    h(
      "details.small",
      h("summary", TEXT.accepted(size(accepted.max_bytes)), " ", TEXT.kinds),
      h("p", accepted.suffixes.map((each) => each.slice(1)).join(", ")),
    ),
  );
  return area;
}

export function uploaded(index) {
  const one = ({ file, told, share, isOver, isFailed }) =>
    h(
      isFailed ? "li.is-failed" : "li",
      bdi(file.name),
      h("span.soft", ` ${size(file.size)} · `),
      h(isFailed ? "strong" : "span", told),
      " ",
      !isOver && h("progress", { "aria-label": file.name, value: share }),
    );
  const lines = sent.filter((line) => line.index === index);
  return h("ul.uploads.small", { "aria-label": TEXT.addedFiles }, lines.map(one));
}

async function send(index, accepted, files) {
  const lines = [...files].map((file) => ({ index, file, told: TEXT.waiting }));
  const waiting = [...lines];
  sent.push(...lines);
  changed();
  addEventListener("beforeunload", stay);
  const work = async () => {
    while (waiting.length) await sendOne(waiting.shift(), accepted);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (sent.every(({ isOver }) => isOver)) removeEventListener("beforeunload", stay);
  const failed = lines.filter(({ isFailed }) => isFailed).length;
  say(TEXT.uploadsOver(lines.length - failed, failed));
  if (failed < lines.length) forgetContents();
}

async function sendOne(line, { suffixes, max_bytes: most }) {
  const { name, size: found } = line.file;
  let last = {};
  try {
    if (!suffixes.some((each) => name.toLowerCase().endsWith(each))) throw new Error(TEXT.unreadableKind);
    if (found > most) throw new Error(TEXT.tooLarge(size(found), size(most)));
    tell(line, { told: TEXT.sending });
    await stream(address("/v1/files", { name, index: line.index }), line.file, (event) => {
      last = event;
      const { type, embedded, to_embed: all } = event;
      if (type === "received") tell(line, { told: TEXT.reading });
      if (type === "progress") tell(line, { told: TEXT.progress(event), share: all > 0 && embedded / all });
    });
    if (last.type !== "done") throw new Error(last.reason ?? TEXT.noReason);
    tell(line, { told: TEXT.indexed(last), isOver: true });
  } catch ({ message }) {
    tell(line, { told: TEXT.notIndexed(message), isOver: true, isFailed: true });
  }
}
