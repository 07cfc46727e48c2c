import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "./connection.js";
import { MAX_TIMER_MS, within } from "./timer.js";
import { oneForEach, type Question, type Waiter } from "./waiter.js";

/** How long after its BLOCK time a command may take to be answered. */
const ANSWER_MS = 2000;

/** The longest BLOCK that a timer can watch over. */
export const MAX_BLOCK_MS = MAX_TIMER_MS - ANSWER_MS;

/** Connections to wait with, lent to one acquire at a time and kept for the next: of all who share a connection. */
class Reserve {
  readonly #idle: Connection[] = [];
  readonly #lent = new Set<Connection>();
  #closings = 0;

  static readonly beside = oneForEach((shared: Connection) => new Reserve(shared));

  private constructor(private readonly shared: Connection) {
    // Whoever ends the shared connection means all.
    shared.onEnd(() => this.close());
  }

  async lend(): Promise<Connection> {
    let connection = this.#idle.pop();
    while (connection && !connection.isOpen) connection = this.#idle.pop();
    connection ??= await this.#open();
    this.#lent.add(connection);
    return connection;
  }

  async #open(): Promise<Connection> {
    const closings = this.#closings;
    const connection = await this.shared.open();
    if (closings === this.#closings) return connection;
    connection.close();
    throw new Error("the client was ended");
  }

  /** Keeps it, if it is any good, and if there are not as many already. */
  takeBack(connection: Connection, atMost: number): void {
    this.#lent.delete(connection);
    if (!connection.isOpen) return;
    // Not kept when the user's own has been ended meanwhile: it would keep the process alive.
    if (this.shared.isOpen && this.#idle.length < atMost) this.#idle.push(connection);
    else connection.close();
  }

  close(): void {
    this.#closings++;
    for (const connection of [...this.#idle.splice(0), ...this.#lent])
      if (connection.isOpen) connection.close();
  }
}

/** Where the acquires of one Redlock wait in one server's queues: only a few at a time. */
export class WaitingRoom {
  readonly #reserve: Reserve;
  readonly #limit: number;
  readonly #inUse = new Set<Place>();
  readonly #line: Place[] = [];

  constructor(shared: Connection, limit: number) {
    this.#reserve = Reserve.beside(shared);
    this.#limit = limit;
  }

  /** Joins the line for a place. */
  enter(): Place {
    const place = new Place(this);
    this.#line.push(place);
    this.#callNext();
    return place;
  }

  /** Only for `Place`. */
  leave(place: Place): void {
    const index = this.#line.indexOf(place);
    if (index >= 0) this.#line.splice(index, 1);
    this.#inUse.delete(place);
    this.#callNext();
  }

  /** Only for `Place`. */
  lend(): Promise<Connection> {
    return this.#reserve.lend();
  }

  /** Only for `Place`. */
  takeBack(connection: Connection, isGood: boolean): void {
    this.#reserve.takeBack(connection, isGood ? this.#limit : 0);
  }

  close(): void {
    this.#reserve.close();
  }

  #callNext(): void {
    while (this.#inUse.size < this.#limit) {
      const next = this.#line.shift();
      if (!next) return;
      this.#inUse.add(next);
      next.called();
    }
  }
}

/** A place in the room, or in the line before it. */
export class Place implements Waiter {
  #isReady = false;
  #called: () => void = () => {};
  readonly #ready = new Promise<void>((resolve) => (this.#called = resolve));
  #connection: Connection | undefined;

  constructor(private readonly room: WaitingRoom) {}

  called(): void {
    this.#isReady = true;
    this.#called();
  }

  /** Whether it is free for us within this time. */
  async isReadyWithin(ms: number): Promise<boolean> {
    if (!this.#isReady) {
      const timer = new AbortController();
      const over = sleep(Math.min(ms, MAX_TIMER_MS), undefined, { signal: timer.signal });
      await Promise.race([this.#ready, over.catch(() => {})]);
      timer.abort();
    }
    return this.#isReady;
  }

  /** Asks with BLOCK. If the answer does not come within `ms` and a little more, the connection is no good. */
  async ask({ command, keep }: Question, ms: number): Promise<unknown> {
    const connection = (this.#connection ??= await this.room.lend());
    const answer = connection.send([...command, "BLOCK", ms, ...keep]);
    try {
      return await within(ms + ANSWER_MS, answer, `no answer within ${ANSWER_MS} ms after the time of BLOCK`);
    } catch (error) {
      // Also for an error that the server has answered: rare, and a new connection is always right.
      this.#connection = undefined;
      this.room.takeBack(connection, false);
      throw error;
    }
  }

  leave(): void {
    if (this.#connection) this.room.takeBack(this.#connection, true);
    this.room.leave(this);
  }
}
