import { setTimeout as sleep } from "node:timers/promises";
import type { Command, Connection } from "./connection.js";
import { MAX_TIMER_MS } from "./timer.js";

/** How long after its BLOCK time a command may take to be answered. */
const GRACE_MS = 2000;

/** The longest BLOCK that a timer can watch over. */
export const MAX_BLOCK_MS = MAX_TIMER_MS - GRACE_MS;

/** The connections that wait in one server's queues: a few, each used by one acquire at a time, kept for the next. */
export class WaitingRoom {
  readonly #shared: Connection;
  readonly #limit: number;
  readonly #idle: Connection[] = [];
  readonly #inUse = new Set<Place>();
  readonly #line: Place[] = [];

  constructor(shared: Connection, limit: number) {
    this.#shared = shared;
    this.#limit = limit;
    // Whoever ends the shared connection means all.
    shared.onEnd(() => this.close());
  }

  /** Joins the line for a place. */
  enter(): Place {
    const place = new Place(this);
    this.#line.push(place);
    this.#callNext();
    return place;
  }

  /** Only for `Place`. */
  leave(place: Place, connection: Connection | undefined): void {
    if (connection?.isOpen) {
      // Not kept when the user's own has been ended meanwhile: it would keep the process alive.
      if (this.#shared.isOpen) this.#idle.push(connection);
      else connection.close();
    }
    const index = this.#line.indexOf(place);
    if (index >= 0) this.#line.splice(index, 1);
    this.#inUse.delete(place);
    this.#callNext();
  }

  /** Only for `Place`. */
  async connection(): Promise<Connection> {
    for (let kept; (kept = this.#idle.pop());) if (kept.isOpen) return kept;
    return this.#shared.open();
  }

  close(): void {
    for (const connection of this.#idle.splice(0)) if (connection.isOpen) connection.close();
    for (const place of this.#inUse) place.close();
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
export class Place {
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

  /** Sends a command that is answered within `blockMs`, or the connection is no good. */
  async send(command: Command, blockMs: number): Promise<unknown> {
    const connection = (this.#connection ??= await this.room.connection());
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const error = new Error(`no answer within ${GRACE_MS} ms after the time of BLOCK`);
      timer = setTimeout(() => reject(error), blockMs + GRACE_MS);
    });
    try {
      return await Promise.race([connection.send(command), late]);
    } catch (error) {
      // Also for an error that the server has answered: rare, and a new connection is always right.
      this.#connection = undefined;
      if (connection.isOpen) connection.close();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  close(): void {
    if (this.#connection?.isOpen) this.#connection.close();
  }

  leave(): void {
    this.room.leave(this, this.#connection);
  }
}
