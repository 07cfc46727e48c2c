// A process that takes permits of a semaphore again and again, and prints how many held one at the same time as it.
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redis-lock-client";
import { libraries } from "./harness.js";

const [port, library, waitBy, key, permits] = process.argv.slice(2);
const client = await libraries[library].connect(Number(port));
const semaphore = new Redlock([client], { retryCount: -1, waitBy }).semaphore(key, Number(permits));
const count = (command) =>
  "call" in client ? client.call(command, `${key} inside`) : client.sendCommand([command, `${key} inside`]);
for (let i = 0; i < 4; i++) {
  await semaphore.using(5000, async () => {
    console.log(Number(await count("INCR")));
    await sleep(100);
    await count("DECR");
  });
}
await libraries[library].end(client);
