// The packets of one client as they pass.

import { path, query } from "../api.js";
import { el, field, section, visible } from "../dom.js";
import { bytes, number } from "../format.js";
import { follower, newest } from "../stream.js";

/** Number of packets that stay on the page. */
const SHOWN = 200;

/** Maximum number of packets each second. */
const RATE = 100;

export function trace(tenant, client, isMqtt, signal) {
  const payload = el("input", { type: "checkbox" });
  const rows = el("tbody", {});
  const packets = newest({ list: rows, most: SHOWN, waiting: "Waiting for packets.", items: "packets" });
  const seen = (event, data) => {
    if (event === "skipped") packets.skip(data.packets);
    packets.add(row(event, data), event === "packet");
  };
  const target = () => query(path`/v1/tenants/${tenant}/clients/${client}/trace`, { rate: RATE, payload: isMqtt && payload.checked });
  const control = follower({ words: ["Trace", "Stop"], target, begin: packets.begin, seen, signal });
  const head = el("thead", {}, el("tr", {}, ["Time", "From", "Packet", "Size", "Fields"].map((title) => el("th", { scope: "col" }, title))));
  return section("Packets as they pass",
    el("div", { class: "inline" }, isMqtt && field("Show payloads", payload), control),
    packets.status,
    el("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Packets" }, el("table", {}, head, rows)));
}

function row(event, data) {
  const at = (data.at ?? "").slice(11, 23);
  if (event === "packet") {
    const sender = data.direction === "received" ? "client" : "broker";
    const fields = Object.entries(data.fields).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join("  ");
    return el("tr", {}, el("td", {}, at), el("td", {}, sender), el("td", {}, data.packet), el("td", { class: "number" }, bytes(data.bytes)), el("td", { class: "fields" }, visible(fields)));
  }
  const text = {
    connected: () => `connected with ${data.protocol} from ${data.address}`,
    present: () => `is connected with ${data.protocol} from ${data.address}`,
    disconnected: () => `connection ${data.connection} has ended: ${data.reason}`,
    skipped: () => `${number(data.packets)} packets were too many to show`,
  }[event]?.() ?? event;
  return el("tr", {}, el("td", {}, at), el("td", { colspan: 4 }, visible(text)));
}
