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

/** What one server was found to hold. */
interface Hold {
  /** When the request was sent that found it last. */
  found: number;
  /** Its end, unless the server loses the connection. */
  until: number;
  /** How many connections were lost since the acquire, and how many of them before it was bound last. */
  losses: number;
  boundAfter: number | undefined;
}

/** Which servers hold a lock with `linger`, and until when they do at least. */
export class Bindings<T> {
  readonly #holds = new Map<T, Hold>();

  /** The time that a hold outlives its connection, less the drift. */
  constructor(private readonly linger: number) {}

  /** The server has acquired it, and bound it. */
  begin(server: T, found: number, until: number): void {
    this.#holds.set(server, { found, until, losses: 0, boundAfter: 0 });
  }

  /** The server has a new end for it, which says nothing of its connection. */
  renew(server: T, found: number, until: number): void {
    const hold = this.#holds.get(server) ?? { losses: 0, boundAfter: undefined };
    this.#holds.set(server, { ...hold, found, until });
  }

  /** How many connections it has lost. To be told to `bind` if the request that is sent now has bound it. */
  losses(server: T): number | undefined {
    return this.#holds.get(server)?.losses;
  }

  bind(server: T, losses: number | undefined): void {
    const hold = this.#holds.get(server);
    if (hold) hold.boundAfter = losses;
  }

  /** A request was sent that may end it sooner. */
  shorten(server: T, until: number): void {
    const hold = this.#holds.get(server);
    if (hold) hold.until = Math.min(hold.until, until);
  }

  /** The connection has broken, nobody knows when: the server had it as long as requests were answered. */
  disconnect(server: T): void {
    const hold = this.#holds.get(server);
    if (hold) hold.losses++;
  }

  /** The server does not have it any more. */
  lose(server: T): void {
    this.#holds.delete(server);
  }

  /** Until when so many servers have it. */
  end(quorumSize: number): number {
    const ends = [...this.#holds.values()].map(({ found, until, losses, boundAfter }) =>
      losses === boundAfter ? until : Math.min(until, found + this.linger),
    );
    return ends.sort((a, b) => b - a)[quorumSize - 1] ?? 0;
  }
}
