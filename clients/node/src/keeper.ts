import { performance } from "node:perf_hooks";
import { ResourceLockedError } from "./errors.js";
import type { Lock } from "./lock.js";
import { kindOf } from "./replies.js";
import { MAX_TIMER_MS } from "./timer.js";

/** Between two extensions at least. */
const RETRY_MS = 50;

/** A shorter linger makes no extensions more frequent. */
const SHORTEST_SPAN_MS = 300;

/** Watches the end of a lease, and extends it before, once it is asked to. */
export class Keeper {
  /** When the next extension is to begin. */
  #due = Infinity;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;
  #failure: Error | undefined;

  constructor(private readonly lock: Lock) {
    this.changed();
  }

  /** Extends the lock from now on: at a third of the time within which it is needed, or before the threshold if that is sooner. */
  keep(): void {
    const { lease, threshold, request } = this.lock;
    // One whose connection is lost lasts for the linger only.
    const { duration, linger = duration } = request;
    const third = Math.min(duration, Math.max(linger, SHORTEST_SPAN_MS)) / 3;
    // Of a duration shorter than the threshold a third is enough.
    const left = lease.remaining(performance.now()) - Math.min(threshold, duration / 3);
    this.#extendIn(Math.max(RETRY_MS, Math.min(left, third)));
  }

  /** The connection was lost: extends at once, for a hold that lingers is to be bound to the next one. */
  hurry(): void {
    if (this.#due < Infinity) this.#extendIn(0);
  }

  /** The lease has another end. It is asked again when the timer fires, because answers of the connection move its end. */
  changed(): void {
    clearTimeout(this.#timer);
    if (this.#isOver) return;
    const now = performance.now();
    const ms = Math.max(0, Math.min(this.lock.lease.remaining(now), this.#due - now));
    // It may be early: by a millisecond, or because it is for longer than Node.js has a timer for.
    this.#timer = setTimeout(() => this.#wake(), Math.min(Math.ceil(ms), MAX_TIMER_MS));
  }

  stop(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #wake(): void {
    const now = performance.now();
    if (!this.lock.lease.isValid(now)) this.#lose(new Error(this.lock.endMessage, { cause: this.#failure }));
    else if (now >= this.#due) void this.#extend();
    else this.changed();
  }

  #extendIn(ms: number): void {
    this.#due = performance.now() + ms;
    this.changed();
  }

  async #extend(): Promise<void> {
    this.#extendIn(Infinity);
    try {
      await this.lock.extendOnce();
      this.#failure = undefined;
      this.keep();
    } catch (error) {
      this.#failure = error as Error;
      const { cause } = this.#failure;
      if (cause instanceof ResourceLockedError) this.#lose(this.#failure);
      // A final error ends the extensions. The end of the lease tells of it.
      else if (kindOf(cause) !== "final") this.#extendIn(RETRY_MS);
    }
  }

  #lose(error: Error): void {
    if (this.#isOver) return;
    this.stop();
    this.lock.lose(error);
  }
}
