import type { Argument, Command, Driver } from "./driver.js";
import { type Client, driverOf } from "./drivers/client.js";
import { type ErrorCode, LockError, lost, ResourceLockedError, StringLockError, warn } from "./errors.js";
import { checkString, LOST, SCRIPTS, unavailable } from "./fallback.js";
import { Listener } from "./listener.js";
import { is, isUnknownCommand } from "./replies.js";
import type { Request } from "./request.js";
import { type Answer, ANSWER_MS, type Wire, Wires } from "./wire.js";

/** What was granted, and the connection to which a hold with `linger` is bound. */
export interface Grant {
  /** Beside a value, 0 is no hold. */
  readonly fence: number;
  readonly wire: Wire | undefined;
  readonly found?: Buffer | undefined;
}

const servers = new WeakMap<Client, Server>();

/** The server of a client: the commands of the module. All `Redlock`s that have the client share it. */
export class Server {
  readonly wires: Wires;
  readonly listener: Listener;
  /** Whether locks are strings: undefined until the server was asked for the first one. */
  #isPlain: boolean | undefined;

  static of(client: Client): Server {
    let server = servers.get(client);
    if (server === undefined) servers.set(client, (server = new Server(driverOf(client))));
    return server;
  }

  private constructor(readonly driver: Driver) {
    this.wires = new Wires(driver);
    this.listener = new Listener(this.wires);
  }

  /** Without the setting, what another `Redlock` of the same client has chosen does not count. */
  isFallback({ mayFallBack }: Request): boolean {
    return mayFallBack && this.#isPlain === true;
  }

  async send(command: Command, key: string, ms?: number): Promise<unknown> {
    return (await this.wires.send(command, key, ms)).reply;
  }

  /**
   * Takes the lock. What this token holds already is given again, with a new deadline: so a request can be repeated after any failure.
   * Undefined if it was not granted: an error thrown through all the callers is much work for what
   * is no failure.
   */
  async acquire(
    request: Request,
    isInDoubt = false,
    wait?: (command: Command) => Promise<Answer>,
  ): Promise<Grant | undefined> {
    if (this.isFallback(request)) return this.#acquireString(request, isInDoubt);
    const command = commandOf(request);
    try {
      const { reply, wire } = await (wait?.(command) ?? this.wires.send(command, request.keys[0]!));
      // Without a connection it was not asked.
      if (wire) this.#isPlain ??= false;
      if (reply === null) return undefined;
      if (Buffer.isBuffer(reply)) return { fence: 0, wire, found: reply };
      const [found, fence] = Array.isArray(reply) ? reply : [undefined, reply];
      return { fence: Number(fence), wire, found };
    } catch (error) {
      const isOfValue = request.result !== undefined;
      // No old client locks by the key of a value.
      if (is(error, "WRONGTYPE") && !isOfValue) throw await this.#stringLock(request.keys, error);
      if (!isUnknownCommand(error, command[0])) throw translated(error);
      if (isOfValue) throw missing(error, "LOCK.ONCE is of 0.4.0, and there is no fallback for it");
      // A choice stays.
      if (!request.mayFallBack || this.#isPlain === false) throw missing(error);
      const text = `The server has no redis-lock module, so locks are strings (SET NX PX): there is ${LOST}.`;
      if (this.#isPlain === undefined) warn("REDIS_LOCK_FALLBACK", text);
      this.#isPlain = true;
      return this.#acquireString(request, isInDoubt);
    }
  }

  async #acquireString(request: Request, isInDoubt: boolean): Promise<Grant | undefined> {
    checkString(request);
    const { keys, token, duration } = request;
    const key = keys[0]!;
    const isSet = (await this.send(["SET", key, token, "NX", "PX", duration], key)) !== null;
    // If an answer was lost, the key may be ours already.
    const renewal = ["EVAL", SCRIPTS.RENEW, 1, key, token, duration] as const;
    const isOurs = isSet || (isInDoubt && Number(await this.send(renewal, key)) === 1);
    return isOurs ? { fence: 0, wire: undefined } : undefined;
  }

  /** The error to throw when a key is no lock of the module. Without the right to ask, it is taken for a string. */
  async #stringLock(keys: readonly string[], error: Error): Promise<Error> {
    const ask = (key: string) =>
      this.send(["TYPE", key], key).catch((failure) => {
        if (is(failure, "NOPERM")) return "string";
        throw failure;
      });
    const types = await Promise.all(keys.map(ask));
    if (types.some((type) => !["string", "none", "redislock"].includes(String(type)))) return error;
    // Perhaps it has ended since.
    const key = keys[Math.max(0, types.indexOf("string"))];
    return new StringLockError(`${key} is held by a client with a string lock`);
  }

