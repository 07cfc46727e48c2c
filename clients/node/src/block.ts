import { performance } from "node:perf_hooks";
import type { Command, Node } from "./driver.js";
import type { Request } from "./request.js";
import { type Answer, LATE_MS, type Waiter, type Wire, type Wires } from "./wire.js";

/** Connections that wait in the server by BLOCK: at most so many, kept for the next waiter. */
export class WaitingRoom implements Waiter {
  #idle: Wire[] = [];
  readonly #line = new Set<() => void>();

  constructor(
    private readonly wires: Wires,
    private readonly limit: number,
    private free = limit,
  ) {}

  /** Joins the line, and calls this when one of them is free for the caller, until it leaves. Returns what leaves the room, or the line. */
  enter(call: () => void): () => void {
    this.#line.add(call);
    this.#callNext();
    return () => {
      if (!this.#line.delete(call)) this.free++;
      this.#callNext();
    };
  }

  /**
   * Asks with BLOCK. A connection that does not answer soon after its time is given up. A wait that the caller has ended is answered when
   * its place is released.
   */
  async ask({ keys: [key] }: Request, command: Command, ms: number): Promise<Answer> {
    const end = performance.now() + ms;
    const wire = await this.wires.of(key!, (node) => this.#lend(node));
    // BLOCK 0 would wait for ever.
    const left = Math.max(1, Math.floor(end - performance.now()));
    try {
      const reply = await wire.send([...command, "BLOCK", left], left + LATE_MS);
      this.#idle.push(wire);
      // Of those that are too many the oldest is closed.
      if (this.#idle.length > this.limit) this.#idle.shift()!.close();
      return { reply, wire };
    } catch (error) {
      // After an error a new connection is always right.
      wire.close();
      throw error;
    }
  }

  async #lend(node: Node): Promise<Wire> {
    this.#idle = this.#idle.filter((wire) => wire.isOpen);
    const index = this.#idle.findIndex((wire) => wire.node.id === node.id);
    return index < 0 ? this.wires.open(node) : this.#idle.splice(index, 1)[0]!;
  }

  #callNext(): void {
    for (const call of this.#line) {
      if (this.free === 0) return;
      this.#line.delete(call);
      this.free--;
      call();
    }
  }
}
