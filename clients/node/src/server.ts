import { setTimeout as sleep } from "node:timers/promises";
import type { Argument, Command } from "./driver.js";
import { type Client, driverOf } from "./drivers/client.js";
import { type ErrorCode, LockError, lost, ResourceLockedError, StringLockError } from "./errors.js";
import { Listener } from "./waiters.js";
import { is, isUnknownCommand, type Kind, kindOf } from "./replies.js";
import type { Settings } from "./settings.js";
import { type Answer, type Wire, Wires } from "./wire.js";

/** What is to be locked, and how: with all settings. */
export interface Request extends Settings {
  /** Those of `acquire` in one order for all who use this package. */
  readonly resources: readonly string[];
  /** The resources with the client's prefix; of a value the lock under which it is made. */
  readonly keys: readonly string[];
  readonly token: string;
  readonly duration: number;
  /** Whether the server is to keep a place in its queue. */
  readonly waits: boolean;
  /** The permits of a semaphore. */
  readonly limit?: number;
  /** Of a multi-lock: those from this one on are shared. */
  readonly sharedFrom?: number;
  /** What its release will ask for, which not every server has. */
  readonly atLeast?: number;
  /** The key of a value, which is early when it lives no longer than these milliseconds. */
  readonly result?: string;
  readonly early?: number;
}

/** What of a request does not come from the settings, or not always. */
export type Target = Pick<Request, "resources"> & Partial<Request>;

/** What was granted, and the connection to which a hold with `linger` is bound. */
export interface Grant {
  /** Beside a value, 0 is no hold. */
  readonly fence: number;
  readonly wire?: Wire | undefined;
  readonly found?: Buffer | undefined;
}

/** Before a release without an answer is sent again; then longer each time, but who waits for the lock is to have it soon. */
const RELEASE_AGAIN_MS = 500;
const LONGER = 1.25;
const LONGEST_MS = 5000;

/** Sends the command so that its answer comes after a wait. */
type Wait = (command: Command) => Promise<Answer>;

/** Only the owner's: after the end of a lease the key may be another's, and of another type. */
const ours = (command: string) =>
  `if redis.call("TYPE", KEYS[1]).ok == "string" and redis.call("GET", KEYS[1]) == ARGV[1] then return ${command} end return 0`;

/** In place of commands of the module, on a server without it: a lock is a string with the token as its value, and the lease as its ttl. */
const SCRIPTS = {
  RELEASE: ours(`redis.call("DEL", KEYS[1])`),
  RENEW: ours(`redis.call("PEXPIRE", KEYS[1], ARGV[2])`),
  CHECK: ours("1"),
};

/** What strings do not have. */
const LOST =
  "no fair queue, no fence (it is 0: never send it to a resource), no readers and writers, no semaphores, no locks of several " +
  "resources, no guarded commands, no `linger` and `atLeast`, no LOCK.ONCE, and a lease that an eviction or a failover can cut short";

const servers = new WeakMap<Client, Server>();

/** The server of a client: the commands of the module. All `Redlock`s that have the client share it. */
export class Server extends Wires {
  readonly listener = new Listener(this);
  /** Whether locks are strings: undefined until the server was asked for the first one. */
  #isPlain: boolean | undefined;

  static of(client: Client): Server {
    let server = servers.get(client);
    if (server === undefined) servers.set(client, (server = new Server(driverOf(client))));
    return server;
  }

  /** Without the setting, what another `Redlock` of the same client has chosen does not count. */
  isFallback({ fallback }: Request): boolean {
    return fallback && this.#isPlain === true;
  }

