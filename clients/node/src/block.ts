import { performance } from "node:perf_hooks";
import type { Command, Node } from "./driver.js";
import { LATE, within } from "./timer.js";
import { type Answer, LATE_MS, type Waiter, type Wire, type Wires } from "./wire.js";

/** Connections that wait in the server by BLOCK: at most so many, kept for the next waiter. */
export class WaitingRoom {
  #idle: Wire[] = [];
  #inUse = 0;
  readonly #line = new Set<Place>();

  constructor(
    readonly wires: Wires,
    private readonly limit: number,
  ) {}

  /** Joins the line for a place. */
  enter(): Place {
    const place = new Place(this);
    this.#line.add(place);
    this.#callNext();
    return place;
  }

  /** Only for `Place`. Of the connections that are too many the oldest is closed. */
  leave(place: Place, wire: Wire | undefined): void {
    if (!this.#line.delete(place)) this.#inUse--;
    if (wire?.isOpen) this.#idle.push(wire);
    if (this.#idle.length > this.limit) this.#idle.shift()!.close();
    this.#callNext();
  }

  /** Only for `Place`: a connection to the server. */
  async lend(node: Node): Promise<Wire> {
    this.#idle = this.#idle.filter((wire) => wire.isOpen);
    const index = this.#idle.findIndex((wire) => wire.node.id === node.id);
    return index < 0 ? this.wires.open(node) : this.#idle.splice(index, 1)[0]!;
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
export class Place implements Waiter {
  /** Only for `WaitingRoom`. */
  call: () => void = () => {};
  readonly #called = new Promise<boolean>((resolve) => (this.call = () => resolve(true)));
  #wire: Wire | undefined;

  constructor(private readonly room: WaitingRoom) {}

  /** Whether it is free for us within this time. */
  isReadyWithin(ms: number): Promise<boolean> {
    return within(ms, this.#called, LATE).catch(() => false);
  }

  /** Asks with BLOCK. A connection that does not answer soon after its time is given up. */
  async ask(key: string, _: string, command: Command, ms: number): Promise<Answer> {
    const end = performance.now() + ms;
    const wire = (this.#wire ??= await this.room.wires.of(key, (node) => this.room.lend(node)));
    // BLOCK 0 would wait for ever.
    const left = Math.max(1, Math.floor(end - performance.now()));
    try {
      return { reply: await wire.send([...command, "BLOCK", left], left + LATE_MS), wire };
    } catch (error) {
      // After an error a new connection is always right.
      this.close();
      throw error;
    }
  }

  /** Closes the connection: the server has an answer to give that nobody wants. */
  close(): void {
    this.#wire?.close();
    this.#wire = undefined;
  }

  leave(): void {
    this.room.leave(this, this.#wire);
  }
}
