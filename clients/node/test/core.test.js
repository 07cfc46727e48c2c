// The parts of the core that do no I/O, by clocks that the test moves.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ExecutionError, ResourceLockedError } from "redis-lock-client";
import { Keeper, pauseBefore, spanOf } from "../dist/esm/keeper.js";
import { Lease } from "../dist/esm/lease.js";
import { parseMessage } from "../dist/esm/listener.js";
import { isNotifyRefused, isUnknownCommand, kindOf, WORDS } from "../dist/esm/replies.js";
import { Patience } from "../dist/esm/settings.js";
import { after } from "../dist/esm/timer.js";

const DAY_MS = 24 * 60 * 60 * 1000;

describe("replies", () => {
  it("have the table that all adapters share", () => {
    const text = readFileSync(new URL("../../vectors/errors.txt", import.meta.url), "utf8");
    const rows = text.split("\n").filter((line) => line && !line.startsWith("#"));
    assert.deepEqual(WORDS, Object.fromEntries(rows.map((row) => row.split(/\s+/))));
    for (const [word, kind] of Object.entries(WORDS)) assert.equal(kindOf(new Error(`${word} text`)), kind);
    assert.equal(kindOf(new Error("WHATEVER it is")), "final");
    for (const text of ["read ECONNRESET", "Connection is closed.", "Socket closed unexpectedly"])
      assert.equal(kindOf(new Error(text)), "silent", text);
    assert.equal(kindOf(new TypeError("wrong")), "final");
  });

  it("know an unknown command in every wording", () => {
    for (const text of [
      "ERR unknown command 'LOCK.ACQUIRE', with args beginning with: 'a'",
      "ERR unknown command `LOCK.ACQUIRE`",
      "ERR unknown command",
      "ERR Command is not available: 'LOCK.ACQUIRE'. See https://example.com",
      "ERR unsupported command 'lock.acquire'",
      "ERR unsupported",
      "ERR command lock.acquire is not supported",
      "unsupported command",
    ])
      assert.ok(isUnknownCommand(new Error(text), "LOCK.ACQUIRE"), text);
    for (const text of [
      "ERR unknown option, expected LIMIT, BLOCK, NOTIFY, KEEP or LINGER",
      "ERR wrong number of arguments for 'lock.acquire' command",
      "NOPERM User worker has no permissions to run the 'lock.acquire' command",
      "ERR unknown command 'FOO'",
      "getaddrinfo ENOTFOUND host not found",
      "LOADING Redis is loading the dataset in memory",
    ])
      assert.ok(!isUnknownCommand(new Error(text), "LOCK.ACQUIRE"), text);
  });

  it("give every error a code", () => {
    const codeOf = (cause) => new ExecutionError("", [], { cause }).code;
    assert.equal(codeOf(new ResourceLockedError("a")), "ERR_LOCK_TAKEN");
    assert.equal(codeOf(new Error("NOPERM no")), "ERR_LOCK_REFUSED");
    assert.equal(codeOf(new Error("BUSY script")), "ERR_LOCK_UNAVAILABLE");
    assert.equal(codeOf(new Error("read ECONNRESET")), "ERR_LOCK_UNAVAILABLE");
    assert.ok(isNotifyRefused(new Error("NOPERM no permissions to access one of the channels used")));
    assert.ok(
      !isNotifyRefused(new Error("NOPERM User has no permissions to run the 'lock.acquire' command")),
    );
  });

  it("read messages by the length of the key, in bytes, and leave others alone", () => {
    const parsed = (text) => parseMessage(Buffer.from(text));
    const message = { event: "granted", fence: 17, key: "a key", token: "my token" };
    assert.deepEqual(parsed("granted 17 5 a key my token"), message);
    assert.deepEqual(parsed("timeout 0 6 zwölf t"), { event: "timeout", fence: 0, key: "zwölf", token: "t" });
    assert.equal(parsed("granted 1 3 a\nb t").key, "a\nb");
    for (const text of ["", "granted", "granted 1 9 key t", "granted 1 3 keyt", "granted -1 3 key t"])
      assert.equal(parsed(text), undefined, text);
  });
});

describe("a lease", () => {
  it("counts from the sending, less the drift, which is no less than a guard counts on", () => {
    for (const factor of [0, 0.01]) {
      const lease = new Lease(factor);
      lease.renew(1000, 100_000);
      assert.equal(lease.until, 1000 + 98_998);
      assert.equal(lease.remaining(2000), 97_998);
    }
  });

  it("is shortened by the sending, and stays over once it was", () => {
    const lease = new Lease(0.01);
    lease.renew(0, 100_000);
    lease.shorten(0, 1000);
    assert.ok(lease.isValid(987) && !lease.isValid(988));
    lease.renew(990, 100_000);
    assert.ok(!lease.isValid(990));
  });

  it("with linger is over `linger` after the connection was known to live", () => {
    const pulse = { aliveAt: 0 };
    const lease = new Lease(0.01, 1000);
    lease.renew(0, 20_000);
    lease.bind(pulse);
    assert.equal(lease.until, 988);
    pulse.aliveAt = 700;
    assert.equal(lease.until, 1688);
    assert.ok(lease.isValid(1600));
    lease.renew(1500, 20_000);
    assert.equal(lease.until, 2488, "the server had it then");
    assert.ok(!lease.isValid(2500));
    pulse.aliveAt = 2600;
    assert.ok(!lease.isValid(2600), "an answer says nothing about the time between");
  });
});

