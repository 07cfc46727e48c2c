import { randomUUID } from "node:crypto";
import { EventEmitter } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Acquire } from "./acquire.js";
import type { Client } from "./drivers/client.js";
import { ExecutionError, type ExecutionResult, type ExecutionStats } from "./errors.js";
import { drift, type Lease } from "./lease.js";
import { Lock, type Routine } from "./lock.js";
import { kindOf } from "./replies.js";
import { type Request, Server, type Target } from "./server.js";
import type { ReleaseSettings, RunOnceSettings, Settings } from "./settings.js";
import { checkDuration, checkRange, deadlineOf, DEFAULT_SETTINGS, pause, withDefaults } from "./settings.js";
import { loaded, measure } from "./telemetry.js";
import { WaitingRoom } from "./waiters.js";

/** Before a request is sent again that the server could not execute yet. */
const TRY_AGAIN_MS = 200;

/** A routine, and settings before it if there are any. */
export type Use<T> = [routine: Routine<T>] | [settings: Partial<Settings>, routine: Routine<T>];

/** Whether `runOnce` has run the job, and what the job returned. */
export type RunOnceResult<T> = { readonly hasRun: true; readonly value: T } | { readonly hasRun: false };

/**
 * Locks in a server that has the redis-lock module, with the interface of node-redlock. An acquire that finds the lock held waits in the
 * server's queue, with one place until it is granted or gives up.
 *
 * Emits `error` for each request that failed while its operation lasted, whatever became of it.
 */
export class Redlock extends EventEmitter {
  readonly clients: ReadonlySet<Client>;
  readonly settings: Settings;
  /** @internal */
  readonly server: Server;
  readonly #room: WaitingRoom;
  /** What may have a place in a queue, until it has ended. */
  readonly #acquires = new Map<Acquire, Promise<unknown>>();
  #hasQuit = false;

  /** Of one client, in an array as in node-redlock. It is the template for connections of this package's own. */
  constructor(clients: Iterable<Client>, settings: Partial<Settings> = {}) {
    super();
    // Without a listener an `error` event would end the process.
    this.on("error", () => {});
    this.clients = new Set(clients);
    const [client, ...others] = this.clients;
    const text = "There must be at least one redis client, and no more: a quorum has no queue and no fence.";
    if (client === undefined || others.length > 0) throw new TypeError(text);
    this.settings = withDefaults(settings, { ...DEFAULT_SETTINGS });
    this.server = Server.of(client);
    this.#room = new WaitingRoom(this.server, this.settings.maxWaitingConnections);
  }

