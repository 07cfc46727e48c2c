import type { Lock, LockSignal } from "./lock.js";
import type { Settings } from "./settings.js";
import { within } from "./timer.js";

/** What runs under a lock. The lock is given for its fence. */
export type Routine<T> = (signal: LockSignal, lock: Lock) => Promise<T>;

/** A routine, and settings before it if there are any. */
export type Use<T> = [routine: Routine<T>] | [settings: Partial<Settings>, routine: Routine<T>];

const NOT_RELEASED = "The release was not answered before the lease was over.";

/** How long after the end of its lease, when nothing is left to release, a release is waited for. */
const ANSWER_MS = 2000;

/** Runs the routine, and releases the lock unless the routine has done so. */
export async function useLock<T>(
  lock: Lock,
  routine: Routine<T>,
  release: () => Promise<unknown> = () => lock.release(),
): Promise<T> {
  const { signal } = lock;
  const releaseInTime = async () => {
    if (lock.ended === undefined) await within(lock.remaining + ANSWER_MS, release(), NOT_RELEASED);
  };
  let value: T;
  try {
    value = await routine(signal, lock);
    // The lease is asked, too: after a stop of the whole process its timer may not have had its turn.
    if (lock.ended === undefined && !lock.isValid && !signal.aborted)
      lock.lose(new Error("The lease was over before the routine was."));
    signal.throwIfAborted();
  } catch (error) {
    // Nobody waits for a server that may not answer to release what is lost.
    const released = releaseInTime().catch(() => {});
    if (!signal.aborted) await released;
    throw error;
  }
  await releaseInTime();
  return value;
}
