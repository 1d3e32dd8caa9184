// What 3.1.1 and 5 have in common.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { TENANTS, V5, connect, event, receive, resuming, silent, texts, unique } from "./client.js";

test("two tenants with the same client identifiers and topics never meet", async (t) => {
  const clientId = unique("c"), topic = unique("t/");
  const clients = [];
  for (const tenant of TENANTS) {
    const client = await connect(t, { tenant, clientId });
    const [granted] = await client.subscribeAsync(topic, { qos: 2 });
    assert.equal(granted.qos, 2);
    clients.push(client);
  }
  for (const [i, client] of clients.entries())
    for (const qos of [0, 1, 2]) await client.publishAsync(topic, `${TENANTS[i]} ${qos}`, { qos });
  for (const [i, client] of clients.entries()) {
    assert.deepEqual((await texts(client, 3)).sort(), [0, 1, 2].map((qos) => `${TENANTS[i]} ${qos}`));
    assert(await silent(client));
  }
});

test("payloads of all sizes", async (t) => {
  const client = await connect(t), topic = unique("t/");
  await client.subscribeAsync(topic, { qos: 1 });
  for (const size of [0, 1, 127, 128, 16_384, 65_536, 900_000]) {
    const payload = randomBytes(size);
    await client.publishAsync(topic, payload, { qos: 1 });
    assert((await receive(client)).payload.equals(payload), `${size} bytes`);
  }
});

for (const qos of [0, 1, 2])
  test(`many messages at once with QoS ${qos} stay in order and single`, async (t) => {
    const publisher = await connect(t), subscriber = await connect(t), topic = unique("t/");
    await subscriber.subscribeAsync(topic, { qos });
    const expected = Array.from({ length: 500 }, (_, number) => String(number));
    await Promise.all(expected.map((text) => publisher.publishAsync(topic, text, { qos })));
    assert.deepEqual(await texts(subscriber, 500), expected);
    assert(await silent(subscriber));
  });

test("retained messages, in two tenants", async (t) => {
  const topic = unique("t/");
  for (const tenant of TENANTS)
    await (await connect(t, { tenant })).publishAsync(topic, tenant, { qos: 1, retain: true });
  for (const tenant of TENANTS) {
    const late = await connect(t, { tenant });
    await late.subscribeAsync(topic);
    const { payload, packet } = await receive(late);
    assert.deepEqual([payload.toString(), packet.retain], [tenant, true]);
    await late.publishAsync(topic, "", { qos: 1, retain: true });
  }
});

test("a will is published for those who vanish, and not for those who leave", async (t) => {
  const topic = unique("t/"), watcher = await connect(t);
  await watcher.subscribeAsync(topic, { qos: 1 });
  const will = (text) => ({ will: { topic, payload: Buffer.from(text), qos: 1, retain: false } });
  await (await connect(t, will("left"))).endAsync();
  const vanishing = await connect(t, will("vanished"));
  vanishing.stream.destroy();
  assert.deepEqual(await texts(watcher, 1), ["vanished"]);
  assert(await silent(watcher));
});

test("a session is resumed with what came meanwhile", async (t) => {
  const clientId = unique("c"), topic = unique("t/"), publisher = await connect(t, { tenant: "acme" });
  const first = await connect(t, { ...resuming, clientId, tenant: "acme" });
  await first.subscribeAsync(topic, { qos: 2 });
  await first.endAsync();
  for (const text of ["1", "2", "3"]) await publisher.publishAsync(topic, text, { qos: 2 });
  const stranger = await connect(t, { ...resuming, clientId, tenant: "globex" });
  const second = await connect(t, { ...resuming, clientId, tenant: "acme" });
  assert.deepEqual(await texts(second, 3), ["1", "2", "3"]);
  assert(await silent(second));
  assert.deepEqual(stranger.arrived, []);
  await stranger.endAsync();
});

test("the newer connection takes the session over", async (t) => {
  const clientId = unique("c"), older = await connect(t, { clientId });
  const told = V5 && event(older, "disconnect");
  const closed = event(older, "close");
  await connect(t, { clientId });
  await closed;
  if (V5) assert.equal((await told)[0].reasonCode, 0x8e);
});

test("a shared subscription divides the work", async (t) => {
  const topic = unique("t/"), publisher = await connect(t), members = [];
  for (let i = 0; i < 3; i++) {
    members.push(await connect(t));
    await members[i].subscribeAsync(`$share/g/${topic}`, { qos: 1 });
  }
  const expected = Array.from({ length: 30 }, (_, number) => String(number).padStart(2, "0"));
  for (const text of expected) await publisher.publishAsync(topic, text, { qos: 1 });
  const received = (await Promise.all(members.map((member) => texts(member, 10)))).flat();
  assert.deepEqual(received.sort(), expected);
});

test("unsubscribing ends it", async (t) => {
  const client = await connect(t), topic = unique("t/");
  await client.subscribeAsync([`${topic}/+`, `${topic}/#`]);
  await client.unsubscribeAsync([`${topic}/+`, `${topic}/#`]);
  await client.publishAsync(`${topic}/x`, "x", { qos: 1 });
  assert(await silent(client));
});
