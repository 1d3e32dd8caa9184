// The state store: keys with their versions.

import { find, get, path, query } from "../api.js";
import { button, el, facts, named, payload } from "../dom.js";
import { bytes, number, time } from "../format.js";
import { table } from "../table.js";

const LISTED = 1000;

export async function show(main, { tenant, may, signal }) {
  const shown = el("div", { "aria-live": "polite" });
  const usage = el("p", {});
  const keys = table({
    caption: "Keys",
    search: "Beginning of the key",
    searches: true,
    empty: "There are no keys.",
    columns: [
      { title: "Key", of: text, show: (one) => (may("operator") && one.key != null ? button(named(one.key), () => read(one.key), { class: "link" }) : named(text(one))) },
      { title: "Version", of: (one) => one.version, show: (one) => named(one.version) },
      { title: "Value", of: (one) => one.value_bytes, show: (one) => bytes(one.value_bytes), number: true },
      { title: "Fencing token", of: (one) => one.fencing_token, show: (one) => named(one.fencing_token ?? "–") },
      { title: "Expires", of: (one) => one.expires_at, show: (one) => time(one.expires_at) },
      { title: "Durability", of: (one) => one.durability },
    ],
    load: async (prefix) => {
      const answer = await get(query(path`/v1/tenants/${tenant}/state`, { prefix, limit: LISTED }), signal);
      usage.textContent = `${number(answer.usage.keys)} keys with ${bytes(answer.usage.bytes)}, ${number(answer.usage.watchers)} watched.`;
      return { rows: answer.keys, more: answer.next != null };
    },
  });

  async function read(key) {
    const found = await find(path`/v1/tenants/${tenant}/state/${key}`, signal);
    if (found == null) {
      shown.replaceChildren(el("p", {}, "The key is not there any more."));
      return;
    }
    shown.replaceChildren(el("article", { class: "message" },
      facts(["Key", named(key)], ["Version", named(found.version)], ["Fencing token", found.fencing_token && named(found.fencing_token)],
        ["Expires", found.expires_at && time(found.expires_at)], ["Value", `${bytes(found.value_bytes)}${found.value_base64 != null ? ", in Base64" : ""}`]),
      payload(found.value ?? found.value_base64 ?? "")));
    shown.scrollIntoView({ block: "nearest" });
  }
  main.append(usage, keys.element, shown);
  await keys.refresh();
}

/** The key as text; a key that is not UTF-8 in Base64. */
function text(one) {
  return one.key ?? `${one.key_base64} (Base64)`;
}
