import { performance } from "node:perf_hooks";
import { type Client, connectionOf } from "./clients/client.js";
import type { Argument, Command, Connection } from "./connection.js";
import {
  DurationError,
  LockCancelledError,
  ModuleMissingError,
  ResourceLockedError,
  SlotsError,
  StringLockError,
  UnsupportedError,
} from "./errors.js";
import { Channel } from "./channel.js";
import { Fallback } from "./fallback.js";
import { Lingering } from "./lingering.js";
import type { Lock } from "./lock.js";
import type { Request } from "./request.js";
import { slotOf } from "./slot.js";
import { isExecMissing, isModuleMissing, isNotifyRefused, LOST, Support } from "./support.js";
import type { Waiter } from "./waiter.js";
import { type Place, WaitingRoom } from "./waiting-room.js";

/** How, and how long, an attempt waits for locks that others hold. */
export interface Waiting {
  readonly by: Waiter;
  readonly ms: number;
}

/** Without the right to ask, a value that is no lock of the module is taken for an old client's. */
const typeIfForbidden = (error: Error) => orThrow(error, "string");
const ttlIfForbidden = (error: Error) => orThrow(error, -1);

function orThrow<T>(error: Error, value: T): T {
  if (error.message.startsWith("NOPERM")) return value;
  throw error;
}

/** How often a lock of an old client is looked at. */
const LOOK_AGAIN_MS = 50;

/** For how long a lock counts as taken that was so. */
const BUSY_MS = 1000;

/** How many of them are known. */
const MOST_BUSY = 1000;

/** One server of the Redlock: the commands, by which the module does the rest. */
export class Server {
  readonly room: WaitingRoom;
  readonly channel: Channel;
  readonly support: Support;
  readonly #connection: Connection;
  readonly #fallback: Fallback;
  /** Resources that others held, and how long that counts. */
  readonly #busyUntil = new Map<string, number>();

