import type { Command, Driver, Link } from "./driver.js";
import { kindOf, redirection } from "./replies.js";
import { End, LATE, whenAborted, within } from "./timer.js";

/** How long a command that does not wait may take to be answered. A connection that is silent for longer is given up. */
export const ANSWER_MS = 5000;

/** How long a connection may take to say that it lives, or to subscribe. */
export const PONG_MS = 2000;

/** How long after its time to wait a request may take to be answered. */
export const LATE_MS = 2000;

/** How often the user's client is asked whether the program has ended it: not every library emits an event. */
const LOOK_MS = 100;

/** How long the server may be silent on a new connection. The libraries have a time-out for the way to it, and none for its answers. */
const OPEN_MS = 4000;

/** How often a command follows a cluster's redirections. */
const HOPS = 5;

/** How long a cluster client may take to look for the nodes, and the time between two looks. */
const LOOK_FOR_NODES_MS = 1000;
const LOOK_AGAIN_MS = 500;

/** A reply, and the connection on which it came. */
export type Answer = { readonly reply: unknown; readonly wire: Wire };

/** A link that rejects what is in flight when it is lost or closed, and that is given up when an answer does not come. */
export class Wire {
  /** When a request was sent that was answered: until then it is known to have lived. */
  aliveAt = performance.now();
  /** Aborted when it is lost, also by `close`. */
  readonly lost = new End();
  /** Resolves when the server has answered; it may be lost again by then. */
  readonly connected: Promise<Wire>;
  readonly #link: Link;
  readonly #channels = new Map<string, Promise<unknown>>();

  constructor(
    driver: Driver,
    readonly place: string,
    readonly onMessage: (message: Buffer) => void,
  ) {
    this.#link = driver.open(place, this);
    const connecting = within(OPEN_MS, this.#link.connect(), "no answer on a new connection");
    this.connected = connecting.then(() => this);
    this.connected.catch(this.close);
  }

  send(command: Command, ms = ANSWER_MS): Promise<unknown> {
    return this.#run((link) => link.send(command), ms);
  }

  /** After so long a silence the connection is asked whether it lives. */
  ping(silence: number, ms = PONG_MS): void {
    // In small letters: iovalkey and ioredis 5 know it only so where a connection has subscribed.
    if (performance.now() - this.aliveAt >= silence) this.send(["ping"], ms).catch(() => {});
  }

  /** Where a channel is not available, all are given up. */
  subscribe(channel: string): Promise<unknown> {
    const subscribed = this.#channels.get(channel) ?? this.#run((link) => link.subscribe(channel), PONG_MS);
    this.#channels.set(channel, subscribed);
    subscribed.catch(this.close);
    return subscribed;
  }

  async #run(ask: (link: Link) => Promise<unknown>, ms: number): Promise<unknown> {
    this.lost.throwIfAborted();
    const sent = performance.now();
    try {
      const reply = await within(ms, ask(this.#link), LATE, this.lost);
      this.aliveAt = Math.max(this.aliveAt, sent);
      return reply;
    } catch (error) {
      if (kindOf(error) === "silent") this.close();
      // An error that the server has answered shows that it has the connection.
      else if (!(error instanceof TypeError)) this.aliveAt = Math.max(this.aliveAt, sent);
      throw error;
    }
  }

  /** Also called by the link. */
  readonly close = (): void => {
    if (this.lost.aborted) return;
    this.lost.abort(new Error("the connection was lost"));
    this.#link.close();
  };
}

/** All connections of a client. */
export class Wires {
  /** Until they are lost. The shared ones by place: that for what is answered at once, and that which listens. */
  readonly #all = new Map<unknown, Wire>();
  #looking: Promise<unknown> | undefined;

  constructor(readonly driver: Driver) {}

  /** Sends what is answered at once, and follows a cluster's redirections. */
  async send(command: Command, key: string, ms = ANSWER_MS): Promise<Answer> {
    let wire = await this.of(key);
    for (let hop = 0, isAsk = false; ; hop++) {
      // Nothing may come between the two.
      if (isAsk) wire.send(["ASKING"], ms).catch(() => {});
      try {
        return { reply: await wire.send(command, ms), wire };
      } catch (error) {
        const to = redirection(error);
        isAsk = to?.isAsk === true;
        if (kindOf(error) === "elsewhere" && !isAsk) void this.#refresh(key);
        if (!to || !this.driver.discover || hop >= HOPS) throw error;
        wire = await this.to(to.address);
      }
    }
  }

  /** One to the server of the key, by default that for commands. */
  async of(key: string, to = (place: string) => this.to(place)): Promise<Wire> {
    try {
      const place = await this.driver.place(key);
      if (place === undefined) throw new Error("the node of the key is not known");
      return await to(place);
    } catch (error) {
      await this.#refresh(key);
      throw error;
    }
  }

  /** Has a cluster client ask again where the slots are. If nobody uses it, it hears of no redirection by itself. */
  async #refresh(key: string): Promise<void> {
    if (!this.driver.discover) return;
    // One look does for some time after its end, too.
    this.#looking ??= within(LOOK_FOR_NODES_MS, this.driver.discover(key), LATE)
      .catch(() => {})
      .finally(() => setTimeout(() => (this.#looking = undefined), LOOK_AGAIN_MS).unref());
    await this.#looking;
  }

  /** The one to a place for commands, or that which listens. It is opened when it is first needed, and again after it was lost. */
  async to(place: string, onMessage?: (message: Buffer) => void): Promise<Wire> {
    const name = onMessage ? `${place} listening` : place;
    return (this.#all.get(name) ?? this.open(place, name, onMessage)).connected;
  }

  /** Without a name for one user, who closes it. */
  open(place: string, name: unknown = Symbol(), onMessage: (message: Buffer) => void = () => {}): Wire {
    if (this.driver.hasEnded()) throw new Error("the client was ended");
    const wire = new Wire(this.driver, place, onMessage);
    this.#all.set(name, wire);
    // This keeps no process alive.
    const look = setInterval(() => this.driver.hasEnded() && wire.close(), LOOK_MS).unref();
    whenAborted(() => (clearInterval(look), this.#all.delete(name)), wire.lost);
    return wire;
  }

  /** Ends the user's client, too. node-redis would keep the connections of a look that is not over, and with them the process. */
  async quit(): Promise<void> {
    for (const wire of this.#all.values()) wire.close();
    await this.#looking;
    await this.driver.end();
  }
}
