import { ExecutionError } from "./errors.js";
import { checked, type Redlock } from "./redlock.js";
import { kindOf } from "./replies.js";
import { checkDuration, DEFAULT_SETTINGS } from "./settings.js";
import { lockOf } from "./slot.js";
import { LATE, whenAborted, within } from "./timer.js";

/** How long the others wait between two questions where no connection waits for them. */
const ASK_AGAIN_MS = 100;

/** How long the look for a value may take, if the wait is shorter. */
const LOOK_MS = 1000;

type Seen = [value: Buffer | null, left: number];

/** Makes a value. The signal is aborted when the lock is lost. */
export type Make<T> = (signal: AbortSignal) => T | Promise<T>;

/** Of a value. Times are in milliseconds. */
export interface OnceSettings {
  /** How long the value lives. 60,000 */
  readonly keep?: number | undefined;
  /** How long before its end a caller makes the next one; at most half of `keep` counts. Null is never. 10,000 */
  readonly early?: number | XFetch | null | undefined;
  /** When the process of a maker dies, the next one makes the value after this time. It is renewed while the maker works. 30,000 */
  readonly ttl?: number | undefined;
  /** How long a caller waits for the value. `Infinity` is for ever. 5000 */
  readonly wait?: number | undefined;
  /** Ends the wait, and aborts the signal of the maker. */
  readonly signal?: AbortSignal | undefined;
}

/** How a value becomes text or bytes, and is read from them. */
export interface Packing<T> {
  readonly pack: (value: T) => string | Uint8Array;
  readonly unpack: (bytes: Buffer) => T;
}

/**
 * Values are made anew at random times before their end: the nearer it is, and the slower the making, the likelier. So the callers of a
 * value do not all find it early at the same moment (Vattani, Chierichetti and Lowenstein, 2015).
 */
export class XFetch {
  /** @internal How long the last making took. */
  measured = 0;

  /** `delta`: how long the making takes, measured if it is not given. `beta`: above 1 is sooner. */
  constructor(private readonly given: { readonly delta?: number; readonly beta?: number } = {}) {}

  /** @internal How long before its end a value counts as early this time. */
  draw(): number {
    const { delta = this.measured, beta = 1 } = this.given;
    return -delta * beta * Math.log(1 - Math.random());
  }
}

/**
 * The value under the key `name`: one of all callers makes it, and the others wait in the server's queue and get it.
 *
 * `make` returns text or bytes, and all callers, its own too, get text. With `pack` and `unpack` a value can be anything. The signal of
 * `make` is aborted when the lock is lost, and with the `signal` of the settings.
 *
 * A caller that finds the value early makes the next one, and the others use the old one, as it does itself if `make` fails. Otherwise an
 * error of `make` goes to its caller, and the next one in the queue makes the value. A maker that has lost its lock meanwhile gets its
 * value, which is not stored. Rejects with an `ExecutionError` when the wait is over, and on a server without LOCK.ONCE.
 */
export function once(
  redlock: Redlock,
  name: string,
  make: Make<string | Uint8Array>,
  settings?: OnceSettings,
): Promise<string>;
export function once<T>(
  redlock: Redlock,
  name: string,
  make: Make<T>,
  settings: OnceSettings & Packing<T>,
): Promise<T>;
export async function once<T>(
  redlock: Redlock,
  name: string,
  make: Make<T>,
  settings: OnceSettings & Partial<Packing<T>> = {},
): Promise<T> {
  const { keep = 60_000, early = 10_000, ttl = 30_000, wait = 5000, signal } = settings;
  const { pack = asIs, unpack = (bytes) => bytes.toString() as T } = settings;
  for (const duration of [keep, ttl]) checkDuration(duration);
  const drawn = early instanceof XFetch ? early.draw() : (early ?? 0);
  if (!(wait >= 0 && drawn >= 0)) throw new RangeError("`wait` and `early` must not be negative.");
  // A value must not be early from its first moment on.
  const earlyMs = Math.floor(Math.min(drawn, keep / 2));
  const key = redlock.server.driver.prefix + name;
  // The lock has a ttl, and no linger. There is no value in the fallback.
  const target = {
    resources: checked([name]),
    keys: [lockOf(key)],
    result: key,
    early: earlyMs,
    linger: undefined,
    fallback: false,
  };
  const until = performance.now() + wait;
  const [seen, left] = await look(redlock, key, wait, signal);
  if (seen !== null && (left < 0 || left > earlyMs)) return unpack(seen);
  const waitMs = seen === null ? Math.max(0, until - performance.now()) : 0;
  const retryCount = waitMs === Infinity ? -1 : waitMs / ASK_AGAIN_MS;
  const retries = { retryCount, retryDelay: ASK_AGAIN_MS, signal };
  const { lock, found = seen } = await redlock.take(target, ttl, retries).catch((error) => {
    // Nobody waits because of a value that is there, nor fails: another one has the lock, or the server could not be asked.
    const isPassing = error instanceof ExecutionError && /_(TAKEN|UNAVAILABLE)$/.test(error.code);
    if (seen !== null && isPassing) return { lock: undefined, found: undefined };
    throw error;
  });
  if (lock === undefined) return unpack(found!);
  let made: Buffer | undefined;
  const both = new AbortController();
  const forget = whenAborted((reason) => both.abort(reason), lock.signal, signal);
  try {
    await lock.keep().use(async () => {
      const start = performance.now();
      made = Buffer.from(pack(await make(both.signal)));
      if (early instanceof XFetch) early.measured = performance.now() - start;
      const save = () => redlock.server.exec(lock.request, ["SET", key, made!, "PX", keep]);
      const saving = redlock.insist(save, DEFAULT_SETTINGS, lock.lease);
      await within(Infinity, saving, LATE, lock.signal);
    });
  } catch (error) {
    if (made === undefined) {
      if (found === null || signal?.aborted) throw error;
      const told = new Error(`${name} could not be made anew, so the old value is used.`, { cause: error });
      redlock.tell(told).catch(() => {});
    }
    // Its maker gets a value that came too late to be stored.
    else if (error instanceof ExecutionError && error.code === "ERR_LOCK_REFUSED") throw error;
  } finally {
    forget();
  }
  return unpack(made ?? found!);
}

/** Without `pack`. */
function asIs(value: unknown): string | Uint8Array {
  if (typeof value === "string" || value instanceof Uint8Array) return value;
  throw new TypeError("A value is text or bytes, or `pack` makes them of it.");
}

/** The value, and how many milliseconds it lives. An error that passes is as no value: the acquire waits for its end, or finds it. */
async function look(redlock: Redlock, key: string, wait: number, signal?: AbortSignal): Promise<Seen> {
  try {
    const asking = (["GET", "PTTL"] as const).map((word) => redlock.server.send([word, key], key));
    const [value, left] = await within(Math.max(wait, LOOK_MS), Promise.all(asking), LATE, signal);
    return [value!.reply as Buffer | null, Number(left!.reply)];
  } catch (error) {
    signal?.throwIfAborted();
    if (kindOf(error) === "final") throw redlock.failed(error);
    return [null, -1];
  }
}
