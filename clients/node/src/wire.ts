import { performance } from "node:perf_hooks";
import type { Argument, Command, Driver, Link, Node } from "./driver.js";
import type { Pulse } from "./lease.js";
import { kindOf } from "./replies.js";
import { MAX_TIMER_MS, within } from "./timer.js";

/** How long a command that does not wait may take to be answered. A connection that is silent for longer is given up. */
export const ANSWER_MS = 5000;

/** How long after its time to wait a request may take to be answered. */
export const LATE_MS = 2000;

export const LATE = "no answer in time";

/** A reply, and the connection on which it came. */
export interface Answer {
  readonly reply: unknown;
  readonly wire: Wire | undefined;
}

/** A link that rejects what is in flight when it is lost or closed, and that is given up when an answer does not come. */
export class Wire<L extends Link = Link> implements Pulse {
  /** When a request was sent that was answered. */
  aliveAt = performance.now();
  #isLost = false;
  readonly #inFlight = new Set<(error: Error) => void>();
  private link!: L;

  /** Opens it. `onLost` is called once at most, also when it is closed. */
  static async open<L extends Link>(
    open: (onLost: () => void) => Promise<L>,
    onLost: (wire: Wire<L>) => void,
  ): Promise<Wire<L>> {
    const wire = new Wire<L>(onLost);
    wire.link = await open(() => wire.close());
    if (!wire.#isLost) return wire;
    wire.link.close();
    throw new Error("the connection was lost at once");
  }

  private constructor(private readonly onLost: (wire: Wire<L>) => void) {}

  get isOpen(): boolean {
    return !this.#isLost && this.link.isOpen();
  }

  send(command: Command, ms = ANSWER_MS): Promise<unknown> {
    return this.run((link) => link.send(command), ms);
  }

  run(ask: (link: L) => Promise<unknown>, ms: number): Promise<unknown> {
    if (!this.isOpen) return Promise.reject(new Error("the connection was lost"));
    const sent = performance.now();
    return new Promise((resolve, reject) => {
      const settle = () => {
        clearTimeout(timer);
        this.#inFlight.delete(fail);
      };
      const fail = (error: Error) => {
        settle();
        reject(error);
        if (kindOf(error) === "silent") this.close();
        // An error that the server has answered shows that it has the connection.
        else if (!(error instanceof TypeError)) this.aliveAt = Math.max(this.aliveAt, sent);
      };
      const timer = setTimeout(() => fail(new Error(LATE)), Math.min(ms, MAX_TIMER_MS));
      this.#inFlight.add(fail);
      ask(this.link).then((reply) => {
        settle();
        this.aliveAt = Math.max(this.aliveAt, sent);
        resolve(reply);
      }, fail);
    });
  }

  close(): void {
    if (this.#isLost) return;
    this.#isLost = true;
    this.link?.close();
    for (const fail of [...this.#inFlight]) fail(new Error("the connection was lost"));
    this.onLost(this);
  }
}

/** All connections of a client. Those for what is answered at once, one to each server, are opened when they are first needed. */
export class Wires {
  readonly #all = new Set<{ close(): void }>();
  readonly #ofNodes = new Map<string, Promise<Wire>>();
  readonly #onLost = new Set<(wire: Wire) => void>();
  /** How often all were closed. */
  closings = 0;

  constructor(private readonly driver: Driver) {
    driver.onEnd = () => this.close();
  }

  /** To the server of the key. */
  async of(key: string): Promise<Wire> {
    try {
      return await this.to(await this.driver.node(key));
    } catch (error) {
      await this.driver.refresh(key);
      throw error;
    }
  }

  to(node: Node): Promise<Wire> {
    const known = this.#ofNodes.get(node.id);
    if (known !== undefined) return known;
    const forget = () => void (this.#ofNodes.get(node.id) === opening && this.#ofNodes.delete(node.id));
    const opening = this.open(node.open, (lost) => {
      forget();
      for (const listener of this.#onLost) listener(lost);
    });
    this.#ofNodes.set(node.id, opening);
    opening.catch(forget);
    return opening;
  }

  async open<L extends Link>(
    open: (onLost: () => void) => Promise<L>,
    onLost: (wire: Wire<L>) => void = () => {},
  ): Promise<Wire<L>> {
    this.driver.watch();
    const { closings } = this;
    const wire: Wire<L> = await Wire.open(open, (lost) => {
      this.#all.delete(lost);
      onLost(lost);
    });
    this.#all.add(wire);
    if (wire.isOpen && closings === this.closings && !this.driver.hasEnded) return wire;
    this.#all.delete(wire);
    wire.close();
    throw new Error("the client was ended");
  }

  /** Calls this for each lost connection of those for what is answered at once. Returns what stops it. */
  onLost(listener: (wire: Wire) => void): () => void {
    this.#onLost.add(listener);
    return () => void this.#onLost.delete(listener);
  }

  close(): void {
    this.closings++;
    for (const wire of [...this.#all]) wire.close();
  }
}

/** A connection to wait with, and the server that it leads to. */
interface Lent {
  readonly wire: Wire;
  readonly node: string;
}

/** Connections that wait in the server by BLOCK: at most so many, kept for the next waiter. */
export class WaitingRoom {
  #idle: Lent[] = [];
  #inUse = 0;
  readonly #line = new Set<Place>();

  constructor(
    private readonly driver: Driver,
    private readonly wires: Wires,
    private readonly limit: number,
  ) {}

  /** Joins the line for a place. */
  enter(): Place {
    const place = new Place(this);
    this.#line.add(place);
    this.#callNext();
    return place;
  }

  /** Only for `Place`. */
  leave(place: Place): void {
    if (!this.#line.delete(place)) this.#inUse--;
    this.#callNext();
  }

  /** Only for `Place`: a connection to the server of the key. */
  async lend(key: string): Promise<Lent> {
    const node = await this.driver.node(key);
    this.#idle = this.#idle.filter(({ wire }) => wire.isOpen);
    const index = this.#idle.findIndex((lent) => lent.node === node.id);
    if (index >= 0) return this.#idle.splice(index, 1)[0]!;
    try {
      return { wire: await this.wires.open(node.open), node: node.id };
    } catch (error) {
      await this.driver.refresh(key);
      throw error;
    }
  }

  /** Only for `Place`. Of the connections that are too many the oldest is closed. */
  takeBack(lent: Lent): void {
    this.#idle.push(lent);
    while (this.#idle.length > this.limit) this.#idle.shift()!.wire.close();
  }

  #callNext(): void {
    for (const next of this.#line) {
      if (this.#inUse >= this.limit) return;
      this.#line.delete(next);
      this.#inUse++;
      next.call();
    }
  }
}

/** A place in the room, or in the line before it. */
export class Place {
  isReady = false;
  #call: () => void = () => {};
  readonly #called = new Promise<void>((resolve) => (this.#call = resolve));
  #lent: Lent | undefined;

  constructor(private readonly room: WaitingRoom) {}

  /** Only for `WaitingRoom`. */
  call(): void {
    this.isReady = true;
    this.#call();
  }

  /** Whether it is free for us within this time. */
  async isReadyWithin(ms: number): Promise<boolean> {
    await within(ms, this.#called, LATE).catch(() => {});
    return this.isReady;
  }

  /** Asks with BLOCK. A connection that does not answer soon after its time is given up. */
  async ask(
    key: string,
    _: string,
    command: Command,
    keep: readonly Argument[],
    ms: number,
  ): Promise<Answer> {
    const end = performance.now() + ms;
    const { wire } = (this.#lent ??= await this.room.lend(key));
    // BLOCK 0 would wait for ever.
    const left = Math.max(1, Math.floor(end - performance.now()));
    try {
      const reply = await wire.send([...command, "BLOCK", left, ...keep], left + LATE_MS);
      return { reply, wire: undefined };
    } catch (error) {
      // After an error a new connection is always right.
      this.close();
      throw error;
    }
  }

  /** Closes the connection: the server has an answer to give that nobody wants. */
  close(): void {
    this.#lent?.wire.close();
    this.#lent = undefined;
  }

  leave(): void {
    if (this.#lent?.wire.isOpen) this.room.takeBack(this.#lent);
    this.room.leave(this);
  }
}
