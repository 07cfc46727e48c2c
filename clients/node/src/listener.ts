import { randomBytes } from "node:crypto";
import { performance } from "node:perf_hooks";
import type { Command, Node } from "./driver.js";
import { warn } from "./errors.js";
import { isNotifyRefused } from "./replies.js";
import type { Request } from "./request.js";
import { slotOf, tagOfSlot } from "./slot.js";
import { type End, LATE, whenAborted, within } from "./timer.js";
import { type Answer, LATE_MS, oneOfEach, type Waiter, type Wire, type Wires } from "./wire.js";

/** How long a request stays in the server after its slice. The places of a process that has died end soon, and together. */
const SPARE_MS = 2000;

/** How often the listening connection is asked whether it still lives, and how long it may take to say so or to subscribe. */
const HEARTBEAT_MS = 5000;
const PONG_MS = 2000;

/** How long a waiter waits for the channel before it asks without it, which keeps its place. */
const READY_MS = 3000;

/** The end of a wait, as the server publishes it: `event fence key-length key token`. */
interface Message {
  /** `granted`, `result`, `timeout`, `tryagain`, `wrongtype`, `deadlock`, `cancelled`; perhaps another one in later versions. */
  readonly event: string;
  /** 0 where there is none. */
  readonly fence: number;
}

/**
 * The channel of one client, by which all its waiters hear of their grants. One connection listens, in a cluster one to each node, with a
 * shard channel for each slot. The requests go over the connection for commands, which never blocks.
 */
export class Listener implements Waiter {
  /** The server does not allow it to this user, or not for this key. */
  isRefused = false;
  readonly #id = randomBytes(16).toString("hex");
  /** By key and token. Called with the end of the wait. */
  readonly #waiters = new Map<string, (message: Message) => void>();
  readonly #ear = oneOfEach((node) => this.#open(node));

  constructor(private readonly wires: Wires) {}

  async ask(request: Request, command: Command, ms: number, end: End): Promise<Answer> {
    try {
      return await this.#ask(request, command, ms, end);
    } catch (error) {
      if (!isNotifyRefused(error)) throw error;
      const text = `Waiting by NOTIFY is not possible, so connections block: ${error.message}`;
      if (!this.isRefused) warn("REDIS_LOCK_WITHOUT_NOTIFY", text);
      this.isRefused = true;
      // It has waited for no time. The next wait is by BLOCK.
      return { reply: null, wire: undefined };
    }
  }

  async #ask({ keys, token }: Request, command: Command, ms: number, end: End): Promise<Answer> {
    const { wires } = this;
    const key = keys[0]!;
    // As it comes back from the server, where it is UTF-8.
    const name = `${Buffer.from(key).toString()} ${token}`;
    const until = performance.now() + ms;
    const left = () => until - performance.now();
    const ready = await within(Math.min(ms / 2, READY_MS), this.#subscribed(key), LATE).catch(ifLate);
    const wire = await (ready ? wires.to(ready.ear.node) : wires.of(key));
    if (!ready) return { reply: await wire.send(command, LATE_MS), wire };
    const { ear, channel } = ready;
    // It listens before it asks, and after a lost subscription it is asked again: what was missed is in the answer.
    const told = new Promise<Message>((tell) => this.#waiters.set(name, tell));
    try {
      const wait = ["NOTIFY", Math.max(1, Math.ceil(left())) + SPARE_MS, channel];
      // At the node where it listens, and nowhere else: a grant that another node publishes is not heard.
      const reply = await wire.send([...command, ...wait], left() + LATE_MS);
      if (String(reply) !== "QUEUED") return { reply, wire };
      // In ioredis a value could be the same: its replies have no types.
      const value = Buffer.isBuffer(reply) ? await wire.send(["GET", command[2]!], LATE_MS) : null;
      if (value !== null) return { reply: value, wire };
      const message = await within(left(), told, LATE, wire.lost, ear.lost, end).catch(ifLate);
      if (message?.event === "granted" || message?.event === "result") {
        if (!wires.driver.cluster && message.event === "granted") return { reply: message.fence, wire };
        // A replica passes shard messages on, and its primary makes no grant that nobody hears of at the primary itself. So the primary
        // is asked, without waiting: the place stays where it is. The message of a value is without it, too.
        return { reply: await wire.send(command, LATE_MS), wire };
      }
      // As the error would be if the request had been answered with it.
      if (message && message.event !== "timeout")
        throw new Error(`${message.event.toUpperCase()} the server ended the wait for ${key}`);
      return { reply: null, wire: undefined };
    } finally {
      this.#waiters.delete(name);
    }
  }

  /** Subscribes at the node of the key, unless it is subscribed. */
  async #subscribed(key: string) {
    const { driver } = this.wires;
    const ear = await this.wires.of(key, this.#ear);
    // A shard channel is of the key's slot.
    const tag = driver.cluster ? `{${tagOfSlot(slotOf(key))}}:` : "";
    const channel = `redis-lock:${tag}${this.#id}`;
    await ear.subscribe(channel, PONG_MS);
    return { ear, channel };
  }

  async #open(node: Node): Promise<Wire> {
    const wire = await this.wires.open(node, (bytes) => {
      const text = bytes.toString();
      const head = /^([a-z]+) ([0-9]+) [0-9]+ /.exec(text);
      if (head) this.#waiters.get(text.slice(head[0].length))?.({ event: head[1]!, fence: Number(head[2]) });
    });
    const beat = () => this.#waiters.size > 0 && wire.send(["PING"], PONG_MS).catch(() => {});
    const heart = setInterval(beat, HEARTBEAT_MS).unref();
    whenAborted(() => clearInterval(heart), wire.lost);
    return wire;
  }
}

/** Undefined in place of the error that says that the time is over. */
function ifLate(error: Error): undefined {
  if (error.message !== LATE) throw error;
}
