import { randomUUID } from "node:crypto";
import { EventEmitter } from "node:events";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { Acquiring } from "./acquire.js";
import type { Argument } from "./driver.js";
import type { Client } from "./drivers/client.js";
import {
  checkNames,
  ExecutionError,
  type ExecutionResult,
  type ExecutionStats,
  lost,
  ResourceLockedError,
  StringLockError,
  UnsupportedError,
} from "./errors.js";
import { drift } from "./lease.js";
import { Lock } from "./lock.js";
import { kindOf, wordOf } from "./replies.js";
import type { Request, Target } from "./request.js";
import { lockOf } from "./slot.js";
import { Server } from "./server.js";
import { checkDuration, checkSettings, DEFAULT_SETTINGS, Patience, withDefaults } from "./settings.js";
import type { ReleaseSettings, RunOnceSettings, Settings } from "./settings.js";
import { MAX_RESOURCES, MultiLock, nullIfHeld, Semaphore } from "./several.js";
import { loaded, Measured } from "./telemetry.js";
import { within } from "./timer.js";
import { type Routine, type Use, useLock } from "./using.js";
import { ANSWER_MS, LATE, type Wire } from "./wire.js";

/** Before a request is sent again that the server could not execute yet. */
const TRY_AGAIN_MS = 200;

/** The connection of a hold with `linger` may take so long to say that it lives. */
const PONG_MS = 2000;

/** Whether `runOnce` has run the job, and what the job returned. */
export type RunOnceResult<T> = { readonly hasRun: true; readonly value: T } | { readonly hasRun: false };

/** A lock to make a value under, or the value, or both if it is early. */
export interface Outcome {
  readonly lock?: Lock;
  readonly found?: Buffer | undefined;
}

/**
 * Locks in a server that has the redis-lock module, with the interface of node-redlock. An acquire that finds the lock held waits in the
 * server's queue, with one place until it is granted or gives up.
 *
 * Emits `error` for each request that failed, whatever became of the operation.
 */
export class Redlock extends EventEmitter {
  readonly clients: ReadonlySet<Client>;
  readonly settings: Settings;
  readonly #client: Client;
  readonly #server: Server;
  readonly #acquiring: Acquiring;
  #hasQuit = false;

  /** Of one client, in an array as in node-redlock. It is the template for connections of this package's own. */
  constructor(clients: Iterable<Client>, settings: Partial<Settings> = {}) {
    super();
    // Without a listener an `error` event would end the process.
    this.on("error", () => {});
    this.clients = new Set(clients);
    const [client, ...others] = this.clients;
    if (client === undefined) throw new Error("Redlock must be instantiated with at least one redis client.");
    if (others.length > 0)
      throw new TypeError(
        "Redlock takes one client: a quorum of independent servers has no queue and no fence. examples/quorum shows the algorithm.",
      );
    this.settings = withDefaults(settings, { ...DEFAULT_SETTINGS });
    this.#client = client;
    this.#server = Server.of(client);
    this.#acquiring = new Acquiring(this.#server, this.settings.maxWaitingConnections);
  }

  /** Ends all connections, the given client's too, and all waits. Holds end with their leases. */
  async quit(): Promise<void> {
    this.#hasQuit = true;
    await this.#acquiring.quit();
    await this.#server.quit();
  }

