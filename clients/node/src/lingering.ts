import type { Connection } from "./connection.js";
import type { Lock } from "./lock.js";
import { oneForEach } from "./waiter.js";

/** The locks with `linger`, whose leases a lost connection cuts short: of all who share the connection. */
export class Lingering {
  readonly #locks = new Set<Lock>();

  static readonly of = oneForEach((shared: Connection) => new Lingering(shared));

  private constructor(shared: Connection) {
    const shorten = () => this.#locks.forEach((lock) => lock.shortenTo(lock.request.linger!));
    shared.onReconnect(shorten);
    // The program has ended it.
    shared.onEnd(shorten);
  }

  add(lock: Lock): void {
    for (const other of this.#locks) if (!other.isValid) this.#locks.delete(other);
    this.#locks.add(lock);
  }
}
