import { setTimeout as sleep } from "node:timers/promises";
import { ResourceLockedError } from "./errors.js";
import type { Lock } from "./lock.js";
import { after, within } from "./timer.js";

/** Aborted when the lock is lost; `error` (and `reason`) say why. */
export type LockSignal = AbortSignal & { error?: Error };

/** The lock is given for its fence. */
export type Routine<T> = (signal: LockSignal, lock: Lock) => Promise<T>;

const NOT_EXTENDED = "The lock was not extended before its lease was over.";

const NOT_RELEASED = "The release was not answered before the lease was over.";

/** How long after the end of its lease, when nothing is left to release, a release is waited for. */
const ANSWER_MS = 2000;

/** Between two extensions at least. */
const RETRY_MS = 50;

/** When a lock is extended, and for how long. */
export interface Extensions {
  readonly duration: number;
  /** It is extended at a third of this, */
  readonly span: number;
  /** or this long before the end of its lease if that is sooner. */
  readonly threshold: number;
}

/** Runs the routine, extends the lock meanwhile if that is wanted, and releases it. */
export async function useLock<T>(
  lock: Lock,
  extensions: Extensions | undefined,
  routine: Routine<T>,
  release: () => Promise<unknown> = () => lock.release(),
): Promise<T> {
  const controller = new AbortController();
  const signal: LockSignal = controller.signal;
  let isOver = false;
  let isReleased = false;
  let cancelExtension = () => {};
  let cancelEnd = () => {};
  let failure: Error | undefined;
  // Without extensions the lease is the time that the job was given.
  let message = extensions ? NOT_EXTENDED : "The job took longer than `atMost`.";

  const stop = () => {
    isOver = true;
    cancelExtension();
    cancelEnd();
  };
  const lose = (error: Error) => {
    stop();
    signal.error = error;
    controller.abort(error);
  };
  // Not left to the extension, which may be waiting for a server that does not answer.
  const watchEnd = () => {
    cancelEnd();
    cancelEnd = after(lock.remaining, () => lose(new Error(message, { cause: failure })));
  };
  const keep = () => {
    failure = undefined;
    watchEnd();
    if (!extensions) return;
    cancelExtension();
    const { duration, span, threshold } = extensions;
    // Only an extension tells that the lock was taken away. So there are some in each lease.
    const pause = Math.max(RETRY_MS, Math.min(lock.remaining - threshold, span / 3));
    cancelExtension = after(pause, () => extend(duration));
  };
  const extend = async (duration: number) => {
    // At the end of the lease its timer tells what has failed.
    while (!isOver && lock.isValid) {
      try {
        await lock.redlock.extendOnce(lock, duration, { retryCount: 0 });
        return isOver || keep();
      } catch (error) {
        failure = error as Error;
        if (!isOver && failure.cause instanceof ResourceLockedError) lose(failure);
      }
      await sleep(RETRY_MS);
    }
  };

  keep();
  // The routine may extend it, too.
  lock.onLease = () => {
    if (isOver) return;
    // It is another lease now, also where a lost connection has cut it short.
    message = NOT_EXTENDED;
    watchEnd();
  };
  lock.onShortened = () => {
    if (isOver) return;
    keep();
    cancelExtension();
    if (extensions) void extend(extensions.duration);
  };
  // By the routine, too: that is no loss, and nothing is left to release.
  lock.onRelease = () => {
    isReleased = true;
    stop();
  };
  const releaseInTime = async () => {
    if (!isReleased) await within(lock.remaining + ANSWER_MS, release(), NOT_RELEASED);
  };
  let value: T;
  try {
    value = await routine(signal, lock);
    // The lease is asked, too: after a stop of the whole process its timer may not have had its turn.
    if (!isOver && !lock.isValid) lose(new Error("The lease was over before the routine was."));
    signal.throwIfAborted();
  } catch (error) {
    stop();
    // Nobody waits for a server that may not answer to release what is lost.
    const released = releaseInTime().catch(() => {});
    if (!signal.aborted) await released;
    throw error;
  }
  stop();
  await releaseInTime();
  return value;
}
