import { randomBytes } from "node:crypto";
import type { Command } from "./driver.js";
import { isNotifyRefused } from "./replies.js";
import type { Request } from "./server.js";
import { slotOf, tagOfSlot } from "./slot.js";
import { type End, LATE, within } from "./timer.js";
import { type Answer, LATE_MS, PONG_MS, type Wire, type Wires } from "./wire.js";

/** Connections that wait in the server by BLOCK: at most so many, kept for the next waiter. */
export class WaitingRoom {
  #idle: Wire[] = [];
  /** Those that want to wait, in the order of their coming. Each of the first ones has a connection. */
  readonly #line = new Set<() => void>();

  constructor(
    private readonly wires: Wires,
    private readonly limit: number,
  ) {}

  /** Joins the line, and calls this, perhaps again, while a connection is free for the caller. Returns what leaves the line. */
  enter(call: () => void): () => void {
    this.#line.add(call);
    this.#callFirst();
    return () => {
      this.#line.delete(call);
      this.#callFirst();
    };
  }

  #callFirst(): void {
    let free = this.limit;
    for (const call of this.#line) {
      if (free-- <= 0) return;
      call();
    }
  }

  /**
   * Asks with BLOCK. A connection that does not answer soon after its time is given up. A wait that the caller has ended is answered when
   * its place is released.
   */
  async ask({ keys: [key] }: Request, command: Command, ms: number): Promise<Answer> {
    const end = performance.now() + ms;
    const wire = await this.wires.of(key!, (place) => this.#lend(place));
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

  async #lend(place: string): Promise<Wire> {
    const found = this.#idle.find((wire) => !wire.lost.aborted && wire.place === place);
    this.#idle = this.#idle.filter((wire) => !wire.lost.aborted && wire !== found);
    return (found ?? this.wires.open(place)).connected;
  }
}

/** After so long a silence the connections are asked whether they live. */
const HEARTBEAT_MS = 4000;

/**
 * The channel of one client, by which all its waiters hear of their grants. One connection listens, in a cluster one to each node, with a
 * shard channel for each slot. The requests go over the connection for commands, which never blocks.
 */
export class Listener {
  /** The server does not allow it to this user, or not for this key. */
  isRefused = false;
  readonly #id = randomBytes(16).toString("hex");
  /** By token, the last word of a message. Called with the end of the wait, as the server publishes it. */
  readonly #waiters = new Map<string, (message: { event: string; fence: number }) => void>();

  constructor(private readonly wires: Wires) {}

  /** Asks with NOTIFY. `end` ends the wait. */
  async ask({ keys, token }: Request, command: Command, ms: number, end: End): Promise<Answer> {
    const { wires } = this;
    const key = keys[0]!;
    const until = performance.now() + ms;
    const left = () => until - performance.now();
    try {
      // A shard channel is of the key's slot.
      const tag = wires.driver.discover ? `{${tagOfSlot(slotOf(key))}}:` : "";
      const channel = `redis-lock:${tag}${this.#id}`;
      // Without the channel it asks all the same, which keeps its place.
      const opening = this.#subscribed(key, channel);
      const ear = await within(Math.min(ms / 2, PONG_MS), opening, LATE).catch(ifLate);
      if (!ear) return await wires.send(command, key, LATE_MS);
      const wire = await wires.to(ear.place);
      for (const each of [ear, wire]) each.ping(HEARTBEAT_MS);
      // It listens before it asks. What is missed because the subscription is lost is in the next answer.
      const told = new Promise<{ event: string; fence: number }>((tell) => this.#waiters.set(token, tell));
      // It stays in the server for a little longer. The places of a process that has died end soon, and together.
      const wait = ["NOTIFY", Math.max(1, Math.ceil(left())) + LATE_MS, channel];
      // At the node where it listens, and nowhere else: a grant that another node publishes is not heard.
      const reply = await wire.send([...command, ...wait], left() + LATE_MS);
      if (String(reply) !== "QUEUED") return { reply, wire };
      // In ioredis a value could be the same: its replies have no types.
      const value = Buffer.isBuffer(reply) ? await wire.send(["GET", command[2]!], LATE_MS) : null;
      if (value !== null) return { reply: value, wire };
      const message = await within(left(), told, LATE, wire.lost, ear.lost, end).catch(ifLate);
      const { event, fence } = message ?? { event: "timeout" };
      if (event === "timeout") return { reply: null, wire };
      if (event === "granted" && !wires.driver.discover) return { reply: fence, wire };
      // As the error would be if the request had been answered with it.
      if (event !== "granted" && event !== "result")
        throw new Error(`${event.toUpperCase()} the server ended the wait for ${key}`);
      // A replica passes shard messages on, and its primary makes no grant that nobody hears of at the primary itself. So the primary
      // is asked, without waiting: the place stays where it is. The message of a value is without it, too.
      return { reply: await wire.send(command, LATE_MS), wire };
    } catch (error) {
      if (!isNotifyRefused(error)) throw error;
      const text = `Waiting by NOTIFY is not possible, so connections block: ${error.message}`;
      if (!this.isRefused) process.emitWarning(text, "RedisLockWarning", "REDIS_LOCK_WITHOUT_NOTIFY");
      this.isRefused = true;
      // The next wait is by BLOCK.
      return await wires.send(command, key, LATE_MS);
    } finally {
      this.#waiters.delete(token);
    }
  }

  /** Subscribes at the node of the key, unless it is subscribed. */
  async #subscribed(key: string, channel: string): Promise<Wire> {
    const ear = await this.wires.of(key, (place) => this.wires.to(place, this.#hear));
    await ear.subscribe(channel);
    return ear;
  }

  readonly #hear = (message: Buffer) => {
    const words = message.toString().split(" ");
    this.#waiters.get(words.at(-1)!)?.({ event: words[0]!, fence: Number(words[1]) });
  };
}

/** Undefined in place of the error that says that the time is over. */
function ifLate(error: Error): undefined {
  if (error.message !== LATE) throw error;
}
