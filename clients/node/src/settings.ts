import { setTimeout as sleep } from "node:timers/promises";
import { MAX_TIMER_MS } from "./timer.js";

export const DEFAULT_SETTINGS = {
  /** This part of the duration, and 2 ms, is taken off each lease, for clocks that run at different rates. 0.01, and not less */
  driftFactor: 0.01,
  /** With `retryDelay`: waits for `retryCount * retryDelay` in all. -1: as long as it takes. 10 */
  retryCount: 10,
  /** 200 */
  retryDelay: 200,
  /** Of a pause after an error, not of the waiting in the server's queue. 100 */
  retryJitter: 100,
  /** `using` extends the lock this long before its end at the latest, and anyway at a third of its duration. 500 */
  automaticExtensionThreshold: 500,
  /** Takes a shared hold (a reader's) instead of an exclusive one. */
  shared: false,
  /** The longest single wait in the server. A shorter one notices a dead server sooner. The place in the queue outlives it. 5000 */
  blockSlice: 5000,
  /**
   * How long the server keeps the place in the queue while nobody listens for it: between two slices, and after a lost connection. It must
   * outlive a reconnect and `retryDelay`. A client that dies while it waits delays those behind it by this. 5000
   */
  grace: 5000,
  /**
   * `block`: each waiter has a connection of its own, up to `maxWaitingConnections`. `notify`: all waiters of a client share one
   * connection, which listens to a channel. "block"
   */
  waitBy: "block" as "block" | "notify",
  /**
   * When the connection of this package is lost, the lock ends this long after it, so that a process that dies does not hold it for the
   * rest of its duration. The lease is over this long after the last moment at which the connection was known to live; it is asked at a
   * third of this time. Off unless set. It must outlive a reconnect.
   */
  linger: undefined as number | undefined,
  /**
   * On a server without the redis-lock module: uses `SET NX PX` and Lua scripts instead of rejecting with `ERR_LOCK_NO_MODULE`. A warning
   * names what is lost. Of the constructor only. false
   */
  fallback: false,
  /** How many connections may wait in the server; of the constructor only. 10 */
  maxWaitingConnections: 10,
  /** Ends a wait: the acquire leaves the queue and rejects with the signal's reason. Of a call. */
  signal: undefined as AbortSignal | undefined,
};

/** All settings of node-redlock, and more. Times are in milliseconds. */
export interface Settings extends Readonly<typeof DEFAULT_SETTINGS> {}

/** Of a release. */
export interface ReleaseSettings extends Partial<Settings> {
  /** The resource stays locked until this long after it was granted, by the server's clock. */
  readonly atLeast?: number | undefined;
}

/** Of `runOnce`. Nobody else runs the job for `atLeast` milliseconds after it began, however short it was. */
export interface RunOnceSettings extends ReleaseSettings {
  /** The lock ends this long after it was taken, and is not extended: choose more than the job ever takes. */
  readonly atMost: number;
}

/** The longest ttl that the module knows. */
const MAX_DURATION_MS = 2 ** 48;

/** Names that are no settings do not count. */
export function withDefaults(settings: Partial<Settings>, defaults: Settings): Settings {
  const given = Object.entries(settings).filter(([name, value]) => name in defaults && value !== undefined);
  return given.length === 0 ? defaults : { ...defaults, ...Object.fromEntries(given) };
}

export function checkRange(what: string, value: number, from: number, to: number): void {
  if (!Number.isInteger(value) || value < from || value > to)
    throw new RangeError(`${what} must be an integer from ${from} to ${to}.`);
}

export function checkDuration(duration: number): void {
  checkRange("The duration in milliseconds", duration, 1, MAX_DURATION_MS);
}

/** Until when an operation that begins now may wait: the retries of node-redlock, as time. */
export function deadlineOf({ retryCount, retryDelay }: Settings): number {
  return retryCount === -1 ? Infinity : performance.now() + retryCount * retryDelay;
}

/** Pauses after an attempt that failed. Another one follows, however little time is left. */
export function pause({ retryDelay, retryJitter }: Settings): Promise<unknown> {
  const ms = retryDelay + (Math.random() * 2 - 1) * retryJitter;
  return sleep(Math.min(Math.max(1, ms), MAX_TIMER_MS));
}
