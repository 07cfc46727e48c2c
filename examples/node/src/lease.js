import { setTimeout as sleep } from "node:timers/promises";

/**
 * How long this process may believe to hold the lock, by its own monotonic clock. It counts from before the command that
 * set the deadline was sent, less 1 % and 2 ms, because clocks differ in speed: so this ends before the server's.
 */
export class Lease {
  #lost = new AbortController();
  #renewals = new AbortController();
  #until = Infinity;
  #renewAt = 0;
  /** @type {NodeJS.Timeout | undefined} */
  #timer;

  /**
   * @param {number} sentAt by performance.now()
   * @param {number} ttl
   */
  constructor(sentAt, ttl) {
    this.ttl = ttl;
    this.renewed(sentAt);
  }

  /** Aborted when the lock is lost; `reason` says why. */
  get lost() {
    return this.#lost.signal;
  }

  /** Whether nothing is to be renewed any more: lost, or given back. */
  get isOver() {
    return this.#renewals.signal.aborted;
  }

  /** @param {number} sentAt when the renewal was sent */
  renewed(sentAt) {
    // After a stop of the process the lease may have ended: then it stays so.
    if (performance.now() >= this.#until) return this.lose("the lease is over");
    this.#until = sentAt + this.ttl * 0.99 - 2;
    this.#renewAt = sentAt + this.ttl / 3;
    clearTimeout(this.#timer);
    const left = Math.max(0, this.#until - performance.now());
    this.#timer = setTimeout(() => this.lose("no renewal has succeeded before the lease was over"), left);
  }

  /** The work must stop. @param {string} why */
  lose(why) {
    this.#lost.abort(why);
    this.end();
  }

  /** Nothing is renewed any more, and nothing can be lost. */
  end() {
    this.#renewals.abort();
    clearTimeout(this.#timer);
  }

  /** Waits until a renewal is due. False when there is none to come. */
  async nextRenewal() {
    const due = Math.max(0, this.#renewAt - performance.now());
    await sleep(due, undefined, { signal: this.#renewals.signal }).catch(() => {});
    return !this.isOver;
  }

  /** Throws when the lease is over, also when its timer had no chance to run yet. */
  check() {
    if (performance.now() >= this.#until) this.lose("the lease is over");
    this.lost.throwIfAborted();
  }

  /**
   * @template T
   * @param {Promise<T>} promise
   * @returns {Promise<T>} as the promise, or rejected as soon as the lock is lost
   */
  unlessLost(promise) {
    return new Promise((resolve, reject) => {
      const stop = () => reject(this.lost.reason);
      this.lost.addEventListener("abort", stop, { once: true });
      promise.then(resolve, reject).finally(() => this.lost.removeEventListener("abort", stop));
    });
  }
}
