import type { Connection, Dedicated } from "./connection.js";
import { after, MAX_TIMER_MS, within } from "./timer.js";
import { oneForEach, type Question, type Waiter } from "./waiter.js";

/** How long after its BLOCK time a command may take to be answered. */
const ANSWER_MS = 2000;

const LATE = `no answer within ${ANSWER_MS} ms after the time of BLOCK`;

/** The longest BLOCK that a timer can watch over. */
export const MAX_BLOCK_MS = MAX_TIMER_MS - ANSWER_MS;

/** A connection to wait with, and the server that it leads to. */
interface Lent {
  readonly connection: Dedicated;
  readonly node: string;
}

/** Connections to wait with, lent to one acquire at a time and kept for the next: of all who share a connection. */
class Reserve {
  #idle: Lent[] = [];
  readonly #lent = new Set<Lent>();
  #closings = 0;

  static readonly beside = oneForEach((shared: Connection) => new Reserve(shared));

  private constructor(private readonly shared: Connection) {
    // Whoever ends the shared connection means all.
    shared.onEnd(() => this.close());
  }

  /** One to the server of the key, within this time. */
  async lend(key: string, ms: number): Promise<Lent> {
    const opening = this.#openFor(key);
    try {
      const lent = await within(ms, opening, "no connection to wait with within the time to wait");
      this.#lent.add(lent);
      return lent;
    } catch (error) {
      // It may come later.
      opening.then(({ connection }) => connection.close()).catch(() => {});
      throw error;
    }
  }

  async #openFor(key: string): Promise<Lent> {
    const closings = this.#closings;
    const node = await this.shared.node(key);
    this.#idle = this.#idle.filter(({ connection }) => connection.isOpen);
    const index = this.#idle.map((lent) => lent.node).lastIndexOf(node.id);
    if (index >= 0) return this.#idle.splice(index, 1)[0]!;
    const connection = await node.open();
    if (closings === this.#closings) return { connection, node: node.id };
    connection.close();
    throw new Error("the client was ended");
  }

  /** Keeps it, if it is any good. Of those that are too many the oldest is ended. */
  takeBack(lent: Lent, atMost: number): void {
    this.#lent.delete(lent);
    if (!lent.connection.isOpen) return;
    // Not kept when the user's own has been ended meanwhile: it would keep the process alive.
    if (!this.shared.isOpen || atMost < 1) return lent.connection.close();
    this.#idle.push(lent);
    while (this.#idle.length > atMost) this.#idle.shift()!.connection.close();
  }

  close(): void {
    this.#closings++;
    for (const { connection } of [...this.#idle.splice(0), ...this.#lent])
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
  lend(key: string, ms: number): Promise<Lent> {
    return this.#reserve.lend(key, ms);
  }

  /** Only for `Place`. */
  takeBack(lent: Lent, isGood: boolean): void {
    this.#reserve.takeBack(lent, isGood ? this.#limit : 0);
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
  #lent: Lent | undefined;
  /** The key that it was lent for. */
  #key: string | undefined;

  constructor(private readonly room: WaitingRoom) {}

  called(): void {
    this.#isReady = true;
    this.#called();
  }

  /** Whether it is free for us. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** Whether it is free for us within this time. */
  async isReadyWithin(ms: number): Promise<boolean> {
    if (!this.#isReady) {
      let stop = () => {};
      const over = new Promise<void>((resolve) => (stop = after(ms, resolve)));
      await Promise.race([this.#ready, over]);
      stop();
    }
    return this.#isReady;
  }

  /** Asks with BLOCK. If the answer does not come within `ms` and a little more, the connection is no good. */
  async ask({ key, command, keep }: Question, ms: number): Promise<unknown> {
    const end = performance.now() + ms;
    const { connection } = await this.#lend(key, ms);
    // BLOCK 0 would wait for ever.
    const left = Math.max(1, Math.floor(end - performance.now()));
    const answer = connection.send([...command, "BLOCK", left, ...keep]);
    try {
      return await within(left + ANSWER_MS, answer, LATE);
    } catch (error) {
      // Also for an error that the server has answered: rare, and a new connection is always right.
      this.#giveBack(false);
      throw error;
    }
  }

  /** Gives back over the connection that was granted. Resolves with whether anything was held there. */
  async release(keys: readonly string[], token: string): Promise<boolean> {
    const connection = this.#lent?.connection;
    if (!connection) return false;
    const releases = keys.map((key) => connection.send(["LOCK.RELEASE", key, token]));
    const replies = await within(ANSWER_MS, Promise.all(releases), "no answer").catch(() => []);
    return replies.some((reply) => Number(reply) > 0);
  }

  /** Of several resources in a cluster each may be on another node. */
  async #lend(key: string, ms: number): Promise<Lent> {
    if (this.#key !== key) this.#giveBack(true);
    this.#key = key;
    return (this.#lent ??= await this.room.lend(key, ms));
  }

  #giveBack(isGood: boolean): void {
    const lent = this.#lent;
    this.#lent = undefined;
    if (lent) this.room.takeBack(lent, isGood);
  }

  leave(): void {
    this.#giveBack(true);
    this.room.leave(this);
  }
}
