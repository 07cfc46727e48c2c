import { performance } from "node:perf_hooks";
import { ResourceLockedError } from "./errors.js";
import type { Lock } from "./lock.js";
import { kindOf } from "./replies.js";
import { MAX_TIMER_MS } from "./timer.js";

/** Between two extensions at least. */
const RETRY_MS = 50;

/** A shorter linger makes no extensions more frequent. */
const SHORTEST_SPAN_MS = 300;

/** It may be early: by a millisecond, or because it is for longer than Node.js has a timer for. */
const after = (ms: number, run: () => void) => setTimeout(run, Math.min(Math.ceil(ms), MAX_TIMER_MS));

/** Watches the end of a lease, and extends it before, once it is asked to. */
export class Keeper {
  #isExtended = false;
  #end: NodeJS.Timeout | undefined;
  #extension: NodeJS.Timeout | undefined;
  #isExtending = false;
  #isOver = false;
  #failure: Error | undefined;
  /** Why the lock was lost at the end of its lease. */
  message = "The lock was not extended before its lease was over.";

  constructor(private readonly lock: Lock) {
    this.changed();
  }

  /** Begins to extend. */
  keep(): void {
    this.#isExtended = true;
    this.#plan();
  }

  /** The lease has another end. It is asked again when the timer fires, because answers of the connection move its end. */
  changed(): void {
    clearTimeout(this.#end);
    if (this.#isOver) return;
    const { lease } = this.lock;
    this.#end = after(lease.remaining(performance.now()), () => {
      if (lease.isValid(performance.now())) return this.changed();
      this.#lose(new Error(this.message, { cause: this.#failure }));
    });
  }

  /** The connection was lost: extends at once, for a hold that lingers is to be bound to the next one. */
  hurry(): void {
    clearTimeout(this.#extension);
    if (this.#isExtended && !this.#isExtending && !this.#isOver) void this.#extend();
  }

  stop(): void {
    this.#isOver = true;
    clearTimeout(this.#end);
    clearTimeout(this.#extension);
  }

  #lose(error: Error): void {
    if (this.#isOver) return;
    this.stop();
    this.lock.lose(error);
  }

  /** The next extension comes at a third of the time within which it is needed, or before the threshold if that is sooner. */
  #plan(): void {
    clearTimeout(this.#extension);
    if (this.#isOver || !this.#isExtended) return;
    const { lease, threshold, request } = this.lock;
    // One whose connection is lost lasts for the linger only.
    const { duration, linger = duration } = request;
    const third = Math.min(duration, Math.max(linger, SHORTEST_SPAN_MS)) / 3;
    // Of a duration shorter than the threshold a third is enough.
    const left = lease.remaining(performance.now()) - Math.min(threshold, duration / 3);
    this.#extension = after(Math.max(RETRY_MS, Math.min(left, third)), () => void this.#extend());
  }

  async #extend(): Promise<void> {
    this.#isExtending = true;
    try {
      await this.lock.extendOnce();
      this.#failure = undefined;
      this.#isExtending = false;
      this.changed();
      this.#plan();
    } catch (error) {
      this.#isExtending = false;
      this.#failure = error as Error;
      const { cause } = this.#failure;
      if (cause instanceof ResourceLockedError) return this.#lose(this.#failure);
      // A final error ends the extensions. The end of the lease tells of it.
      if (this.#isOver || kindOf(cause) === "final") return;
      this.#extension = after(RETRY_MS, () => void this.#extend());
    }
  }
}
