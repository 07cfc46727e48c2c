// Compiled, not run: the clients fit, and the types say what the README says.
import { createServer } from "node:http";
import { Cluster, Redis } from "ioredis";
import * as valkey from "iovalkey";
import { createClient, createCluster, createSentinel } from "redis";
import DefaultRedlock, {
  type Client,
  ExecutionError,
  idempotency,
  type Lock,
  once,
  Redlock,
  type Settings,
  XFetch,
} from "redis-lock-client";

const redlock: DefaultRedlock = new Redlock([new Redis()], { retryCount: 3 });

const topologies: Client[] = [
  new Redis({ sentinels: [{ port: 26379 }], name: "main" }),
  new Cluster([{ port: 7000 }]),
  createClient({ RESP: 3 }),
  new valkey.Redis(),
  new valkey.Cluster([{ port: 7000 }]),
  createCluster({ rootNodes: [{ url: "redis://127.0.0.1:7000" }] }),
  createSentinel({ name: "main", sentinelRootNodes: [{ host: "127.0.0.1", port: 26379 }] }),
];

const lock: Lock = await redlock.acquire(["a"], 1000, { shared: true });
const length: number = await redlock.using(["a"], 1000, async (signal, { fence }) => {
  if (signal.aborted) throw signal.error;
  return `${fence}`.length;
});
redlock.on("error", (error) => error instanceof ExecutionError && error.attempts[0]);

const permit: Lock | null = await redlock.semaphore("pool", 3).tryAcquire(1000);
const several: Lock = await redlock.multiLock(["a"], ["b"]).acquire(1000, { linger: 2000 });
const reply: unknown = await several.exec("SET", "a", Buffer.of(1));
const result = await redlock.runOnce("report", { atMost: 60_000, atLeast: 1000 }, async () => 3);
const value: number | undefined = result.hasRun ? result.value : undefined;
await several.release({ atLeast: 1000 });

const page: string = await once(redlock, "page", (signal) => Buffer.from(`${signal.aborted}`), { keep: 9 });
const rates: { usd: number } = await once(redlock, "rates", () => ({ usd: 1 }), {
  pack: (value) => JSON.stringify(value),
  unpack: (bytes) => JSON.parse(bytes.toString()),
  early: new XFetch(),
});
createServer((request, response) => idempotency(redlock)(request, response, () => response.end()));
// @ts-expect-error what is no text needs pack and unpack
await once(redlock, "rates", () => ({ usd: 1 }));
// @ts-expect-error without atMost a dead owner would keep it for ever
await redlock.runOnce("report", {}, async () => {});
// @ts-expect-error a single resource is a list, too
await redlock.acquire("a", 1000);
// @ts-expect-error no such setting
const settings: Partial<Settings> = { retries: 3 };

export async function work(): Promise<number> {
  await using held = await redlock.acquire(["a"], 1000);
  return held.fence;
}

export { length, lock, page, permit, rates, reply, settings, topologies, value };
