import type { Connection } from "./connection.js";
import { ModuleMissingError, ResourceLockedError } from "./errors.js";
import type { Request } from "./request.js";

/** Only the owner's: after the end of a lease the key may be another's. */
const RELEASE = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`;
const RENEW = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2]) end return 0`;

/** What a lock without a fence has for one. */
const NO_FENCE = 0;

/** Locks of a server without the module: a string with the token as its value, and the lease as its ttl. */
export class Fallback {
  /** Of which an answer was lost: the key may be theirs already. */
  readonly #inDoubt = new WeakSet<Request>();

  constructor(private readonly connection: Connection) {}

  async acquire(request: Request): Promise<number[]> {
    const [resource, ...others] = request.resources;
    if (request.shared) throw unavailable("a shared lock");
    if (request.limit !== undefined) throw unavailable("a semaphore");
    if (others.length > 0 || request.sharedFrom !== undefined)
      throw unavailable("a lock of several resources");
    if (request.linger !== undefined) throw unavailable("the setting `linger`");
    // Refused by the release only, the job would have run.
    if (request.atLeast !== undefined) throw unavailable("the option `atLeast`");
    const key = this.connection.key(resource!);
    const { token, duration } = request;
    const { resends } = this.connection;
    try {
      const isSet = await this.connection.send(["SET", key, token, "NX", "PX", duration], key);
      if (isSet !== null) return [NO_FENCE];
      // ioredis sends again by itself.
      const isInDoubt = this.#inDoubt.has(request) || this.connection.resends > resends;
      if (isInDoubt && (await this.#run(RENEW, key, token, duration))) return [NO_FENCE];
    } catch (error) {
      this.#inDoubt.add(request);
      throw error;
    }
    throw new ResourceLockedError(`${resource} is held by another client`);
  }

  renew({ resources, token, duration }: Request): Promise<void> {
    return this.#all(resources, (key) => this.#run(RENEW, key, token, duration));
  }

  release({ resources, token }: Request, atLeast?: number): Promise<void> {
    if (atLeast !== undefined) return Promise.reject(unavailable("the option `atLeast`"));
    return this.#all(resources, (key) => this.#run(RELEASE, key, token));
  }

  check({ resources, token }: Request): Promise<void> {
    return this.#all(resources, async (key) => (await this.connection.send(["GET", key], key)) === token);
  }

  exec(): never {
    throw unavailable("a guarded command");
  }

  async #run(script: string, key: string, ...args: (string | number)[]): Promise<boolean> {
    return Number(await this.connection.send(["EVAL", script, 1, key, ...args], key)) === 1;
  }

  async #all(resources: readonly string[], isDone: (key: string) => Promise<boolean>): Promise<void> {
    const done = await Promise.all(resources.map((resource) => isDone(this.connection.key(resource))));
    const lost = resources.filter((_, i) => !done[i]);
    if (lost.length > 0) throw new ResourceLockedError(`not held any more: ${lost.join(", ")}`);
  }
}

function unavailable(what: string): ModuleMissingError {
  return new ModuleMissingError(
    `${what} is not available in the fallback: the server has no redis-lock module`,
  );
}
