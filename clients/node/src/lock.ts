import { performance } from "node:perf_hooks";
import type { ExecutionResult, ExecutionStats } from "./errors.js";
import type { Redlock } from "./redlock.js";
import type { Settings } from "./settings.js";

/** A lock that is held, or was. */
export class Lock implements ExecutionResult {
  /** When the lease is over, in milliseconds since 1970; 0 after `release`. To look at: what counts is a clock that is never set. */
  expiration = 0;
  #until = 0;
  #isEnded = false;

  /** Only for `Redlock`. */
  constructor(
    readonly redlock: Redlock,
    readonly resources: readonly string[],
    /** The token, by which the servers know the owner. */
    readonly value: string,
    readonly attempts: ReadonlyArray<Promise<ExecutionStats>>,
    /** For each resource the fence from each client, in the order of the clients; null where one gave no vote. */
    readonly fences: ReadonlyMap<string, ReadonlyArray<number | null>>,
    until: number,
  ) {
    this.leaseUntil(until);
  }

  /**
   * What the resource is to be told with every write, so that it can refuse a smaller one. With several resources or several
   * clients there is no single number that is safe: see `fences`.
   */
  get fence(): number {
    const [of, ...others] = this.fences.values();
    const fence = of?.[0];
    if (others.length > 0 || of?.length !== 1 || fence == null) {
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

  release(settings?: Partial<Settings>): Promise<ExecutionResult> {
    return this.redlock.release(this, settings);
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
  }

  /** Only for `Redlock`. */
  end(): void {
    this.#isEnded = true;
    this.#until = 0;
    this.expiration = 0;
  }
}