  /** Takes all resources for `duration` milliseconds, or none. Rejects with an `ExecutionError` when the waiting time is over. */
  async acquire(resources: string[], duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return this.take(this.#target(resources, settings), duration, settings);
  }

  /** Takes shared holds: any number of readers have them at the same time. */
  acquireRead(resources: string[], duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return this.acquire(resources, duration, { ...settings, shared: true });
  }

  /** Takes exclusive holds, as `acquire` does by default. */
  acquireWrite(resources: string[], duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return this.acquire(resources, duration, { ...settings, shared: false });
  }

  /** A semaphore: at most `permits` hold the resource at the same time. */
  semaphore(resource: string, permits: number): Semaphore {
    return new Semaphore(this, resource, permits);
  }

  /** Several resources that are taken in one step, exclusive ones and shared ones. */
  multiLock(exclusive: readonly string[], shared: readonly string[] = []): MultiLock {
    return new MultiLock(this, exclusive, shared);
  }

  /** @internal For `Semaphore` and `MultiLock`. */
  async take(target: Target, duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    return (await this.takeOrFind(target, duration, settings)).lock!;
  }

  /** @internal For `take` and `once`. A value may be found, without a lock or beside it. */
  async takeOrFind(target: Target, duration: number, settings: Partial<Settings>): Promise<Outcome> {
    checkDuration(duration);
    const effective = withDefaults(settings, this.settings);
    checkSettings(effective);
    if (drift(duration, effective.driftFactor) >= duration)
      throw new RangeError("The duration leaves nothing after the drift: see `driftFactor`.");
    await loaded;
    const attempts: Promise<ExecutionStats>[] = [];
    const isOfValue = target.early !== undefined;
    const keys = target.resources.map((resource) => this.#server.keyOf(resource));
    const request: Request = {
      ...target,
      ...(isOfValue ? { keys: [lockOf(keys[0]!)], result: keys[0]! } : { keys }),
      // Node draws the random bytes of many at once. Bytes drawn for each token were a third of a pair's work here.
      token: randomUUID(),
      duration,
      // A permit is no reader's hold.
      shared: effective.shared && target.limit === undefined,
      grace: new Patience(effective).isOver ? undefined : effective.grace,
      linger: isOfValue ? undefined : effective.linger,
      mayFallBack: this.settings.fallback && !isOfValue,
    };
    const wait = new Measured("wait", target.resources);
    try {
      if (this.#hasQuit) throw new Error("the client was ended");
      const note = (error: Error | undefined) => this.#note(attempts, effective, error);
      const { fence, lease, found } = await this.#acquiring.acquire(request, effective, note);
      if (found && fence === 0) {
        wait.end(false);
        return { found };
      }
      const lock = new Lock(this, request, attempts, fence, lease, effective.automaticExtensionThreshold);
      if (request.linger !== undefined) this.#linger(lock, request.linger);
      wait.end(true);
      return { lock, found };
    } catch (error) {
      wait.end(false, error);
      if (effective.signal?.aborted && error === effective.signal.reason) throw error;
      throw this.#failed(attempts, error);
    }
  }

  /** Hears of a lost connection at once, and asks a silent one whether it lives, for as long as the lease lasts. */
  #linger(lock: Lock, linger: number): void {
    const { lease } = lock;
    const stopWatching = this.#server.wires.onLost((wire) => lease.pulse === wire && lock.disconnected());
    const beat = () => {
      if (!lock.isValid) {
        clearInterval(heart);
        return stopWatching();
      }
      const wire = lease.pulse as Wire | undefined;
      if (wire && performance.now() - wire.aliveAt >= linger / 4)
        wire.send(["PING"], Math.min(linger, PONG_MS)).catch(() => {});
    };
    const heart = setInterval(beat, linger / 3).unref();
  }

  /** Sets the lease anew. Rejects with an `ExecutionError` when it was lost, for a lost lock is never taken again. */
  async extend(lock: Lock, duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    checkDuration(duration);
    if (!lock.isValid)
      throw new ExecutionError("Cannot extend an already-expired lock.", [], {
        cause: lost("its lease is over"),
      });
    const renew = () => this.#renew(lock, duration);
    await this.#insist(renew, settings, () => lock.lease.until);
    lock.keeper.message = NOT_EXTENDED;
    return lock;
  }

  /** @internal For the keeper, which asks again by itself. */
  async extendOnce(lock: Lock): Promise<void> {
    await this.#insist(() => this.#renew(lock, lock.request.duration));
  }

  async #renew(lock: Lock, duration: number): Promise<void> {
    const { lease } = lock;
    try {
      if (!lock.isValid) throw lost("its lease is over");
      const sent = performance.now();
      const mine = ++lock.extensions;
      // If it is shortened, then also by a request whose answer does not come.
      lease.shorten(sent, duration);
      lock.changed();
      // A silent connection is given up while there is time to ask on another one.
      const ms = Math.min(ANSWER_MS, Math.max(100, lock.remaining / 2));
      const wire = await this.#server.renew(lock.request, duration, ms);
      if (!lock.isValid) throw lost("its lease was over before the answer");
      // What the server does last is what was sent last.
      if (mine !== lock.extensions) return;
      lease.renew(sent, duration);
      if (wire && lock.request.linger !== undefined && lease.pulse !== wire) await this.#bind(lock, duration);
      lock.changed();
    } catch (error) {
      if (error instanceof ResourceLockedError && lock.ended === undefined) {
        lease.end();
        lock.changed();
      }
      throw error;
    }
  }

  /**
   * Only an acquire binds a hold that lingers to the connection of now. Without an answer, or while a guard grants nothing, the renewal
   * before it counts, and the next one binds.
   */
  async #bind(lock: Lock, duration: number): Promise<void> {
    const request = { ...lock.request, duration, grace: undefined };
    const grant = await this.#server.acquire(request).catch((error: Error) => {
      const isGone = error instanceof StringLockError || /^(PARTIAL|WRONGTYPE)$/.test(wordOf(error) ?? "");
      if (isGone) throw lost(error.message);
      return undefined;
    });
    if (!grant) return;
    if (grant.fence !== lock.fence) {
      // It was lost meanwhile. Nobody knows of this one.
      await this.#server.release(request).catch(() => {});
      throw lost("the lock was granted anew");
    }
    if (grant.wire) lock.lease.bind(grant.wire);
  }

  /** Gives the lock back. Rejects with an `ExecutionError` when it was not held any more. Without an answer it can be repeated. */
  async release(lock: Lock, settings: ReleaseSettings = {}): Promise<ExecutionResult> {
    lock.end();
    const ended = lock.ended!;
    const release = async () => {
      try {
        await this.#server.release(lock.request, settings.atLeast);
        lock.settle(true);
      } catch (error) {
        if (kindOf(error) === "silent") ended.isInDoubt = true;
        if (!(error instanceof ResourceLockedError)) throw error;
        // Sent twice, the first may have done it. For as long as the lease lasts that is what this answer is taken for.
        const isDone = ended.isInDoubt && performance.now() < ended.until;
        lock.settle(isDone);
        if (!isDone) throw error;
      }
    };
    return { attempts: await this.#insist(release, settings, () => ended.until) };
  }

  /** Whether the server says that the lock is held now. */
  async check(lock: Lock): Promise<boolean> {
    try {
      await this.#insist(() => this.#server.check(lock.request));
      return true;
    } catch (error) {
      if ((error as Error).cause instanceof ResourceLockedError) return false;
      throw error;
    }
  }

  /** @internal For `Lock`. */
  async exec(lock: Lock, command: string, ...args: Argument[]): Promise<unknown> {
    try {
      return await this.#server.exec(lock.request, [command, ...args], Math.max(lock.remaining, ANSWER_MS));
    } catch (error) {
      if (!(error instanceof ResourceLockedError || error instanceof UnsupportedError)) throw error;
      throw new ExecutionError(`The command was not run. (${error.message})`, [], { cause: error });
    }
  }

  /** Repeats an operation that the server cannot execute yet until the lease is over, and one without an answer for the retries. */
  async #insist(
    ask: () => Promise<void>,
    settings: Partial<Settings> = { retryCount: 0 },
    until = () => -Infinity,
  ) {
    const effective = withDefaults(settings, this.settings);
    const patience = new Patience(effective);
    const attempts: Promise<ExecutionStats>[] = [];
    for (;;) {
      let failure: Error;
      try {
        await ask();
        this.#note(attempts, effective, undefined);
        return attempts;
      } catch (error) {
        failure = error as Error;
      }
      this.#note(attempts, effective, failure);
      const kind = kindOf(failure);
      const isOver = kind === "final" || this.#hasQuit || this.#server.driver.hasEnded;
      if (!isOver && kind !== "silent" && performance.now() < until()) await sleep(TRY_AGAIN_MS);
      else if (isOver || patience.isOver) throw this.#failed(attempts, failure);
      else await patience.pause();
    }
  }

  /**
   * Runs the routine under a lock that is extended until it has ended. The signal is aborted when the lock is lost; then this
   * rejects, even if the routine has gone on to its end.
   */
  async using<T>(resources: string[], duration: number, ...how: Use<T>): Promise<T> {
    return this.use(this.#target(resources, how.length === 2 ? how[0] : {}), duration, ...how);
  }

  /** @internal For `Semaphore` and `MultiLock`. */
  async use<T>(target: Target, duration: number, ...how: Use<T>): Promise<T> {
    const [settings, routine] = how.length === 2 ? how : [{}, how[0]];
    if (typeof routine !== "function") throw new Error("INVARIANT: routine is not a function.");
    checkDuration(duration);
    const { automaticExtensionThreshold } = withDefaults(settings, this.settings);
    if (automaticExtensionThreshold > duration - 100)
      throw new Error(
        "A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.",
      );
    const lock = await this.take(target, duration, settings);
    return useLock(lock.keep(), routine);
  }

  /**
   * Runs the job, unless it is running elsewhere, or was begun less than `atLeast` milliseconds ago. Does not wait. The lock ends after
   * `atMost`, and nothing extends it: choose more than the job ever takes. The signal is aborted then, and this rejects.
   */
  async runOnce<T>(
    name: string,
    { atMost, atLeast = 0, ...settings }: RunOnceSettings,
    job: Routine<T>,
  ): Promise<RunOnceResult<T>> {
    checkDuration(atMost);
    if (!Number.isInteger(atLeast) || atLeast < 0 || atLeast > atMost)
      throw new RangeError("`atLeast` must be an integer from 0 to `atMost`.");
    if (typeof name !== "string") throw new TypeError("The name of a job must be a string.");
    // Readers would all run it.
    const once = { ...settings, shared: false, retryCount: 0 };
    const option = atLeast > 0 ? { atLeast } : {};
    const lock = await nullIfHeld(this.take({ resources: [name], ...option }, atMost, once));
    if (lock === null) return { hasRun: false };
    lock.keeper.message = "The job took longer than `atMost`.";
    const release = () => this.release(lock, { ...settings, ...option });
    return { hasRun: true, value: await useLock(lock, job, release) };
  }

  /** @internal For `once`. An error that passes is as no value: the acquire waits for its end. */
  async look(name: string): Promise<[value: Buffer | null, left: number]> {
    try {
      return await this.#server.look(this.#server.keyOf(name));
    } catch (error) {
      if (kindOf(error) === "final") throw this.#failed([], error);
      return [null, -1];
    }
  }

  /** @internal For `once`: stores the value if its lock is still held, and releases that. */
  async store(lock: Lock, value: Buffer, keep: number): Promise<void> {
    const { request } = lock;
    lock.end();
    const { until } = lock.ended!;
    const save = async () => {
      const saving = this.#server.exec(request, ["SET", request.result!, value, "PX", keep], ANSWER_MS);
      const outcomes = await Promise.allSettled([saving, this.#server.release(request)]);
      for (const each of outcomes) if (each.status === "rejected") throw each.reason;
    };
    try {
      const saved = this.#insist(save, DEFAULT_SETTINGS, () => until);
      await within(Math.max(0, until - performance.now()) + ANSWER_MS, saved, LATE);
      lock.settle(true);
    } catch (error) {
      lock.settle(false);
      const { cause } = error as Error;
      // It is a value all the same, for the caller that has made it.
      if (!(cause instanceof ResourceLockedError) && cause && kindOf(cause) === "final") throw error;
    }
  }

  /** @internal */
  tell(error: Error): void {
    try {
      this.emit("error", error);
    } catch {
      // By a listener, which decides nothing.
    }
  }

  /** Several resources are taken in one step, in one order for all. */
  #target(resources: readonly string[], settings: Partial<Settings>): Target {
    checkNames(resources);
    const sorted = [...new Set(resources)].sort();
    if (sorted.length === 0) throw new Error("There must be at least one resource to lock.");
    if (sorted.length > MAX_RESOURCES) throw new RangeError(`There are at most ${MAX_RESOURCES} resources.`);
    if (sorted.length === 1) return { resources: sorted };
    const { shared } = withDefaults(settings, this.settings);
    return { resources: sorted, sharedFrom: shared ? 0 : sorted.length };
  }

  /** Notes the outcome of one request. */
  #note(attempts: Promise<ExecutionStats>[], { retryCount }: Settings, error: Error | undefined): void {
    const votesFor = new Set(error ? [] : [this.#client]);
    const votesAgainst = new Map(error ? [[this.#client, error]] : []);
    let stats = Promise.resolve<ExecutionStats>({ membershipSize: 1, quorumSize: 1, votesFor, votesAgainst });
    try {
      if (error) this.emit("error", error);
    } catch (thrown) {
      // By a listener, which decides nothing.
      stats = Promise.reject(thrown);
      stats.catch(() => {});
    }
    // Of attempts without end only the last is kept.
    if (retryCount === -1) attempts.length = 0;
    attempts.push(stats);
  }

  #failed(attempts: ReadonlyArray<Promise<ExecutionStats>>, cause: unknown): ExecutionError {
    const { message } = cause as Error;
    return new ExecutionError(`The operation did not succeed. (${message})`, attempts, { cause });
  }
}

const NOT_EXTENDED = "The lock was not extended before its lease was over.";
