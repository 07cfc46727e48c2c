import type { Request } from "./request.js";
import type { Argument, Command, Driver } from "./driver.js";
import { type Client, driverOf } from "./drivers/client.js";
import {
  DurationError,
  LockCancelledError,
  lost,
  ModuleMissingError,
  ResourceLockedError,
  SlotsError,
  StringLockError,
  UnsupportedError,
} from "./errors.js";
import { Fallback, LOST } from "./fallback.js";
import { Listener } from "./listener.js";
import { is, isNotifyRefused, isUnknownCommand, kindOf, redirection } from "./replies.js";
import { slotOf } from "./slot.js";
import { type Answer, ANSWER_MS, type Wire, Wires } from "./wire.js";

/** How to wait in the server. */
export interface Waiter {
  /** Asks, and waits for so long. Resolves with the reply or the fence, and with the connection that a hold is bound to, if it is known. */
  ask(key: string, token: string, command: Command, keep: readonly Argument[], ms: number): Promise<Answer>;
}

/** How a request waits, and for how long. */
export interface Waiting {
  readonly by: Waiter;
  readonly ms: number;
}

/** What was granted, and the connection to which a hold with `linger` is bound. */
export interface Grant {
  /** Beside a value, 0 is no hold. */
  readonly fence: number;
  readonly wire: Wire | undefined;
  readonly found?: Buffer | undefined;
}

/** How often a lock of an old client is looked at. */
const LOOK_AGAIN_MS = 50;

/** How often a command follows a cluster's redirections. */
const HOPS = 5;

const servers = new WeakMap<Client, Server>();

/** The server of a client: the commands of the module. All `Redlock`s that have the client share it. */
export class Server {
  readonly wires: Wires;
  readonly listener: Listener;
  /** NOTIFY is tried until the server refuses it. */
  canNotify = true;
  /** Whether locks are strings: undefined until the server was asked for the first one. */
  #isPlain: boolean | undefined;
  readonly #fallback: Fallback;

  static of(client: Client): Server {
    let server = servers.get(client);
    if (server === undefined) servers.set(client, (server = new Server(driverOf(client))));
    return server;
  }

  private constructor(readonly driver: Driver) {
    this.wires = new Wires(driver);
    this.listener = new Listener(driver, this.wires);
    this.#fallback = new Fallback((command, key) => this.send(command, key));
  }

  keyOf(resource: string): string {
    return this.driver.prefix + resource;
  }

  /** Without the setting, what another `Redlock` of the same client has chosen does not count. */
  isFallback({ mayFallBack }: Request): boolean {
    return mayFallBack && this.#isPlain === true;
  }

  async send(command: Command, key: string, ms = ANSWER_MS): Promise<unknown> {
    return (await this.#follow(command, key, ms)).reply;
  }

  /** Follows redirections, and says where they led. */
  async #follow(command: Command, key: string, ms: number) {
    let wire = await this.wires.of(key);
    let answer = wire.send(command, ms);
    for (let hop = 0; ; hop++) {
      try {
        return { reply: await answer, wire };
      } catch (error) {
        const to = redirection(error);
        if (kindOf(error) === "elsewhere" && !to?.isAsk) void this.driver.refresh(key);
        if (!to || hop >= HOPS) throw error;
        wire = await this.wires.to(this.driver.at(to.address));
        // Nothing may come between the two.
        if (to.isAsk) wire.send(["ASKING"], ms).catch(() => {});
        answer = wire.send(command, ms);
      }
    }
  }

