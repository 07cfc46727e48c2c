import { performance } from "node:perf_hooks";
import type { Command, Driver, Link, Node } from "./driver.js";
import type { Pulse } from "./lease.js";
import { kindOf } from "./replies.js";
import { after, MAX_TIMER_MS } from "./timer.js";

/** How long a command that does not wait may take to be answered. A connection that is silent for longer is given up. */
export const ANSWER_MS = 5000;

export const LATE = "no answer in time";

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
    onLost: (wire: Wire<L>) => void = () => {},
  ): Promise<Wire<L>> {
    const wire = new Wire<L>(onLost);
    wire.link = await open(() => wire.close());
    if (!wire.#isLost) return wire;
    wire.link.close();
    throw new Error("the connection was lost at once");
  }

  private constructor(private readonly onLost: (wire: Wire<L>) => void) {}

  get isOpen(): boolean {
    return !this.#isLost && this.link.isOpen;
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

/** The connections for all that is answered at once: one to each server, opened when it is first needed. */
export class Wires {
  readonly #wires = new Map<string, Promise<Wire>>();
  readonly #onLost = new Set<(wire: Wire) => void>();
  #closings = 0;

  constructor(private readonly driver: Driver) {
    driver.onEnd(() => this.close());
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
    let wire = this.#wires.get(node.id);
    if (wire === undefined) {
      const forget = () => void (this.#wires.get(node.id) === opening && this.#wires.delete(node.id));
      const opening = this.#open(node, forget);
      this.#wires.set(node.id, (wire = opening));
      opening.catch(forget);
    }
    return wire;
  }

  async #open(node: Node, forget: () => void): Promise<Wire> {
    this.driver.watch();
    const closings = this.#closings;
    const wire = await Wire.open(
      (onLost) => node.open(onLost),
      (lost) => {
        forget();
        for (const listener of this.#onLost) listener(lost);
      },
    );
    if (closings === this.#closings && !this.driver.hasEnded) return wire;
    wire.close();
    throw new Error("the client was ended");
  }

  /** Calls this for each connection that is lost. Returns what stops it. */
  onLost(listener: (wire: Wire) => void): () => void {
    this.#onLost.add(listener);
    return () => void this.#onLost.delete(listener);
  }

  close(): void {
    this.#closings++;
    for (const wire of this.#wires.values())
      void wire.then(
        (open) => open.close(),
        () => {},
      );
    this.#wires.clear();
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
  readonly #inUse = new Set<Place>();
  readonly #line: Place[] = [];
  #closings = 0;

  constructor(
    private readonly driver: Driver,
    private readonly limit: number,
  ) {
    driver.onEnd(() => this.close());
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

  /** Only for `Place`: a connection to the server of the key. */
  async lend(key: string): Promise<Lent> {
    const closings = this.#closings;
    const node = await this.driver.node(key);
    this.#idle = this.#idle.filter(({ wire }) => wire.isOpen);
    const index = this.#idle.map((lent) => lent.node).lastIndexOf(node.id);
    if (index >= 0) return this.#idle.splice(index, 1)[0]!;
    this.driver.watch();
    const wire = await Wire.open((onLost) => node.open(onLost)).catch(async (error) => {
      await this.driver.refresh(key);
      throw error;
    });
    if (closings === this.#closings) return { wire, node: node.id };
    wire.close();
    throw new Error("the client was ended");
  }

  /** Only for `Place`. Of the connections that are too many the oldest is closed. */
  takeBack(lent: Lent): void {
    this.#idle.push(lent);
    while (this.#idle.length > this.limit) this.#idle.shift()!.wire.close();
  }

  close(): void {
    this.#closings++;
    for (const { wire } of this.#idle.splice(0)) wire.close();
    for (const place of this.#inUse) place.close();
  }

  #callNext(): void {
    while (this.#inUse.size < this.limit) {
      const next = this.#line.shift();
      if (!next) return;
      this.#inUse.add(next);
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
  /** The key that the connection was lent for. */
  #key: string | undefined;

  constructor(private readonly room: WaitingRoom) {}

  /** Only for `WaitingRoom`. */
  call(): void {
    this.isReady = true;
    this.#call();
  }

  /** Whether it is free for us within this time. */
  async isReadyWithin(ms: number): Promise<boolean> {
    if (this.isReady) return true;
    let stop = () => {};
    await Promise.race([this.#called, new Promise<void>((resolve) => (stop = after(ms, resolve)))]);
    stop();
    return this.isReady;
  }

  /** Asks with BLOCK. A connection that does not answer soon after its time is given up. */
  async ask(
    key: string,
    command: Command,
    keep: Command | [],
    ms: number,
    answerMs: number,
  ): Promise<unknown> {
    const end = performance.now() + ms;
    if (this.#key !== key) this.#giveBack();
    this.#key = key;
    const { wire } = (this.#lent ??= await this.room.lend(key));
    // BLOCK 0 would wait for ever.
    const left = Math.max(1, Math.floor(end - performance.now()));
    try {
      return await wire.send([...command, "BLOCK", left, ...keep] as unknown as Command, left + answerMs);
    } catch (error) {
      // After an error a new connection is always right.
      this.close();
      throw error;
    }
  }

  #giveBack(): void {
    const lent = this.#lent;
    this.#lent = undefined;
    if (lent?.wire.isOpen) this.room.takeBack(lent);
  }

  /** Closes the connection: the server has an answer to give that nobody wants. */
  close(): void {
    this.#lent?.wire.close();
    this.#lent = undefined;
  }

  leave(): void {
    this.#giveBack();
    this.room.leave(this);
  }
}
