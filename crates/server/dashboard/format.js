// Numbers and times as people read them.

import { el } from "./dom.js";

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const number = (value) => (value == null ? "–" : WHOLE.format(value));

/** About this many. */
export const about = (value) => (value == null ? "–" : SHORT.format(value));

export const rate = (value) => (value == null ? "–" : `${about(value)}/s`);

export const share = (value) => (value == null ? "–" : `${about(100 * value)} %`);

export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let place = 0;
  while (value >= 1024 && place < units.length - 1) {
    value /= 1024;
    place += 1;
  }
  return `${place === 0 || value >= 100 ? WHOLE.format(value) : value.toFixed(1)} ${units[place]}`;
}

export const byteRate = (value) => (value == null ? "–" : `${bytes(value)}/s`);

/** A duration in its largest unit. */
export function duration(seconds) {
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

/** A time of the API, in the time zone of the user. */
export function time(text) {
  return text == null ? "–" : el("time", { datetime: text, title: text }, DATE.format(new Date(text)));
}
