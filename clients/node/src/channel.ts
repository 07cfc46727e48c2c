import { randomBytes } from "node:crypto";
import { performance } from "node:perf_hooks";
import type { Connection, Node, Subscriber } from "./connection.js";
import { type Message, parseMessage } from "./message.js";
import { slotOf, tagOfSlot } from "./slot.js";
import { within } from "./timer.js";
import { oneForEach, type Question, type Waiter } from "./waiter.js";

/** How long a request stays in the server after its slice. The places of a process that has died end soon, and together. */
const SPARE_MS = 2000;

/** How often the connection is asked whether it still lives. */
const HEARTBEAT_MS = 5000;

/** How long it may take to say so, or to subscribe. */
const PONG_MS = 2000;

/** How long after the time to wait a request may take to be answered. */
const ANSWER_MS = 2000;

/** How long a waiter waits for the channel before it asks without it, which keeps its place. */
const READY_MS = 3000;

const LATE = "no answer within the time to wait";

/** Called with the end of the wait, or with nothing if the subscription was lost. */
type Listener = (message?: Message) => void;

/**
 * The channel of one client, by which all its waiters hear of their grants. It has one connection of its own, in a cluster one to each
 * node, with a shard channel for each slot. The requests go over the client's connection, which never blocks.
 */
export class Channel implements Waiter {
  readonly #id = randomBytes(16).toString("hex");
  /** By token and key. Tokens have no spaces, and no token waits twice for a key. */
  readonly #listeners = new Map<string, Listener>();
  /** By node. */
  readonly #current = new Map<string, Promise<Live>>();
  #closings = 0;

  static readonly of = oneForEach((shared: Connection) => new Channel(shared));

  private constructor(private readonly shared: Connection) {
    shared.onEnd(() => this.close());
    // The new connection may lead to another server, where nobody listens.
    shared.onReconnect(() => this.#loseAll());
  }

  async ask({ key, token, command, keep }: Question, ms: number): Promise<unknown> {
    const closings = this.#closings;
    const until = performance.now() + ms;
    const left = () => until - performance.now();
    while (left() > 0) {
      if (closings !== this.#closings) throw new Error("the client was ended");
      const ready = this.#subscribed(key);
      const { node, live, channel } = await within(Math.min(left(), READY_MS), ready, LATE);
      // It listens before it asks, and after a lost subscription it asks again: what was missed is in the answer.
      const end = this.#listen(key, token);
      try {
        if (live.isLost) continue;
        const wait = ["NOTIFY", Math.ceil(left()) + SPARE_MS, channel];
        // Where it listens, and nowhere else: a grant that another node publishes is not heard.
        const reply = await within(left() + ANSWER_MS, node.send([...command, ...wait, ...keep]), LATE);
        if (String(reply) !== "QUEUED") return reply;
        const message = await end.within(left());
        if (message?.event === "granted") {
          if (!this.shared.isCluster) return message.fence;
          // A replica passes shard messages on, and its primary makes no grant that nobody hears of at the primary itself. So
          // the primary is asked, without waiting: the place stays where it is.
          const fence = await within(ANSWER_MS, node.send([...command, ...keep]), LATE);
          if (fence !== null) return fence;
          continue;
        }
        if (message && message.event !== "timeout") throw errorOf(message);
      } finally {
        end.stop();
      }
    }
    return null;
  }

  close(): void {
    this.#closings++;
    this.#loseAll();
  }

  #loseAll(): void {
    for (const current of this.#current.values())
      void current.then(
        (live) => live.lose(),
        () => {},
      );
  }

  #listen(key: string, token: string) {
    // As it comes back from the server, where it is UTF-8.
    const name = `${token} ${Buffer.from(key).toString()}`;
    let tell: Listener = () => {};
    const told = new Promise<Message | undefined>((resolve) => (tell = resolve));
    this.#listeners.set(name, tell);
    return {
      async within(ms: number): Promise<Message | undefined> {
        const timer = setTimeout(tell, Math.max(0, ms));
        try {
          return await told;
        } finally {
          clearTimeout(timer);
        }
      },
      stop: () => void this.#listeners.delete(name),
    };
  }

  /** Subscribes at the node of the key, unless it is subscribed. */
  async #subscribed(key: string): Promise<{ node: Node; live: Live; channel: string }> {
    const node = await this.shared.node(key);
    let current = this.#current.get(node.id);
    if (current === undefined) {
      const subscribing = this.#subscribe(node, () => {
        if (this.#current.get(node.id) === subscribing) this.#current.delete(node.id);
      });
      this.#current.set(node.id, (current = subscribing));
    }
    const live = await current;
    // A shard channel is of the key's slot.
    const channel = `redis-lock:${this.shared.isCluster ? `{${tagOfSlot(slotOf(key))}}:` : ""}${this.#id}`;
    await live.subscribe(channel);
    return { node, live, channel };
  }

  async #subscribe(node: Node, forget: () => void): Promise<Live> {
    const closings = this.#closings;
    const live = new Live(this.#listeners, () => {
      forget();
      for (const tell of this.#listeners.values()) tell();
    });
    const onMessage = (bytes: Buffer) => this.#dispatch(bytes);
    try {
      live.begin(await node.subscriber(onMessage, () => live.lose()));
      if (closings !== this.#closings) live.lose();
      if (live.isLost) throw new Error("the subscription was lost at once");
      return live;
    } catch (error) {
      forget();
      throw error;
    }
  }

  #dispatch(bytes: Buffer): void {
    const message = parseMessage(bytes);
    if (message) this.#listeners.get(`${message.token} ${message.key}`)?.(message);
  }
}

/** A subscription while it lasts. */
class Live {
  isLost = false;
  #subscriber: Subscriber | undefined;
  readonly #channels = new Map<string, Promise<unknown>>();
  #heart: NodeJS.Timeout | undefined;

  constructor(
    private readonly listeners: ReadonlyMap<string, Listener>,
    private readonly onLost: () => void,
  ) {}

  begin(subscriber: Subscriber): void {
    this.#subscriber = subscriber;
    if (this.isLost) return subscriber.close();
    this.#heart = setInterval(() => void this.#beat(subscriber), HEARTBEAT_MS).unref();
  }

  /** Once for each channel. Where it cannot be had, all that it has is given up. */
  async subscribe(channel: string): Promise<void> {
    let subscribing = this.#channels.get(channel);
    if (subscribing === undefined)
      this.#channels.set(
        channel,
        (subscribing = within(PONG_MS, this.#subscriber!.subscribe(channel), LATE)),
      );
    try {
      await subscribing;
    } catch (error) {
      this.lose();
      throw error;
    }
  }

  lose(): void {
    if (this.isLost) return;
    this.isLost = true;
    clearInterval(this.#heart);
    this.#subscriber?.close();
    this.onLost();
  }

  async #beat(subscriber: Subscriber): Promise<void> {
    if (this.listeners.size === 0) return;
    try {
      await within(PONG_MS, subscriber.ping(), "no answer");
    } catch {
      this.lose();
    }
  }
}

/** As the error would be if the request had been answered with it. */
function errorOf({ event, key }: Message): Error {
  return new Error(`${event.toUpperCase()} the server ended the wait for ${key}`);
}