  /** Sets the ttl anew. Rejects with a `ResourceLockedError` if it is lost. */
  renew(request: Request, duration: number, ms?: number): Promise<Wire> {
    return this.#ofHolder("RENEW", request, [duration], ms);
  }

  async release(request: Request, atLeast?: number): Promise<void> {
    if (atLeast !== undefined && this.isFallback(request)) throw unavailable("the option `atLeast`");
    await this.#ofHolder("RELEASE", request, atLeast === undefined ? [] : ["ATLEAST", atLeast]);
  }

  async check(request: Request): Promise<void> {
    await this.#ofHolder("CHECK", request);
  }

  async #ofHolder(
    name: keyof typeof SCRIPTS,
    request: Request,
    options: readonly Argument[] = [],
    ms = ANSWER_MS,
  ): Promise<Wire> {
    const { keys, token } = request;
    const begin = this.isFallback(request)
      ? (["EVAL", SCRIPTS[name], 1] as const)
      : ([`LOCK.${name}`] as const);
    const asking = keys.map((key) => this.wires.send([...begin, key, token, ...options], key, ms));
    const answers = await Promise.all(asking).catch((error) => {
      // A string that was written over the key has ended the hold.
      if (is(error, "WRONGTYPE")) throw lost(keys.join(", "));
      throw isUnknownCommand(error, `LOCK.${name}`) ? missing(error) : translated(error);
    });
    const gone = keys.filter((_, i) => Number(answers[i]!.reply) === 0);
    if (gone.length > 0) throw lost(gone.join(", "));
    return answers[0]!.wire;
  }

  /** Runs a command if the token holds the resource. */
  async exec(request: Request, command: Command, ms?: number): Promise<unknown> {
    if (this.isFallback(request)) throw unavailable("a guarded command");
    const { keys, token } = request;
    const key = keys[0]!;
    try {
      return await this.send(["LOCK.EXEC", key, token, ...command], key, ms);
    } catch (error) {
      if (isUnknownCommand(error, "LOCK.EXEC") && !error.message.includes(command[0]))
        throw new LockError("ERR_LOCK_UNSUPPORTED", "the server does not know LOCK.EXEC", { cause: error });
      if (is(error, "NOTHELD")) throw lost(key);
      // The command may meet a wrong type, too.
      const check = () => this.check({ ...request, keys: [key] }).catch((failure) => failure);
      if (is(error, "WRONGTYPE") && (await check()) instanceof ResourceLockedError) throw lost(key);
      throw error;
    }
  }
}

function commandOf(request: Request): Command {
  const { keys, token, duration, shared, limit, sharedFrom, linger, grace, result, early } = request;
  const options: Argument[] = grace === undefined ? [] : ["KEEP", grace];
  if (linger !== undefined) options.push("LINGER", linger);
  if (limit !== undefined) options.push("LIMIT", limit);
  if (typeof early === "number") options.push("EARLY", early);
  if (result !== undefined) return ["LOCK.ONCE", keys[0]!, result, token, duration, ...options];
  if (sharedFrom === undefined)
    return [shared ? "RWLOCK.RLOCK" : "LOCK.ACQUIRE", keys[0]!, token, duration, ...options];
  const modes = keys.map((_, i) => (i < sharedFrom ? "EXCLUSIVE" : "SHARED"));
  return ["LOCK.MACQUIRE", keys.length, ...keys, token, duration, "MODES", ...modes, ...options];
}

/** The errors of the module that have a code of their own. */
function translated(error: unknown): unknown {
  const as = (code: ErrorCode, text: string) => new LockError(code, text, { cause: error });
  if (is(error, "CANCELLED"))
    return as("ERR_LOCK_CANCELLED", `${error.message} (the wait was ended by LOCK.CANCEL)`);
  if (is(error, "CROSSSLOT"))
    return as(
      "ERR_LOCK_SLOTS",
      "Several resources are taken in one slot of the cluster. Give them one hash tag: {order:42}:a and {order:42}:b.",
    );
  if (is(error, "ERR") && error.message.startsWith("ERR ttl must not be above lock.max-ttl"))
    return as("ERR_LOCK_DURATION", `the duration (of runOnce: atMost) is too long: ${error.message}`);
  return error;
}

const FALLBACK = `Where modules cannot be loaded, the setting \`fallback: true\` has locks by SET NX PX: there is ${LOST}`;

function missing(cause: Error, hint = FALLBACK): LockError {
  const text =
    `the server has no redis-lock module (${cause.message.trim()}). Load it by \`loadmodule ` +
    `/path/libredis_lock.so\` in the server's configuration, and restart the server. ${hint}`;
  return new LockError("ERR_LOCK_NO_MODULE", text, { cause });
}
