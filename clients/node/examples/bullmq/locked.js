// Jobs of BullMQ that are not to run at the same time when they are about the same thing: one per customer, whatever queue or process
// they are in.
import { DelayedError } from "bullmq";
import { ExecutionError, ResourceLockedError } from "redis-lock-client";

/**
 * A processor for a `Worker`, which runs `process(job, signal, lock)` under the lock that `resourceOf(job)` names.
 *
 * A job that finds it held waits in the server's queue for `waitMs`, in order, and takes a place of the worker's `concurrency`
 * meanwhile. Then it goes back into BullMQ's queue for `delayMs`, so that the worker has room for other jobs.
 */
export function locked(
  redlock,
  resourceOf,
  process,
  { duration = 30_000, waitMs = 1000, delayMs = 1000 } = {},
) {
  const patience = { retryCount: waitMs > 0 ? 1 : 0, retryDelay: waitMs, retryJitter: 0 };
  return async (job, token) => {
    let hasBegun = false;
    try {
      return await redlock.using([resourceOf(job)], duration, patience, (signal, lock) => {
        hasBegun = true;
        return process(job, signal, lock);
      });
    } catch (error) {
      const isBusy = error instanceof ExecutionError && error.cause instanceof ResourceLockedError;
      if (hasBegun || !isBusy) throw error;
      await job.moveToDelayed(Date.now() + delayMs, token);
      // Says that the job has not ended, and has not failed either.
      throw new DelayedError();
    }
  };
}