  /**
   * Takes the lock. What this token holds already is given again, with a new deadline: so a request can be repeated after any failure.
   * Undefined if it was not granted: an error thrown through all the callers is much work for what
   * is no failure.
   */
  async acquire(request: Request, isInDoubt = false, wait?: Wait): Promise<Grant | undefined> {
    if (this.isFallback(request)) return this.#acquireString(request, isInDoubt);
    const command = commandOf(request);
    try {
      const { reply, wire } = await (wait?.(command) ?? this.send(command, request.keys[0]!));
      this.#isPlain ??= false;
      if (reply === null) return undefined;
      if (Buffer.isBuffer(reply)) return { fence: 0, wire, found: reply };
      const [found, fence] = Array.isArray(reply) ? reply : [undefined, reply];
      return { fence: Number(fence), wire, found };
    } catch (error) {
      // No old client locks by the key of a value.
      if (is(error, "WRONGTYPE") && request.result === undefined)
        throw await this.#stringLock(request.keys, error);
      if (!isUnknownCommand(error, command[0])) throw translated(error);
      // A choice stays.
      if (!request.fallback || this.#isPlain === false) throw missing(error);
      const text = `The server has no redis-lock module, so locks are strings (SET NX PX): there is ${LOST}.`;
      if (this.#isPlain === undefined) process.emitWarning(text, "RedisLockWarning", "REDIS_LOCK_FALLBACK");
      this.#isPlain = true;
      return this.#acquireString(request, isInDoubt);
    }
  }

  async #acquireString(request: Request, isInDoubt: boolean): Promise<Grant | undefined> {
    const { keys, token, duration, shared, limit, linger, atLeast } = request;
    // An `atLeast` that only the release refuses would be too late: the job would have run.
    const isPlain = limit === undefined && linger === undefined && atLeast === undefined;
    if (shared || isOfSeveral(request) || !isPlain) throw unavailable();
    const key = keys[0]!;
    const isSet = (await this.send(["SET", key, token, "NX", "PX", duration], key)).reply !== null;
    // If an answer was lost, the key may be ours already.
    const renewal = ["EVAL", SCRIPTS.RENEW, 1, key, token, duration] as const;
    const isOurs = isSet || (isInDoubt && Number((await this.send(renewal, key)).reply) === 1);
    return isOurs ? { fence: 0 } : undefined;
  }

  /** The error to throw when a key is no lock of the module. Without an answer, as where the right to ask is missing, it is a string. */
  async #stringLock(keys: readonly string[], error: Error): Promise<Error> {
    const asking = keys.map((key) => this.send(["TYPE", key], key).catch(() => ({ reply: "string" })));
    const types = (await Promise.all(asking)).map(({ reply }) => String(reply));
    // It may have ended since.
    if (!types.every((type) => /^(string|none|redislock)$/.test(type))) return error;
    const key = keys[Math.max(0, types.indexOf("string"))];
    return new StringLockError("ERR_LOCK_TAKEN", `${key} is held by a client with a string lock`);
  }

  /** Sends what only the holder may. Rejects with a `ResourceLockedError` if the lock is lost. */
  async asHolder(name: keyof typeof SCRIPTS, request: Request, options: Argument[] = [], ms?: number) {
    const { keys, token } = request;
    const isFallback = this.isFallback(request);
    if (isFallback && options[0] === "ATLEAST") throw unavailable();
    const begin = isFallback ? (["EVAL", SCRIPTS[name], 1] as const) : ([`LOCK.${name}`] as const);
    const asking = keys.map((key) => this.send([...begin, key, token, ...options], key, ms));
    const answers = await Promise.all(asking).catch((error) => {
      // A string that was written over the key has ended the hold.
      if (is(error, "WRONGTYPE")) throw lost(keys.join(", "));
      throw isUnknownCommand(error, `LOCK.${name}`) ? missing(error) : translated(error);
    });
    const gone = keys.filter((_, i) => Number(answers[i]!.reply) === 0);
    if (gone.length > 0) throw lost(gone.join(", "));
    return answers[0]!.wire;
  }

  /** After `final` the server holds nothing of it any more, or will never say so. */
  release(request: Request, options: Argument[] = []): Promise<Kind> {
    return this.asHolder("RELEASE", request, options).then(() => "final", kindOf);
  }

