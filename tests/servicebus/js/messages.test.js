// Queues without sessions, and what messages are made of.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { after, bodies, complete, connect, left, path, send, silent, sleep, take } from "./client.js";

test("a batch that is as full as it can be", async (t) => {
  const client = connect(t), sender = client.createSender(path("batches"));
  const batch = await sender.createMessageBatch();
  let count = 0;
  while (batch.tryAddMessage({ body: `${count}`.padStart(1000, "0") })) count++;
  assert(count > 200);
  await sender.sendMessages(batch);
  const receiver = client.createReceiver(path("batches"), { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await take(receiver, count, 15)).map(Number), Array.from({ length: count }, (_, number) => number));
});

test("every property comes back", async (t) => {
  const client = connect(t), when = new Date(1_700_000_000_123);
  const applicationProperties = { text: "ü", int: 7, float: 1.5, yes: true, no: false, none: null, when };
  const sent = {
    body: { json: [1, null, "x"] }, messageId: "id", correlationId: "correlation", subject: "subject", contentType: "application/json",
    to: "to", replyTo: "reply to", replyToSessionId: "reply session", partitionKey: "key", timeToLive: 180_000, applicationProperties,
  };
  await client.createSender(path("properties")).sendMessages(sent);
  const [got] = await take(client.createReceiver(path("properties")), 1);
  for (const [name, value] of Object.entries(sent)) {
    // The SDK makes numbers of dates here.
    if (name === "applicationProperties") assert.deepEqual({ ...got[name] }, { ...value, when: +when });
    else assert.deepEqual(got[name], value, name);
  }
  assert(Math.abs(got.enqueuedTimeUtc - Date.now()) < 5000);
  assert.equal(got.expiresAtUtc - got.enqueuedTimeUtc, 180_000);
  assert(got.lockToken && got.state === "active");
  assert.equal(Number(got.enqueuedSequenceNumber), Number(got.sequenceNumber));
});

test("bodies of all kinds come back", async (t) => {
  const client = connect(t), sender = client.createSender(path("bodies"));
  const kinds = [["value", { a: "b", n: 1 }], ["sequence", [[1, 2], ["three"]]], ["data", Buffer.from([0, 255, 1])], ["value", null]];
  for (const [bodyType, body] of kinds) await sender.sendMessages({ body, bodyType });
  const messages = await take(client.createReceiver(path("bodies")), kinds.length);
  for (const [index, [bodyType, body]] of kinds.entries()) {
    assert.equal(messages[index]._rawAmqpMessage.bodyType, bodyType);
    assert.deepEqual(JSON.parse(JSON.stringify(messages[index].body)), JSON.parse(JSON.stringify(body)), bodyType);
  }
});

test("large messages", async (t) => {
  const client = connect(t), sender = client.createSender(path("large")), receiver = client.createReceiver(path("large"));
  for (const size of [0, 65_536, 300_000, 900 * 1024]) {
    const body = randomBytes(size);
    await sender.sendMessages({ body });
    const [message] = await take(receiver, 1);
    assert(Buffer.from(message.body).equals(body), `${size} bytes`);
    await receiver.completeMessage(message);
  }
  await assert.rejects(sender.sendMessages({ body: randomBytes(1100 * 1024) }), { code: "MessageSizeExceeded" });
  await sender.sendMessages({ body: "after" });
  assert.deepEqual(await complete(receiver, 1), ["after"]);
});

test("an iterator", async (t) => {
  const client = connect(t), receiver = client.createReceiver(path("iterator"));
  await send(client, "iterator", ["a", "b", "c"]);
  const seen = [];
  for await (const message of receiver.getMessageIterator({ maxWaitTimeInMs: 5000 })) {
    seen.push(message.body);
    await receiver.completeMessage(message);
    if (seen.length === 3) break;
  }
  assert.deepEqual(seen, ["a", "b", "c"]);
});

test("a subscription with several calls at once", async (t) => {
  const client = connect(t), seen = [], failures = [];
  const receiver = client.createReceiver(path("subscribed"));
  receiver.subscribe(
    {
      processMessage: async (message) => {
        await sleep(5);
        seen.push(message.body);
      },
      processError: async ({ error }) => void failures.push(error),
    },
    { maxConcurrentCalls: 10 },
  );
  await client.createSender(path("subscribed")).sendMessages(Array.from({ length: 100 }, (_, number) => ({ body: number })));
  for (const until = Date.now() + 15_000; seen.length < 100 && Date.now() < until; ) await sleep(20);
  assert.deepEqual(await left(client, "subscribed"), []);
  await receiver.close();
  assert.deepEqual(seen.sort((a, b) => a - b), Array.from({ length: 100 }, (_, number) => number));
  assert.deepEqual(failures, []);
});

