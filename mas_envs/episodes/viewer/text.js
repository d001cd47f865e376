// Elements and texts. Everything that a model wrote reaches the page through textContent alone.
const Text = (() => {
  "use strict";
  const LONG = 4000, HEAD = 2000, TAIL = 1000; // characters
  let sought = ""; // what is marked in every text

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child != null && child !== ""));
    return element;
  }

  // Control and direction characters are shown by number: invisible, they could hide or reorder
  // what a reader believes to see. Every quantifier is bounded, so no text can stall the page.
  const CONTROL = "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]";
  const TAG = "</?(?:think|verify|answer|search|information|problem)>";
  const BOXED = "\\\\boxed\\{(?:[^{}]|\\{[^{}]{0,60}\\}){0,80}\\}";

  function write(element, text) {
    const words = sought ? `(?<word>${sought.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")})|` : "";
    const special = new RegExp(`${words}(?<control>${CONTROL})|(?<tag>${TAG})|(?<boxed>${BOXED})`, "giu");
    const clean = text.replaceAll("\r\n", "\n");
    let from = 0;
    for (const match of clean.matchAll(special)) {
      element.append(clean.slice(from, match.index));
      from = match.index + match[0].length;
      const { word, control, tag } = match.groups;
      if (word) element.append(make("mark", null, word));
      else if (control) {
        const number = control.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
        element.append(make("span", { class: "control", title: "a control character" }, `U+${number}`));
      } else element.append(make("span", { class: tag ? "tag" : "boxed" }, match[0]));
    }
    element.append(clean.slice(from));
    return element;
  }

  const wholeCharacter = (text, at) => (/[\udc00-\udfff]/.test(text[at] || "") ? at - 1 : at);

  function body(text, kind = "") {
    const element = make("div", { class: `text ${kind}`, dir: "auto" });
    if (!text) return make("div", { class: "nothing" }, "(empty)");
    if (text.length <= LONG) return write(element, text);
    const head = wholeCharacter(text, HEAD), tail = wholeCharacter(text, text.length - TAIL);
    const hidden = (tail - head).toLocaleString("en");
    const button = make("button", { type: "button", class: "more" }, `Show all (${hidden} characters hidden here)`);
    button.addEventListener("click", () => element.replaceChildren(...write(make("div"), text).childNodes));
    write(element, text.slice(0, head)).append(button);
    return write(element, text.slice(tail));
  }

  function facts(pairs) {
    const list = make("dl");
    for (const [name, value] of pairs) list.append(make("dt", null, name), write(make("dd"), String(value)));
    return list;
  }

  // Filled when first opened: what an agent was shown is long and seldom read.
  function folded(summary, fill, open = false) {
    const inside = make("div");
    const details = make("details", { open }, make("summary", null, summary), inside);
    const filled = () => details.open && !inside.hasChildNodes() && inside.append(...fill());
    details.addEventListener("toggle", filled);
    filled();
    return details;
  }

  return { make, write, body, facts, folded, seek: (words) => { sought = words; } };
})();
