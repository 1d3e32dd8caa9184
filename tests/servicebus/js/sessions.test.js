// Message sessions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { after, bodies, complete, connect, left, path, send, silent, sleep, take } from "./client.js";

test("the messages of a session come in order", async (t) => {
  const client = connect(t), sent = Array.from({ length: 30 }, (_, number) => `${number}`);
  await send(client, "order", sent, { sessionId: "s" });
  const receiver = await client.acceptSession(path("order"), "s");
  const messages = await take(receiver, 30);
  assert.deepEqual(bodies(messages), sent);
  assert.deepEqual(messages.map((message) => Number(message.sequenceNumber)), sent.map((_, index) => index + 1));
  assert(messages.every((message) => message.sessionId === "s" && message.deliveryCount === 0));
  for (const message of messages.reverse()) await receiver.completeMessage(message);
  assert(await silent(receiver));
});

test("a receive call that was not filled leaves the link as good as before", async (t) => {
  const client = connect(t), receiver = await client.acceptSession(path("drain"), "s");
  for (const body of ["a", "b", "c"]) {
    assert(await silent(receiver));
    await send(client, "drain", [body], { sessionId: "s" });
    const messages = await receiver.receiveMessages(10, { maxWaitTimeInMs: 2000 });
    assert.deepEqual(bodies(messages), [body]);
    await receiver.completeMessage(messages[0]);
  }
});

test("a session has one holder", async (t) => {
  const client = connect(t), other = connect(t);
  await send(client, "held", ["a"], { sessionId: "s" });
  const holder = await client.acceptSession(path("held"), "s");
  const started = Date.now();
  for (const again of [client, other])
    await assert.rejects(again.acceptSession(path("held"), "s"), { code: "SessionCannotBeLocked" });
  assert(Date.now() - started < 5000, "at once");
  await holder.close();
  assert.deepEqual(await complete(await other.acceptSession(path("held"), "s"), 1), ["a"]);
});

test("the next session is the one whose message waits longest", async (t) => {
  const client = connect(t);
  for (const sessionId of ["b", "a", "c", "b"]) await send(client, "next", ["x"], { sessionId });
  const seen = [];
  for (let index = 0; index < 3; index++) seen.push((await client.acceptNextSession(path("next"))).sessionId);
  assert.deepEqual(seen, ["b", "a", "c"]);
});

test("acceptNextSession waits", async (t) => {
  const client = connect(t), waiting = client.acceptNextSession(path("waiting"));
  await sleep(700);
  await send(client, "waiting", ["a"], { sessionId: "s" });
  const receiver = await waiting;
  assert.equal(receiver.sessionId, "s");
  assert.deepEqual(await complete(receiver, 1), ["a"]);
});

test("acceptNextSession gives up", async (t) => {
  const client = connect(t, { timeoutInMs: 2000 }), started = Date.now();
  await assert.rejects(client.acceptNextSession(path("timeout")), { code: "ServiceTimeout" });
  const passed = Date.now() - started;
  assert(passed > 1500 && passed < 6000, `${passed} ms`);
});

test("the state of a session", async (t) => {
  const client = connect(t), receiver = await client.acceptSession(path("state"), "s");
  assert.equal(await receiver.getSessionState(), null);
  for (const state of [{ step: 1, of: "many" }, "text", 42, "x".repeat(100_000)]) {
    await receiver.setSessionState(state);
    assert.deepEqual(await receiver.getSessionState(), state);
  }
  await receiver.close();
  const again = await client.acceptSession(path("state"), "s");
  assert.equal((await again.getSessionState()).length, 100_000);
  await again.setSessionState(null);
  assert.equal(await again.getSessionState(), null);
});

