// Plays the scenarios of clients/vectors, which all the adapters have in common.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { once, Redlock } from "redis-lock-client";
import { lockOf } from "../dist/esm/slot.js";
import { Clients, Server, until, ways } from "./harness.js";

const scenarios = [];
const textOf = (file) => readFileSync(new URL(`../../vectors/${file}.txt`, import.meta.url), "utf8");
for (const file of ["scenarios", "faults", "once"])
  for (const line of textOf(file).split("\n")) {
    const words = line.split("#")[0].split(" ").filter(Boolean);
    if (words[0] === "scenario") scenarios.push({ name: line.slice("scenario ".length), steps: [] });
    else if (words.length > 0) scenarios.at(-1).steps.push(words);
  }

/** For one half of the scenarios of one way to wait. */
async function startServers() {
  const [usual, plain, bounded] = await Promise.all([
    Server.start({ settings: ["--lua-time-limit", 100] }),
    Server.start({ withModule: false }),
    Server.start({ moduleSettings: ["max-ttl", 2000] }),
  ]);
  return { default: usual, plain, bounded, strict: plain };
}

const TAKING = ["lock", "read", "write", "permit", "multi"];
const RESULTS = {
  ERR_LOCK_TAKEN: "busy",
  ERR_LOCK_LOST: "lost",
  ERR_LOCK_NO_MODULE: "missing",
  ERR_LOCK_CANCELLED: "cancelled",
  ERR_LOCK_DURATION: "too-long",
  ERR_LOCK_REFUSED: "denied",
};

/** A program with a client of its own, and what it holds. */
class Actor {
  constructor(play, { client, proxy }) {
    this.redlock = new Redlock([client], play.settings);
    Object.assign(this, { play, proxy });
  }

  async do(verb, ...words) {
    try {
      return await (TAKING.includes(verb) ? this.take(verb, ...words) : this[verb](...words));
    } catch (error) {
      if (error instanceof RangeError && verb === "get") return "failed";
      if (!(error.code in RESULTS)) throw error;
      return RESULTS[error.code];
    }
  }

  async take(kind, ...words) {
    const given = words.filter((word) => word.includes("=")).map((word) => word.split("="));
    const names = words.filter((word) => !word.includes("="));
    const { ttl = 30_000, wait = 0, linger } = Object.fromEntries(given);
    const settings = { retryCount: wait / 50, retryDelay: 50, retryJitter: 5, shared: kind === "read" };
    if (linger) settings.linger = Number(linger);
    const slash = names.includes("/") ? names.indexOf("/") : names.length;
    this.ttl = Number(ttl);
    let what = { acquire: (...how) => this.redlock.acquire([names[0]], ...how) };
    if (kind === "permit") what = this.redlock.semaphore(names[0], Number(names[1]));
    if (kind === "multi") what = this.redlock.multiLock(names.slice(0, slash), names.slice(slash + 1));
    this.lock = await what.acquire(this.ttl, settings);
    return "held";
  }

  release = () => this.lock.release().then(() => "ok");
  renew = (ms = this.ttl) => this.lock.extend(Number(ms)).then(() => "ok");
  idle = async () => {};
  believes = async () => (this.lock.isValid ? "yes" : "no");
  check = async () => ((await this.lock.check()) ? "yes" : "no");
  exec = async (...words) => String(await this.lock.exec(...words));
  keep = async () => void this.lock.keep();

  told = () => until(() => this.lock.signal.aborted);

  /** A call of `once`. Its maker answers at once, or waits for `returns` or `raises`. */
  async get(name, ...options) {
    const given = Object.fromEntries(options.map((option) => option.split("=")));
    const { make, fail, ...times } = given;
    let hasMade = false;
    const maker = async () => {
      this.play.makers++;
      const value = make ?? (fail ? undefined : await new Promise((answer) => (this.answer = answer)));
      if (value === undefined) throw new RangeError("the maker's");
      hasMade = true;
      return value;
    };
    const settings = Object.entries(times).map(([name, ms]) => [name, Number(ms)]);
    const value = await once(this.redlock, name, maker, { early: 0, ...Object.fromEntries(settings) });
    return `${hasMade ? "made" : "got"}:${value}`;
  }

