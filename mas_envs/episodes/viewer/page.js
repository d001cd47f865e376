// The reader.
(() => {
  "use strict";
  const LONG = 4000, SHORT = 40, LINE = 80; // characters
  const { make, write, body, facts, folded } = Text;
  const SIGN = { right: "✓", wrong: "✗", failed: "!", undecided: "?", ungraded: "–" };
  const STEP = 200; // rows of the list at once
  const FILTERS = ["q", "section", "suite", "outcome", "change", "level", "agent"];
  const page = JSON.parse(document.getElementById("episodes").textContent);
  const find = (id) => document.getElementById(id);
  const state = { show: "", full: "", ...Object.fromEntries(FILTERS.map((id) => [id, ""])) };
  const agents = []; // in order of appearance, for their colours

  // Inside the page, or in a folder beside it: then a case's are loaded when it is opened.
  const inside = page.conversations !== undefined;
  const conversationsOf = (position) => (inside ? page.conversations[position] : Chunks.conversations(page.cases[position]));

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

  let opened = 0;

  async function open(position) {
    const view = find("conversation");
    const say = (text) => view.replaceChildren(make("p", { class: "nothing" }, text));
    const mine = ++opened;
    if (position < 0) {
      say("No conversation matches these filters.");
      return;
    }
    try {
      const all = await conversationsOf(position);
      if (mine === opened) view.replaceChildren(...opening(position, all));
    } catch (error) {
      if (mine === opened) say(error.message);
    }
  }

  function opening(position, all) {
    const entry = page.cases[position];
    const places = page.sections.map((_, place) => place).filter((place) => entry.episodes[place] && inSection(place));
    const at = order.get(position);
    const step = (by, label) => {
      const button = make("button", { type: "button", disabled: visible[at + by] === undefined }, label);
      button.addEventListener("click", () => move(by));
      return button;
    };
    const about = [entry.suite, `sample ${entry.sample}`, entry.fork && `fork of sample ${entry.fork.sample} at event ${entry.fork.decision}`, entry.level && `level ${entry.level}`, entry.change].filter(Boolean);
    return [
      make("div", { class: "bar" }, make("span", { class: "muted" }, `${at + 1} of ${visible.length} · ${about.join(" · ")}`),
        make("span", { class: "steps" }, step(-1, "← Previous"), step(1, "Next →"))),
      make("div", { class: "question" }, make("h3", null, "Question"), body(all[places[0]].question)),
      make("div", { class: "columns" }, ...places.map((place) => column(place, all[place])))];
  }

  // ---- the list and its filters ---------------------------------------------------------------
  let visible = [], order = new Map(); // positions of the cases that pass the filters; their places
  const inSection = (place) => !state.section || page.sections[place].name === state.section;

  // What a search looks into: everything, or what one agent said.
  function words(given, agent) {
    if (given === null) return "";
    if (agent) return given.events.filter((event) => event.agent === agent).map((event) => event.text).join("\n").toLowerCase();
    return [given.question, given.verdict.answer, given.verdict.gold, given.verdict.reason,
      ...given.events.map((event) => event.text ?? `${event.result} ${event.passages.flat().join(" ")} ${event.args.flat().join(" ")}`)].join("\n").toLowerCase();
  }

  let found = { agent: "" }; // position → words of its conversations, as long as the agent stays
  function wordsOf(position) {
    if (found.agent !== state.agent) found = { agent: state.agent };
    return (found[position] ||= page.conversations[position].map((given) => words(given, state.agent)));
  }

  const listed = (entry, place) => [entry.id, entry.question, entry.episodes[place].answer].join("\n").toLowerCase();

  function contains(entry, position, place) {
    const q = state.q.toLowerCase();
    if (!state.agent && listed(entry, place).includes(q)) return true;
    return inside ? wordsOf(position)[place].includes(q) : hits.has(entry.episodes[place].at.join());
  }

  function passes(entry, position) {
    return (!state.change || entry.change === state.change) && (!state.level || entry.level === state.level)
      && (!state.suite || entry.suite === state.suite)
      && entry.episodes.some((episode, place) => episode && inSection(place)
        && (!state.outcome || episode.outcome === state.outcome)
        && (!state.agent || episode.agents.includes(state.agent))
        && (!state.q || contains(entry, position, place)));
  }

  // In a folder a search looks into the list at once, and into the conversations when told to.
  let hits = new Set(), hitsOf = "", run = 0, searching = false; // a search ends when `run` is no more its own

  function stopSearch() {
    run += 1;
    searching = false;
  }

  async function searchAll() {
    const mine = ++run, q = state.q.toLowerCase(), { agent } = state;
    searching = true;
    let drawn = Date.now();
    try {
      for (let number = 1; number <= page.chunks; number += 1) {
        const part = await Chunks.part(number);
        if (mine !== run) return;
        part.forEach((given, at) => { if (words(given, agent).includes(q)) hits.add([number, at].join()); });
        find("full").textContent = `Stop (${Math.floor((100 * number) / page.chunks)} % searched, ${hits.size.toLocaleString("en")} found)`;
        if (Date.now() - drawn < 1000) continue;
        apply(false); // who reads meanwhile is left in peace
        drawn = Date.now();
      }
      searching = false;
      apply();
    } catch (error) {
      if (mine !== run) return;
      searching = false;
      find("full").textContent = error.message;
    }
  }

  function toggleSearch() {
    if (inside || !state.q) return;
    const on = state.full && searching;
    stopSearch();
    hitsOf = "";
    go({ full: on ? "" : "1" });
  }

  function offerSearch() {
    const button = find("full"), key = `${state.q}\n${state.agent}`;
    button.hidden = inside || !state.q;
    if (button.hidden) state.full = "";
    if (hitsOf === key) {
      if (state.full && !searching) button.textContent = `Searched inside all conversations: ${hits.size.toLocaleString("en")} found`;
      return;
    }
    hitsOf = key;
    stopSearch();
    hits = new Set();
    button.textContent = "Search inside all conversations (Enter)";
    if (state.full) searchAll();
  }

  function listRow(position, shown) {
    const entry = page.cases[position];
    const marks = entry.episodes.map((episode, place) => episode && make("span", { class: episode.outcome },
      page.sections.length > 1 ? `${page.sections[place].name} ` : "", `${SIGN[episode.outcome]} `,
      make("span", { class: "unseen" }, `${episode.outcome} `), write(make("bdi"), episode.answer || (episode.outcome === "failed" ? "failed" : "no answer"))));
    const link = make("a", { href: `#${new URLSearchParams({ show: entry.id })}`, "aria-current": position === shown ? "true" : null },
      write(make("span", { class: "question-line", dir: "auto" }), entry.question),
      make("span", { class: "marks" }, ...[entry.suite, entry.level !== null && `level ${entry.level}`, entry.fork && "fork"]
        .filter(Boolean).map((said) => make("span", null, said)), ...marks));
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go({ show: entry.id });
      toConversation();
    });
    return make("li", null, link);
  }

  let from = 0; // the first row shown

  function drawList() {
    const to = Math.min(from + STEP, visible.length);
    const top = find("list").scrollTop;
    find("list").replaceChildren(...visible.slice(from, to).map((position) => listRow(position, current)));
    find("list").scrollTop = top;
    find("pages").hidden = visible.length <= STEP;
    find("range").textContent = `${from + 1}–${to}`;
    find("earlier").disabled = from === 0;
    find("later").disabled = to === visible.length;
  }

  function turnPage(by) {
    from = Math.max(0, from + by * STEP);
    drawList();
    find("list").scrollTop = 0;
  }

  function choices(id, all, values, label = (value) => value) {
    find(id).replaceChildren(make("option", { value: "" }, all), ...values.map((value) => make("option", { value }, label(value))));
    const around = find(`${id}-label`);
    if (around) around.hidden = values.length < 2;
  }

  const distinct = (values) => [...new Set(values)].filter((value) => value != null);

  function fillFilters() {
    const outcomes = page.cases.flatMap((entry) => entry.episodes.map((episode) => episode?.outcome));
    const changes = page.cases.map((entry) => entry.change);
    choices("section", "all", page.sections.map((section) => section.name));
    choices("outcome", "any", Object.keys(SIGN).filter((one) => outcomes.includes(one)));
    choices("change", "any", ["improved", "worsened", "still right", "still wrong"].filter((one) => changes.includes(one)),
      (one) => `${one} (${changes.filter((change) => change === one).length})`);
    choices("level", "all", distinct(page.cases.map((entry) => entry.level)).sort((a, b) => a.localeCompare(b, "en", { numeric: true })));
    choices("suite", "all", distinct(page.cases.map((entry) => entry.suite)));
    choices("agent", "any", distinct(page.cases.flatMap((entry) => entry.episodes.flatMap((episode) => episode?.agents))).sort());
    for (const id of FILTERS) find(id).addEventListener("input", () => go({ [id]: find(id).value, full: "" }));
    find("filters").addEventListener("submit", (event) => { event.preventDefault(); toggleSearch(); });
    find("full").addEventListener("click", toggleSearch);
    find("earlier").addEventListener("click", () => turnPage(-1));
    find("later").addEventListener("click", () => turnPage(1));
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

  function apply(reading = true) {
    for (const id of FILTERS) if (find(id).value !== state[id]) find(id).value = state[id];
    Text.seek(state.q);
    offerSearch();
    visible = [...page.cases.keys()].filter((position) => passes(page.cases[position], position));
    order = new Map(visible.map((position, at) => [position, at]));
    current = visible.find((position) => page.cases[position].id === state.show) ?? visible[0] ?? -1;
    from = Math.max(0, Math.floor((order.get(current) ?? 0) / STEP) * STEP);
    drawList();
    const counts = Object.fromEntries(["right", "wrong", "failed"].map((one) => [one, 0]));
    for (const position of visible) {
      page.cases[position].episodes.forEach((episode, place) => { if (episode && inSection(place) && episode.outcome in counts) counts[episode.outcome] += 1; });
    }
    find("count").textContent = `${visible.length.toLocaleString("en")} of ${page.cases.length.toLocaleString("en")} listed: ` +
      Object.entries(counts).filter(([, number]) => number).map(([one, number]) => `${number.toLocaleString("en")} ${one}`).join(", ");
    if (reading) open(current);
  }

  let current = -1;

  function move(by) {
    const next = visible[order.get(current) + by];
    if (next === undefined) return;
    go({ show: page.cases[next].id });
    const list = find("list"), row = list.children[order.get(next) - from];
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

  async function start() {
    try {
      if (!inside) page.cases = await Chunks.rows(page.lists);
    } catch (error) {
      find("count").textContent = error.message;
      return;
    }
    fillFilters();
    readHash();
    apply();
    if (state.show && order.has(current)) find("reader").scrollIntoView();
  }
  start();
})();
