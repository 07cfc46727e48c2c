// One process with many clients that want one lock: each acquires, holds, releases, and again. Prints for each acquisition
// CLIENT ASKED_US GRANTED_US RELEASED_US; and `start` on stderr when the clock starts.
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Redis } from "ioredis";
import { Redlock } from "redis-lock-client";

const require = createRequire(import.meta.url);
const TTL_MS = 30_000;
/** All else by its default. In node-redlock: asks again after 200 ms, give or take 100. */
const SETTINGS = { retryCount: -1 };

/** Of node-redlock 4.2.0, the latest release, and 5.0.0-beta.2. */
const libraries = {
  "redis-lock": Redlock,
  redlock: require("redlock"),
  "redlock-5-beta": require("redlock-5").default,
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    list: { type: "boolean" },
    url: { type: "string", default: "redis://127.0.0.1:6379" },
    lock: { type: "string", default: "lock:bench" },
    clients: { type: "string", default: "10" },
    "hold-ms": { type: "string", default: "1" },
    seconds: { type: "string", default: "5" },
  },
});

if (values.list) {
  console.log(Object.keys(libraries).join("\n"));
} else {
  const Library = libraries[positionals[0]];
  if (!Library) throw new Error(`which library? ${Object.keys(libraries).join(", ")}`);
  await run(Library);
}

async function run(Library) {
  // As they are used in one process: one object over one connection, shared by all.
  const redis = new Redis(values.url);
  const redlock = new Library([redis], SETTINGS);
  const acquire = (key) => redlock.acquire([key], TTL_MS);
  const release = (lock) => (lock.unlock ?? lock.release).call(lock);
  await release(await acquire(`${values.lock}:warm-up`));

  const [lines, holdMs] = [[], Number(values["hold-ms"])];
  const start = performance.now();
  console.error("start");
  const now = () => Math.round((performance.now() - start) * 1000);
  const client = async (_, number) => {
    while (now() < Number(values.seconds) * 1e6) {
      const asked = now();
      const lock = await acquire(values.lock);
      const granted = now();
      // A timer takes a millisecond at least.
      if (holdMs > 0) await sleep(holdMs);
      await release(lock);
      lines.push(`${number} ${asked} ${granted} ${now()}`);
    }
  };
  await Promise.all(Array.from({ length: Number(values.clients) }, client));
  redis.disconnect();
  if (lines.length > 0) process.stdout.write(`${lines.join("\n")}\n`);
}
