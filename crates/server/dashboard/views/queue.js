// One queue, topic or subscription: its messages, its dead letters, its sessions, its properties.

import { find, page, path, query, send } from "../api.js";
import { button, choice, el, facts, field, form, named, payload, section, sure, tell } from "../dom.js";
import { bytes, number, time } from "../format.js";
import { table } from "../table.js";

const LISTED = 500;
const PARTS = [["main", "Messages"], ["dead-letter", "Dead letters"], ["transfer-dead-letter", "Transfer dead letters"]];

export async function show(main, around) {
  const { tenant, names: [name, subscription], link, may, signal } = around;
  const places = subscription == null
    ? [path`/v1/tenants/${tenant}/queues/${name}`, path`/v1/tenants/${tenant}/topics/${name}`]
    : [path`/v1/tenants/${tenant}/topics/${name}/subscriptions/${subscription}`];
  let at = null, found = null;
  for (const place of places) {
    found = await find(place, signal);
    at = place;
    if (found != null) break;
  }
  const title = subscription == null ? name : `${name} › ${subscription}`;
  main.append(el("p", { class: "path" }, el("a", { href: link("queues", tenant) }, "Queues"), " › ", named(title)));
  if (found == null) {
    main.append(el("p", {}, "It does not exist."));
    return;
  }
  const remove = async () => {
    if (!(await sure(`${title} is deleted, with all its messages.`, "Delete"))) return;
    await send("DELETE", at);
    tell(`${title} was deleted.`);
    location.hash = link("queues", tenant);
  };
  const counts = found.counts;
  main.append(
    facts(
      ["Declared by", found.declared_by],
      ["Receivers", found.receivers != null && number(found.receivers)],
      ...(counts ? [["Active", number(counts.active)], ["Locked", number(counts.locked)], ["Deferred", number(counts.deferred)],
        ["Scheduled", number(counts.scheduled)], ["Dead letters", number(counts.dead_lettered)],
        ["Transfer dead letters", number(counts.transfer_dead_lettered)], ["Size", bytes(counts.bytes)],
        ["Oldest message", counts.oldest_enqueued_at && time(counts.oldest_enqueued_at)]] : []),
      ["Subscriptions", found.subscriptions && (found.subscriptions.length ? found.subscriptions.flatMap((one) =>
        [el("a", { href: link("queue", tenant, name, one) }, named(one)), " "]) : "none")]),
    el("div", { class: "actions" }, may("operator") && button("Delete", remove, { class: "danger" })));
  if (counts) {
    main.append(may("operator") ? await messages(at, around) : el("p", {}, "To see messages, use a token with the role operator."), await sessions(at, around));
  }
  if (may("operator") && subscription == null) main.append(sending(at, title, around));
  if (found.rules) main.append(section("Rules", el("ul", {}, found.rules.map((one) => el("li", {}, named(one.name ?? one))))));
  main.append(section("Properties", facts(...Object.entries(found.properties).map(([key, value]) =>
    [key, typeof value === "object" ? JSON.stringify(value) : named(value)]))));
}