test("renewal answers now and the lock duration", async (t) => {
  const client = connect(t);
  await send(client, "renewal", ["a"], { sessionId: "s" });
  const receiver = await client.acceptSession(path("renewal"), "s", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await take(receiver, 1);
  assert(Math.abs(message.lockedUntilUtc - receiver.sessionLockedUntilUtc) < 5);
  for (let index = 0; index < 2; index++) {
    await sleep(2200);
    const remaining = (await receiver.renewSessionLock()) - Date.now();
    assert(remaining > 2500 && remaining <= 4100, `${remaining} ms`);
  }
  await receiver.completeMessage(message);
});

test("the SDK renews by itself", async (t) => {
  const client = connect(t), other = connect(t);
  await send(client, "auto-renewal", ["a"], { sessionId: "s" });
  const receiver = await client.acceptSession(path("auto-renewal"), "s");
  const [message] = await take(receiver, 1);
  await sleep(5000);
  await assert.rejects(other.acceptSession(path("auto-renewal"), "s"), { code: "SessionCannotBeLocked" });
  await receiver.completeMessage(message);
});

test("nothing is settled after the lock is lost", async (t) => {
  const client = connect(t);
  await send(client, "lost", ["a"], { sessionId: "s" });
  const receiver = await client.acceptSession(path("lost"), "s", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await take(receiver, 1);
  await sleep(2300);
  await assert.rejects(receiver.completeMessage(message), { code: "SessionLockLost" });
  await assert.rejects(receiver.renewSessionLock());
  const again = await client.acceptSession(path("lost"), "s");
  const [message2] = await take(again, 1);
  assert.deepEqual([message2.body, message2.deliveryCount], ["a", 1]);
  await again.completeMessage(message2);
});

test("streaming a session, settled by the SDK", async (t) => {
  const client = connect(t), sent = Array.from({ length: 40 }, (_, number) => `${number}`), seen = [];
  await send(client, "streaming", sent.slice(0, 20), { sessionId: "s" });
  const receiver = await client.acceptNextSession(path("streaming"));
  const failures = [];
  receiver.subscribe({
    processMessage: async (message) => void seen.push(message.body),
    processError: async ({ error }) => void failures.push(error),
  });
  await send(client, "streaming", sent.slice(20), { sessionId: "s" });
  for (const until = Date.now() + 15_000; seen.length < 40 && Date.now() < until; ) await sleep(20);
  assert.deepEqual(seen, sent);
  assert.deepEqual(await left(client, "streaming"), [], "all are completed");
  await receiver.close();
  assert.deepEqual(failures, []);
});

test("what a handler throws on is abandoned, and in the end a dead letter", async (t) => {
  const client = connect(t), counts = [], failures = [];
  await send(client, "throwing", ["poison"], { sessionId: "s" });
  const receiver = await client.acceptSession(path("throwing"), "s");
  receiver.subscribe({
    processMessage: async (message) => {
      counts.push(message.deliveryCount);
      throw new Error("cannot");
    },
    processError: async ({ errorSource }) => void failures.push(errorSource),
  });
  const [dead] = await take(client.createReceiver(path("throwing"), { subQueueType: "deadLetter" }), 1);
  await sleep(200);
  await receiver.close();
  assert.deepEqual(counts, [0, 1, 2]);
  assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
  assert(failures.every((source) => source === "processMessageCallback"), `${failures}`);
});

test("an abandoned message comes back in its place, with what was changed", async (t) => {
  const client = connect(t);
  await send(client, "abandon", ["a", "b"], { sessionId: "s", applicationProperties: { kept: 1, changed: "old" } });
  const receiver = await client.acceptSession(path("abandon"), "s");
  const [first, second] = await take(receiver, 2);
  await receiver.abandonMessage(first, { changed: "new", added: true });
  const [again] = await take(receiver, 1);
  assert.deepEqual([again.body, again.deliveryCount], ["a", 1]);
  assert.deepEqual({ ...again.applicationProperties }, { kept: 1, changed: "new", added: true });
  await receiver.completeMessage(again);
  await receiver.completeMessage(second);
});

test("deferred messages are received by their number", async (t) => {
  const client = connect(t);
  await send(client, "defer", ["a", "b"], { sessionId: "s" });
  const receiver = await client.acceptSession(path("defer"), "s");
  const [first] = await take(receiver, 1);
  await receiver.deferMessage(first, { why: "not yet" });
  assert.deepEqual(await complete(receiver, 1), ["b"]);
  const [peeked] = await receiver.peekMessages(1);
  assert.deepEqual([peeked.body, peeked.state], ["a", "deferred"]);
  const [deferred] = await receiver.receiveDeferredMessages(first.sequenceNumber);
  assert.deepEqual([deferred.body, deferred.applicationProperties.why], ["a", "not yet"]);
  await receiver.completeMessage(deferred);
  await assert.rejects(receiver.receiveDeferredMessages(first.sequenceNumber), { code: "MessageNotFound" });
});

test("dead letters say why, and keep their session", async (t) => {
  const client = connect(t);
  await send(client, "dead", ["a", "b"], { sessionId: "s", messageId: "id" });
  const receiver = await client.acceptSession(path("dead"), "s");
  const [first, second] = await take(receiver, 2);
  await receiver.deadLetterMessage(first, { deadLetterReason: "reason", deadLetterErrorDescription: "description", extra: 7 });
  await receiver.deadLetterMessage(second);
  const letters = client.createReceiver(path("dead"), { subQueueType: "deadLetter" });
  const [one, two] = await take(letters, 2);
  assert.deepEqual([one.body, one.sessionId, one.messageId], ["a", "s", "id"]);
  assert.deepEqual([one.deadLetterReason, one.deadLetterErrorDescription, one.applicationProperties.extra], ["reason", "description", 7]);
  assert.equal(two.body, "b");
  for (const message of [one, two]) await letters.completeMessage(message);
});

test("browsing needs no session, nor a lock", async (t) => {
  const client = connect(t);
  for (const sessionId of ["a", "b", "a"]) await send(client, "browse", [sessionId], { sessionId });
  const holder = await client.acceptSession(path("browse"), "a");
  await take(holder, 1);
  const browser = client.createReceiver(path("browse"));
  assert.deepEqual(bodies(await browser.peekMessages(10)), ["a", "b", "a"]);
  assert.deepEqual(await browser.peekMessages(10), [], "it goes on where it was");
  const other = connect(t);
  assert.deepEqual(bodies(await (await other.acceptSession(path("browse"), "b")).peekMessages(10)), ["b"]);
});

test("scheduled messages of a session", async (t) => {
  const client = connect(t), sender = client.createSender(path("later"));
  const due = after(3000);
  const [kept, cancelled] = await sender.scheduleMessages(
    [{ body: "kept", sessionId: "s" }, { body: "cancelled", sessionId: "s" }], due);
  await sender.cancelScheduledMessages(cancelled);
  await assert.rejects(sender.cancelScheduledMessages(cancelled), { code: "MessageNotFound" });
  const receiver = await client.acceptSession(path("later"), "s");
  const [message] = await take(receiver, 1);
  assert(Date.now() >= due - 1);
  assert.equal(message.body, "kept");
  assert(Number(message.sequenceNumber) > Number(kept));
  assert.equal(+message.scheduledEnqueueTimeUtc, +due);
  assert(await silent(receiver));
});

test("what does not fit together is refused", async (t) => {
  const client = connect(t);
  await assert.rejects(send(client, "refused", ["a"]), /The SessionId was not set on a message/);
  await assert.rejects(client.createReceiver(path("refused")).receiveMessages(1, { maxWaitTimeInMs: 500 }), /requires sessions/);
  await assert.rejects(client.acceptSession(path("requests"), "s"));
  await assert.rejects(client.acceptNextSession(path("requests")), /does not require sessions/);
  await assert.rejects(client.acceptNextSession(path("nowhere")), { code: "MessagingEntityNotFound" });
});

test("workers share the sessions of one connection", async (t) => {
  const client = connect(t, { timeoutInMs: 5000 }), done = {};
  const sender = client.createSender(path("many"));
  const batch = [];
  for (let number = 0; number < 5; number++)
    for (let session = 0; session < 12; session++) batch.push({ body: number, sessionId: `s${session}` });
  await sender.sendMessages(batch);
  const work = async () => {
    for (;;) {
      let receiver;
      try {
        receiver = await client.acceptNextSession(path("many"));
      } catch (error) {
        assert.equal(error.code, "ServiceTimeout");
        return;
      }
      (done[receiver.sessionId] ??= []).push(...(await complete(receiver, 5)));
      await receiver.close();
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  assert.equal(Object.keys(done).length, 12);
  for (const numbers of Object.values(done)) assert.deepEqual(numbers, [0, 1, 2, 3, 4]);
});

test("sessions that are received and deleted", async (t) => {
  const client = connect(t);
  await send(client, "deleted", ["a", "b"], { sessionId: "s" });
  const receiver = await client.acceptSession(path("deleted"), "s", { receiveMode: "receiveAndDelete" });
  assert.deepEqual(bodies(await take(receiver, 2)), ["a", "b"]);
  await receiver.close();
  assert(await silent(await client.acceptSession(path("deleted"), "s")));
});

test("requests are answered by session", async (t) => {
  const client = connect(t);
  const inboxes = Object.fromEntries(await Promise.all(
    ["alice", "bob"].map(async (name) => [name, await client.acceptSession(path("replies"), name)])));
  for (const name of Object.keys(inboxes))
    await send(client, "requests", [`question of ${name}`], { replyTo: path("replies"), replyToSessionId: name, messageId: name });
  const worker = client.createReceiver(path("requests"));
  for (const request of await take(worker, 2)) {
    await client.createSender(request.replyTo).sendMessages({
      body: request.body.replace("question", "answer"), sessionId: request.replyToSessionId, correlationId: request.messageId,
    });
    await worker.completeMessage(request);
  }
  for (const [name, inbox] of Object.entries(inboxes)) {
    const [reply] = await take(inbox, 1);
    assert.deepEqual([reply.body, reply.correlationId], [`answer of ${name}`, name]);
  }
});
