import { randomBytes } from "node:crypto";
import { performance } from "node:perf_hooks";
import type { Argument, Command, Driver, Listening, Node } from "./driver.js";
import { slotOf, tagOfSlot } from "./slot.js";
import { within } from "./timer.js";
import { type Answer, LATE, LATE_MS, type Wire, type Wires } from "./wire.js";

/** How long a request stays in the server after its slice. The places of a process that has died end soon, and together. */
const SPARE_MS = 2000;

/** How often the listening connection is asked whether it still lives, and how long it may take to say so or to subscribe. */
const HEARTBEAT_MS = 5000;
const PONG_MS = 2000;

/** How long a waiter waits for the channel before it asks without it, which keeps its place. */
const READY_MS = 3000;

/** The end of a wait, as the server publishes it. */
interface Message {
  /** `granted`, `result`, `timeout`, `tryagain`, `wrongtype`, `deadlock`, `cancelled`; perhaps another one in later versions. */
  readonly event: string;
  /** 0 where there is none. */
  readonly fence: number;
  readonly key: string;
  readonly token: string;
}

/** Reads `event fence key-length key token`. Undefined if it is no message of the module. */
function parseMessage(bytes: Buffer): Message | undefined {
  const head = /^([a-z]+) ([0-9]+) ([0-9]+) /.exec(bytes.toString("latin1"));
  if (!head) return undefined;
  const [start, event, fence, length] = head;
  // Only the length tells where the key ends: it may contain spaces, and is counted in bytes.
  const end = start.length + Number(length);
  if (bytes[end] !== " ".charCodeAt(0)) return undefined;
  return {
    event: event!,
    fence: Number(fence),
    key: bytes.toString("utf8", start.length, end),
    token: bytes.toString("utf8", end + 1),
  };
}

/** A subscription while it lasts. */
interface Ear {
  readonly wire: Wire<Listening>;
  readonly channels: Map<string, Promise<unknown>>;
}

/**
 * The channel of one client, by which all its waiters hear of their grants. One connection listens, in a cluster one to each node, with a
 * shard channel for each slot. The requests go over the connection for commands, which never blocks.
 */
export class Listener {
  readonly #id = randomBytes(16).toString("hex");
  /** By token and key. Called with the end of the wait, or with nothing if the subscription was lost. */
  readonly #waiters = new Map<string, (message?: Message) => void>();
  /** By node. */
  readonly #ears = new Map<string, Promise<Ear>>();

  constructor(
    private readonly driver: Driver,
    private readonly wires: Wires,
  ) {}

  async ask(
    key: string,
    token: string,
    command: Command,
    keep: readonly Argument[],
    ms: number,
  ): Promise<Answer> {
    const { closings } = this.wires;
    const until = performance.now() + ms;
    const left = () => until - performance.now();
    while (left() > 0) {
      if (closings !== this.wires.closings) throw new Error("the client was ended");
      const ready = this.#subscribed(key);
      const { node, ear, channel } = await within(Math.min(left() / 2, READY_MS), ready, LATE);
      const wire = await this.wires.to(node);
      // It listens before it asks, and after a lost subscription it asks again: what was missed is in the answer.
      const end = this.#listen(key, token);
      const stopWatching = this.wires.onLost((lost) => lost === wire && end.tell());
      try {
        if (!ear.wire.isOpen) continue;
        const wait = ["NOTIFY", Math.ceil(left()) + SPARE_MS, channel];
        // At the node where it listens, and nowhere else: a grant that another node publishes is not heard.
        const reply = await wire.send([...command, ...wait, ...keep], left() + LATE_MS);
        if (String(reply) !== "QUEUED") return { reply, wire };
        // In ioredis a value could be the same: its replies have no types.
        const value = Buffer.isBuffer(reply) ? await wire.send(["GET", command[2]!], LATE_MS) : null;
        if (value !== null) return { reply: value, wire };
        const message = await within(left(), end.told, LATE).catch(() => undefined);
        if (message?.event === "granted" || message?.event === "result") {
          if (!this.driver.isCluster && message.event === "granted") return { reply: message.fence, wire };
          // A replica passes shard messages on, and its primary makes no grant that nobody hears of at the primary itself. So the primary
          // is asked, without waiting: the place stays where it is. The message of a value is without it, too.
          const fence = await wire.send([...command, ...keep], LATE_MS);
          if (fence !== null) return { reply: fence, wire };
        } else if (message && message.event !== "timeout") {
          // As the error would be if the request had been answered with it.
          throw new Error(`${message.event.toUpperCase()} the server ended the wait for ${message.key}`);
        }
      } finally {
        stopWatching();
        end.stop();
      }
    }
    return { reply: null, wire: undefined };
  }

  #listen(key: string, token: string) {
    // As it comes back from the server, where it is UTF-8.
    const name = `${token} ${Buffer.from(key).toString()}`;
    let tell: (message?: Message) => void = () => {};
    const told = new Promise<Message | undefined>((resolve) => (tell = resolve));
    this.#waiters.set(name, tell);
    return { told, tell: () => tell(), stop: () => void this.#waiters.delete(name) };
  }

  /** Subscribes at the node of the key, unless it is subscribed. */
  async #subscribed(key: string) {
    const node = await this.driver.node(key);
    let hearing = this.#ears.get(node.id);
    if (hearing === undefined) {
      hearing = this.#open(node, () => this.#ears.get(node.id) === hearing && this.#ears.delete(node.id));
      this.#ears.set(node.id, hearing);
    }
    const ear = await hearing;
    // A shard channel is of the key's slot.
    const tag = this.driver.isCluster ? `{${tagOfSlot(slotOf(key))}}:` : "";
    const channel = `redis-lock:${tag}${this.#id}`;
    let subscribing = ear.channels.get(channel);
    if (subscribing === undefined) {
      subscribing = ear.wire.run((link) => link.subscribe(channel), PONG_MS);
      ear.channels.set(channel, subscribing);
    }
    // Where a channel is not available, all are given up.
    await subscribing.catch((error) => {
      ear.wire.close();
      throw error;
    });
    return { node, ear, channel };
  }

  async #open(node: Node, forget: () => void): Promise<Ear> {
    let heart: NodeJS.Timeout | undefined;
    const onLost = () => {
      clearInterval(heart);
      forget();
      for (const tell of this.#waiters.values()) tell();
    };
    const hear = (bytes: Buffer) => {
      const message = parseMessage(bytes);
      if (message) this.#waiters.get(`${message.token} ${message.key}`)?.(message);
    };
    try {
      const wire = await this.wires.open((lost) => node.listen(hear, lost), onLost);
      const beat = () => this.#waiters.size > 0 && wire.send(["PING"], PONG_MS).catch(() => {});
      heart = setInterval(beat, HEARTBEAT_MS).unref();
      return { wire, channels: new Map() };
    } catch (error) {
      forget();
      throw error;
    }
  }
}
