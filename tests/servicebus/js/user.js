// A user on rhea: sends a message to a queue, receives it, and says each thing that happens as a line.
//
// node user.js PORT USER PASSWORD QUEUE

import rhea from "rhea";

const [port, username, password, queue] = process.argv.slice(2);
const say = (line) => console.log(line);
const connection = rhea.connect({ host: "127.0.0.1", port: Number(port), username, password, reconnect: false, container_id: "box-1" });
connection.on("connection_error", ({ error }) => say(`refused ${error?.condition ?? error?.message ?? error}`));
connection.on("connection_close", () => say("closed"));
connection.on("disconnected", () => process.exit());
connection.on("connection_open", () => {
  say("open");
  const sender = connection.open_sender(queue);
  sender.on("sender_error", () => say(`sender ${sender.error.condition}`));
  sender.once("sendable", () => sender.send({ body: "hello" }));
  sender.once("accepted", () => say("sent"));
  const receiver = connection.open_receiver(queue);
  receiver.on("receiver_error", () => say(`receiver ${receiver.error.condition}`));
  receiver.on("message", ({ message }) => {
    say(`received ${message.body}`);
    setTimeout(() => connection.close(), 200);
  });
  setTimeout(() => connection.close(), 3_000);
});
