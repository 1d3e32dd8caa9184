// Tables that are sorted and searched. Only the first rows are drawn, so that ten thousand do not matter.

import { button, el, redraw, tell, visible } from "./dom.js";
import { number } from "./format.js";

/** Number of rows that are drawn, and that are drawn in addition on demand. */
const DRAWN = 200;

/**
 * A table.
 *
 * - `columns`: `title`, `of` (the value of a row: text or a number, for sorting and searching), `show` (what is drawn
 *   instead; optional), `number` (whether it is a number).
 * - `load(search)`: returns the `rows`, and whether there are `more` that it could not return.
 * - `search`: the label of the search field; `searches`: whether `load` searches, because there may be more rows.
 * - `empty`: the sentence for no rows.
 * - `choose`: rows can be chosen; the function gets those that are.
 * - `key`: what tells a row from others; without it, its first column.
 */
export function table({ caption, columns, load, search, searches, empty, choose, key = columns[0].of }) {
  let rows = [], more = false, order = null, descending = false, drawn = DRAWN, loads = 0;
  const chosen = new Set();
  const text = el("input", { type: "search", placeholder: search, "aria-label": search, autocomplete: "off", spellcheck: "false" });
  const status = el("p", { class: "count", role: "status" });
  const body = el("tbody", {});
  const further = button("Show more", () => ((drawn += DRAWN), draw()));
  const heads = columns.map((column, index) => {
    const sort = () => {
      descending = order === index && !descending;
      order = index;
      draw();
    };
    return el("th", { scope: "col", class: column.number && "number" }, el("button", { type: "button", onclick: sort }, column.title));
  });

  function found() {
    const wanted = text.value.toLowerCase();
    const holds = (row) => columns.some((column) => String(column.of(row) ?? "").toLowerCase().includes(wanted));
    const left = wanted && !searches ? rows.filter(holds) : [...rows];
    if (order === null) return left;
    const of = columns[order].of;
    const sign = descending ? -1 : 1;
    return left.sort((one, other) => {
      const [a, b] = [of(one) ?? "", of(other) ?? ""];
      return a < b ? -sign : a > b ? sign : 0;
    });
  }

  function cell(column, row, isFirst) {
    const shown = column.show ? column.show(row) : visible(column.of(row) ?? "–");
    return el(isFirst ? "th" : "td", { class: column.number && "number", scope: isFirst && "row" }, shown);
  }

  function line(row) {
    const cells = columns.map((column, index) => cell(column, row, index === 0));
    if (choose) {
      const change = (event) => {
        event.target.checked ? chosen.add(row) : chosen.delete(row);
        choose([...chosen]);
      };
      const label = `Choose ${visible(columns[0].of(row))}`;
      cells.unshift(el("td", {}, el("input", { type: "checkbox", "aria-label": label, onchange: change })));
    }
    return el("tr", { "data-part": key(row) }, cells);
  }

  function draw() {
    const all = found();
    heads.forEach((head, index) => head.setAttribute("aria-sort", index !== order ? "none" : descending ? "descending" : "ascending"));
    chosen.clear();
    choose?.([]);
    redraw(body, ...all.slice(0, drawn).map(line));
    further.hidden = all.length <= drawn;
    status.textContent = all.length === 0 ? (text.value ? "Nothing is found." : empty)
      : `${number(all.length)}${more ? " or more: search for the others" : ""}`;
  }

  async function refresh() {
    const mine = ++loads;
    const loaded = await load(text.value);
    // An earlier answer may come later.
    if (mine !== loads) return;
    rows = loaded.rows;
    more = Boolean(loaded.more);
    draw();
  }

  /** Asks for what is searched now. The view may be left before the answer comes. */
  const ask = () => refresh().catch((problem) => {
    if (problem.name !== "AbortError") tell(problem.message, "problem");
  });

  let waiting = null;
  text.addEventListener("input", () => {
    drawn = DRAWN;
    clearTimeout(waiting);
    waiting = setTimeout(searches ? ask : draw, searches ? 200 : 50);
  });
  const tools = el("div", { class: "tools" }, search && text, button("Refresh", refresh), status);
  const head = el("tr", {}, choose && el("td", {}), heads);
  const scrolled = el("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption), el("thead", {}, head), body));
  return { element: el("div", { class: "table" }, tools, scrolled, further), refresh };
}
