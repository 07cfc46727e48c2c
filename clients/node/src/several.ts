import { ExecutionError } from "./errors.js";
import type { Lock } from "./lock.js";
import type { Redlock, Use } from "./redlock.js";
import type { Target } from "./request.js";
import type { Settings } from "./settings.js";

const MAX_PERMITS = 2 ** 31 - 1;
export const MAX_RESOURCES = 128;

/** What is taken again and again in the same way. */
export abstract class Taken {
  /** @internal */
  protected constructor(
    readonly redlock: Redlock,
    private readonly target: Target,
  ) {}

  /** Waits in the server's queue, as `redlock.acquire` does. Rejects with an `ExecutionError` when the waiting time is over. */
  acquire(duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return this.redlock.take(this.target, duration, settings);
  }

  /** Does not wait. Resolves with null if the lock is unavailable at the moment. */
  tryAcquire(duration: number, settings: Partial<Settings> = {}): Promise<Lock | null> {
    return this.acquire(duration, { ...settings, retryCount: 0 }).catch(nullIfHeld);
  }

  /** Runs the routine meanwhile, as `redlock.using` does. */
  using<T>(duration: number, ...how: Use<T>): Promise<T> {
    return this.redlock.use(this.target, duration, ...how);
  }
}

/** At most `permits` hold it at the same time. Each permit is a `Lock`, with its own token, lease and fence. */
export class Semaphore extends Taken {
  /** @internal */
  constructor(
    redlock: Redlock,
    readonly resource: string,
    readonly permits: number,
  ) {
    checkNames([resource]);
    if (!Number.isInteger(permits) || permits < 1 || permits > MAX_PERMITS)
      throw new RangeError(`The permits must be an integer from 1 to ${MAX_PERMITS}.`);
    super(redlock, { resources: [resource], limit: permits });
  }
}

/** Several resources, taken in one step or not at all. While it waits for them it holds none. They have one fence. */
export class MultiLock extends Taken {
  /** @internal */
  constructor(
    redlock: Redlock,
    readonly exclusive: readonly string[],
    readonly shared: readonly string[],
  ) {
    for (const list of [exclusive, shared]) checkNames(list);
    const resources = [...exclusive, ...shared];
    if (resources.length < 1 || resources.length > MAX_RESOURCES)
      throw new RangeError(`A multi-lock has from 1 to ${MAX_RESOURCES} resources.`);
    if (new Set(resources).size < resources.length)
      throw new Error("A resource of a multi-lock was named twice.");
    super(redlock, { resources, sharedFrom: exclusive.length });
  }
}

/** Null instead of the error that says that another has it. */
export function nullIfHeld(error: unknown): null {
  if (error instanceof ExecutionError && error.code === "ERR_LOCK_TAKEN") return null;
  throw error;
}

/** JavaScript may pass a string, of which each letter would be a resource. */
export function checkNames(resources: readonly string[]): void {
  if (!Array.isArray(resources) || !resources.every((resource) => typeof resource === "string"))
    throw new TypeError('Resources are strings, and several are an array of them: ["stock:7"].');
}
