import { randomUUID } from "node:crypto";
import { EventEmitter } from "node:events";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "./clients/client.js";
import type { Argument } from "./connection.js";
import { ExecutionError, type ExecutionResult, type ExecutionStats } from "./errors.js";
import {
  checkNames,
  DurationError,
  LockCancelledError,
  ResourceLockedError,
  SlotsError,
  StringLockError,
  UnsupportedError,
} from "./errors.js";
import { Bindings } from "./lingering.js";
import { Lock, type LockOwner } from "./lock.js";
import type { Request, Target } from "./request.js";
import { Server, type Waiting } from "./server.js";
import { DEFAULT_SETTINGS, Patience, withDefaults } from "./settings.js";
import type { ReleaseSettings, RunOnceSettings, Settings } from "./settings.js";
import { MultiLock, nullIfHeld, Semaphore, type Taker } from "./several.js";
import { type Routine, useLock } from "./using.js";
import { MAX_TIMER_MS, within } from "./timer.js";
import { type Outcome, quorumOf, vote } from "./voting.js";
import { MAX_BLOCK_MS, type Place } from "./waiting-room.js";

/** The longest grace that the module knows. */
const MAX_GRACE_MS = 3_600_000;

/** Between two releases of what could not be released, or was not there yet. */
const RELEASE_AGAIN_MS = 500;
const RELEASES = 10;

/** How long after its time to wait an acquire may take for an answer. */
const ANSWER_MS = 2500;

const LATE = "no answer within the time to wait";

const ENDED = "the client was ended";

const LEASE_OVER = "the lease was over before it was extended";

/** How long an acquire waits for what it gives up. */
const GIVE_UP_MS = 1000;

/** Before an extension is sent again that the servers could not answer yet. */
const TRY_AGAIN_MS = 200;

/** The least part of a lease that is taken off for clocks of different speeds: a server's guard counts on no less. */
const LEAST_DRIFT = 0.01;

/** A shorter linger makes no extensions more frequent. */
const SHORTEST_SPAN_MS = 300;

/** Before a command is sent again that was answered at once, and not as if it had waited. */
const PAUSE_MS = 50;

/** The longest ttl that the module knows. */
const MAX_DURATION_MS = 2 ** 48;

/** Whether `runOnce` has run the job, and what the job returned. */
export type RunOnceResult<T> = { readonly hasRun: true; readonly value: T } | { readonly hasRun: false };

/**
 * Locks in servers that have the redis-lock module, with the interface of node-redlock.
 *
 * With one client, an acquire that finds the lock held waits in the server's queue, with one place until it is granted or gives up. With
 * several, which are to be independent servers, a majority decides, and an acquire that is refused tries again, because nobody can stand
 * in several queues at once.
 *
 * Emits `error` for each client's vote against an operation, whatever became of the operation.
 */
export class Redlock extends EventEmitter implements LockOwner, Taker {
  readonly clients: ReadonlySet<Client>;
  readonly settings: Settings;
  readonly #servers: readonly Server[];
  /** The requests that may have a place in a queue. Those that `quit` has given back are none of them. */
  readonly #waiting = new Set<Request>();
  /** The requests of which an answer was lost. */
  readonly #inDoubt = new WeakSet<Request>();
  /** Of the locks that linger. */
  readonly #bindings = new WeakMap<Lock, Bindings<Server>>();
  #hasQuit = false;

