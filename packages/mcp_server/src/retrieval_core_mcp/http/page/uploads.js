import { address, stream } from "./api.js";
import { fill, h, say, shortNumber } from "./dom.js";

const AT_ONCE = 2;

// Where files are dropped: each is sent, read and indexed, with what becomes of it in a line of its own.
export function uploads(index, { suffixes, max_bytes: most }, done) {
  const list = h("ul", { class: "uploads small", "aria-label": "Files that were added" });
  const choose = h("input", { type: "file", multiple: true, accept: suffixes.join(), class: "visually-hidden", id: "files", tabIndex: -1, "aria-label": "Files to index", onchange: () => {
    take([...choose.files]);
    choose.value = "";
  } });
  const area = h("div", { class: "drop" }, "Drop files here, or ", h("button", { class: "link", onclick: () => choose.click() }, "choose them"), choose,
    h("p", { class: "small" }, `${suffixes.map((each) => each.slice(1)).join(", ")}; each at most ${size(most)}`));
  area.addEventListener("dragover", (event) => {
    event.preventDefault();
    area.classList.add("is-over");
  });
  area.addEventListener("dragleave", () => area.classList.remove("is-over"));
  area.addEventListener("drop", (event) => {
    event.preventDefault();
    area.classList.remove("is-over");
    take([...event.dataTransfer.files]);
  });
  return [area, list];

  async function take(files) {
    const waiting = files.map((file) => ({ file, line: line(file) }));
    list.append(...waiting.map(({ line: { element } }) => element));
    let [indexed, failed] = [0, 0];
    const work = async () => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        if (await send(next.file, next.line)) indexed += 1;
        else failed += 1;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    say(`${indexed} indexed${failed ? `, ${failed} failed` : ""}`);
    if (indexed) await done();
  }

  async function send(file, { tell, end }) {
    const ending = file.name.includes(".") ? file.name.slice(file.name.lastIndexOf(".")).toLowerCase() : "";
    let last = { reason: "the service said nothing of it" };
    try {
      if (!suffixes.includes(ending)) throw new Error(`files of this kind cannot be read`);
      if (file.size > most) throw new Error(`it has ${size(file.size)}, and at most ${size(most)} are taken`);
      tell("sending");
      await stream(address("/v1/files", { name: file.name, index }), file, (event) => {
        last = event;
        if (event.type === "received") tell("reading");
        if (event.type === "progress") tell(event.to_embed ? `${shortNumber(event.embedded)} of ${shortNumber(event.to_embed)} passages embedded` : `${shortNumber(event.passages)} passages`, event.to_embed ? event.embedded / event.to_embed : undefined);
      });
      if (last.type !== "done") throw new Error(last.reason);
      end(last.unchanged && !last.passages ? "unchanged" : `indexed, ${shortNumber(last.passages)} passage${last.passages === 1 ? "" : "s"}`);
      return true;
    } catch (problem) {
      end(`not indexed: ${problem.message}`, true);
      return false;
    }
  }
}

function line(file) {
  const told = h("span", {}, "waiting");
  const bar = h("progress", { "aria-label": file.name });
  const element = h("li", {}, h("bdi", {}, file.name), h("span", { class: "soft" }, ` ${size(file.size)} · `), told, " ", bar);
  const tell = (text, share) => {
    fill(told, text);
    if (share !== undefined) bar.value = share;
  };
  const end = (text, failed) => {
    fill(told, failed ? h("strong", {}, text) : text);
    element.classList.toggle("is-failed", Boolean(failed));
    bar.remove();
  };
  return { element, tell, end };
}

function size(bytes) {
  const [value, unit] = bytes < 1e3 ? [bytes, "bytes"] : bytes < 1e6 ? [bytes / 1e3, "kB"] : [bytes / 1e6, "MB"];
  return `${value.toLocaleString(undefined, { maximumFractionDigits: value < 10 ? 1 : 0 })} ${unit}`;
}
