import { performance } from "node:perf_hooks";
import type { Command, Driver, Link, Node } from "./driver.js";
import type { Pulse } from "./lease.js";
import { kindOf } from "./replies.js";
import type { Request } from "./request.js";
import { End, LATE, whenAborted, within } from "./timer.js";

/** How long a command that does not wait may take to be answered. A connection that is silent for longer is given up. */
export const ANSWER_MS = 5000;

/** How long after its time to wait a request may take to be answered. */
export const LATE_MS = 2000;

/** How often the user's client is asked whether the program has ended it: not every library emits an event. */
const LOOK_MS = 100;

/** How long a cluster client may take to look for the nodes, and the time between two looks. */
const LOOK_FOR_NODES_MS = 1000;
const LOOK_AGAIN_MS = 500;

/** A reply, and the connection on which it came. */
export interface Answer {
  readonly reply: unknown;
  readonly wire: Wire | undefined;
}

/** How a request waits. */
export interface Waiting {
  readonly by: Waiter;
  /** How long. */
  readonly ms: number;
  /** Ends the wait. */
  readonly end: End;
}

/** A way to wait in the server. */
export interface Waiter {
  /** Resolves with what the command answers when it does not wait. */
  ask(request: Request, command: Command, waiting: Waiting): Promise<Answer>;
}

/** A link that rejects what is in flight when it is lost or closed, and that is given up when an answer does not come. */
export class Wire implements Pulse {
  /** When a request was sent that was answered. */
  aliveAt = performance.now();
  /** Aborted when it is lost, also by `close`. */
  readonly lost = new End();
  #link: Link | undefined;
  readonly #channels = new Map<string, Promise<unknown>>();

  static async open(node: Node, onMessage: (message: Buffer) => void): Promise<Wire> {
    const wire = new Wire(node);
    wire.#link = await node.open(() => wire.close(), onMessage);
    if (!wire.lost.aborted) return wire;
    wire.#link.close();
    throw wire.lost.reason;
  }

  private constructor(readonly node: Node) {}

  get isOpen(): boolean {
    return !this.lost.aborted && this.#link!.isOpen();
  }

  send(command: Command, ms = ANSWER_MS): Promise<unknown> {
    return this.#run((link) => link.send(command), ms);
  }

  /** Where a channel is not available, all are given up. */
  subscribe(channel: string, ms: number): Promise<unknown> {
    const subscribed = this.#channels.get(channel) ?? this.#run((link) => link.subscribe(channel), ms);
    this.#channels.set(channel, subscribed);
    subscribed.catch(() => this.close());
    return subscribed;
  }

  async #run(ask: (link: Link) => Promise<unknown>, ms: number): Promise<unknown> {
    if (!this.isOpen) throw new Error("the connection was lost");
    const sent = performance.now();
    try {
      const reply = await within(ms, ask(this.#link!), LATE, this.lost);
      this.aliveAt = Math.max(this.aliveAt, sent);
      return reply;
    } catch (error) {
      if (kindOf(error) === "silent") this.close();
      // An error that the server has answered shows that it has the connection.
      else if (!(error instanceof TypeError)) this.aliveAt = Math.max(this.aliveAt, sent);
      throw error;
    }
  }

  close(): void {
    if (this.lost.aborted) return;
    this.lost.abort(new Error("the connection was lost"));
    this.#link?.close();
  }
}

/** Finds the one connection to a server, which is opened when it is first needed, and again after it was lost. */
export function oneOfEach(open: (node: Node) => Promise<Wire>): (node: Node) => Promise<Wire> {
  const known = new Map<string, Promise<Wire>>();
  return (node) => {
    const found = known.get(node.id);
    if (found !== undefined) return found;
    const opening = open(node);
    const forget = () => void (known.get(node.id) === opening && known.delete(node.id));
    known.set(node.id, opening);
    opening.then((wire) => whenAborted(forget, wire.lost), forget);
    return opening;
  };
}

/** All connections of a client. */
export class Wires {
  /** That for what is answered at once. */
  readonly to = oneOfEach((node) => this.open(node));
  /** Aborted when all of them are closed. Those that are opened later have another one. */
  life = new End();
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<unknown> | undefined;
  #lookedAt = -Infinity;

  constructor(readonly driver: Driver) {}

  /** One to the server of the key, by default that for commands. */
  async of(key: string, to = this.to): Promise<Wire> {
    try {
      return await to(await this.driver.node(key));
    } catch (error) {
      await this.refresh(key);
      throw error;
    }
  }

  async open(node: Node, onMessage: (message: Buffer) => void = () => {}): Promise<Wire> {
    // This keeps no process alive.
    this.#timer ??= setInterval(() => this.driver.hasEnded() && this.close(), LOOK_MS).unref();
    const { life } = this;
    const wire = await Wire.open(node, onMessage);
    const forget = whenAborted(() => wire.close(), life);
    whenAborted(forget, wire.lost);
    if (this.driver.hasEnded()) wire.close();
    if (!wire.isOpen) throw new Error("the client was ended");
    return wire;
  }

  /** Has a cluster client ask again where the slots are. */
  async refresh(key: string): Promise<void> {
    const { cluster } = this.driver;
    if (!cluster || performance.now() - this.#lookedAt < LOOK_AGAIN_MS) return;
    this.#looking ??= within(LOOK_FOR_NODES_MS, cluster.discover(key), LATE)
      .catch(() => {})
      .finally(() => {
        this.#looking = undefined;
        this.#lookedAt = performance.now();
      });
    await this.#looking;
  }

  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.life.abort(new Error("the client was ended"));
    this.life = new End();
  }

  /** Ends the user's client, too. node-redis would keep the connections of a look that is not over, and with them the process. */
  async quit(): Promise<void> {
    this.close();
    await this.#looking;
    await this.driver.end();
  }
}