  /**
   * Takes the lock. What this token holds already is given again, with a new deadline: so a request can be repeated after any failure.
   * Rejects with a `ResourceLockedError` if it was not granted.
   */
  async acquire(request: Request, waiting?: Waiting): Promise<Grant> {
    if (this.isFallback(request)) return this.#fallback.acquire(request);
    const { keys, resources, token } = request;
    const isTaken = () => new ResourceLockedError(`${resources.join(", ")} is held by another client`);
    this.#checkSlots(request);
    const command = commandOf(request);
    const keep = request.grace === undefined ? [] : ["KEEP", request.grace];
    // BLOCK 0 would wait for ever.
    const ms = Math.floor(waiting?.ms ?? 0);
    try {
      const { reply, wire }: Answer = await (waiting && ms > 0
        ? waiting.by.ask(keys[0]!, token, command, keep, ms)
        : this.#follow([...command, ...keep], keys[0]!, ANSWER_MS));
      this.#isPlain ??= false;
      if (reply === null) throw isTaken();
      if (Buffer.isBuffer(reply)) return { fence: 0, wire, found: reply };
      if (Array.isArray(reply)) return { fence: Number(reply[1]), wire, found: reply[0] as Buffer };
      return { fence: Number(reply), wire };
    } catch (error) {
      // No old client locks by the key of a value.
      if (is(error, "WRONGTYPE") && request.result === undefined) {
        this.#isPlain ??= false;
        throw await this.#stringLock(keys, error);
      }
      if (waiting?.by === this.listener && isNotifyRefused(error)) {
        const text = `Waiting by NOTIFY is not possible, so connections block: ${(error as Error).message}`;
        if (this.canNotify) warn("REDIS_LOCK_WITHOUT_NOTIFY", text);
        this.canNotify = false;
        // It has waited for no time. The next wait is by BLOCK.
        throw isTaken();
      }
      if (!isUnknownCommand(error, command[0])) throw translated(error);
      if (request.result !== undefined) throw await this.#lacksOnce(request, error);
      // A choice stays.
      if (!request.mayFallBack || this.#isPlain === false) throw missing(error);
      if (this.#isPlain === undefined)
        warn(
          "REDIS_LOCK_FALLBACK",
          `The server has no redis-lock module, so locks are strings (SET NX PX): there is ${LOST}.`,
        );
      this.#isPlain = true;
      return this.#fallback.acquire(request);
    }
  }

  /** The error to throw when the server does not know LOCK.ONCE: its module is older, or it has none. */
  async #lacksOnce({ keys: [key], token }: Request, cause: Error): Promise<Error> {
    const answer = await this.send(["LOCK.CHECK", key!, token], key!).catch((error) => error);
    const Lacks = isUnknownCommand(answer, "LOCK.CHECK") ? ModuleMissingError : UnsupportedError;
    const text =
      "the server has no redis-lock module of 0.4.0 or later, so it does not know LOCK.ONCE, for which there is no fallback";
    return new Lacks(`${text}. ${LOAD}`, { cause });
  }

  /** The value under a key, and how many milliseconds it lives. */
  async look(key: string): Promise<[value: Buffer | null, left: number]> {
    const [value, left] = await Promise.all([this.send(["GET", key], key), this.send(["PTTL", key], key)]);
    return [value as Buffer | null, Number(left)];
  }

  /** One node grants all keys in one step, so they must be together. */
  #checkSlots({ keys, resources }: Request): void {
    if (!this.driver.isCluster || keys.length < 2) return;
    const slot = slotOf(keys[0]!);
    const other = keys.findIndex((key) => slotOf(key) !== slot);
    if (other < 0) return;
    throw new SlotsError(
      `${resources[0]} and ${resources[other]} are in different slots of the cluster, and several resources are taken in one slot. ` +
        "Give them one hash tag: {order:42}:a and {order:42}:b.",
    );
  }

  /** The error to throw when a key is no lock of the module. Without the right to ask, it is taken for a string. */
  async #stringLock(keys: readonly string[], error: Error): Promise<Error> {
    const ask = (word: string, key: string, ifForbidden: unknown) =>
      this.send([word, key], key).catch((failure) => {
        if (is(failure, "NOPERM")) return ifForbidden;
        throw failure;
      });
    const types = await Promise.all(keys.map((key) => ask("TYPE", key, "string")));
    if (types.some((type) => !["string", "none", "redislock"].includes(String(type)))) return error;
    const key = keys[types.indexOf("string")];
    if (key === undefined) return new StringLockError(keys[0]!, 1); // It has ended since.
    const ttl = Number(await ask("PTTL", key, -1));
    return new StringLockError(key, ttl < 0 ? LOOK_AGAIN_MS : Math.min(ttl + 1, LOOK_AGAIN_MS));
  }