  /** Ends all connections, the given client's too, and all waits. Holds end with their leases. */
  async quit(): Promise<void> {
    this.#hasQuit = true;
    for (const acquire of this.#acquires.keys()) acquire.stopped.abort(new Error("the client was ended"));
    await Promise.allSettled(this.#acquires.values());
    await this.server.quit();
  }

  /** Takes all resources for `duration` milliseconds, or none. Rejects with an `ExecutionError` when the waiting time is over. */
  async acquire(resources: string[], duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return this.#all(resources).acquire(duration, settings);
  }

  /** Takes shared holds: any number of readers have them at the same time. */
  acquireRead(resources: string[], duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return this.acquire(resources, duration, { ...settings, shared: true });
  }

  /** Takes exclusive holds, as `acquire` does by default. */
  acquireWrite(resources: string[], duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return this.acquire(resources, duration, { ...settings, shared: false });
  }

  /**
   * Runs the routine under a lock that is extended until it has ended. The signal is aborted when the lock is lost; then this
   * rejects, even if the routine has gone on to its end.
   */
  async using<T>(resources: string[], duration: number, ...how: Use<T>): Promise<T> {
    return this.#all(resources).using(duration, ...how);
  }

  /** Several resources are taken in one step, in one order for all. */
  #all(resources: readonly string[]): Taken {
    return new Taken(this, { resources: [...new Set(checked(resources))].sort() });
  }

  /** A semaphore: at most `permits` hold the resource at the same time. Each permit is a `Lock`, with its own token, lease and fence. */
  semaphore(resource: string, permits: number): Taken {
    checkRange("The permits", permits, 1, 2 ** 31 - 1);
    // A permit is no reader's hold.
    return new Taken(this, { resources: checked([resource]), limit: permits, shared: false });
  }

  /** Several resources that are taken in one step, exclusive ones and shared ones. While it waits for them it holds none. */
  multiLock(exclusive: readonly string[], shared: readonly string[] = []): Taken {
    const resources = [...checked(exclusive), ...checked(shared)];
    if (new Set(resources).size < resources.length)
      throw new Error("A resource of a multi-lock was named twice.");
    return new Taken(this, { resources, sharedFrom: exclusive.length });
  }

  /**
   * Runs the job, unless it is running elsewhere, or was begun less than `atLeast` milliseconds ago. Does not wait. The lock ends after
   * `atMost`, and nothing extends it: choose more than the job ever takes. The signal is aborted then, and this rejects.
   */
  async runOnce<T>(name: string, settings: RunOnceSettings, job: Routine<T>): Promise<RunOnceResult<T>> {
    const { atMost, atLeast = 0, ...others } = settings;
    checkRange("`atLeast`", atLeast, 0, atMost);
    const option = atLeast > 0 ? { atLeast } : {};
    // Readers would all run it.
    const target = { resources: checked([name]), shared: false, ...option };
    const lock = await new Taken(this, target).tryAcquire(atMost, others);
    if (lock === null) return { hasRun: false };
    lock.endMessage = "The job took longer than `atMost`.";
    return { hasRun: true, value: await lock.use(job, { ...others, ...option }) };
  }

  /** @internal A value may be found, without a lock or beside it. */
  async take(target: Target, duration: number, settings: Partial<Settings>) {
    const { effective, attempts, note } = this.#begin(settings);
    checkDuration(duration);
    if (!/^(block|notify)$/.test(effective.waitBy))
      throw new RangeError('Redlock waits by "block" or by "notify".');
    // The connection is asked at a third of it, and the lease is over without an answer.
    checkRange("The linger", effective.linger ?? 100, 100, Number.MAX_SAFE_INTEGER);
    if (drift(duration, effective.driftFactor) >= duration)
      throw new RangeError("The duration leaves nothing after the drift: see `driftFactor`.");
    await loaded;
    const deadline = deadlineOf(effective);
    const request: Request = {
      keys: target.resources.map((resource) => this.server.driver.prefix + resource),
      // Node draws the random bytes of many at once. Bytes drawn for each token were a third of a pair's work here.
      token: randomUUID(),
      duration,
      waits: deadline > performance.now(),
      // Not first: V8 takes 50 times as long to add so many properties to a copy.
      ...effective,
      fallback: this.settings.fallback,
      ...target,
    };
    const acquire = new Acquire(this.server, this.#room, request, deadline, note);
    const endWait = measure("wait", target.resources);
    try {
      if (this.#hasQuit) throw new Error("the client was ended");
      const granting = acquire.run();
      this.#acquires.set(acquire, granting);
      const { fence, lease, found } = await granting;
      endWait(lease !== undefined);
      return { lock: lease && new Lock(this, request, fence, lease, attempts), found };
    } catch (error) {
      endWait(false, error);
      if (effective.signal?.aborted && error === effective.signal.reason) throw error;
      throw this.failed(error, attempts);
    } finally {
      this.#acquires.delete(acquire);
    }
  }

  /** Sets the lease anew. Rejects with an `ExecutionError` when it was lost, for a lost lock is never taken again. */
  extend(lock: Lock, duration: number, settings?: Partial<Settings>): Promise<Lock> {
    return lock.extend(duration, settings);
  }

  /** Gives the lock back. Rejects with an `ExecutionError` when it was not held any more. Without an answer it can be repeated. */
  release(lock: Lock, settings?: ReleaseSettings): Promise<ExecutionResult> {
    return lock.release(settings);
  }

  /**
   * @internal For `Lock`. Repeats an operation that the server cannot execute yet until the lease, if one is given, is over, and one
   * without an answer for the retries. Resolves with the attempts.
   */
  async insist(
    ask: () => Promise<unknown>,
    settings: Partial<Settings> = { retryCount: 0 },
    lease?: Lease,
  ): Promise<Promise<ExecutionStats>[]> {
    const { effective, attempts, note } = this.#begin(settings);
    let deadline: number | undefined;
    for (;;) {
      let failure: Error | undefined;
      await ask().catch((error: Error) => (failure = error));
      note(failure);
      if (!failure) return attempts;
      // From the first failure on: to find a connection silent takes longer than the retries.
      deadline ??= deadlineOf(effective);
      const kind = kindOf(failure);
      const isOver = kind === "final" || this.#hasQuit || this.server.driver.hasEnded();
      if (!isOver && kind !== "silent" && lease && performance.now() < lease.until) await sleep(TRY_AGAIN_MS);
      else if (isOver || performance.now() >= deadline) throw this.failed(failure, attempts);
      else await pause(effective);
    }
  }

  /** @internal What a listener throws rejects this, and decides nothing. */
  async tell(error: Error | undefined): Promise<ExecutionStats> {
    if (error) this.emit("error", error);
    const votesFor = new Set(error ? [] : this.clients);
    const votesAgainst = new Map(error ? [...this.clients].map((client) => [client, error]) : []);
    return { membershipSize: 1, quorumSize: 1, votesFor, votesAgainst };
  }

  /** All settings, the outcomes of requests, and what notes one. Of attempts without end only the last is kept. */
  #begin(settings: Partial<Settings>) {
    const effective = withDefaults(settings, this.settings);
    const attempts: Promise<ExecutionStats>[] = [];
    const note = (error: Error | undefined) => {
      if (effective.retryCount === -1) attempts.length = 0;
      attempts.push(this.tell(error));
      attempts.at(-1)!.catch(() => {});
    };
    return { effective, attempts, note };
  }

  /** @internal What to tell of a failure, unless it says so itself. */
  failed(cause: unknown, attempts: ExecutionResult["attempts"] = []): ExecutionError {
    if (cause instanceof ExecutionError) return cause;
    const { message } = cause as Error;
    return new ExecutionError(`The operation did not succeed. (${message})`, attempts, { cause });
  }
}

/** What is taken again and again in the same way: a semaphore, or several resources in one step, which have one fence. */
export class Taken {
  /** @internal */
  constructor(
    private readonly redlock: Redlock,
    private readonly target: Target,
  ) {
    if (target.resources.length === 0) throw new RangeError("There must be at least one resource to lock.");
  }

  /** Waits in the server's queue, as `redlock.acquire` does. Rejects with an `ExecutionError` when the waiting time is over. */
  async acquire(duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return (await this.redlock.take(this.target, duration, settings)).lock!;
  }

  /** Does not wait. Resolves with null if the lock is unavailable at the moment. */
  tryAcquire(duration: number, settings: Partial<Settings> = {}): Promise<Lock | null> {
    return this.acquire(duration, { ...settings, retryCount: 0 }).catch((error) => {
      if (error instanceof ExecutionError && error.code === "ERR_LOCK_TAKEN") return null;
      throw error;
    });
  }

  /** Runs the routine meanwhile, as `redlock.using` does. */
  async using<T>(duration: number, ...how: Use<T>): Promise<T> {
    const [settings, routine] = how.length === 2 ? how : [{}, how[0]];
    if (typeof routine !== "function") throw new Error("INVARIANT: routine is not a function.");
    const { automaticExtensionThreshold } = withDefaults(settings, this.redlock.settings);
    if (automaticExtensionThreshold > duration - 100)
      throw new Error(
        "A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.",
      );
    const lock = await this.acquire(duration, settings);
    return lock.keep().use(routine);
  }
}

/** JavaScript may pass a string, of which each letter would be a resource. */
export function checked(resources: readonly string[]): readonly string[] {
  if (!Array.isArray(resources) || !resources.every((resource) => typeof resource === "string"))
    throw new TypeError('Resources are strings, and several are an array of them: ["stock:7"].');
  return resources;
}
