// Line charts of values over time.

import { el } from "./dom.js";
import { duration } from "./format.js";

const WIDTH = 600, HEIGHT = 160;

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/**
 * A chart. `draw` gets the lines, each with a name and values, the oldest first, the seconds between two values, and
 * the time of the last one. The pointer or the arrow keys choose a moment, whose values are told below the chart.
 */
export function chart(title, format) {
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", tabindex: "0" });
  const highest = el("span", { class: "highest" });
  const told = el("p", { class: "told" });
  let lines = [], step = 5, until = null, chosen = null;

  const count = () => Math.max(...lines.map((line) => line.values.length), 0);
  const place = (index) => (count() < 2 ? WIDTH : (index / (count() - 1)) * WIDTH);

  function say() {
    const last = count() - 1, index = chosen ?? last;
    if (last < 0) {
      told.textContent = "The first values come after ten seconds.";
      return;
    }
    const values = lines.map((line) => `${line.name} ${format(line.values[index])}`).join(", ");
    const when = index === last || until == null ? "now" : `${duration((last - index) * step)} ago`;
    told.textContent = `${when}: ${values}`;
    picture.setAttribute("aria-label", `${title}, ${when}: ${values}; arrow keys choose a moment`);
    marker.setAttribute("x1", place(index));
    marker.setAttribute("x2", place(index));
    marker.setAttribute("visibility", chosen == null ? "hidden" : "visible");
  }

  const marker = svg("line", { class: "marker", y1: 0, y2: HEIGHT, x1: 0, x2: 0 });
  const choose = (index) => {
    chosen = index == null ? null : Math.min(Math.max(index, 0), count() - 1);
    say();
  };
  picture.addEventListener("pointermove", (event) => {
    const { left, width } = picture.getBoundingClientRect();
    choose(Math.round(((event.clientX - left) / width) * (count() - 1)));
  });
  picture.addEventListener("pointerleave", () => choose(null));
  picture.addEventListener("blur", () => choose(null));
  picture.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -60, PageDown: 60 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    choose((chosen ?? count() - 1) + by);
  });

  function draw(newLines, newStep, newUntil) {
    [lines, step, until] = [newLines, newStep, newUntil];
    const top = Math.max(...lines.flatMap((line) => line.values), 0) || 1;
    highest.textContent = `up to ${format(top)}`;
    const paths = lines.map((line, number) => {
      const points = line.values.map((value, index) => `${place(index).toFixed(1)},${(HEIGHT - (value / top) * (HEIGHT - 4) - 2).toFixed(1)}`);
      return svg("polyline", { class: `line line-${number}`, points: points.join(" "), "vector-effect": "non-scaling-stroke" });
    });
    picture.replaceChildren(...paths, marker);
    say();
  }

  const legend = (names) => names.map((name, number) => el("span", { class: `key key-${number}` }, name));
  const keys = el("span", { class: "keys" });
  const figure = el("figure", { class: "chart" }, el("figcaption", {}, el("strong", {}, title), keys, highest), picture, told);
  return {
    figure,
    draw(newLines, ...rest) {
      if (keys.childElementCount !== newLines.length && newLines.length > 1) keys.replaceChildren(...legend(newLines.map((line) => line.name)));
      draw(newLines, ...rest);
    },
  };
}
