// Sorting, filtering, choosing what to compare, and light or dark. Without it every page still
// reads: the table is in order, and what needs a script stays hidden.
"use strict";

// ---- light or dark: before the first paint -------------------------------------------------------

const THEMES = ["system", "light", "dark"];
const remembered = {
  get() { try { return localStorage.getItem("theme"); } catch { return null; } },
  set(theme) { try { localStorage.setItem("theme", theme); } catch { /* private windows */ } },
};

function applyTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

let theme = THEMES.includes(remembered.get()) ? remembered.get() : "system";
applyTheme(theme);

function themeButton() {
  const button = document.getElementById("theme");
  const label = () => {
    button.textContent = { system: "◐ System", light: "☀ Light", dark: "☾ Dark" }[theme];
    button.setAttribute("aria-label", `Colours: ${theme}. Change`);
  };
  button.hidden = false;
  label();
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    applyTheme(theme);
    remembered.set(theme);
    label();
  });
}

// ---- the table -----------------------------------------------------------------------------------

const NUMBERS = ["size", "cost"]; // small first
const TEXTS = ["name"];

function table() {
  const board = document.getElementById("board");
  if (!board) return;
  const body = board.tBodies[0];
  const heads = [...board.tHead.rows[0].cells];
  const field = Object.fromEntries(
    ["find", "column", "metric", "status", "size", "complete", "filters", "count"].map((id) => [id, document.getElementById(id)]));
  const rows = [...body.rows].map((element) => ({
    element,
    text: element.querySelector("th").textContent.toLowerCase(),
    name: element.querySelector(".name").textContent.toLowerCase(),
    status: element.dataset.status,
    size: number(element.dataset.size),
    cost: number(element.dataset.cost),
    place: element.querySelector(".place"),
    cells: Object.fromEntries([...element.querySelectorAll("[data-column]")].map((cell) => [cell.dataset.column, cell.dataset])),
  }));
  const wanted = { column: board.dataset.ranked, by: "rank", up: true };

  function number(text) { return text === "" || text === undefined ? null : Number(text); }

  function value(row, by) {
    if (TEXTS.includes(by) || NUMBERS.includes(by)) return row[by];
    const cell = row.cells[by === "rank" ? wanted.column : by];
    return cell ? number(cell[field.metric.value === "pass" && by !== "rank" ? "pass" : "avg"]) : null;
  }

  function order(one, other) {
    const [a, b] = [value(one, wanted.by), value(other, wanted.by)];
    if (a === null || b === null) return (a === null) - (b === null) || one.name.localeCompare(other.name, "en");
    const found = typeof a === "string" ? a.localeCompare(b, "en") : a - b;
    // A rank is good where the score is high: ascending ranks are descending scores.
    return (wanted.by === "rank" ? -found : found) * (wanted.up ? 1 : -1) || one.name.localeCompare(other.name, "en");
  }

  function sort() {
    rows.sort(order);
    body.append(...rows.map((row) => row.element));
    for (const head of heads) {
      if (!head.dataset.sort) continue;
      head.setAttribute("aria-sort", head.dataset.sort !== wanted.by ? "none" : wanted.up ? "ascending" : "descending");
    }
  }

  function rank() {
    wanted.column = field.column.value;
    for (const row of rows) row.place.textContent = row.cells[wanted.column]?.rank ?? "–";
    const name = field.column.selectedOptions[0].textContent.toLowerCase();
    board.caption.textContent = `Ranked by ${name}`;
    for (const cell of board.querySelectorAll("[data-sort], [data-column]"))
      cell.classList.toggle("chosen", (cell.dataset.column ?? cell.dataset.sort) === wanted.column);
  }

  // On a narrow screen the chosen column may lie beside the table's visible part.
  function reveal() {
    const head = heads.find((one) => one.dataset.sort === wanted.column);
    const fixed = heads.find((one) => one.dataset.sort === "name");
    board.parentElement.scrollLeft = head.offsetLeft - fixed.offsetWidth;
  }

  function filter() {
    const words = field.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const most = number(field.size.value);
    let shown = 0;
    for (const row of rows) {
      const fits = words.every((word) => row.text.includes(word))
        && (!field.status.value || row.status === field.status.value)
        && (most === null || (row.size !== null && row.size <= most))
        && (!field.complete.checked || row.cells.mean?.avg !== undefined);
      row.element.hidden = !fits;
      shown += fits;
    }
    field.count.textContent = shown === rows.length ? `${shown} systems` : `${shown} of ${rows.length} systems`;
  }

  for (const head of heads) {
    if (!head.dataset.sort) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const by = head.dataset.sort;
      const scores = !TEXTS.includes(by) && !NUMBERS.includes(by) && by !== "rank";
      wanted.up = wanted.by === by ? !wanted.up : !scores; // scores: the best first
      wanted.by = by;
      sort();
    });
  }
  field.filters.hidden = field.count.hidden = false;
  field.filters.addEventListener("submit", (event) => event.preventDefault());
  for (const name of ["find", "status", "size", "complete"]) field[name].addEventListener("input", filter);
  field.column.addEventListener("input", () => { wanted.by = "rank"; wanted.up = true; rank(); sort(); reveal(); });
  field.metric.addEventListener("input", () => {
    board.dataset.metric = field.metric.value;
    sort();
  });
  // What a browser kept of the form when the page is opened again counts as well.
  board.dataset.metric = field.metric.value;
  rank();
  if (wanted.column !== board.dataset.ranked) sort();
  filter();
  comparing(board, rows);
}

