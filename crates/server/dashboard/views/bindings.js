// Bindings between MQTT topics and queues.

import { page, path, query, send } from "../api.js";
import { button, choice, el, field, form, named, section, sure, tell } from "../dom.js";
import { number } from "../format.js";
import { table } from "../table.js";

const LISTED = 10000;

export async function show(main, { tenant, may, again, signal }) {
  const remove = (one) => button("Remove", async () => {
    if (!(await sure(`The binding ${one.name} is removed.`, "Remove"))) return;
    await send("DELETE", path`/v1/tenants/${tenant}/bindings/${one.name}`);
    await list.refresh();
  }, { class: "danger" });
  const known = ["name", "tenant", "filter", "queue", "topic", "declared_by", "passed", "refused", "problem"];
  const rest = (one) => Object.entries(one).filter(([name]) => !known.includes(name)).map(([name, value]) => `${name} ${value}`).join(", ");
  const list = table({
    caption: "Bindings",
    search: "Search bindings",
    empty: "There are no bindings.",
    columns: [
      { title: "Binding", of: (one) => one.name, show: (one) => named(one.name) },
      { title: "Topic filter", of: (one) => one.filter, show: (one) => named(one.filter ?? "–") },
      { title: "Queue or topic", of: (one) => one.queue ?? one.topic, show: (one) => named(one.queue ?? one.topic ?? "–") },
      { title: "Further", of: rest, show: (one) => named(rest(one) || "–") },
      { title: "Declared by", of: (one) => one.declared_by },
      { title: "Passed", of: (one) => one.passed, show: (one) => number(one.passed), number: true },
      { title: "Refused", of: (one) => one.refused, show: (one) => number(one.refused), number: true },
      { title: "Problem", of: (one) => one.problem, show: (one) => (one.problem ? el("span", { class: "problem" }, one.problem) : "–") },
      ...(may("operator") ? [{ title: "Change", of: () => "", show: (one) => (one.declared_by === "admin" ? remove(one) : "–") }] : []),
    ],
    load: () => page(query(path`/v1/tenants/${tenant}/bindings`, { limit: LISTED }), "bindings", signal),
  });
  const create = async ({ name, filter, kind, target, session }) => {
    await send("PUT", path`/v1/tenants/${tenant}/bindings/${name}`, { filter, [kind]: target, ...(session && { session }) }, { "If-None-Match": "*" });
    tell(`The binding ${name} was created.`);
    again();
  };
  main.append(list.element);
  if (may("operator")) {
    main.append(section("Put messages of a topic filter into a queue", form(create, "Create",
      field("Binding", el("input", { name: "name", required: true, spellcheck: "false" })),
      field("Topic filter", el("input", { name: "filter", required: true, spellcheck: "false" })),
      field("Into a", choice({ name: "kind" }, ["queue", "topic"])),
      field("Queue or topic", el("input", { name: "target", required: true, spellcheck: "false" })),
      field("Session", el("input", { name: "session", spellcheck: "false" }), "Such as {2}: the second level of the topic."))));
  }
  await list.refresh();
}
