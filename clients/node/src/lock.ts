/// <reference lib="esnext.disposable" preserve="true" />
import { performance } from "node:perf_hooks";
import type { Argument } from "./driver.js";
import type { ExecutionResult, ExecutionStats } from "./errors.js";
import { Keeper } from "./keeper.js";
import type { Lease } from "./lease.js";
import type { Redlock } from "./redlock.js";
import type { Request } from "./request.js";
import type { ReleaseSettings, Settings } from "./settings.js";
import { Measured } from "./telemetry.js";

/** Aborted when the lock is lost; `error` (and `reason`) say why. */
export type LockSignal = AbortSignal & { error?: Error };

/** A lock that is held, or was. */
export class Lock implements ExecutionResult {
  readonly resources: readonly string[];
  /** The token, by which the server knows the owner. */
  readonly value: string;
  readonly #controller = new AbortController();
  readonly #hold: Measured;
  #keeper: Keeper | undefined;
  /** @internal How many extensions were sent. */
  extensions = 0;
  /** @internal Once a release was sent: until when its answer counts as one to this hold, and whether one was lost. */
  ended: { readonly until: number; isInDoubt: boolean } | undefined;
  /** @internal The server has said that it is released, or was lost. */
  isSettled = false;

  /** @internal */
  constructor(
    readonly redlock: Redlock,
    /** @internal */
    readonly request: Request,
    /** One for each time that the server was asked. */
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>,
    /** Send it with every write, so that the resource can refuse a smaller one. Several resources have one fence. */
    readonly fence: number,
    /** @internal */
    readonly lease: Lease,
    /** @internal How long before the end of the lease it is extended. */
    readonly threshold: number,
  ) {
    this.resources = request.resources;
    this.value = request.token;
    this.#hold = new Measured("hold", request.resources);
  }

  /** Whether the lease is not over yet, by this process's monotonic clock. */
  get isValid(): boolean {
    return this.ended === undefined && this.lease.isValid(performance.now());
  }

  /** Milliseconds until the lease is over. */
  get remaining(): number {
    return this.ended === undefined ? this.lease.remaining(performance.now()) : 0;
  }

  /** When the lease is over, in milliseconds since 1970; 0 after `release`. To look at: what counts is a clock that is never set. */
  get expiration(): number {
    return this.ended === undefined ? Math.floor(Date.now() + this.remaining) : 0;
  }

  /** Aborted when the lock is lost, at the end of its lease at the latest. A release is no loss. */
  get signal(): LockSignal {
    void this.keeper;
    return this.#controller.signal;
  }

  /** Whether the server says that the lock is held now. True is old when it arrives: a write is guarded by `exec`, or by the fence. */
  check(): Promise<boolean> {
    return this.redlock.check(this);
  }

  /**
   * Runs one command in the server, in the same step in which the server checks that the lock is held: `exec("SET", "stock:7", 3)`.
   * Rejects with an `ExecutionError` when the lock is lost; the command has not run then. Of several resources, the first one guards.
   */
  exec(command: string, ...args: Argument[]): Promise<unknown> {
    return this.redlock.exec(this, command, ...args);
  }

  /** Gives the lock back. A release that was rejected for lack of an answer can be repeated. */
  release(settings?: ReleaseSettings): Promise<ExecutionResult> {
    return this.redlock.release(this, settings);
  }

  /** Sets the lease anew, from now on. Returns this lock. */
  extend(duration: number, settings?: Partial<Settings>): Promise<Lock> {
    return this.redlock.extend(this, duration, settings);
  }

  /** Extends the lock from now on, until it is released or lost. Returns this lock. */
  keep(): this {
    if (this.ended !== undefined) return this;
    this.keeper.keep();
    return this;
  }

  /**
   * At the end of the block of an `await using`: releases the lock, unless that was done, and rejects when the lock was lost. The
   * declaration reads this property, and from then on the lock is extended, as by `keep()`.
   */
  get [Symbol.asyncDispose](): () => Promise<void> {
    this.keep();
    return async () => {
      if (!this.isSettled) await this.release();
    };
  }

  /** @internal Watches the end of the lease. */
  get keeper(): Keeper {
    this.#keeper ??= new Keeper(this);
    if (this.ended !== undefined) this.#keeper.stop();
    return this.#keeper;
  }

  /** @internal For the keeper. */
  extendOnce(): Promise<void> {
    return this.redlock.extendOnce(this);
  }

  /** @internal The lease has another end. */
  changed(): void {
    this.#keeper?.changed();
  }

  /** @internal The connection that it was bound to is lost. */
  disconnected(): void {
    this.#keeper?.hurry();
  }

  /** @internal */
  lose(error: Error): void {
    this.#keeper?.stop();
    this.#hold.end(false, error);
    if (this.#controller.signal.aborted || this.isSettled) return;
    (this.#controller.signal as LockSignal).error = error;
    this.#controller.abort(error);
  }

  /** @internal A release is sent. From now on nobody believes that it is held, and nothing extends it. */
  end(): void {
    this.ended ??= { until: this.lease.until, isInDoubt: false };
    this.#keeper?.stop();
  }

  /** @internal The server has answered the release. */
  settle(isReleased: boolean): void {
    this.isSettled = true;
    this.#hold.end(isReleased);
  }
}
