import type { Command } from "./driver.js";
import { lost, ModuleMissingError, ResourceLockedError } from "./errors.js";
import type { Request } from "./request.js";
import type { Grant } from "./server.js";

/** Only the owner's: after the end of a lease the key may be another's, and of another type. */
const ours = (command: string) =>
  `if redis.call("TYPE", KEYS[1]).ok == "string" and redis.call("GET", KEYS[1]) == ARGV[1] then return ${command} end return 0`;
const RELEASE = ours(`redis.call("DEL", KEYS[1])`);
const RENEW = ours(`redis.call("PEXPIRE", KEYS[1], ARGV[2])`);
const CHECK = ours("1");

/** A lock without a fence. */
const GRANT = { fence: 0, wire: undefined };

/** Locks of a server without the module: a string with the token as its value, and the lease as its ttl. */
export class Fallback {
  /** The requests of which an answer was lost: the key may be theirs already. */
  readonly #inDoubt = new WeakSet<Request>();

  constructor(private readonly send: (command: Command, key: string) => Promise<unknown>) {}

  async acquire(request: Request): Promise<Grant> {
    const { keys, token, duration } = request;
    if (request.shared) throw unavailable("a shared lock");
    if (request.limit !== undefined) throw unavailable("a semaphore");
    if (request.sharedFrom !== undefined) throw unavailable("a lock of several resources");
    if (request.linger !== undefined) throw unavailable("the setting `linger`");
    // Refused only by the release, the job would have run.
    if (request.atLeast !== undefined) throw unavailable("the option `atLeast`");
    const key = keys[0]!;
    try {
      if ((await this.send(["SET", key, token, "NX", "PX", duration], key)) !== null) return GRANT;
      if (this.#inDoubt.has(request) && (await this.#run(RENEW, key, token, duration))) return GRANT;
    } catch (error) {
      this.#inDoubt.add(request);
      throw error;
    }
    throw new ResourceLockedError(`${key} is held by another client`);
  }

  renew({ keys: [key], token }: Request, duration: number): Promise<void> {
    return this.#must(RENEW, key!, token, duration);
  }

  async release({ keys: [key], token }: Request, atLeast?: number): Promise<void> {
    if (atLeast !== undefined) throw unavailable("the option `atLeast`");
    return this.#must(RELEASE, key!, token);
  }

  check({ keys: [key], token }: Request): Promise<void> {
    return this.#must(CHECK, key!, token);
  }

  exec(): never {
    throw unavailable("a guarded command");
  }

  async #must(script: string, key: string, ...args: (string | number)[]): Promise<void> {
    if (!(await this.#run(script, key, ...args))) throw lost(key);
  }

  async #run(script: string, key: string, ...args: (string | number)[]): Promise<boolean> {
    return Number(await this.send(["EVAL", script, 1, key, ...args], key)) === 1;
  }
}

function unavailable(what: string): ModuleMissingError {
  return new ModuleMissingError(
    `${what} is not available in the fallback: the server has no redis-lock module`,
  );
}

/** What strings do not have. */
export const LOST =
  "no fair queue, no fence (it is 0: never send it to a resource), no readers and writers, no semaphores, no locks of several " +
  "resources, no guarded commands, and a lease that an eviction or a failover can cut short";