test("the lock of a message is renewed, by hand and by the SDK", async (t) => {
  const client = connect(t);
  await send(client, "locks", ["by hand", "by the SDK"]);
  const manual = client.createReceiver(path("locks"), { maxAutoLockRenewalDurationInMs: 0 });
  const automatic = client.createReceiver(path("locks"));
  const [first] = await take(manual, 1), [second] = await take(automatic, 1);
  for (let index = 0; index < 2; index++) {
    await sleep(2200);
    const remaining = (await manual.renewMessageLock(first)) - Date.now();
    assert(remaining > 2500 && remaining <= 4100, `${remaining} ms`);
  }
  await manual.completeMessage(first);
  await automatic.completeMessage(second);
  assert(await silent(manual));
});

test("a lost lock is noticed", async (t) => {
  const client = connect(t);
  await send(client, "expired-locks", ["a"]);
  const receiver = client.createReceiver(path("expired-locks"), { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await take(receiver, 1);
  await sleep(2300);
  await assert.rejects(receiver.completeMessage(message), { code: "MessageLockLost" });
  await assert.rejects(receiver.renewMessageLock(message), { code: "MessageLockLost" });
  const [again] = await take(receiver, 1);
  assert.deepEqual([again.body, again.deliveryCount], ["a", 1]);
  await receiver.completeMessage(again);
});

test("receive and delete", async (t) => {
  const client = connect(t);
  await send(client, "plain-deleted", ["a", "b", "c"]);
  const receiver = client.createReceiver(path("plain-deleted"), { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await take(receiver, 3)), ["a", "b", "c"]);
  assert.deepEqual(await receiver.peekMessages(5), []);
});

test("dead letters are received, settled and browsed", async (t) => {
  const client = connect(t);
  await send(client, "plain-dead", ["a", "b"]);
  const receiver = client.createReceiver(path("plain-dead"));
  for (const message of await take(receiver, 2)) await receiver.deadLetterMessage(message, { deadLetterReason: message.body });
  const dead = client.createReceiver(path("plain-dead"), { subQueueType: "deadLetter" });
  assert.deepEqual((await dead.peekMessages(5)).map((message) => message.deadLetterReason), ["a", "b"]);
  assert.deepEqual(await complete(dead, 2), ["a", "b"]);
  assert(await silent(dead));
});

test("scheduled messages", async (t) => {
  const client = connect(t), sender = client.createSender(path("plain-later"));
  const [first] = await sender.scheduleMessages([{ body: "cancelled" }, { body: "kept" }], after(4000));
  await sender.sendMessages({ body: "by property", scheduledEnqueueTimeUtc: after(4500) });
  await sender.cancelScheduledMessages(first);
  const receiver = client.createReceiver(path("plain-later"));
  assert.deepEqual((await receiver.peekMessages(5)).map((message) => message.state), ["scheduled", "scheduled"]);
  assert(await silent(receiver));
  assert.deepEqual(await complete(receiver, 2), ["kept", "by property"]);
});

test("deferred messages", async (t) => {
  const client = connect(t);
  await send(client, "plain-defer", ["a", "b"]);
  const receiver = client.createReceiver(path("plain-defer"));
  const messages = await take(receiver, 2);
  for (const message of messages) await receiver.deferMessage(message);
  const numbers = messages.map((message) => message.sequenceNumber);
  const deferred = await receiver.receiveDeferredMessages(numbers);
  assert.deepEqual(bodies(deferred), ["a", "b"]);
  await receiver.completeMessage(deferred[0]);
  await receiver.deadLetterMessage(deferred[1], { deadLetterReason: "no" });
  await assert.rejects(receiver.receiveDeferredMessages(numbers), { code: "MessageNotFound" });
});

test("browsing from a number", async (t) => {
  const client = connect(t), sender = client.createSender(path("plain-browse"));
  await sender.sendMessages(Array.from({ length: 250 }, (_, number) => ({ body: `${number}`.padStart(500, "0") })));
  const receiver = client.createReceiver(path("plain-browse"));
  const all = await receiver.peekMessages(250);
  assert.equal(all.length, 250);
  const [from] = await receiver.peekMessages(1, { fromSequenceNumber: all[99].sequenceNumber });
  assert.equal(Number(from.body), 99);
});

test("what is not there, and who may not", async (t) => {
  const client = connect(t);
  await assert.rejects(send(client, "nowhere", ["a"]), { code: "MessagingEntityNotFound" });
  await assert.rejects(client.createReceiver(path("nowhere")).receiveMessages(1), { code: "MessagingEntityNotFound" });
  const key = process.env.SERVICE_BUS;
  const stranger = connect(t, { connectionString: key.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=wrong") });
  await assert.rejects(stranger.createSender(path("plain")).sendMessages({ body: "a" }), { code: "UnauthorizedAccess" });
});
