import { performance } from "node:perf_hooks";
import type { Connection } from "./connection.js";
import type { Lock } from "./lock.js";
import { oneForEach } from "./waiter.js";

/** The locks with `linger`, which a lost connection may cut short: of all who share the connection. */
export class Lingering {
  readonly #onLost = new Map<Lock, (node?: string) => void>();

  static readonly of = oneForEach((shared: Connection) => new Lingering(shared));

  private constructor(shared: Connection) {
    const tell = (node?: string) => this.#onLost.forEach((onLost) => onLost(node));
    shared.onReconnect(tell);
    // The program has ended it.
    shared.onEnd(() => tell());
  }

  add(lock: Lock, onLost: (node?: string) => void): void {
    for (const other of this.#onLost.keys()) if (!other.isValid) this.#onLost.delete(other);
    this.#onLost.set(lock, onLost);
  }
}

/** Which servers hold a lock with `linger` by connections that have not broken since, and until when they do at least. */
export class Bindings<T> {
  readonly #until = new Map<T, number>();

  /** The server has bound it. */
  bind(server: T, until: number): void {
    this.#until.set(server, until);
  }

  /** The server has a new end for it, which says nothing of its connection. */
  renew(server: T, until: number): void {
    if (this.#until.has(server)) this.#until.set(server, until);
  }

  /** A request was sent that may end it sooner. */
  shorten(server: T, until: number): void {
    this.renew(server, Math.min(until, this.#until.get(server) ?? until));
  }

  /** The connection has broken, or the server does not have it any more. Returns whether that is news. */
  lose(server: T): boolean {
    return this.#until.delete(server);
  }

  /** For how long so many servers have it, in milliseconds. */
  left(quorumSize: number): number {
    const ends = [...this.#until.values()].sort((a, b) => b - a);
    return Math.max(0, (ends[quorumSize - 1] ?? 0) - performance.now());
  }
}