  /** Sets the ttl anew. Rejects with a `ResourceLockedError` if it is lost. */
  async renew(request: Request, duration: number, ms = ANSWER_MS): Promise<Wire | undefined> {
    if (this.isFallback(request)) return void (await this.#fallback.renew(request, duration));
    return this.#all(request, (key) => ["LOCK.RENEW", key, request.token, duration], ms);
  }

  async release(request: Request, atLeast?: number): Promise<void> {
    if (this.isFallback(request)) return this.#fallback.release(request, atLeast);
    const options = atLeast === undefined ? [] : ["ATLEAST", atLeast];
    await this.#all(request, (key) => ["LOCK.RELEASE", key, request.token, ...options], ANSWER_MS);
  }

  async check(request: Request): Promise<void> {
    if (this.isFallback(request)) return this.#fallback.check(request);
    await this.#all(request, (key) => ["LOCK.CHECK", key, request.token], ANSWER_MS);
  }

  async #all(request: Request, command: (key: string) => Command, ms: number): Promise<Wire> {
    const { keys } = request;
    const answers = await Promise.all(keys.map((key) => this.#follow(command(key), key, ms))).catch(
      (error) => {
        // A string that was written over the key has ended the hold.
        if (is(error, "WRONGTYPE")) throw lost(keys.join(", "));
        throw isUnknownCommand(error, command("")[0]) ? missing(error) : translated(error);
      },
    );
    const gone = keys.filter((_, i) => Number(answers[i]!.reply) === 0);
    if (gone.length > 0) throw lost(gone.join(", "));
    return answers[0]!.wire;
  }

  /** Runs a command if the token holds the resource. */
  async exec(request: Request, command: Command, ms: number): Promise<unknown> {
    if (this.isFallback(request)) return this.#fallback.exec();
    const { keys, token } = request;
    const key = keys[0]!;
    try {
      return await this.send(["LOCK.EXEC", key, token, ...command], key, ms);
    } catch (error) {
      if (isUnknownCommand(error, "LOCK.EXEC") && !error.message.includes(command[0]))
        throw new UnsupportedError("the server does not know the command LOCK.EXEC", { cause: error });
      if (is(error, "NOTHELD")) throw lost(key);
      // The command may meet a wrong type, too.
      if (is(error, "WRONGTYPE") && (await this.#isNoLock(key, token))) throw lost(key);
      throw error;
    }
  }

  async #isNoLock(key: string, token: string): Promise<boolean> {
    const answer = await this.send(["LOCK.CHECK", key, token], key).catch((error) => error);
    return answer === null || is(answer, "WRONGTYPE");
  }

  async quit(): Promise<void> {
    this.wires.close();
    await this.driver.quit();
  }
}

function commandOf(request: Request): Command {
  const { keys, token, duration, shared, limit, sharedFrom, linger, result, early } = request;
  if (result !== undefined) {
    const terms = typeof early === "number" ? ["EARLY", early] : [];
    return ["LOCK.ONCE", keys[0]!, result, token, duration, ...terms];
  }
  const options: Argument[] = linger === undefined ? [] : ["LINGER", linger];
  if (sharedFrom !== undefined) {
    const modes = keys.map((_, i) => (i < sharedFrom ? "EXCLUSIVE" : "SHARED"));
    return ["LOCK.MACQUIRE", keys.length, ...keys, token, duration, "MODES", ...modes, ...options];
  }
  const counted = limit === undefined ? [] : ["LIMIT", limit];
  return [shared ? "RWLOCK.RLOCK" : "LOCK.ACQUIRE", keys[0]!, token, duration, ...counted, ...options];
}

/** The errors of the module that have a class of their own. */
function translated(error: unknown): unknown {
  if (is(error, "CANCELLED"))
    return new LockCancelledError(`${error.message} (the wait was ended by LOCK.CANCEL)`, { cause: error });
  if (is(error, "ERR") && error.message.startsWith("ERR ttl must not be above lock.max-ttl"))
    return new DurationError(`the duration (of runOnce: atMost) is too long: ${error.message}`, {
      cause: error,
    });
  return error;
}

const LOAD =
  "Load it by `loadmodule /path/libredis_lock.so` in the server's configuration, and restart the server.";

function missing(cause: Error): ModuleMissingError {
  return new ModuleMissingError(
    `the server has no redis-lock module (${cause.message.trim()}). ${LOAD} ` +
      "Where modules cannot be loaded, the setting `fallback: true` has locks by " +
      `SET NX PX: there is ${LOST}`,
    { cause },
  );
}

function warn(code: string, text: string): void {
  process.emitWarning(text, { type: "RedisLockWarning", code });
}
