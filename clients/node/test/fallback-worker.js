// A process that takes a lock of a server without the module again and again, and prints how many held it at the same time as it.
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redis-lock-client";
import { libraries } from "./harness.js";

const [port, library, waitBy, key] = process.argv.slice(2);
const client = await libraries[library].connect(Number(port));
const settings = { retryCount: -1, retryDelay: 10, retryJitter: 8, waitBy, fallback: true };
const redlock = new Redlock([client], settings);
const count = (command) =>
  "call" in client ? client.call(command, `${key} inside`) : client.sendCommand([command, `${key} inside`]);
for (let i = 0; i < 10; i++) {
  await redlock.using([key], 5000, async () => {
    console.log(Number(await count("INCR")));
    await sleep(5);
    await count("DECR");
  });
}
await libraries[library].end(client);
