// Prints what the clients of one process believe they hold, while servers fail over:
//
//     node beliefs.js PORT KEYS KEY CLIENTS TTL_MS HOLD_MS
//
// Each client takes one of so many locks, KEY0, KEY1, …, has it extended for so long, releases it, and begins again until the
// process is ended. Printed is a line for each hold: LOCK TOKEN FENCE FROM_US UNTIL_US, by the machine's monotonic clock. UNTIL is
// when it was last seen not to be lost. `start` goes to stderr.
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { Redlock } from "redis-lock-client";

const [port, keys, key, clients, ttlMs, holdMs] = process.argv
  .slice(2)
  .map((word) => (/^\d+$/.test(word) ? Number(word) : word));

const nowUs = () => Number(process.hrtime.bigint() / 1000n);

const redis = new Redis(port);
redis.on("error", (error) => console.error(error.message));
const redlock = new Redlock([redis], { retryCount: -1 });

async function client() {
  for (;;) {
    const name = `${key}${Math.floor(Math.random() * keys)}`;
    try {
      await redlock.using([name], ttlMs, (signal, lock) => hold(name, signal, lock));
    } catch (error) {
      console.error(error.message);
      await sleep(50);
    }
  }
}

async function hold(name, signal, lock) {
  const begun = nowUs();
  let until = begun;
  for (;;) {
    // The lock is looked at after the clock, so that it was held at that time.
    const now = nowUs();
    if (now >= begun + holdMs * 1000 || signal.aborted || !lock.isValid) break;
    until = now;
    await sleep(5);
  }
  console.log(`${name} ${lock.value} ${lock.fence} ${begun} ${until}`);
}

console.error("start");
for (let n = 0; n < clients; n++) client();
