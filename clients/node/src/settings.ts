import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { MAX_TIMER_MS } from "./timer.js";

/** All settings of node-redlock, and more. Times are in milliseconds. */
export interface Settings {
  /** This part of the duration, and 2 ms, is taken off each lease, for clocks that run at different rates. 0.01, and not less */
  readonly driftFactor: number;
  /** With `retryDelay`: waits for `retryCount * retryDelay` in all. -1: as long as it takes. 10 */
  readonly retryCount: number;
  /** 200 */
  readonly retryDelay: number;
  /** Of a pause after an error, not of the waiting in the server's queue. 100 */
  readonly retryJitter: number;
  /** `using` extends the lock this long before its end at the latest, and anyway at a third of its duration. 500 */
  readonly automaticExtensionThreshold: number;
  /** Takes a shared hold (a reader's) instead of an exclusive one. */
  readonly shared: boolean;
  /** The longest single wait in the server. A shorter one notices a dead server sooner. The place in the queue outlives it. 5000 */
  readonly blockSlice: number;
  /**
   * How long the server keeps the place in the queue while nobody listens for it: between two slices, and after a lost connection. It must
   * outlive a reconnect and `retryDelay`. A client that dies while it waits delays those behind it by this. 5000
   */
  readonly grace: number;
  /**
   * `block`: each waiter has a connection of its own, up to `maxWaitingConnections`. `notify`: all waiters of a client share one
   * connection, which listens to a channel. "block"
   */
  readonly waitBy: "block" | "notify";
  /**
   * When the connection of this package is lost, the lock ends this long after it, so that a process that dies does not hold it for the
   * rest of its duration. The lease is over this long after the last moment at which the connection was known to live; it is asked at a
   * third of this time. Off unless set. It must outlive a reconnect.
   */
  readonly linger: number | undefined;
  /**
   * On a server without the redis-lock module: uses `SET NX PX` and Lua scripts instead of rejecting with `ERR_LOCK_NO_MODULE`. A warning
   * names what is lost. Of the constructor only. false
   */
  readonly fallback: boolean;
  /** How many connections may wait in the server; of the constructor only. 10 */
  readonly maxWaitingConnections: number;
  /** Ends a wait: the acquire leaves the queue and rejects with the signal's reason. Of a call. */
  readonly signal: AbortSignal | undefined;
}

/** Of a release. */
export interface ReleaseSettings extends Partial<Settings> {
  /** The resource stays locked until this long after it was granted, by the server's clock. */
  readonly atLeast?: number | undefined;
}

/** Of `runOnce`. */
export interface RunOnceSettings extends Partial<Settings> {
  /** The lock ends this long after it was taken, and is not extended: choose more than the job ever takes. */
  readonly atMost: number;
  /** Nobody else runs the job for this long after it began, however short it was. 0 */
  readonly atLeast?: number | undefined;
}

export const DEFAULT_SETTINGS: Settings = Object.freeze({
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
  shared: false,
  blockSlice: 5000,
  grace: 5000,
  waitBy: "block",
  linger: undefined,
  fallback: false,
  maxWaitingConnections: 10,
  signal: undefined,
});

/** The longest ttl, grace and number of permits that the module knows. */
const MAX_DURATION_MS = 2 ** 48;
const MAX_GRACE_MS = 3_600_000;

export function withDefaults(settings: Partial<Settings>, defaults: Settings): Settings {
  const given = Object.entries(settings).filter(([, value]) => value !== undefined);
  return given.length === 0 ? defaults : { ...defaults, ...Object.fromEntries(given) };
}

export function checkSettings({ grace, waitBy, linger }: Settings): void {
  // The connection is asked at a third of it, and the lease is over without an answer.
  if (linger !== undefined && !(Number.isInteger(linger) && linger >= 100 && linger <= MAX_DURATION_MS))
    throw new RangeError("The linger must be an integer from 100 to 2^48 milliseconds.");
  if (!Number.isInteger(grace) || grace < 1 || grace > MAX_GRACE_MS)
    throw new RangeError(`The grace must be an integer from 1 to ${MAX_GRACE_MS} milliseconds.`);
  if (waitBy !== "block" && waitBy !== "notify")
    throw new RangeError('Redlock waits by "block" or by "notify".');
}

export function checkDuration(duration: number): void {
  if (!Number.isInteger(duration)) throw new Error("Duration must be an integer value in milliseconds.");
  if (duration < 1 || duration > MAX_DURATION_MS)
    throw new RangeError("Duration must be from 1 to 2^48 milliseconds.");
}

/** How long an operation may still wait: the retries of node-redlock, as time. */
export class Patience {
  #left: number;

  constructor(private readonly settings: Settings) {
    const { retryCount, retryDelay } = settings;
    this.#left = retryCount === -1 ? Infinity : retryCount * retryDelay;
  }

  get left(): number {
    return Math.max(0, Math.floor(this.#left));
  }

  /** Waits for this, and counts the time. */
  async spend<T>(wait: () => Promise<T>): Promise<T> {
    const start = performance.now();
    try {
      return await wait();
    } finally {
      this.#left -= performance.now() - start;
    }
  }

  /** Sleeps for so long, but not longer than there is time. */
  sleep(ms: number): Promise<unknown> {
    return this.spend(() => sleep(Math.min(ms, this.left)));
  }

  /**
   * Pauses after an attempt that failed. It counts as one retry, however long it is, so that there are `retryCount` of them; as the time
   * that the attempt took, if that was longer.
   */
  async pause(took = 0): Promise<void> {
    const { retryDelay, retryJitter } = this.settings;
    this.#left -= Math.max(retryDelay, took);
    const ms = retryDelay + (Math.random() * 2 - 1) * retryJitter;
    await sleep(Math.min(Math.max(1, ms), MAX_TIMER_MS));
  }
}
