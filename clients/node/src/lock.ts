/// <reference lib="esnext.disposable" preserve="true" />
import { performance } from "node:perf_hooks";
import type { Argument } from "./connection.js";
import type { ExecutionResult, ExecutionStats } from "./errors.js";
import type { Request } from "./request.js";
import type { ReleaseSettings, Settings } from "./settings.js";

/** What a `Redlock` does for its locks. */
export interface LockOwner {
  check(lock: Lock): Promise<boolean>;
  exec(lock: Lock, command: string, ...args: Argument[]): Promise<unknown>;
  extend(lock: Lock, duration: number, settings?: Partial<Settings>): Promise<Lock>;
  extendOnce(lock: Lock, duration: number, settings: Partial<Settings>): Promise<Lock>;
  release(lock: Lock, settings?: ReleaseSettings): Promise<ExecutionResult>;
}

/** A lock that is held, or was. */
export class Lock implements ExecutionResult {
  /** When the lease is over, in milliseconds since 1970; 0 after `release`. To look at: what counts is a clock that is never set. */
  expiration = 0;
  #until = 0;
  #isEnded = false;
  /** Only for `Redlock`: how many extensions were sent. */
  extensions = 0;
  /** Only for `using`: called when the lease has another end. */
  onLease: () => unknown = () => {};
  /** Only for `using`: called when the lease was cut short. */
  onShortened: () => void = () => {};
  /** Only for `using`: called when a release is sent. */
  onRelease: () => void = () => {};
  readonly resources: readonly string[];
  /** The token, by which the servers know the owner. */
  readonly value: string;

  /** Only for `Redlock`. */
  constructor(
    readonly redlock: LockOwner,
    /** Only for `Redlock`: what was granted. */
    readonly request: Request,
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>,
    /** For each resource the fence from each client, in the order of the clients; null where one gave no vote. */
    readonly fences: ReadonlyMap<string, ReadonlyArray<number | null>>,
    until: number,
  ) {
    this.resources = request.resources;
    this.value = request.token;
    this.leaseUntil(until);
  }

  /**
   * What the resource is to be told with every write, so that it can refuse a smaller one. A multi-lock has one for all. Several
   * resources of `acquire`, or several clients, have no single number that is safe: see `fences`.
   */
  get fence(): number {
    const [of, ...others] = this.fences.values();
    const fence = of?.[0];
    if (others.some(([other]) => other !== fence) || of?.length !== 1 || fence == null) {
      throw new Error("A lock on several resources or of several clients has no single fence: use `fences`.");
    }
    return fence;
  }

  /** Whether the lease is not over yet, by this process's monotonic clock. */
  get isValid(): boolean {
    return performance.now() < this.#until;
  }

  /** Milliseconds until the lease is over. */
  get remaining(): number {
    return Math.max(0, this.#until - performance.now());
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

  release(settings?: ReleaseSettings): Promise<ExecutionResult> {
    return this.redlock.release(this, settings);
  }

  /** At the end of the block of an `await using`: releases the lock, unless that was done. Rejects when the lock was lost. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isEnded) await this.release();
  }

  /** Sets the lease anew, from now on. Returns this lock. */
  extend(duration: number, settings?: Partial<Settings>): Promise<Lock> {
    return this.redlock.extend(this, duration, settings);
  }

  /** Only for `Redlock`. */
  leaseUntil(until: number): void {
    // The answer to an extension may come after the release.
    if (this.#isEnded) return;
    this.#until = until;
    this.expiration = Math.floor(Date.now() + until - performance.now());
    this.onLease();
  }

  /** Only for `Redlock`: the server may end it sooner. Returns whether that is news. */
  atMostUntil(until: number): boolean {
    const isSooner = until < this.#until;
    if (isSooner) this.leaseUntil(until);
    return isSooner;
  }

  /** Only for `Redlock`. */
  end(): void {
    this.#isEnded = true;
    this.#until = 0;
    this.expiration = 0;
    this.onRelease();
  }
}