/** Timers that fire when the test says so. */
class Hands {
  time = 0;
  #timers = new Set();
  now = () => this.time;
  after = (ms, run) => {
    const timer = { at: this.time + ms, run };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  };

  async to(time) {
    for (;;) {
      const next = [...this.#timers].filter(({ at }) => at <= time).sort((a, b) => a.at - b.at)[0];
      if (!next) break;
      this.time = next.at;
      this.#timers.delete(next);
      next.run();
      await sleep(0);
    }
    this.time = time;
  }
}

describe("a keeper", () => {
  const begin = (linger, extend) => {
    const [clock, lease, story] = [new Hands(), new Lease(0.01, linger), { extended: [], lost: undefined }];
    lease.renew(0, 9000);
    const kept = {
      lease,
      async extend() {
        story.extended.push(clock.time);
        await extend?.(story.extended.length);
        lease.renew(clock.time, 9000);
      },
      lose: (error) => (story.lost = error),
    };
    return { clock, lease, story, keeper: new Keeper(kept, clock) };
  };
  const failed = (text) => Promise.reject(new ExecutionError("it failed", [], { cause: new Error(text) }));

  it("extends at a third of the span, or before the threshold", async () => {
    assert.equal(pauseBefore(9000, 9000, 500), 3000);
    assert.equal(pauseBefore(1000, 9000, 800), 200);
    assert.equal(pauseBefore(100, 9000, 500), 50);
    assert.equal(spanOf(60_000, 900), 900);
    const { clock, story, keeper } = begin();
    keeper.keep({ span: 9000, threshold: 500 });
    await clock.to(10_000);
    assert.deepEqual([story.extended, story.lost], [[3000, 6000, 9000], undefined]);
    keeper.stop();
    await clock.to(60_000);
    assert.equal(story.extended.length, 3);
  });

  it("tells of the end of a lease that nothing has extended", async () => {
    const { clock, story, keeper } = begin();
    keeper.message = "The job took longer.";
    await clock.to(8907);
    assert.equal(story.lost, undefined);
    await clock.to(8908);
    assert.equal(story.lost.message, "The job took longer.");
  });

  it("asks again while the server cannot, until the lease is over, and then tells why", async () => {
    const { clock, story, keeper } = begin(undefined, () => failed("TRYAGAIN not yet"));
    keeper.keep({ span: 9000, threshold: 500 });
    await clock.to(8900);
    assert.ok(story.extended.length > 50 && story.lost === undefined);
    await clock.to(9000);
    assert.match(story.lost.cause.message, /it failed/);
  });

  it("does not ask again after an error that is final", async () => {
    const { clock, story, keeper } = begin(undefined, () => failed("NOPERM no right"));
    keeper.keep({ span: 9000, threshold: 500 });
    await clock.to(9000);
    assert.deepEqual(story.extended, [3000]);
    assert.equal(story.lost.cause.cause.message, "NOPERM no right");
  });

  it("tells of a loss at once, and extends at once when the connection is lost", async () => {
    const gone = Object.assign(new Error("gone"), {
      cause: new ResourceLockedError("gone", "ERR_LOCK_LOST"),
    });
    const { clock, story, keeper } = begin(undefined, (n) => n === 2 && Promise.reject(gone));
    keeper.keep({ span: 9000, threshold: 500 });
    keeper.hurry();
    await sleep(0);
    assert.deepEqual(story.extended, [0]);
    await clock.to(3000);
    assert.equal(story.lost, gone);
  });
});

it("patience is the retries of node-redlock, as time", async () => {
  const [waits, settings] = [[], { retryCount: 3, retryDelay: 200, retryJitter: 0 }];
  const clock = new Hands();
  const wait = async (ms) => void (waits.push(ms), (clock.time += ms));
  const patience = new Patience(settings, clock.now, wait);
  await patience.pause(50);
  await patience.sleep(300);
  assert.deepEqual([patience.left, patience.isOver], [100, false]);
  await patience.sleep(300);
  assert.deepEqual([waits, patience.isOver], [[200, 300, 100], true]);
  assert.equal(new Patience({ ...settings, retryCount: -1 }).left, Infinity);
});

it("timers have any length, and none is early", () => {
  const [realTimeout, realNow] = [globalThis.setTimeout, performance.now];
  const slices = [];
  let [now, pending, hasRung] = [0, undefined, false];
  performance.now = () => now;
  globalThis.setTimeout = (run, ms) => {
    slices.push(ms);
    // Node's may be early.
    pending = () => ((now += Math.max(ms - 1, 0.5)), run());
  };
  try {
    after(60 * DAY_MS, () => (hasRung = true));
    while (!hasRung) pending();
  } finally {
    globalThis.setTimeout = realTimeout;
    performance.now = realNow;
  }
  assert.ok(slices.every((ms) => ms < 2 ** 31) && slices.length < 10);
  assert.ok(now >= 60 * DAY_MS && now < 60 * DAY_MS + 2, `${now}`);
});