  constructor(
    readonly client: Client,
    maxWaitingConnections: number,
    /** Whether strings are wanted where the module is missing. */
    private readonly mayFallBack: boolean,
  ) {
    this.#connection = connectionOf(client);
    this.#fallback = new Fallback(this.#connection);
    this.room = new WaitingRoom(this.#connection, maxWaitingConnections);
    this.channel = Channel.of(this.#connection);
    this.support = Support.of(this.#connection);
  }

  get hasEnded(): boolean {
    return this.#connection.hasEnded;
  }

  /** The server ends this lock soon after the connection, of which `onLost` is told. */
  linger(lock: Lock, onLost: () => void): void {
    const { resources, boundAt } = lock.request;
    const keys = resources.map((resource) => this.#connection.key(resource));
    Lingering.of(this.#connection).add(lock, (lost) => {
      const nodes = boundAt?.get(this.#connection);
      // Where it is not known it may be that one.
      if (lost === undefined || keys.some((key) => (nodes?.get(key) ?? lost) === lost)) onLost();
    });
  }

  get knowsDatabase(): boolean {
    return this.#connection.knowsDatabase;
  }

  /**
   * Gives back what a place was granted, and the client's own connection does not have. If the place held it, the two are of different
   * databases, and nobody waits by a place any more.
   */
  async giveBackAt(place: Place, { resources, token }: Request): Promise<void> {
    const keys = resources.map((resource) => this.#connection.key(resource));
    if (await place.release(keys, token)) this.support.isWithoutBlock();
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
    if (this.isFallback) return this.#fallback.acquire(request);
    try {
      const fences = await this.#acquire(request, waiting);
      this.support.hasModule();
      return fences;
    } catch (error) {
      if (error instanceof ResourceLockedError) {
        this.support.hasModule();
        this.#noteBusy(request);
      }
      if (!isModuleMissing(error)) throw error;
      if (this.mayFallBack) this.support.isWithoutModule();
      if (!this.isFallback) throw missing(error);
      // The choice was made just now.
      return this.#fallback.acquire(request);
    }
  }

  /** Whether its first resource was taken a moment ago. Then an attempt without a wait would be in vain. */
  wasBusy({ resources }: Request): boolean {
    return !this.isFallback && performance.now() < (this.#busyUntil.get(resources[0]!) ?? 0);
  }

  #noteBusy({ resources }: Request): void {
    if (this.#busyUntil.size >= MOST_BUSY) this.#busyUntil.clear();
    this.#busyUntil.set(resources[0]!, performance.now() + BUSY_MS);
  }

  /** Only who wants it gets it, whatever another `Redlock` of the same client has chosen. */
  get isFallback(): boolean {
    return this.mayFallBack && this.support.fallback === true;
  }

  async #acquire(request: Request, waiting?: Waiting): Promise<number[]> {
    if (request.sharedFrom !== undefined) return this.#acquireTogether(request, waiting);
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

  #acquireOne(resource: string, request: Request, block: number, by: Waiter | undefined): Promise<unknown> {
    const { token, duration, shared, limit } = request;
    const key = this.#connection.key(resource);
    const counted = limit === undefined ? [] : ["LIMIT", limit];
    const command: Command = [shared ? "RWLOCK.RLOCK" : "LOCK.ACQUIRE", key, token, duration, ...counted];
    return this.#ask([key], command, request, block, by);
  }

  async #acquireTogether(request: Request, waiting?: Waiting): Promise<number[]> {
    const { resources, token, duration, sharedFrom } = request;
    const keys = resources.map((resource) => this.#connection.key(resource));
    const modes = keys.map((_, i) => (i < sharedFrom! ? "EXCLUSIVE" : "SHARED"));
    this.#checkSlots(keys, resources);
    const command: Command = ["LOCK.MACQUIRE", keys.length, ...keys, token, duration, "MODES", ...modes];
    try {
      const fence = await this.#ask(keys, command, request, Math.floor(waiting?.ms ?? 0), waiting?.by);
      if (fence === null)
        throw new ResourceLockedError(`another client holds some of ${resources.join(", ")}`);
      return keys.map(() => Number(fence));
    } catch (error) {
      // Some of what was granted before, unheard, has ended since.
      if (error instanceof Error && error.message.startsWith("PARTIAL"))
        await this.#release(request).catch(() => {});
      throw error;
    }
  }

  /** One node grants them all in one step, so they must be together. */
  #checkSlots(keys: readonly string[], resources: readonly string[]): void {
    const slot = slotOf(keys[0]!);
    const other = this.#connection.isCluster ? keys.findIndex((key) => slotOf(key) !== slot) : -1;
    if (other < 0) return;
    throw new SlotsError(
      `${resources[0]} and ${resources[other]} are of different slots of the cluster, and a multi-lock is of one slot. ` +
        "Give its resources one hash tag: {order:42}:a and {order:42}:b.",
    );
  }

  async #ask(
    keys: readonly string[],
    bare: Command,
    request: Request,
    block: number,
    by: Waiter | undefined,
  ): Promise<unknown> {
    const { token, grace, linger } = request;
    const command: Command = linger === undefined ? bare : [...bare, "LINGER", linger];
    const key = keys[0]!;
    const keep = grace === undefined ? [] : ["KEEP", grace];
    try {
      // BLOCK 0 would wait for ever.
      if (by === undefined || block <= 0) return await this.#send([...command, ...keep], keys, request);
      return await by.ask({ key, token, command, keep }, block);
    } catch (error) {
      if (isWrongType(error)) await this.#throwIfStringLock(keys);
      if (by === this.channel && isNotifyRefused(error)) {
        this.support.isWithoutNotify((error as Error).message);
        // Waited for no time. The next wait is by BLOCK.
        return null;
      }
      if (isTooLong(error)) throw tooLong(error);
      if (error instanceof Error && error.message.startsWith("CANCELLED"))
        throw new LockCancelledError(`CANCELLED the wait for ${key} was ended by LOCK.CANCEL`, {
          cause: error,
        });
      throw error;
    }
  }

  /** With `linger` it notes the node of a cluster that answers. The library would follow a redirection without a word. */
  async #send(command: Command, keys: readonly string[], { boundAt }: Request): Promise<unknown> {
    const key = keys[0]!;
    if (!boundAt || !this.#connection.isCluster) return this.#connection.send(command, key);
    const nodes = boundAt.get(this.#connection) ?? new Map<string, string>();
    boundAt.set(this.#connection, nodes);
    // Until it answers it may be bound to any.
    for (const one of keys) nodes.delete(one);
    const node = await this.#connection.node(key).catch(() => undefined);
    if (node === undefined) return this.#connection.send(command, key);
    try {
      const reply = await node.send(command);
      for (const one of keys) nodes.set(one, node.id);
      return reply;
    } catch (error) {
      if (!/^(MOVED|ASK) /.test((error as Error).message)) throw error;
      return this.#connection.send(command, key);
    }
  }

  async #throwIfStringLock(keys: readonly string[]): Promise<void> {
    const typeOf = (key: string) => this.#connection.send(["TYPE", key], key).catch(typeIfForbidden);
    const types = await Promise.all(keys.map(typeOf));
    if (types.some((type) => type !== "string" && type !== "none" && type !== "redislock")) return;
    const key = keys[types.indexOf("string")];
    // It has ended since.
    if (key === undefined && types.every((type) => type === "none"))
      throw new StringLockError(keys[0]!, LOOK_AGAIN_MS);
    if (key === undefined) throw new ResourceLockedError(`${keys.join(", ")}: held by another client`);
    const ttl = Number(await this.#connection.send(["PTTL", key], key).catch(ttlIfForbidden));
    throw new StringLockError(key, Math.min(ttl < 0 ? LOOK_AGAIN_MS : ttl + 1, LOOK_AGAIN_MS));
  }

  async renew(request: Request): Promise<void> {
    const { resources, token, duration } = request;
    if (this.isFallback) return this.#fallback.renew(request);
    return this.#all(resources, (key) => ["LOCK.RENEW", key, token, duration]);
  }

  async release(request: Request, atLeast?: number): Promise<void> {
    if (this.isFallback) return this.#fallback.release(request, atLeast);
    return this.#release(request, atLeast === undefined ? [] : ["ATLEAST", atLeast]);
  }

  #release({ resources, token }: Request, options: readonly Argument[] = []): Promise<void> {
    return this.#all(resources, (key) => ["LOCK.RELEASE", key, token, ...options]);
  }

  async check(request: Request): Promise<void> {
    const { resources, token } = request;
    if (this.isFallback) return this.#fallback.check(request);
    return this.#all(resources, (key) => ["LOCK.CHECK", key, token]);
  }

  /** Runs a command if the token holds the resource. */
  async exec(resource: string, token: string, command: Command): Promise<unknown> {
    if (this.isFallback) return this.#fallback.exec();
    const key = this.#connection.key(resource);
    try {
      return await this.#connection.send(["LOCK.EXEC", key, token, ...command], key);
    } catch (error) {
      if (isExecMissing(error))
        throw new UnsupportedError("the server does not know the command LOCK.EXEC", { cause: error });
      if (error instanceof Error && error.message.startsWith("NOTHELD"))
        throw new ResourceLockedError(`not held any more: ${resource}`);
      // The command may meet a wrong type, too.
      if (isWrongType(error)) await this.#throwIfLost(key, token);
      throw error;
    }
  }

  /** Says nothing of what it cannot ask. */
  async #throwIfLost(key: string, token: string): Promise<void> {
    const answer = await this.#connection.send(["LOCK.CHECK", key, token], key).catch((error) => error);
    if (answer === null || isWrongType(answer))
      throw new ResourceLockedError("not held any more: the key is no lock");
  }

  async #all(resources: readonly string[], command: (key: string) => Command): Promise<void> {
    const keys = resources.map((resource) => this.#connection.key(resource));
    const sent = Promise.all(keys.map((key) => this.#connection.send(command(key), key)));
    const replies = await sent.catch((error) => {
      // A string that was written over the key has ended the hold.
      if (isWrongType(error)) throw new ResourceLockedError("not held any more: the key is no lock");
      throw isModuleMissing(error) ? missing(error) : isTooLong(error) ? tooLong(error) : error;
    });
    const lost = resources.filter((_, i) => Number(replies[i]) === 0);
    if (lost.length > 0) throw new ResourceLockedError(`not held any more: ${lost.join(", ")}`);
  }

  async quit(): Promise<void> {
    this.room.close();
    this.channel.close();
    await this.#connection.quit();
  }
}

function missing(cause: unknown): ModuleMissingError {
  return new ModuleMissingError(
    `the server has no redis-lock module (${(cause as Error).message.trim()}). Load it by \`loadmodule /path/libredis_lock.so\` in the ` +
      "server's configuration, and restart the server. Where modules cannot be loaded, the setting `fallback: true` has locks by " +
      `SET NX PX: there is ${LOST}`,
    { cause },
  );
}

function isWrongType(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith("WRONGTYPE");
}

function isTooLong(error: unknown): error is Error {
  return error instanceof Error && error.message.startsWith("ERR ttl must not be above lock.max-ttl");
}

function tooLong(cause: Error): DurationError {
  return new DurationError(`the duration (of runOnce: atMost) is too long: ${cause.message}`, { cause });
}
