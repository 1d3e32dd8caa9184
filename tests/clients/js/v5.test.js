// What only MQTT 5 has.

import assert from "node:assert/strict";
import { test } from "node:test";
import { V5, connect, receive, silent, texts, unique } from "./client.js";

const v5 = (name, run) => V5 && test(name, run);

v5("properties are forwarded, user properties with duplicates", async (t) => {
  const client = await connect(t), topic = unique("t/");
  await client.subscribeAsync(topic, { qos: 1, properties: { subscriptionIdentifier: 268_435_455 } });
  const properties = {
    payloadFormatIndicator: true, contentType: "text/plain", responseTopic: "answers", correlationData: Buffer.from([0, 255]),
    userProperties: { a: ["1", "2"], b: "3" },
  };
  await client.publishAsync(topic, "x", { qos: 1, properties });
  const { subscriptionIdentifier, ...heard } = (await receive(client)).packet.properties;
  heard.userProperties = { ...heard.userProperties };
  assert.deepEqual(heard, properties);
  assert.equal(subscriptionIdentifier, 268_435_455);
});

v5("topic aliases in both directions", async (t) => {
  const publisher = await connect(t, { autoAssignTopicAlias: true });
  const subscriber = await connect(t, { properties: { topicAliasMaximum: 3 } });
  const topics = Array.from({ length: 5 }, () => unique("t/"));
  for (const topic of topics) await subscriber.subscribeAsync(topic);
  const expected = [];
  for (let round = 0; round < 20; round++)
    for (const topic of topics) {
      await publisher.publishAsync(topic, topic, { qos: 0 });
      expected.push(topic);
    }
  const received = [];
  while (received.length < expected.length) received.push(await receive(subscriber));
  assert.deepEqual(received.map(({ topic }) => topic), expected);
  assert.deepEqual(received.map(({ payload }) => payload.toString()), expected);
  const aliased = received.filter(({ packet }) => packet.properties?.topicAlias);
  assert(aliased.length > 0, "the broker assigns aliases to hot topics");
});

v5("Receive Maximum of one: messages come one after the other, and all of them", async (t) => {
  const publisher = await connect(t), topic = unique("t/");
  const slow = await connect(t, { properties: { receiveMaximum: 1 } });
  await slow.subscribeAsync(topic, { qos: 2 });
  const expected = Array.from({ length: 50 }, (_, number) => String(number));
  await Promise.all(expected.map((text) => publisher.publishAsync(topic, text, { qos: 2 })));
  assert.deepEqual(await texts(slow, 50), expected);
});

v5("what is too large for the subscriber is left out", async (t) => {
  const publisher = await connect(t), topic = unique("t/");
  const small = await connect(t, { properties: { maximumPacketSize: 500 } });
  await small.subscribeAsync(topic, { qos: 1 });
  await publisher.publishAsync(topic, Buffer.alloc(1000), { qos: 1 });
  await publisher.publishAsync(topic, "fits", { qos: 1 });
  assert.deepEqual(await texts(small, 1), ["fits"]);
});

v5("No Local and Retain Handling", async (t) => {
  const client = await connect(t), topic = unique("t/");
  await client.publishAsync(topic, "old", { qos: 1, retain: true });
  await client.subscribeAsync(topic, { qos: 1, nl: true, rh: 2 });
  await client.publishAsync(topic, "mine", { qos: 1 });
  assert(await silent(client));
  await client.publishAsync(topic, "", { qos: 1, retain: true });
});

v5("a client without identifier is given one", async (t) => {
  const [first, second] = [await connect(t, { clientId: "" }), await connect(t, { clientId: "" })];
  const names = [first, second].map((client) => client.connack.properties.assignedClientIdentifier);
  assert(names[0] && names[1] && names[0] !== names[1], names.join());
});

v5("an unknown authentication method is refused with 0x8C", async (t) => {
  await assert.rejects(connect(t, { properties: { authenticationMethod: "telepathy" } }), { code: 0x8c });
});
