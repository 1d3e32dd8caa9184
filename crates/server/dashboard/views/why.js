// Why a message was not delivered: messages that were dropped, and what clients were not allowed to do.

import { get, path, query } from "../api.js";
import { el, field, form, named, section, tell } from "../dom.js";
import { number, time } from "../format.js";
import { table } from "../table.js";

const LISTED = 1000;

export async function show(main, { tenant, names: [client], signal }) {
  let asked = { client: client ?? "", topic: "" };
  const drops = table({
    caption: "Messages that were dropped, the newest first",
    search: "Search drops",
    empty: "No message was dropped.",
    columns: [
      { title: "Topic", of: (one) => one.topic, show: (one) => (one.topic == null ? "–" : named(one.topic)) },
      { title: "Client", of: (one) => one.client, show: (one) => (one.client == null ? "–" : named(one.client)) },
      { title: "At", of: (one) => one.at, show: (one) => time(one.at) },
      { title: "Reason", of: (one) => one.reason },
      { title: "What it means", of: (one) => one.explanation, show: (one) => el("span", { class: "long" }, one.explanation) },
    ],
    load: async () => {
      const { drops: rows, totals: all } = await get(query(path`/v1/tenants/${tenant}/drops`, { limit: LISTED, ...asked }), signal);
      const counted = Object.entries(all).filter(([, count]) => count > 0);
      totals.textContent = counted.length === 0 ? "" : `Since the start of the broker: ${counted.map(([reason, count]) => `${reason} ${number(count)}`).join(", ")}.`;
      return { rows };
    },
  });
  const denials = table({
    caption: "What clients were not allowed to do, the newest first",
    search: "Search denials",
    empty: "Nothing was denied.",
    columns: [
      { title: "Action", of: (one) => one.action },
      { title: "Object", of: (one) => one.object, show: (one) => (one.object == null ? "–" : named(one.object)) },
      { title: "User", of: (one) => one.user, show: (one) => (one.user == null ? "–" : named(one.user)) },
      { title: "Client", of: (one) => one.client, show: (one) => (one.client == null ? "–" : named(one.client)) },
      { title: "Address", of: (one) => one.address },
      { title: "Last", of: (one) => one.at, show: (one) => time(one.at) },
      { title: "Times", of: (one) => one.count, number: true },
      { title: "Why", of: (one) => one.reason, show: (one) => el("span", { class: "long" }, named(one.reason ?? "–")) },
    ],
    load: async () => {
      const parameters = { limit: LISTED, client: asked.client, object: asked.topic };
      return { rows: (await get(query(path`/v1/tenants/${tenant}/denials`, parameters), signal)).denials };
    },
  });
  const totals = el("p", {});
  const ask = async (given) => {
    asked = given;
    await Promise.all([drops.refresh(), denials.refresh()]);
    tell("The lists are up to date.");
  };
  main.append(
    form(ask, "Look", field("Client", el("input", { name: "client", value: client ?? "", spellcheck: "false" }), "Empty: all clients."),
      field("Topic or topic filter", el("input", { name: "topic", spellcheck: "false" }), "Empty: all topics.")),
    section("Dropped", totals, drops.element), section("Denied", denials.element));
  await Promise.all([drops.refresh(), denials.refresh()]);
}
