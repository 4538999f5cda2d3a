// Elements out of values. Text only ever becomes text: nothing here, and nothing that uses it, parses markup.

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "style") Object.assign(element.style, value);
    else if (name in element && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A text with some of its spans marked. The service counts code points, JavaScript counts UTF-16 units.
export function marked(text, spans) {
  if (!spans?.length) return [text];
  const at = offsets(text);
  const parts = [];
  let done = 0;
  for (const [start, end] of spans) {
    const [from, to] = [at(start), at(end)];
    if (from < done) continue;
    parts.push(text.slice(done, from), h("mark", {}, text.slice(from, to)));
    done = to;
  }
  return [...parts, text.slice(done)];
}

// Turns places in code points, asked in ascending order, into places in UTF-16 units.
export function offsets(text) {
  let [points, units] = [0, 0];
  return (wanted) => {
    if (wanted < points) [points, units] = [0, 0];
    while (points < wanted && units < text.length) {
      units += text.codePointAt(units) > 0xffff ? 2 : 1;
      points += 1;
    }
    return units;
  };
}

export function say(text) {
  document.getElementById("status").textContent = text;
}

export function bar(share, kind) {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: "bar", "aria-hidden": "true" }, h("i", { class: kind ?? "", style: { inlineSize: width } }));
}

export function shortNumber(value) {
  if (value === null || value === undefined) return "";
  if (Number.isInteger(value)) return value.toLocaleString();
  if (Math.abs(value) < 0.001) return `< ${(0.001).toLocaleString()}`;
  return value.toLocaleString(undefined, { maximumSignificantDigits: 3 });
}

export function day(moment) {
  const date = moment ? new Date(moment) : null;
  return date && !Number.isNaN(date.valueOf()) ? date.toLocaleDateString(undefined, { dateStyle: "medium" }) : "";
}