// ---- two systems to compare ----------------------------------------------------------------------

function comparing(board, rows) {
  const tray = document.getElementById("tray");
  const titles = Object.fromEntries([...document.getElementById("column").options].map((one) => [one.value, one.textContent]));
  const able = (row) => Object.values(row.cells).filter((cell) => "comparable" in cell);
  if (rows.filter((row) => able(row).length).length < 2) return;
  for (const cell of board.querySelectorAll(".pick")) cell.hidden = false;
  let picked = [];

  function show() {
    tray.replaceChildren();
    tray.hidden = !picked.length;
    if (!picked.length) return;
    const text = document.createElement("span");
    tray.append(text);
    const names = picked.map((row) => row.element.querySelector(".name").textContent);
    if (picked.length === 1) { text.textContent = `${names[0]}: choose another one to compare it with.`; return; }
    const shared = Object.keys(titles).filter((name) => picked.every((row) => row.cells[name] && "comparable" in row.cells[name]));
    text.textContent = shared.length ? `${names[0]} and ${names[1]} on ` : `${names[0]} and ${names[1]} share no suite that can be compared here.`;
    for (const name of shared) {
      const ids = picked.map((row) => row.cells[name].id).sort();
      const link = document.createElement("a");
      link.className = "button";
      link.textContent = titles[name].split(" (")[0];
      link.href = tray.dataset.compare.replace("AAAA", ids[0]).replace("BBBB", ids[1]);
      tray.append(link, " ");
    }
  }

  for (const row of rows) {
    const box = row.element.querySelector(".pick");
    box.addEventListener("change", () => {
      picked = picked.filter((one) => one !== row);
      if (box.checked) picked.push(row);
      if (picked.length > 2) picked.shift().element.querySelector(".pick").checked = false;
      show();
    });
    box.checked = false;
  }
}

// ---- handing in ----------------------------------------------------------------------------------

function uploading() {
  const form = document.getElementById("upload");
  if (!form) return;
  const file = form.elements.namedItem("file");
  const button = form.querySelector("button");
  const said = document.getElementById("said");
  const most = Number(form.dataset.most);
  file.addEventListener("change", () => {
    const size = file.files[0]?.size ?? 0;
    const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
    file.setCustomValidity(size > most ? `${megabytes(size)}; at most ${megabytes(most)} are taken` : "");
    file.reportValidity();
  });
  form.addEventListener("submit", () => { button.disabled = true; said.textContent = "Uploading…"; });
  window.addEventListener("pageshow", () => { button.disabled = false; });
}

document.addEventListener("DOMContentLoaded", () => { themeButton(); table(); uploading(); });