async function messages(at, { again, signal }) {
  let part = PARTS[0][0], chosen = [];
  const shown = el("div", { "aria-live": "polite" });
  const resubmit = button("Resubmit", async () => {
    const numbers = chosen.map((one) => one.sequence_number);
    if (numbers.length === 0 && !(await sure("All dead letters are put back among the messages.", "Resubmit all"))) return;
    const answer = await send("POST", query(`${at}/messages/resubmit`, { part }), numbers.length ? { sequence_numbers: numbers } : {});
    tell(`${number(answer.resubmitted)} resubmitted${answer.skipped ? `, ${number(answer.skipped)} skipped: ${answer.problem}` : ""}`, answer.skipped ? "problem" : "done");
    await list.refresh();
  });
  const remove = button("Remove all", async () => {
    if (!(await sure("All messages of this part are removed, also those that receivers have.", "Remove all"))) return;
    const { removed } = await send("DELETE", query(`${at}/messages`, { part }));
    tell(`${number(removed)} removed.`);
    again();
  }, { class: "danger" });
  const choose = (rows) => {
    chosen = rows;
    resubmit.textContent = rows.length ? `Resubmit ${number(rows.length)}` : "Resubmit all";
    resubmit.hidden = part === "main";
  };
  const list = table({
    caption: "Messages",
    search: "Search these messages",
    empty: "There are no messages here.",
    choose,
    columns: [
      { title: "Number", of: (one) => one.sequence_number, show: (one) => button(number(one.sequence_number), () => read(one), { class: "link" }), number: true },
      { title: "Message id", of: (one) => one.message_id, show: (one) => (one.message_id == null ? "–" : named(one.message_id)) },
      { title: "Session", of: (one) => one.session, show: (one) => (one.session == null ? "–" : named(one.session)) },
      { title: "State", of: (one) => one.state },
      { title: "Deliveries", of: (one) => one.delivery_count, number: true },
      { title: "Enqueued", of: (one) => one.enqueued_at, show: (one) => time(one.enqueued_at) },
      { title: "Size", of: (one) => one.size, show: (one) => bytes(one.size), number: true },
      { title: "Reason", of: (one) => reason(one), show: (one) => (reason(one) ? named(reason(one)) : "–") },
    ],
    load: () => page(query(`${at}/messages`, { part, limit: LISTED }), "messages", signal),
  });

  function read(one) {
    const { application_properties: properties = {} } = one;
    shown.replaceChildren(el("article", { class: "message" },
      facts(
        ["Number", number(one.sequence_number)],
        ...["subject", "correlation_id", "content_type", "to", "reply_to", "reply_to_session"].map((name) => [name, one[name] != null && named(one[name])]),
        ["expires", one.expires_at && time(one.expires_at)],
        ["scheduled", one.scheduled_at && time(one.scheduled_at)],
        ...Object.entries(properties).map(([name, value]) => [named(name), named(value)])),
      payload(one.body ?? one.body_base64 ?? ""), one.body_is_cut && el("p", {}, "This is the beginning of the body.")));
    shown.scrollIntoView({ block: "nearest" });
  }

  const parts = choice({ onchange: async (event) => {
    part = event.target.value;
    shown.replaceChildren();
    await list.refresh();
  } }, PARTS, part);
  await list.refresh();
  return section("Messages", el("div", { class: "inline" }, field("Part", parts), resubmit, remove), list.element, shown);
}

function sending(at, title, { again }) {
  const submit = async ({ body, session, subject, properties }) => {
    const message = { body, ...(session && { session }), ...(subject && { subject }), ...(properties.trim() && { application_properties: JSON.parse(properties) }) };
    const { sequence_number: sent } = await send("POST", `${at}/messages`, message);
    tell(sent == null ? `Sent to ${title}.` : `Sent to ${title} as message ${sent}.`);
    again();
  };
  return section("Send a message", el("details", {}, el("summary", {}, "Write one"), form(submit, "Send",
    field("Body", el("textarea", { name: "body", rows: 3, spellcheck: "false" })),
    field("Session", el("input", { name: "session", spellcheck: "false" })),
    field("Subject", el("input", { name: "subject", spellcheck: "false" })),
    field("Application properties", el("input", { name: "properties", spellcheck: "false", placeholder: '{"amount": 3}' }), "An object of JSON."))));
}

/** Why a message is a dead letter. */
function reason({ application_properties: properties }) {
  const { DeadLetterReason: why, DeadLetterErrorDescription: description } = properties ?? {};
  return [why, description].filter(Boolean).join(": ");
}

async function sessions(at, { signal }) {
  const list = table({
    caption: "Message sessions",
    search: "Search sessions",
    empty: "There are no sessions.",
    columns: [
      { title: "Session", of: (one) => one.id, show: (one) => named(one.id) },
      { title: "Active", of: (one) => one.active, number: true },
      { title: "Locked", of: (one) => one.locked, number: true },
      { title: "Set aside", of: (one) => one.set_aside, number: true },
      { title: "Locked until", of: (one) => one.locked_until, show: (one) => time(one.locked_until) },
      { title: "State", of: (one) => one.state_bytes, show: (one) => bytes(one.state_bytes), number: true },
      { title: "State changed", of: (one) => one.state_updated_at, show: (one) => time(one.state_updated_at) },
    ],
    load: () => page(query(`${at}/sessions`, { limit: 10000 }), "sessions", signal),
  });
  await list.refresh();
  return section("Sessions", list.element);
}
