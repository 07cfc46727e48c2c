import { performance } from "node:perf_hooks";
import { type Client, type Command, type Connection, connectionOf } from "./connection.js";
import { ResourceLockedError, StringLockError } from "./errors.js";
import { Channel } from "./channel.js";
import { isNotifyRefused, isUnknownOption, Support } from "./support.js";
import type { Waiter } from "./waiter.js";
import { WaitingRoom } from "./waiting-room.js";

/** What is to be locked. */
export interface Request {
  /** In one order for all who use this package, so that no two wait for each other. */
  readonly resources: readonly string[];
  readonly token: string;
  readonly duration: number;
  readonly shared: boolean;
  /** How long the server keeps the places in its queues while nobody listens. Undefined for a request that does not wait. */
  readonly grace?: number | undefined;
}

/** How, and how long, an attempt waits for locks that others hold. */
export interface Waiting {
  readonly by: Waiter;
  readonly ms: number;
}

/** How often a lock of an old client is looked at. */
const LOOK_AGAIN_MS = 50;

/** One server of the Redlock: the commands, by which the module does the rest. */
export class Server {
  readonly room: WaitingRoom;
  readonly channel: Channel;
  readonly support: Support;
  readonly #connection: Connection;

  constructor(
    readonly client: Client,
    maxWaitingConnections: number,
  ) {
    this.#connection = connectionOf(client);
    this.room = new WaitingRoom(this.#connection, maxWaitingConnections);
    this.channel = Channel.of(this.#connection);
    this.support = Support.of(this.#connection);
  }

  get hasEnded(): boolean {
    return this.#connection.hasEnded;
  }

  /** Grows when a command that is not answered yet may be sent again. */
  get resends(): number {
    return this.#connection.resends;
  }

  /**
   * Takes all resources, one after the other, and returns their fences. What this token holds already is given again, with
   * a new deadline: so an attempt can be repeated after any failure, and repeating it keeps the first locks alive while the next
   * one is waited for.
   */
  async acquire(request: Request, waiting?: Waiting): Promise<number[]> {
    const until = performance.now() + (waiting?.ms ?? 0);
    const fences: number[] = [];
    for (const resource of request.resources) {
      // With some in hand only as long as they last.
      const most = fences.length === 0 ? Infinity : request.duration / 3;
      const block = Math.floor(Math.min(until - performance.now(), most));
      const fence = await this.#acquireOne(resource, request, block, waiting?.by);
      if (fence === null) throw new ResourceLockedError(`${resource} is held by another client`);
      fences.push(Number(fence));
    }
    return fences;
  }

  async #acquireOne(
    resource: string,
    request: Request,
    block: number,
    by: Waiter | undefined,
  ): Promise<unknown> {
    const { token, duration, shared, grace } = request;
    const key = this.#connection.key(resource);
    const command: Command = [shared ? "RWLOCK.RLOCK" : "LOCK.ACQUIRE", key, token, duration];
    const keep = grace !== undefined && this.support.keep ? ["KEEP", grace] : [];
    try {
      // BLOCK 0 would wait for ever.
      if (by === undefined || block <= 0) return await this.#connection.send([...command, ...keep]);
      return await by.ask({ key, token, command, keep }, block);
    } catch (error) {
      if (error instanceof Error && error.message.startsWith("WRONGTYPE")) await this.#throwIfStringLock(key);
      if (by === this.channel && isNotifyRefused(error)) {
        this.support.isWithoutNotify((error as Error).message);
        // Waited for no time. The next wait is by BLOCK.
        return null;
      }
      if (!isUnknownOption(error) || keep.length === 0) throw error;
      this.support.isOld();
      return this.#acquireOne(resource, request, 0, undefined);
    }
  }

  async #throwIfStringLock(key: string): Promise<void> {
    const [type, ttl] = await Promise.all([
      this.#connection.send(["TYPE", key]),
      this.#connection.send(["PTTL", key]),
    ]);
    if (type === "redislock") throw new ResourceLockedError(`${key} is held by another client`);
    // It may have ended since.
    if (type !== "string" && type !== "none") return;
    const left = Number(ttl) < 0 ? LOOK_AGAIN_MS : Number(ttl) + 1;
    throw new StringLockError(key, type === "none" ? 0 : Math.min(left, LOOK_AGAIN_MS));
  }

  renew({ resources, token, duration }: Request): Promise<void> {
    return this.#all(resources, (key) => ["LOCK.RENEW", key, token, duration]);
  }

  release({ resources, token }: Request): Promise<void> {
    return this.#all(resources, (key) => ["LOCK.RELEASE", key, token]);
  }

  async #all(resources: readonly string[], command: (key: string) => Command): Promise<void> {
    const keys = resources.map((resource) => this.#connection.key(resource));
    const replies = await Promise.all(keys.map((key) => this.#connection.send(command(key))));
    const lost = resources.filter((_, i) => Number(replies[i]) === 0);
    if (lost.length > 0) throw new ResourceLockedError(`not held any more: ${lost.join(", ")}`);
  }

  async quit(): Promise<void> {
    this.room.close();
    this.channel.close();
    await this.#connection.quit();
  }
}
