import { ExecutionError } from "./errors.js";
import type { Lock, Routine } from "./lock.js";
import type { Redlock } from "./redlock.js";
import type { Target } from "./request.js";
import { type Settings, withDefaults } from "./settings.js";

const MAX_RESOURCES = 128;

/** A routine, and settings before it if there are any. */
export type Use<T> = [routine: Routine<T>] | [settings: Partial<Settings>, routine: Routine<T>];

/** What is taken again and again in the same way: a semaphore, or several resources in one step, which have one fence. */
export class Taken {
  /** @internal */
  constructor(
    private readonly redlock: Redlock,
    private readonly target: Target,
  ) {
    checkNames(target.resources);
    const { length } = target.resources;
    if (length < 1 || length > MAX_RESOURCES)
      throw new RangeError(`There must be at least one resource to lock, and ${MAX_RESOURCES} at most.`);
  }

  /** Waits in the server's queue, as `redlock.acquire` does. Rejects with an `ExecutionError` when the waiting time is over. */
  async acquire(duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return (await this.redlock.take(this.target, duration, settings)).lock!;
  }

  /** Does not wait. Resolves with null if the lock is unavailable at the moment. */
  tryAcquire(duration: number, settings: Partial<Settings> = {}): Promise<Lock | null> {
    return this.acquire(duration, { ...settings, retryCount: 0 }).catch((error) => {
      if (error instanceof ExecutionError && error.code === "ERR_LOCK_TAKEN") return null;
      throw error;
    });
  }

  /** Runs the routine meanwhile, as `redlock.using` does. */
  async using<T>(duration: number, ...how: Use<T>): Promise<T> {
    const [settings, routine] = how.length === 2 ? how : [{}, how[0]];
    if (typeof routine !== "function") throw new Error("INVARIANT: routine is not a function.");
    const { automaticExtensionThreshold } = withDefaults(settings, this.redlock.settings);
    if (automaticExtensionThreshold > duration - 100)
      throw new Error(
        "A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.",
      );
    const lock = await this.acquire(duration, settings);
    return lock.keep().use(routine);
  }
}

/** JavaScript may pass a string, of which each letter would be a resource. */
export function checkNames(resources: readonly string[]): void {
  if (!Array.isArray(resources) || !resources.every((resource) => typeof resource === "string"))
    throw new TypeError('Resources are strings, and several are an array of them: ["stock:7"].');
}
