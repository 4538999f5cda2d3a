// As much of a document as the element helper uses, so that views can be drawn without a browser.

class Node {}

export class FakeElement extends Node {
  constructor(tag) {
    super();
    Object.assign(this, {
      tagName: tag.toUpperCase(),
      children: [],
      attributes: {},
      listeners: {},
      dataset: {},
      style: {},
    });
    Object.assign(this, { className: "", id: "", hidden: false, isConnected: true, value: "", type: "" });
    this.classList = { toggle() {}, add() {}, remove() {} };
    for (const name of [
      "href",
      "title",
      "rel",
      "target",
      "start",
      "tabIndex",
      "disabled",
      "checked",
      "dir",
      "open",
      "onclick",
    ]) {
      if (name !== "onclick") this[name] = undefined;
    }
  }

  append(...children) {
    for (const child of children) {
      const isChild = typeof child === "string" || child instanceof Node;
      if (!isChild) throw new TypeError(`not a node: ${JSON.stringify(child)}`);
      this.children.push(child);
      if (child instanceof Node) child.parent = this;
    }
  }

  replaceChildren(...children) {
    this.children = [];
    this.append(...children);
  }

  insertBefore(child, next) {
    const at = next ? this.children.indexOf(next) : this.children.length;
    this.children.splice(at, 0, child);
    child.parent = this;
  }

  remove() {
    this.parent.children.splice(this.parent.children.indexOf(this), 1);
  }

  get nextElementSibling() {
    const after = this.parent.children.slice(this.parent.children.indexOf(this) + 1);
    return after.find((child) => child instanceof FakeElement) ?? null;
  }

  setAttribute(name, value) {
    if (name.startsWith("on")) throw new TypeError(name);
    this.attributes[name] = value;
    if (name === "class") this.className = value;
    if (name.startsWith("data-")) this.dataset[name.slice(5)] = value;
  }

  removeAttribute(name) {
    delete this.attributes[name];
  }

  addEventListener(name, act) {
    this.listeners[name] = act;
  }

  focus() {}

  getBoundingClientRect() {
    return { top: 0, left: 0, right: 0, bottom: 0, height: 0 };
  }

  contains() {
    return false;
  }

  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }

  // Only `.name` finds something.
  querySelectorAll(selector) {
    return /^\.[\w-]+$/.test(selector) ? this.all(selector.slice(1)) : [];
  }

  get firstElementChild() {
    return this.children.find((child) => child instanceof FakeElement) ?? null;
  }

  get lastElementChild() {
    return this.children.findLast((child) => child instanceof FakeElement) ?? null;
  }

  get textContent() {
    return this.children.map((child) => (typeof child === "string" ? child : child.textContent)).join("");
  }

  set textContent(text) {
    this.children = [text];
  }

  // Return all elements of some tag or class inside this one.
  all(tag) {
    const inner = this.children.filter((child) => child instanceof FakeElement);
    const isWanted = (each) => each.tagName === tag.toUpperCase() || each.className.split(" ").includes(tag);
    return inner.flatMap((each) => [...(isWanted(each) ? [each] : []), ...each.all(tag)]);
  }
}

const later = setTimeout;

// Put the fakes where browsers have the real ones. `answer(path, body)` gives what the service sends.
export function install(answer) {
  const ids = new Map();
  const byId = (id) => ids.get(id) ?? ids.set(id, new FakeElement("div")).get(id);
  const values = new Map();
  const sessionStorage = {
    getItem: (name) => values.get(name) ?? null,
    setItem: (name, value) => values.set(name, value),
  };
  const listeners = [];
  Object.assign(globalThis, {
    Element: FakeElement,
    document: {
      createElement: (tag) => new FakeElement(tag),
      createElementNS: (_, tag) => new FakeElement(tag),
      getElementById: byId,
      querySelector: () => null,
      querySelectorAll: () => [],
      body: new FakeElement("body"),
    },
    sessionStorage,
    location: { search: "", pathname: "/", hash: "", hostname: "localhost", href: "http://localhost/" },
    history: {},
    addEventListener: (name, act) => listeners.push([name, act]),
    dispatchEvent: (event) => {
      for (const [name, act] of listeners) if (name === event.type) act(event);
    },
    ResizeObserver: class {
      observe() {}
    },
    // What the page does again after seconds keeps no test running.
    setTimeout: (act, wait = 0) => (wait < 1_000 ? later(act, wait) : later(act, wait).unref()),
    CSS: { escape: (text) => text },
    fetch: async (path, { body } = {}) => answer(path, body && JSON.parse(body)),
  });
}

export function box(children) {
  const element = new FakeElement("div");
  element.append(
    ...[children].flat(5).filter((child) => child !== null && child !== undefined && child !== false && child !== ""),
  );
  return element;
}