  /** Goes on with a release, after a longer time each time, but not beyond `until`. `isLast`: nothing that was sent can come after it. */
  async releaseLater(request: Request, options: Argument[], until: number, isLast = () => true) {
    for (let ms = RELEASE_AGAIN_MS; performance.now() < until && !this.driver.hasEnded(); ms *= LONGER) {
      await sleep(Math.min(ms, LONGEST_MS), undefined, { ref: false });
      const mayEnd = isLast();
      if ((await this.release(request, options)) === "final" && mayEnd) return;
    }
  }

  /** Runs a command if the token holds the resource. */
  async exec(request: Request, command: Command, ms?: number): Promise<unknown> {
    if (this.isFallback(request)) throw unavailable();
    const { keys, token } = request;
    const key = keys[0]!;
    try {
      return (await this.send(["LOCK.EXEC", key, token, ...command], key, ms)).reply;
    } catch (error) {
      if (isUnknownCommand(error, "LOCK.EXEC") && !error.message.includes(command[0]))
        throw new LockError("ERR_LOCK_UNSUPPORTED", "the server does not know LOCK.EXEC", { cause: error });
      if (is(error, "NOTHELD")) throw lost(key);
      // The command may meet a wrong type, too.
      const check = () => this.asHolder("CHECK", { ...request, keys: [key] }).catch((failure) => failure);
      if (is(error, "WRONGTYPE") && (await check()) instanceof ResourceLockedError) throw lost(key);
      throw error;
    }
  }
}

/** A multi-lock may have one resource, too. */
const isOfSeveral = ({ keys, sharedFrom }: Request) => keys.length > 1 || sharedFrom !== undefined;

function commandOf(request: Request): Command {
  const { keys, token, duration, shared, limit, linger, waits, grace, result, early } = request;
  const { sharedFrom = shared ? 0 : keys.length } = request;
  const options: Argument[] = waits ? ["KEEP", grace] : [];
  if (linger !== undefined) options.push("LINGER", linger);
  if (limit !== undefined) options.push("LIMIT", limit);
  if (early !== undefined) options.push("EARLY", early);
  if (result !== undefined) return ["LOCK.ONCE", keys[0]!, result, token, duration, ...options];
  if (!isOfSeveral(request))
    return [shared ? "RWLOCK.RLOCK" : "LOCK.ACQUIRE", keys[0]!, token, duration, ...options];
  const modes = keys.map((_, i) => (i < sharedFrom ? "EXCLUSIVE" : "SHARED"));
  return ["LOCK.MACQUIRE", keys.length, ...keys, token, duration, "MODES", ...modes, ...options];
}

/** The errors of the module that have a code of their own, and what to say of them. */
const EXPLAINED: readonly [start: string, code: ErrorCode, text: string][] = [
  ["CANCELLED", "ERR_LOCK_CANCELLED", "the wait was ended by LOCK.CANCEL"],
  ["CROSSSLOT", "ERR_LOCK_SLOTS", "give the resources one hash tag: {order:42}:a and {order:42}:b"],
  ["ERR ttl must not be above lock.max-ttl", "ERR_LOCK_DURATION", "the duration, or `atMost`, is too long"],
];

function translated(error: unknown): unknown {
  const message = error instanceof Error ? error.message : "";
  const found = EXPLAINED.find(([start]) => message.startsWith(start));
  return found ? new LockError(found[1], `${message} (${found[2]})`, { cause: error }) : error;
}

const FALLBACK = `Where modules cannot be loaded, the setting \`fallback: true\` has locks by SET NX PX: there is ${LOST}`;

function missing(cause: Error): LockError {
  const text =
    `the server has no redis-lock module, or an old one (${cause.message.trim()}). Load it by \`loadmodule ` +
    `/path/libredis_lock.so\` in the server's configuration, and restart the server. ${FALLBACK}`;
  return new LockError("ERR_LOCK_NO_MODULE", text, { cause });
}

function unavailable(): LockError {
  const text = `it is not available in the fallback: the server has no redis-lock module, so there is ${LOST}`;
  return new LockError("ERR_LOCK_NO_MODULE", text);
}
