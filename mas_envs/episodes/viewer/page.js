// The reader. Everything that a model wrote reaches the page through textContent alone.
(() => {
  "use strict";
  const LONG = 4000, HEAD = 2000, TAIL = 1000, SHORT = 40, LINE = 80; // characters
  const SIGN = { right: "✓", wrong: "✗", failed: "!", undecided: "?", ungraded: "–" };
  const FILTERS = ["q", "section", "outcome", "change", "level"];
  const page = JSON.parse(document.getElementById("episodes").textContent);
  const find = (id) => document.getElementById(id);
  const state = { show: "", q: "", section: "", outcome: "", change: "", level: "" };
  const agents = []; // in order of appearance, for their colours

  // A later form of this page loads the conversations of a case when it is opened.
  const conversationsOf = (position) => page.conversations[position];

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child != null && child !== ""));
    return element;
  }

  // ---- text -----------------------------------------------------------------------------------
  // Control and direction characters are shown by number: invisible, they could hide or reorder
  // what a reader believes to see. Every quantifier is bounded, so no text can stall the page.
  const CONTROL = "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]";
  const TAG = "</?(?:think|verify|answer|search|information|problem)>";
  const BOXED = "\\\\boxed\\{(?:[^{}]|\\{[^{}]{0,60}\\}){0,80}\\}";

  function write(element, text) {
    const words = state.q ? `(?<word>${state.q.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")})|` : "";
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

  const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  const signed = (number) => (number > 0 ? "+" : "") + String(number).replace("-", "−");

  // ---- one conversation -----------------------------------------------------------------------
  const INVALID = { missing: "nothing was found that could be read", ambiguous: "several different values were found",
    truncated: "the text ends before the value does" };

  function turn(event) {
    if (!agents.includes(event.agent)) agents.push(event.agent);
    const invalid = event.status !== "ok";
    const own = event.reward === 0 ? "" : `, ${invalid && event.reward < 0 ? "penalty" : "own reward"} ${signed(event.reward)}`;
    const brief = event.value != null && event.value.length <= SHORT;
    const read = event.value == null || brief ? [] : [["read as", event.value]];
    const cut = { length: "cut at the token limit", overflow: "prompt too long for the model", abort: "aborted" };
    const size = event.shown.reduce((sum, [, content]) => sum + content.length, 0);
    return make("article",
      { class: `turn agent-${agents.indexOf(event.agent) % 6}`, "aria-label": `${event.agent}, round ${event.round}` },
      make("div", { class: "who" },
        make("b", null, event.agent),
        make("span", null, `round ${event.round}`),
        invalid ? make("span", { class: "chip bad", title: INVALID[event.status] }, `invalid: ${event.status}${own}`) : null,
        !invalid && own ? make("span", { class: "chip" }, own.slice(2)) : null,
        event.finish !== "stop" ? make("span", { class: "chip warn" }, cut[event.finish] || event.finish) : null,
        brief ? write(make("span", { class: "chip" }, "read as "), event.value) : null),
      body(event.text),
      folded(`What it was shown (${count(size, "character")}) and sampling`,
        () => [...event.shown.flatMap(([role, content]) => [make("div", { class: "from" }, role), body(content)]),
          make("div", { class: "from" }, "sampling"), facts([...read, ...event.facts])]));
  }

  function passage([title, text, score], place) {
    return make("li", { value: place + 1 },
      make("div", { class: "who" }, title ? write(make("b"), title) : null, score ? write(make("span"), `score ${score}`) : null),
      body(text));
  }

  function tool(event) {
    // The grader's call repeats a turn; its verdict stands in the line that opens it.
    const { args, passages, result, verdict } = event;
    const asked = args.length && verdict === null ? `: ${args[0][1].slice(0, LINE)}` : "";
    const said = verdict !== null ? `: ${verdict}` : passages.length ? ` → ${count(passages.length, "passage")}` : "";
    const length = result.length + passages.reduce((sum, [, text]) => sum + text.length, 0);
    return make("article", { class: "tool", "aria-label": `tool ${event.tool}` },
      folded(write(make("span"), `Tool ${event.tool}${asked}${said}`),
        () => [facts(args), make("div", { class: "from" }, "result"),
          passages.length ? make("ol", { class: "passages" }, ...passages.map(passage)) : body(result)],
        verdict === null && length < LONG));
  }

  const leftAt = (event, fork) => (fork && event.index === Number(fork.decision)
    ? [make("p", { class: "forked" }, `From here on resampled; what stands above is sample ${fork.sample}'s.`)] : []);

  function events(all, fork) {
    const shown = [];
    for (let at = 0; at < all.length; ) {
      let end = at + 1;
      while (end < all.length && all[end].batch === all[at].batch) end += 1;
      const batch = all.slice(at, end).flatMap((event) => [...leftAt(event, fork), event.kind === "turn" ? turn(event) : tool(event)]);
      if (end - at === 1) shown.push(...batch);
      else shown.push(make("div", { class: "together" }, make("p", { class: "muted" }, `${end - at} asked in parallel`), ...batch));
      at = end;
    }
    return shown;
  }

  const HEADLINE = { right: "✓ Right", wrong: "✗ Wrong", failed: "! Failed: enters no statistic",
    undecided: "? The grader could not decide: counted as wrong", ungraded: "– Not graded" };

  function verdict(given, all) {
    const own = all.filter((event) => event.kind === "turn" && event.reward !== 0);
    const rows = [];
    if (given.outcome !== "failed") rows.push(["Extracted answer", given.answer || "none"]);
    if (given.gold) rows.push(["Gold answer", given.gold]);
    if (given.status && given.status !== "ok") rows.push(["Grade status", given.status.replaceAll("_", " ")]);
    const grader = given.grader && `(grader ${given.grader})`;
    if (given.outcome === "failed") rows.push(["Reason", given.reason]);
    else if (given.reason || grader) rows.push(["Graded as", `${given.reason} ${grader}`.trim()]);
    if (given.reward != null) rows.push(["Team reward", signed(given.reward)]);
    if (own.length) rows.push(["Turn rewards", own.map((e) => `${e.agent} round ${e.round}: ${signed(e.reward)}`).join("; ")]);
    rows.push(...given.info);
    return make("div", { class: `verdict ${given.outcome}`, role: "group", "aria-label": "Verdict" },
      make("h5", null, HEADLINE[given.outcome]), facts(rows));
  }

  function column(place, given) {
    const { name } = page.sections[place];
    const { outcome } = given.verdict;
    return make("section", { "aria-label": name },
      make("h4", null, name, make("span", { class: outcome }, `${SIGN[outcome]} ${outcome}`)),
      ...events(given.events, given.fork), verdict(given.verdict, given.events),
      folded("About this episode", () => [facts(given.facts)]));
  }

  function open(position) {
    const view = find("conversation");
    if (position < 0) {
      view.replaceChildren(make("p", { class: "nothing" }, "No conversation matches these filters."));
      return;
    }
    const entry = page.cases[position];
    const places = page.sections.map((_, place) => place).filter((place) => entry.episodes[place] && inSection(place));
    const all = conversationsOf(position);
    const at = visible.indexOf(position);
    const step = (by, label) => {
      const button = make("button", { type: "button", disabled: visible[at + by] === undefined }, label);
      button.addEventListener("click", () => move(by));
      return button;
    };
    const about = [`sample ${entry.sample}`, entry.fork && `fork of sample ${entry.fork.sample} at event ${entry.fork.decision}`, entry.level && `level ${entry.level}`, entry.change].filter(Boolean);
    view.replaceChildren(
      make("div", { class: "bar" }, make("span", { class: "muted" }, `${at + 1} of ${visible.length} · ${about.join(" · ")}`),
        make("span", { class: "steps" }, step(-1, "← Previous"), step(1, "Next →"))),
      make("div", { class: "question" }, make("h3", null, "Question"), body(all[places[0]].question)),
      make("div", { class: "columns" }, ...places.map((place) => column(place, all[place]))));
  }

  // ---- the list and its filters ---------------------------------------------------------------
  let visible = []; // positions of the cases that pass the filters
  const inSection = (place) => !state.section || page.sections[place].name === state.section;
  const haystacks = [];
  const haystack = (position) => (haystacks[position] ||= conversationsOf(position).map((given) => given === null ? "" : [
    given.question, given.verdict.answer, given.verdict.gold, given.verdict.reason, page.cases[position].id,
    ...given.events.map((event) => event.text ?? `${event.result} ${event.passages.flat().join(" ")} ${event.args.flat().join(" ")}`)].join("\n").toLowerCase()));

  function passes(entry, position) {
    const episodes = entry.episodes.map((episode, place) => (inSection(place) ? episode : null));
    return episodes.some((episode, place) => episode && (!state.outcome || episode.outcome === state.outcome)
        && (!state.q || haystack(position)[place].includes(state.q.toLowerCase())))
      && (!state.change || entry.change === state.change) && (!state.level || entry.level === state.level);
  }

  const rows = page.cases.map((entry) => {
    const marks = entry.episodes.map((episode, place) => episode && make("span", { class: episode.outcome },
      page.sections.length > 1 ? `${page.sections[place].name} ` : "", `${SIGN[episode.outcome]} `,
      make("span", { class: "unseen" }, `${episode.outcome} `), write(make("bdi"), episode.answer || (episode.outcome === "failed" ? "failed" : "no answer"))));
    const link = make("a", { href: `#${new URLSearchParams({ show: entry.id })}` },
      write(make("span", { class: "question-line", dir: "auto" }), entry.question),
      make("span", { class: "marks" }, entry.level === null ? "" : `level ${entry.level}`, entry.fork ? "fork" : "", ...marks));
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go({ show: entry.id });
      toConversation();
    });
    return make("li", null, link);
  });

  function choices(id, all, values, label = (value) => value) {
    find(id).replaceChildren(make("option", { value: "" }, all), ...values.map((value) => make("option", { value }, label(value))));
    const around = find(`${id}-label`);
    if (around) around.hidden = values.length < 2;
  }

  const distinct = (values) => [...new Set(values)].filter((value) => value != null);

  function fillFilters() {
    const outcomes = page.cases.flatMap((entry) => entry.episodes.map((episode) => episode?.outcome));
    const changes = page.cases.map((entry) => entry.change);
    choices("section", "all sections", page.sections.map((section) => section.name), (name) => `only ${name}`);
    choices("outcome", "any", Object.keys(SIGN).filter((one) => outcomes.includes(one)));
    choices("change", "any", ["improved", "worsened", "still right", "still wrong"].filter((one) => changes.includes(one)),
      (one) => `${one} (${changes.filter((change) => change === one).length})`);
    choices("level", "all", distinct(page.cases.map((entry) => entry.level)).sort((a, b) => a.localeCompare(b, "en", { numeric: true })));
    for (const id of FILTERS) find(id).addEventListener("input", () => go({ [id]: find(id).value }));
    find("filters").addEventListener("submit", (event) => event.preventDefault());
  }

  function readHash() {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const key of Object.keys(state)) state[key] = given.get(key) || "";
  }

  function go(change) {
    Object.assign(state, change);
    const kept = Object.entries(state).filter(([, value]) => value);
    history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
    apply();
  }

  function apply() {
    for (const id of FILTERS) if (find(id).value !== state[id]) find(id).value = state[id];
    visible = [...page.cases.keys()].filter((position) => passes(page.cases[position], position));
    rows.forEach((row, position) => { row.hidden = !visible.includes(position); });
    const shown = visible.find((position) => page.cases[position].id === state.show) ?? visible[0] ?? -1;
    rows.forEach((row, position) => {
      if (position === shown) row.firstChild.setAttribute("aria-current", "true");
      else row.firstChild.removeAttribute("aria-current");
    });
    const counts = ["right", "wrong", "failed"].map((one) => [one, visible.flatMap((position) =>
      page.cases[position].episodes.filter((episode, place) => episode?.outcome === one && inSection(place))).length]);
    find("count").textContent = `${visible.length} of ${page.cases.length} listed: ` +
      counts.filter(([, number]) => number).map(([one, number]) => `${number} ${one}`).join(", ");
    open(shown);
    current = shown;
  }

  let current = -1;

  function move(by) {
    const next = visible[visible.indexOf(current) + by];
    if (next === undefined) return;
    go({ show: page.cases[next].id });
    const list = find("list"), row = rows[next];
    if (row.offsetTop < list.scrollTop) list.scrollTop = row.offsetTop;
    const below = row.offsetTop + row.offsetHeight - list.clientHeight;
    if (below > list.scrollTop) list.scrollTop = below;
    toConversation();
  }

  // Only up, or on a phone down past the list: a reader who sees the start is left in peace.
  function toConversation() {
    const top = find("conversation").getBoundingClientRect().top;
    if (top < 0 || top > innerHeight / 2) find("conversation").scrollIntoView();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "Escape" && typing) event.target.blur();
    if (typing) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "/") { event.preventDefault(); find("q").focus(); }
  });
  addEventListener("hashchange", () => { readHash(); apply(); });

  fillFilters();
  find("list").append(...rows);
  readHash();
  apply();
  if (state.show && visible.includes(current)) find("reader").scrollIntoView();
})();
