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

/** As they are used in one process: one object over one connection, shared by all. */
const libraries = {
  "redis-lock"(redis) {
    const redlock = new Redlock([redis], SETTINGS);
    return { acquire: (key) => redlock.acquire([key], TTL_MS), release: (lock) => lock.release() };
  },
  /** node-redlock 4.2.0, the latest release. */
  redlock(redis) {
    const redlock = new (require("redlock"))([redis], SETTINGS);
    return { acquire: (key) => redlock.acquire(key, TTL_MS), release: (lock) => lock.unlock() };
  },
  /** node-redlock 5.0.0-beta.2. */
  "redlock-5-beta"(redis) {
    const redlock = new (require("redlock-5").default)([redis], SETTINGS);
    return { acquire: (key) => redlock.acquire([key], TTL_MS), release: (lock) => lock.release() };
  },
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
  const create = libraries[positionals[0]];
  if (!create) throw new Error(`which library? ${Object.keys(libraries).join(", ")}`);
  await run(create);
}

async function run(create) {
  const redis = new Redis(values.url);
  const { acquire, release } = create(redis);
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
