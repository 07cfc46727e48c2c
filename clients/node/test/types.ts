// Compiled, not run: the clients fit, and the types say what the README says.
import { Redis } from "ioredis";
import { createClient } from "redis";
import DefaultRedlock, { ExecutionError, type Lock, Redlock, type Settings } from "redis-lock-client";

const redlock: DefaultRedlock = new Redlock([new Redis(), createClient(), createClient({ RESP: 3 })], {
  retryCount: 3,
});

const lock: Lock = await redlock.acquire(["a"], 1000, { shared: true });
const fence: number = lock.fence;
const fences: ReadonlyArray<number | null> | undefined = lock.fences.get("a");
const length: number = await redlock.using(["a"], 1000, async (signal, { fence }) => {
  if (signal.aborted) throw signal.error;
  return `${fence}`.length;
});
redlock.on(
  "error",
  (error: unknown) => error instanceof ExecutionError && error.attempts[0]?.then((s) => s.quorumSize),
);

// @ts-expect-error a single resource is a list, too
await redlock.acquire("a", 1000);
// @ts-expect-error no such setting
const settings: Partial<Settings> = { retries: 3 };

export { fence, fences, length, settings };
