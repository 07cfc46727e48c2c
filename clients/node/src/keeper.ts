import { performance } from "node:perf_hooks";
import { ResourceLockedError } from "./errors.js";
import type { Lease } from "./lease.js";
import { kindOf } from "./replies.js";
import { after } from "./timer.js";

/** Between two extensions at least. */
const RETRY_MS = 50;

/** A shorter linger makes no extensions more frequent. */
const SHORTEST_SPAN_MS = 300;

/** Within what time a lock is to be renewed: one whose connection is lost lasts for the linger only. */
export function spanOf(duration: number, linger = duration): number {
  return Math.min(duration, Math.max(linger, SHORTEST_SPAN_MS));
}

/** How long to wait before the next extension: it comes at a third of the span, or before the threshold if that is sooner. */
export function pauseBefore(remaining: number, span: number, threshold: number): number {
  return Math.max(RETRY_MS, Math.min(remaining - threshold, span / 3));
}

/** Timers and a clock, which a test may replace. */
export interface Clock {
  now(): number;
  after(ms: number, run: () => void): () => void;
}

export const CLOCK: Clock = { now: () => performance.now(), after };

/** What a keeper keeps. */
export interface Kept {
  readonly lease: Lease;
  /** Extends it once. */
  extend(): Promise<unknown>;
  /** The lock was lost. */
  lose(error: Error): void;
}

/** When to extend, and how soon before the end. */
export interface Schedule {
  readonly span: number;
  readonly threshold: number;
}

/** Watches the end of a lease, and extends it before, if a schedule is given. */
export class Keeper {
  #schedule: Schedule | undefined;
  #cancelEnd = () => {};
  #cancelExtension = () => {};
  #isExtending = false;
  #isOver = false;
  #failure: Error | undefined;
  /** Why the lock was lost at the end of its lease. */
  message = "The lock was not extended before its lease was over.";

  constructor(
    private readonly kept: Kept,
    private readonly clock: Clock = CLOCK,
  ) {
    this.#watchEnd();
  }

  /** Begins to extend. */
  keep(schedule: Schedule): void {
    this.#schedule ??= schedule;
    this.#plan();
  }

  /** The lease has another end. */
  changed(): void {
    if (!this.#isOver) this.#watchEnd();
  }

  /** The connection was lost: extends at once, for a hold that lingers is to be bound to the next one. */
  hurry(): void {
    this.#cancelExtension();
    if (this.#schedule && !this.#isExtending && !this.#isOver) void this.#extend();
  }

  stop(): void {
    this.#isOver = true;
    this.#cancelEnd();
    this.#cancelExtension();
  }

  /** The lease is asked again when its time has come, because answers of the connection move its end. */
  #watchEnd(): void {
    this.#cancelEnd();
    const { lease } = this.kept;
    this.#cancelEnd = this.clock.after(lease.remaining(this.clock.now()), () => {
      if (lease.isValid(this.clock.now())) return this.#watchEnd();
      this.#lose(new Error(this.message, { cause: this.#failure }));
    });
  }

  #lose(error: Error): void {
    if (this.#isOver) return;
    this.stop();
    this.kept.lose(error);
  }

  #plan(): void {
    this.#cancelExtension();
    if (this.#isOver || this.#schedule === undefined) return;
    const { span, threshold } = this.#schedule;
    const pause = pauseBefore(this.kept.lease.remaining(this.clock.now()), span, threshold);
    this.#cancelExtension = this.clock.after(pause, () => void this.#extend());
  }

  async #extend(): Promise<void> {
    this.#isExtending = true;
    try {
      await this.kept.extend();
      this.#failure = undefined;
      this.#isExtending = false;
      if (!this.#isOver) this.#watchEnd();
      this.#plan();
    } catch (error) {
      this.#isExtending = false;
      this.#failure = error as Error;
      const { cause } = this.#failure;
      if (cause instanceof ResourceLockedError) return this.#lose(this.#failure);
      // A final error ends the extensions. The end of the lease tells of it.
      if (this.#isOver || kindOf(cause) === "final") return;
      this.#cancelExtension = this.clock.after(RETRY_MS, () => void this.#extend());
    }
  }
}