  making = () => until(() => this.answer !== undefined);
  returns = async (value) => this.answer(value);
  raises = async () => this.answer(undefined);

  async once(name, most, least) {
    const settings = { atMost: Number(most), ...(least > 0 && { atLeast: Number(least) }) };
    return (await this.redlock.runOnce(name, settings, async () => {})).hasRun ? "ran" : "skipped";
  }
}

/** Steps of the scene; those of an actor are above. */
class Play {
  actors = {};
  /** How many makers have begun. */
  makers = 0;

  constructor(server, connect, settings) {
    Object.assign(this, { server, connect, settings });
  }

  async step(subject, ...words) {
    if (subject === "made") return String(this.makers);
    if (subject !== subject.toUpperCase()) return this[subject](...words);
    this.actors[subject] ??= new Actor(this, await this.connect());
    const actor = this.actors[subject];
    if (words[0] === "begin") return void (actor.pending = actor.do(...words.slice(1))).catch(() => {});
    return words[0] === "end" ? actor.pending : actor.do(...words);
  }

  cut = (who) => this.actors[who].proxy.cutForGood();
  join = (who) => this.actors[who].proxy.listen();
  /** A script without end, which is killed. From the first BUSY on the scene goes on. */
  busy = async (ms) => {
    const other = this.server.admin.duplicate();
    const running = other.eval("while true do end", 0).catch(() => other.disconnect());
    const isBusy = () =>
      this.server.admin.get("k").then(
        () => false,
        ({ message }) => /^BUSY/.test(message),
      );
    await until(isBusy);
    void sleep(ms - 100).then(() => this.server.admin.script("KILL"));
    this.later.push(running);
  };
  later = [];
  fence = (who) => String(this.actors[who].lock.fence);
  rises = (one, other) => assert.ok(this.actors[one].lock.fence < this.actors[other].lock.fence);
  /** A place is told of nothing before somebody listens there. */
  queue = (key, number) =>
    until(async () => {
      const [all, listening] = [await this.server.waiters(key), await this.server.listening(key)];
      return all.length === Number(number) && all.length === listening.length;
    });
  places = async (key) => String((await this.server.waiters(key)).length);
  gone = (key) => until(async () => (await this.server.admin.exists(key)) === 0);
  lock = (name) => lockOf(name);
  calls = async (command) => String(await this.server.calls(command));
  pause = (ms) => sleep(Number(ms));
}

// They mostly wait: those of one way are played in two halves at once.
const halves = ways.flatMap((way) => [0, 1].map((half) => ({ ...way, half })));
describe("the scenarios", { concurrency: halves.length }, () => {
  for (const { title, library, waitBy, half } of halves) {
    describe(`${title}, ${half + 1} of 2`, { concurrency: 1 }, () => {
      let servers;
      before(async () => (servers = await startServers()));
      after(() => Promise.all([...new Set(Object.values(servers))].map(({ stop }) => stop())));
      for (const { name, steps } of scenarios.filter((_, at) => at % 2 === half)) {
        const [, place] = name.split(" on ");
        // What the fallback and the bound do has nothing to do with the way to wait.
        if (place && waitBy === "notify") continue;
        it(name, { timeout: 60_000 }, async () => {
          const server = servers[place] ?? servers.default;
          await server.admin.flushall();
          await server.admin.config("RESETSTAT");
          const clients = new Clients(library);
          const connect = async () => {
            const proxy = await clients.proxy(server.port);
            return { proxy, client: await clients.connect(proxy.port) };
          };
          // Where the module is, the fallback changes nothing.
          const settings = { waitBy, fallback: place !== "strict" };
          const play = new Play(server, connect, settings);
          try {
            // Before the first step: no client connects to a server that is busy.
            const names = new Set(steps.map(([name]) => name).filter((name) => /^[A-Z]$/.test(name)));
            for (const name of names) await play.step(name, "idle");
            for (const words of steps) {
              const at = words.at(-2) === "=" ? -2 : words.length;
              const said = words.slice(0, at);
              const got =
                said[0] === "server"
                  ? String(await server.admin.call(...said.slice(1)))
                  : await play.step(...said);
              if (at === -2) assert.equal(got, words.at(-1), words.join(" "));
            }
            await Promise.all(play.later);
          } finally {
            await clients.end();
          }
        });
      }
    });
  }
});
