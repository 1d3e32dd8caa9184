// Topics: who receives what, what is retained, and what passes now.

import { find, get, page, path, query, send } from "../api.js";
import { button, el, facts, field, form, named, payload, redraw, section, sure, tell } from "../dom.js";
import { bytes, number, time } from "../format.js";
import { follower, messagesOf } from "../stream.js";
import { table } from "../table.js";

const LISTED = 1000;

/** Number of topics in the tree. Messages of further ones are counted in their parents only. */
const TREE = 2000;

export async function show(main, around) {
  main.append(receivers(around), passing(around), retained(around));
}

// ------------------------------------------------------------------------------------------------------ receivers

function receivers({ tenant, link, signal }) {
  const answer = el("div", { "aria-live": "polite" });
  const asked = async ({ topic }) => {
    const found = await get(query(path`/v1/tenants/${tenant}/receivers`, { topic, limit: LISTED }), signal);
    const session = (one) => el("li", {}, el("a", { href: link("sessions", tenant, one.client) }, named(one.client)),
      ` with QoS ${one.qos}${one.connected ? "" : ", not connected"}: `, one.subscriptions.map((each) => [named(each.filter), " "]).flat());
    const shared = (one) => el("li", {}, "one of ", number(one.count), " members of the shared subscription ", named(one.name), " to ", named(one.filter), ": ",
      one.members.map((each) => [named(each.client), each.connected ? " " : " (not connected) "]).flat());
    const binding = (name) => el("li", {}, "the binding ", el("a", { href: link("bindings", tenant) }, named(name)));
    const broker = (name) => el("li", {}, "sessions at the broker ", named(name));
    const all = [...found.sessions.map(session), ...found.shared.map(shared), ...found.bindings.map(binding), ...found.brokers.map(broker)];
    answer.replaceChildren(all.length ? el("ul", {}, all) : el("p", {}, "Nobody would get a message of this topic now."),
      found.next == null ? "" : el("p", {}, `These are the first ${number(LISTED)}.`));
  };
  return section("Who receives it?", form(asked, "Ask", field("Topic", el("input", { name: "topic", required: true, spellcheck: "false" }))), answer);
}

// -------------------------------------------------------------------------------------------------------- passing

/** A level of the tree: how many messages have passed below it, and the levels below. */
const level = () => ({ messages: 0, levels: new Map() });

function passing({ tenant, may, signal }) {
  if (!may("operator")) return section("What passes now", el("p", {}, "This needs a token with the role operator."));
  const filter = el("input", { name: "filter", value: "#", required: true, spellcheck: "false" });
  const tree = el("div", { class: "tree" });
  const status = el("p", { role: "status" });
  let root = level(), topics = 0, skipped = 0, changed = false;

  function count({ topic }) {
    let at = root;
    at.messages += 1;
    for (const name of topic.split("/")) {
      let below = at.levels.get(name);
      if (!below) {
        if (topics >= TREE) break;
        topics += 1;
        at.levels.set(name, (below = level()));
      }
      below.messages += 1;
      at = below;
    }
    changed = true;
  }

  // Levels that the user has opened stay open, although the tree is drawn anew.
  const open = new Set();
  function draw(at, place) {
    const sorted = [...at.levels].sort(([one], [other]) => (one < other ? -1 : 1));
    return el("ul", {}, sorted.map(([name, below]) => {
      const here = `${place}/${name}`;
      const label = [named(name || "(empty)"), " ", el("span", { class: "count" }, number(below.messages))];
      if (below.levels.size === 0) return el("li", {}, label);
      const isOpen = open.has(here);
      const toggled = (event) => {
        event.target.open ? open.add(here) : open.delete(here);
        if (event.target.open && event.target.childElementCount === 1) event.target.append(draw(below, here));
      };
      return el("li", {}, el("details", { "data-part": here, open: isOpen, ontoggle: toggled }, el("summary", {}, label), isOpen && draw(below, here)));
    }));
  }

  const drawing = setInterval(() => {
    if (!changed) return;
    changed = false;
    redraw(tree, draw(root, ""));
    status.textContent = `${number(root.messages)} messages of ${number(topics)} levels${skipped ? `; ${number(skipped)} more were not looked at` : ""}`;
  }, 500);
  signal.addEventListener("abort", () => clearInterval(drawing));

  const begin = () => {
    [root, topics, skipped] = [level(), 0, 0];
    tree.replaceChildren();
    status.textContent = "No message has passed yet.";
  };
  const seen = (event, data) => (event === "skipped" ? (skipped += data.messages) : count(data));
  const control = follower({ words: ["Follow", "Stop"], target: () => messagesOf(tenant, filter.value, 1000), begin, seen, signal });
  return section("What passes now", el("div", { class: "inline" }, field("Topic filter", filter), control), status, tree);
}

// ------------------------------------------------------------------------------------------------------- retained

function retained({ tenant, may, signal }) {
  const shown = el("div", { "aria-live": "polite" });
  const messages = table({
    caption: "Retained messages",
    search: "Topic filter, such as plant/#",
    searches: true,
    empty: "There are no retained messages.",
    columns: [
      { title: "Topic", of: (one) => one.topic, show: (one) => (may("operator") ? button(named(one.topic), () => read(one.topic), { class: "link" }) : named(one.topic)) },
      { title: "QoS", of: (one) => one.qos, number: true },
      { title: "Payload", of: (one) => one.payload_bytes, show: (one) => bytes(one.payload_bytes), number: true },
      { title: "Expires", of: (one) => one.expires_at, show: (one) => time(one.expires_at) },
    ],
    load: (filter) => page(query(path`/v1/tenants/${tenant}/retained`, { limit: LISTED, filter }), "messages", signal),
  });

  async function read(topic) {
    const target = path`/v1/tenants/${tenant}/retained/${topic}`;
    const found = await find(target, signal);
    const remove = async () => {
      if (!(await sure(`The retained message of ${topic} is removed. Subscribers are not told.`, "Remove"))) return;
      await send("DELETE", target);
      tell(`The retained message of ${topic} was removed.`);
      shown.replaceChildren();
      await messages.refresh();
    };
    shown.replaceChildren(...(found == null ? [el("p", {}, "It is not there any more.")]
      : [message(found), el("div", { class: "actions" }, button("Remove", remove, { class: "danger" }))]));
  }
  messages.refresh().catch((problem) => tell(problem.message, "problem"));
  return section("Retained messages", messages.element, shown);
}

/** A message of MQTT with its properties. */
export function message(one) {
  return el("article", { class: "message" },
    facts(
      ["Topic", named(one.topic)],
      ["QoS", one.qos],
      ["Payload", `${bytes(one.payload_bytes)}${one.payload_is_cut ? ", of which this is the beginning" : ""}${one.payload_base64 != null ? ", in Base64" : ""}`],
      ["Retain", one.retain === true && "yes"],
      ["Content type", one.content_type && named(one.content_type)],
      ["Response topic", one.response_topic && named(one.response_topic)],
      ["Correlation data", one.correlation_data_base64],
      ["Expires", one.expires_at ? time(one.expires_at) : one.expires_in != null && `in ${number(one.expires_in)} s`],
      ...(one.user_properties ?? []).map(([name, value]) => [named(name), named(value)])),
    payload(one.payload ?? one.payload_base64 ?? ""));
}
