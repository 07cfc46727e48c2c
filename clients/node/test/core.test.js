// The parts of the core that do no I/O, by clocks that the test moves.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { Lease } from "../dist/esm/lease.js";
import { isUnknownCommand, kindOf } from "../dist/esm/replies.js";

function rowsOf(name) {
  const text = readFileSync(new URL(`../../vectors/${name}`, import.meta.url), "utf8");
  return text.split("\n").filter((line) => line && !line.startsWith("#"));
}

describe("replies", () => {
  it("have the table that all adapters share", () => {
    for (const [word, kind] of rowsOf("errors.txt").map((row) => row.split(/\s+/)))
      assert.equal(kindOf(new Error(`${word} text`)), kind, word);
    assert.equal(kindOf(new Error("WHATEVER it is")), "final");
    for (const text of ["read ECONNRESET", "Connection is closed.", "Socket closed unexpectedly"])
      assert.equal(kindOf(new Error(text)), "silent", text);
    assert.equal(kindOf(new TypeError("wrong")), "final");
  });

  it("know an unknown command in every wording", () => {
    for (const line of rowsOf("unknown.txt")) {
      const [says, text] = [line.slice(0, 5), line.slice(6)];
      assert.equal(isUnknownCommand(new Error(text), "LOCK.ACQUIRE"), says === "lacks", text);
    }
    // That is the network.
    assert.ok(!isUnknownCommand(new Error("getaddrinfo ENOTFOUND host not found"), "LOCK.ACQUIRE"));
  });
});

describe("a lease", () => {
  it("counts from the sending, less the drift, is shortened by the sending, and stays over once it was", () => {
    // A factor below what a guard counts on is none.
    for (const factor of [0, 0.01]) {
      const lease = new Lease({ duration: 100_000, driftFactor: factor }, 1000);
      assert.deepEqual([lease.until, lease.remaining(2000)], [99_998, 97_998]);
      lease.shorten(1000, 1000);
      assert.ok(lease.isValid(1987) && !lease.isValid(1988));
      lease.renew(1990, 100_000);
      assert.ok(!lease.isValid(1990));
    }
  });

  it("with linger is over `linger` after the connection was known to live", () => {
    const lease = new Lease({ duration: 20_000, driftFactor: 0.01, linger: 1000 }, 0, { aliveAt: 0 });
    assert.equal(lease.until, 988);
    lease.pulse.aliveAt = 700;
    assert.ok(lease.isValid(1600) && lease.until === 1688);
    lease.renew(1500, 20_000);
    assert.equal(lease.until, 2488, "the server had it then");
    assert.ok(!lease.isValid(2500));
    lease.pulse.aliveAt = 2600;
    assert.ok(!lease.isValid(2600), "an answer says nothing about the time between");
  });
});