  constructor(clients: Iterable<Client>, settings: Partial<Settings> = {}) {
    super();
    // Without a listener an `error` event would end the process.
    this.on("error", () => {});
    this.clients = new Set(clients);
    if (this.clients.size === 0)
      throw new Error("Redlock must be instantiated with at least one redis client.");
    this.settings = withDefaults(settings, { ...DEFAULT_SETTINGS });
    this.#servers = [...this.clients].map(
      (client) => new Server(client, this.settings.maxWaitingConnections, this.settings.fallback),
    );
  }

  get #quorumSize(): number {
    return quorumOf(this.#servers.length);
  }

  /** Nobody is left to ask. */
  get #hasEnded(): boolean {
    return this.#hasQuit || this.#servers.every((server) => server.hasEnded);
  }

  /** Ends all connections, the given clients' too. */
  async quit(): Promise<void> {
    this.#hasQuit = true;
    // Now, because a place outlives its connection.
    const giving = [...this.#waiting].map((request) => this.#giveBack(request));
    this.#waiting.clear();
    if (giving.length > 0) await within(GIVE_UP_MS, Promise.all(giving), LATE).catch(() => {});
    await Promise.all(this.#servers.map((server) => server.quit()));
  }

  /** Takes all resources for `duration` milliseconds, or none. Rejects with an `ExecutionError` when the waiting time is over. */
  async acquire(resources: string[], duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    checkResources(resources);
    return this.take({ resources: [...new Set(resources)].sort() }, duration, settings);
  }

  /** Only for `Semaphore` and `MultiLock`. */
  async take(target: Target, duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    checkDuration(duration);
    const effective = withDefaults(settings, this.settings);
    checkWaiting(effective);
    if (drift(duration, effective) >= duration)
      throw new RangeError("The duration leaves nothing after the drift: see `driftFactor`.");
    const waits = this.#servers.length === 1 && !new Patience(effective).isOver;
    const request: Request = {
      ...target,
      // Node draws the random bytes of many at once. Bytes drawn for each token were a third of a pair's work here.
      token: randomUUID(),
      duration,
      // A permit is no reader's hold.
      shared: effective.shared && target.limit === undefined,
      grace: waits ? effective.grace : undefined,
      linger: effective.linger,
      boundAt: effective.linger === undefined ? undefined : new WeakMap(),
    };
    if (waits) this.#waiting.add(request);
    try {
      const lock = await this.#acquire(request, effective);
      this.#throwIfGivenBack(request, lock.attempts);
      return lock;
    } catch (error) {
      // A part may be held, or all of it if only the answer was lost, or a place in the queue. Nothing if it was one lock, and it was
      // refused without a wait.
      const isRefused = (error as Error).cause instanceof ResourceLockedError;
      const isPartial = request.resources.length > 1 && request.sharedFrom === undefined;
      if (!isRefused || waits || isPartial || this.#servers.length > 1) {
        const giving = this.#giveUp(request);
        // A server that says nothing is not waited for twice. It goes on by itself.
        await (waits ? within(GIVE_UP_MS, giving, LATE).catch(() => {}) : giving);
      }
      throw error;
    } finally {
      this.#waiting.delete(request);
    }
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

  async #acquire(request: Request, settings: Settings): Promise<Lock> {
    const patience = new Patience(settings);
    const attempts: Promise<ExecutionStats>[] = [];
    const knowsDatabase = this.#servers.every((server) => server.knowsDatabase);
    const lease = request.duration - drift(request.duration, settings);
    const { linger } = request;
    const bindings =
      linger === undefined ? undefined : new Bindings<Server>(linger - drift(linger, settings));
    let place: Place | undefined;
    let wasGrantedAtPlace = false;
    // A channel that listens may be named at once. A connection to block is for locks that are not free.
    let waiting = request.grace === undefined ? undefined : this.#listening(patience, settings);
    try {
      // What was not free just now is waited for at once.
      const [server] = this.#servers;
      if (request.grace !== undefined && !waiting && server!.support.block && server!.wasBusy(request)) {
        place = server!.room.enter();
        if (place.isReady) waiting = await this.#waitingAt(place, patience, settings);
      }
      for (;;) {
        this.#throwIfGivenBack(request, attempts);
        let start = performance.now();
        const ask = () =>
          this.#round(attempts, settings, (server) => this.#ask(server, request, waiting, bindings, lease));
        let { isPassed, answers, errors } = await this.#inTime(request, patience, attempts, () =>
          waiting ? patience.spend(ask) : ask(),
        );
        if (!errors.every(isAnswer)) this.#inDoubt.add(request);
        const took = performance.now() - start;
        wasGrantedAtPlace ||= isPassed && waiting !== undefined && waiting.by === place;
        // A lock that lingers is bound to the connection that asked, which is to be the client's.
        if (isPassed && request.linger !== undefined && waiting && waiting.by === place) {
          waiting = undefined;
          continue;
        }
        const isDoubtful = wasGrantedAtPlace && !knowsDatabase;
        if (isPassed && waiting && (took > spanOf(request.duration, request.linger) / 10 || isDoubtful)) {
          // The lease counts from before the asking, so the waiting has eaten of it. A renewal begins it anew. It goes over the client's
          // connection, so it tells as well whether the place was granted the key of the client's database.
          start = performance.now();
          const renew = () =>
            this.#round(attempts, settings, async (server) => {
              await server.renew(request);
              bindings?.renew(server, start, start + lease);
            });
          ({ isPassed, errors } = await this.#inTime(request, patience, attempts, renew));
        }
        const until = start + lease;
        if (isPassed && performance.now() < until) {
          const lock = new Lock(this, request, attempts, fencesOf(request, answers), until);
          if (bindings) this.#linger(lock, bindings);
          return lock;
        }

        if (place && isDoubtful && errors[0] instanceof ResourceLockedError) {
          wasGrantedAtPlace = false;
          await this.#servers[0]!.giveBackAt(place, request);
        }

        // Votes are split if nobody gives them back. And a circle of waits stays closed.
        if (this.#servers.length > 1 || errors.some(isDeadlock)) await this.#giveBack(request);
        if (patience.isOver || this.#hasEnded || errors.some(isFinal)) throw this.#failed(attempts, errors);
        const wasWaiting = waiting !== undefined;
        waiting = undefined;
        const [error] = errors;
        if (this.#servers.length > 1) {
          await patience.pause();
        } else if (!(error instanceof ResourceLockedError)) {
          if (isElsewhere(error)) await patience.spend(() => sleep(PAUSE_MS));
          else await patience.pause(wasWaiting ? 0 : performance.now() - start);
        } else if (error instanceof StringLockError) {
          await patience.spend(() => sleep(Math.min(error.retryAfter, patience.left)));
        } else {
          // Nobody tells when a string ends.
          if (this.#servers[0]?.isFallback) {
            await patience.pause();
            continue;
          }
          // A guard that makes no new grant may answer at once.
          if (wasWaiting && took < PAUSE_MS)
            await patience.spend(() => sleep(Math.min(PAUSE_MS, patience.left)));
          waiting = this.#listening(patience, settings);
          if (waiting) continue;
          place ??= this.#servers[0]?.room.enter();
          waiting = await this.#waitingAt(place, patience, settings);
        }
      }
    } finally {
      place?.leave();
    }
  }

  /** Notes what the server holds then, also after the others have decided. What an earlier attempt had was given back. */
  async #ask(
    server: Server,
    request: Request,
    waiting: Waiting | undefined,
    bindings: Bindings<Server> | undefined,
    lease: number,
  ): Promise<number[]> {
    const sent = performance.now();
    bindings?.lose(server);
    try {
      const fences = await server.acquire(request, waiting);
      bindings?.begin(server, sent, sent + lease);
      return fences;
    } catch (error) {
      bindings?.lose(server);
      throw error;
    }
  }

  /** A lost connection shortens the lease, unless a majority of the servers has the lock by others. */
  #linger(lock: Lock, bindings: Bindings<Server>): void {
    this.#bindings.set(lock, bindings);
    for (const server of this.#servers)
      server.linger(lock, () => {
        bindings.disconnect(server);
        if (lock.atMostUntil(bindings.end(this.#quorumSize))) lock.onShortened();
      });
  }

  /** An acquire that waits does not wait longer for a client that is looking for its server, or for a server that says nothing. */
  async #inTime<T>(
    request: Request,
    patience: Patience,
    attempts: ReadonlyArray<Promise<ExecutionStats>>,
    ask: () => Promise<T>,
  ): Promise<T> {
    if (request.grace === undefined || !Number.isFinite(patience.left)) return ask();
    try {
      return await within(patience.left + ANSWER_MS, ask(), LATE);
    } catch {
      // Errors of servers are votes, so it is the time that was over.
      this.#inDoubt.add(request);
      throw this.#failed(attempts, [new Error(LATE)]);
    }
  }

  /** What `quit` has given back is not held, also if the server had granted it before. */
  #throwIfGivenBack(request: Request, attempts: ReadonlyArray<Promise<ExecutionStats>>): void {
    if (request.grace !== undefined && !this.#waiting.has(request))
      throw this.#failed(attempts, [new Error(ENDED)]);
  }

  /** True if each server that decided it holds nothing any more, or does not know how to. */
  async #giveBack(request: Request): Promise<boolean> {
    const { errors } = await vote(this.#servers, (server) => server.release(request)).decided;
    return errors.every((error) => error instanceof ResourceLockedError || isFinal(error));
  }

  /** Gives back what may be left of a request that has failed: a part, a hold whose grant was not heard of, a place in the queue. */
  async #giveUp(request: Request): Promise<void> {
    const isDone = await this.#giveBack(request);
    if (this.#servers.length === 1 && (!isDone || this.#inDoubt.has(request)))
      void this.#giveUpLater(request);
  }

  /** A release on one connection may come before the request that was sent on another, which was lost. */
  async #giveUpLater(request: Request): Promise<void> {
    for (let i = 0; i < RELEASES; i++) {
      await sleep(RELEASE_AGAIN_MS, undefined, { ref: false });
      if (this.#hasEnded) return;
      if (await this.#giveBack(request)) return;
    }
  }

  /** The channel to wait by, if that is possible and wanted. */
  #listening(patience: Patience, settings: Settings): Waiting | undefined {
    const [server] = this.#servers;
    if (settings.waitBy !== "notify" || !server?.support.notify || server.isFallback) return undefined;
    return { by: server.channel, ms: sliceOf(patience, settings) };
  }

  /** A free connection to wait with. Without one, the lock is asked for again as node-redlock would, and the server keeps the place. */
  async #waitingAt(
    place: Place | undefined,
    patience: Patience,
    settings: Settings,
  ): Promise<Waiting | undefined> {
    const atMost = Math.min(settings.retryDelay || PAUSE_MS, settings.grace / 2, patience.left);
    if (!this.#servers[0]?.support.block) {
      await patience.spend(() => sleep(Math.min(atMost, MAX_TIMER_MS)));
      return undefined;
    }
    const isReady = await patience.spend(async () => place?.isReadyWithin(atMost));
    if (!place || !isReady) return undefined;
    return { by: place, ms: sliceOf(patience, settings) };
  }

  /** Gives the lock back. Rejects with an `ExecutionError` when it was not held any more, or no majority can be reached. */
  async release(lock: Lock, settings: ReleaseSettings = {}): Promise<ExecutionResult> {
    const wasValid = lock.isValid;
    lock.end();
    // Asked twice, by us or by the client, who asks again on its own, the first may have done it: then nothing is left to
    // release. For as long as the lease lasts that is what a 0 is taken for.
    const inDoubt = new Set<Server>();
    const release = async (server: Server) => {
      const { resends } = server;
      try {
        await server.release(lock.request, settings.atLeast);
        inDoubt.add(server);
      } catch (error) {
        const isLost = error instanceof ResourceLockedError;
        if (!isLost || server.resends > resends) inDoubt.add(server);
        if (!(isLost && wasValid && inDoubt.has(server))) throw error;
      }
    };
    return { attempts: await this.#insist(settings, release) };
  }

  /** Sets the lease anew. Rejects with an `ExecutionError` when it was lost, for a lost lock is never taken again. */
  extend(lock: Lock, duration: number, settings: Partial<Settings> = {}): Promise<Lock> {
    // The servers that cannot say yet are asked again until the lease is over.
    return this.extendOnce(lock, duration, settings, TRY_AGAIN_MS);
  }

  /** Only for `using`, which asks again by itself. */
  async extendOnce(lock: Lock, duration: number, settings: Partial<Settings>, tryAgainMs = 0): Promise<Lock> {
    checkDuration(duration);
    if (!lock.isValid)
      throw new ExecutionError("Cannot extend an already-expired lock.", [], {
        cause: new ResourceLockedError(LEASE_OVER),
      });
    const request = { ...lock.request, duration, grace: undefined };
    const lease = duration - drift(duration, withDefaults(settings, this.settings));
    const bindings = this.#bindings.get(lock);
    let start = 0;
    let mine = 0;
    // What the servers do last is what was sent last.
    const isLatest = () => mine === lock.extensions;
    const renewOne = async (server: Server) => {
      // Then it stays lost, whatever the server says.
      if (!lock.isValid) throw new ResourceLockedError(LEASE_OVER);
      if (server === this.#servers[0]) [start, mine] = [performance.now(), ++lock.extensions];
      // If it is shortened, then also by a request whose answer does not come.
      const until = start + lease;
      lock.atMostUntil(until);
      bindings?.shorten(server, until);
      await server.renew(request);
      if (!isLatest()) return;
      bindings?.renew(server, start, until);
      if (!bindings || !lock.isValid) return;
      const losses = bindings.losses(server);
      if (await this.#bind(server, lock, request)) bindings.bind(server, losses);
    };
    const renew = (server: Server) =>
      renewOne(server).catch((error) => {
        if (error instanceof ResourceLockedError) bindings?.lose(server);
        throw error;
      });
    const attempts = await this.#insist(settings, renew, tryAgainMs).catch((error: Error) => {
      if (isLatest() && error.cause instanceof ResourceLockedError) lock.atMostUntil(0); // It is known to be lost.
      throw error;
    });
    if (!lock.isValid) throw this.#failed(attempts, [new ResourceLockedError(LEASE_OVER)]);
    // Servers whose connection was lost end it sooner.
    if (isLatest()) lock.leaseUntil(Math.min(start + lease, bindings?.end(this.#quorumSize) ?? Infinity));
    return lock;
  }

  /**
   * Only an acquire binds a lock that lingers to the connection of now. It does so each time, for the lock may have moved to another node.
   * Without an answer, or while a guard grants nothing, the renewal before it counts, and the next one binds. True if it is bound.
   */
  async #bind(server: Server, lock: Lock, request: Request): Promise<boolean> {
    const fences = await server.acquire(request).catch((error) => {
      if (isGone(error)) throw new ResourceLockedError(`not held any more: ${error.message}`);
    });
    const known = [...lock.fences.values()].map((each) => each[this.#servers.indexOf(server)]);
    if (!fences?.some((fence, i) => fence !== (known[i] ?? fence))) return fences !== undefined;
    // It was lost meanwhile. Nobody knows of this one.
    await server.release(request).catch(() => {});
    throw new ResourceLockedError("not held any more: the lock was granted anew");
  }

  /** Whether a majority of the servers says that the lock is held now. */
  async check(lock: Lock): Promise<boolean> {
    const attempts: Promise<ExecutionStats>[] = [];
    const check = (server: Server) => server.check(lock.request);
    const { isPassed, errors } = await this.#round(attempts, this.settings, check);
    if (!isPassed && !errors.every((error) => error instanceof ResourceLockedError))
      throw this.#failed(attempts, errors);
    return isPassed;
  }

  /** Only for `Lock`. */
  async exec(lock: Lock, command: string, ...args: Argument[]): Promise<unknown> {
    const [server, ...others] = this.#servers;
    if (others.length > 0) throw new TypeError("A command is run by one server: give Redlock one client.");
    try {
      return await server!.exec(lock.resources[0]!, lock.value, [command, ...args]);
    } catch (error) {
      if (!(error instanceof ResourceLockedError || error instanceof UnsupportedError)) throw error;
      throw new ExecutionError(`The command was not run. (${error.message})`, [], { cause: error });
    }
  }

  /** Repeats an operation while it fails by connections; when a majority says that the lock is lost it is over. */
  async #insist(settings: Partial<Settings>, ask: (server: Server) => Promise<void>, tryAgainMs = 0) {
    const effective = withDefaults(settings, this.settings);
    const patience = new Patience(effective);
    const attempts: Promise<ExecutionStats>[] = [];
    for (;;) {
      const { isPassed, errors } = await this.#round(attempts, effective, ask);
      if (isPassed) return attempts;
      const decisive = errors.filter((error) => error instanceof ResourceLockedError || isFinal(error));
      const isEnd = decisive.length > this.#servers.length - this.#quorumSize;
      if (!isEnd && tryAgainMs > 0 && errors.some(isTryAgain)) {
        await sleep(tryAgainMs);
        continue;
      }
      // The others may have it: that one has lost it is no cause then.
      const others = errors.filter((error) => !decisive.includes(error));
      if (isEnd || patience.isOver || this.#hasEnded) throw this.#failed(attempts, isEnd ? decisive : others);
      await patience.pause();
    }
  }

  /**
   * Runs the routine under a lock that is extended until it has ended. The signal is aborted when the lock is lost; then this
   * rejects, even if the routine has gone on to its end.
   */
  using<T>(resources: string[], duration: number, routine: Routine<T>): Promise<T>;
  using<T>(
    resources: string[],
    duration: number,
    settings: Partial<Settings>,
    routine: Routine<T>,
  ): Promise<T>;
  async using<T>(
    resources: string[],
    duration: number,
    settingsOrRoutine: Partial<Settings> | Routine<T>,
    optionalRoutine?: Routine<T>,
  ): Promise<T> {
    checkResources(resources);
    const target = { resources: [...new Set(resources)].sort() };
    return this.use(target, duration, settingsOrRoutine, optionalRoutine);
  }

  /** Only for `Semaphore` and `MultiLock`. */
  async use<T>(
    target: Target,
    duration: number,
    settingsOrRoutine: Partial<Settings> | Routine<T>,
    optionalRoutine?: Routine<T>,
  ): Promise<T> {
    const [settings, routine] =
      typeof settingsOrRoutine === "function"
        ? [{}, settingsOrRoutine]
        : [settingsOrRoutine, optionalRoutine];
    if (typeof routine !== "function") throw new Error("INVARIANT: routine is not a function.");
    const threshold = this.#threshold(duration, settings);
    const lock = await this.take(target, duration, settings);
    const span = spanOf(duration, lock.request.linger);
    return useLock(lock, { duration, threshold, span }, routine);
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
    const release = () => this.release(lock, { ...settings, ...option });
    return { hasRun: true, value: await useLock(lock, undefined, job, release) };
  }

  /** How long before its end a lock is extended. */
  #threshold(duration: number, settings: Partial<Settings>): number {
    checkDuration(duration);
    const { automaticExtensionThreshold } = withDefaults(settings, this.settings);
    if (automaticExtensionThreshold > duration - 100) {
      throw new Error(
        "A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.",
      );
    }
    return automaticExtensionThreshold;
  }

  #round<T>(
    attempts: Promise<ExecutionStats>[],
    { retryCount }: Settings,
    ask: (server: Server) => Promise<T>,
  ): Promise<Outcome<T>> {
    const { decided, stats } = vote(this.#servers, ask, (error) => this.emit("error", error));
    // Of attempts without end only the last is kept.
    if (retryCount === -1) attempts.length = 0;
    attempts.push(stats);
    return decided;
  }

  #failed(attempts: ReadonlyArray<Promise<ExecutionStats>>, errors: readonly Error[]): ExecutionError {
    const [cause] = errors;
    const message = "The operation was unable to achieve a quorum during its retry window.";
    return new ExecutionError(`${message} (${cause?.message ?? "too late"})`, attempts, { cause });
  }
}

function checkResources(resources: readonly string[]): void {
  checkNames(resources);
  if (resources.length === 0) throw new Error("There must be at least one resource to lock.");
}

function checkDuration(duration: number): void {
  if (!Number.isInteger(duration)) throw new Error("Duration must be an integer value in milliseconds.");
  if (duration < 1 || duration > MAX_DURATION_MS)
    throw new RangeError("Duration must be from 1 to 2^48 milliseconds.");
}

/** As node-redlock has it: 2 ms for the precision of the servers' ttl, and a part for clocks of different rates. */
function drift(duration: number, settings: Settings): number {
  return Math.round(Math.max(settings.driftFactor, LEAST_DRIFT) * duration) + 2;
}

/** Within what time a lock is to be renewed: one whose connection is lost lasts for the linger only. */
function spanOf(duration: number, linger = duration): number {
  return Math.min(duration, Math.max(linger, SHORTEST_SPAN_MS));
}

function sliceOf(patience: Patience, settings: Settings): number {
  return Math.min(patience.left, settings.blockSlice, MAX_BLOCK_MS);
}

function checkWaiting({ grace, waitBy, linger }: Settings): void {
  if (linger !== undefined && !(Number.isInteger(linger) && linger >= 0 && linger <= MAX_DURATION_MS))
    throw new RangeError("The linger must be an integer from 0 to 2^48 milliseconds.");
  if (!Number.isInteger(grace) || grace < 1 || grace > MAX_GRACE_MS)
    throw new RangeError(`The grace must be an integer from 1 to ${MAX_GRACE_MS} milliseconds.`);
  if (waitBy !== "block" && waitBy !== "notify")
    throw new RangeError('Redlock waits by "block" or by "notify".');
}

/** The key is on another node, or on its way there, or its node has become a replica, lacks replicas or cannot be reached. */
function isElsewhere(error: Error | undefined): boolean {
  return /^(MOVED|ASK|TRYAGAIN|UNREACHABLE|UNBLOCKED|READONLY|NOREPLICAS) /.test(error?.message ?? "");
}

function isDeadlock(error: Error): boolean {
  return error.message.startsWith("DEADLOCK ");
}

function isTryAgain(error: Error): boolean {
  return error.message.startsWith("TRYAGAIN ");
}

/** Of what was held, a part has ended, or something else is at its key. */
function isGone(error: Error): boolean {
  return error instanceof StringLockError || /^(PARTIAL|WRONGTYPE) /.test(error.message);
}

/** The server has answered with an error: nothing was lost on the way. */
function isAnswer(error: Error): boolean {
  return error instanceof ResourceLockedError || /^[A-Z]+ /.test(error.message);
}

/**
 * The server has no such module, or not what was asked of it, no leases so long, or the resources
 * are not together, or the wait was cancelled: no use in asking again.
 */
function isFinal(error: Error): boolean {
  return (
    error instanceof UnsupportedError ||
    error instanceof LockCancelledError ||
    error instanceof DurationError ||
    error instanceof SlotsError ||
    /^ERR unknown command/i.test(error.message)
  );
}

function fencesOf(request: Request, answers: ReadonlyArray<number[] | undefined>) {
  const of = (i: number) => answers.map((fences) => fences?.[i] ?? null);
  return new Map(request.resources.map((resource, i) => [resource, of(i)]));
}
