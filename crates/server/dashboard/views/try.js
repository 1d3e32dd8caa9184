// Subscribe and publish, live.

import { path, send } from "../api.js";
import { choice, el, field, form, section, tell } from "../dom.js";
import { number } from "../format.js";
import { follower, messagesOf, newest } from "../stream.js";
import { message } from "./topics.js";

/** Number of messages that stay on the page. */
const SHOWN = 50;

export async function show(main, { tenant, may, signal }) {
  if (!may("operator")) {
    main.append(el("p", {}, "This needs a token with the role operator."));
    return;
  }
  main.append(subscribing(tenant, signal), publishing(tenant));
}

function subscribing(tenant, signal) {
  const filter = el("input", { name: "filter", value: "#", required: true, spellcheck: "false" });
  const list = el("div", { class: "messages", role: "log", "aria-label": "Messages" });
  const messages = newest({ list, most: SHOWN, waiting: "Waiting for messages.", items: "received" });
  const seen = (event, data) => (event === "skipped" ? messages.skip(data.messages) : messages.add(message(data)));
  const control = follower({ words: ["Subscribe", "Unsubscribe"], target: () => messagesOf(tenant, filter.value, 20), begin: messages.begin, seen, signal });
  return section("Subscribe", el("div", { class: "inline" }, field("Topic filter", filter), control), messages.status, list);
}

function publishing(tenant) {
  const publish = async ({ topic, payload, qos, retain }) => {
    const { sessions, shared } = await send("POST", path`/v1/tenants/${tenant}/publish`, { topic, payload, qos: Number(qos), retain: retain != null });
    tell(`Published: ${number(sessions)} sessions and ${number(shared)} shared subscriptions had subscribed.`);
  };
  return section("Publish", form(publish, "Publish",
    field("Topic", el("input", { name: "topic", required: true, spellcheck: "false" })),
    field("Payload", el("textarea", { name: "payload", rows: 3, spellcheck: "false" })),
    field("QoS", choice({ name: "qos" }, ["0", "1", "2"], "1")),
    field("Retain", el("input", { name: "retain", type: "checkbox" }))));
}
