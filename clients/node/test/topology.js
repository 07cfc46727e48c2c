// Real Sentinels and real Clusters for the tests.
import assert from "node:assert/strict";
import { Redlock } from "redis-lock-client";
import { Launched, until } from "./harness.js";
import { slotOf } from "../dist/esm/slot.js";

/** A primary with a replica, and three Sentinels that watch them. */
export class Sentinels {
  static async start() {
    const all = new Sentinels();
    all.launched = await Launched.start("sentinel", "--sentinels", 3);
    all.servers = all.launched.servers.slice(0, 2);
    all.sentinels = all.launched.servers.slice(2);
    all.ports = all.sentinels.map(({ port }) => port);
    return all;
  }

  /** The primary, as its clients are told. */
  async primary() {
    const [, port] = await this.sentinels[0].admin.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks");
    return this.servers.find((server) => server.port === Number(port));
  }

  /** The primary dies, and the Sentinels make the replica the primary. */
  async failOver() {
    const old = await this.primary();
    old.crash();
    await until(async () => (await this.primary()) !== old, "the replica has taken over");
    return this.primary();
  }

  stop = () => this.launched.stop();
}

/** Three primaries with a part of the slots each, and a replica of the first one. */
export class TestCluster {
  static async start() {
    const cluster = new TestCluster();
    cluster.launched = await Launched.start("cluster");
    cluster.nodes = cluster.launched.servers;
    cluster.ports = cluster.nodes.map(({ port }) => port);
    await cluster.isWhole();
    return cluster;
  }

  /** All nodes agree on all slots, and the replica of the first part follows. */
  async isWhole() {
    await until(async () => {
      const views = await Promise.all(this.nodes.map(({ admin }) => admin.cluster("SLOTS")));
      const texts = views.map((view) => {
        const parts = view.map(([from, to, ...nodes]) => [from, to, ...nodes.map(([, port]) => port)]);
        return parts.map(String).sort().join(" ");
      });
      const infos = await Promise.all(this.nodes.map(({ admin }) => admin.cluster("INFO")));
      const links = await Promise.all(this.nodes.map(({ admin }) => admin.info("replication")));
      return (
        new Set(texts).size === 1 &&
        infos.every((info) => info.includes("cluster_state:ok")) &&
        links.some((info) => info.includes("master_link_status:up")) &&
        links.some((info) => info.includes("connected_slaves:1"))
      );
    }, "the cluster is whole");
  }

  /** The node that serves a key. */
  async ownerOf(key) {
    const slot = slotOf(key);
    for (const node of this.nodes) {
      const slots = await node.admin.cluster("SLOTS").catch(() => []);
      const range = slots.find(([from, to]) => from <= slot && slot <= to);
      if (range) return this.nodes.find(({ port }) => port === range[2][1]);
    }
    throw new Error("no node serves it");
  }

  /** A key of the part that has a replica. */
  async key(name) {
    const infos = await Promise.all(this.nodes.map(({ admin }) => admin.info("replication")));
    const owner = this.nodes[infos.findIndex((info) => info.includes("connected_slaves:1"))];
    for (let i = 0; ; i++) if ((await this.ownerOf(`${name} ${i}`)) === owner) return `${name} ${i}`;
  }

  /** The primary with a replica dies, and the others make the replica a primary. */
  failOver() {
    return this.#change((replica, old) => old.crash());
  }

  /** The replica takes over, in agreement with its primary, which becomes its replica. */
  switchOver() {
    return this.#change(async ({ admin }, _, isPrimary) => {
      // The nodes vote for a shard once in a while only, and a failover without votes ends after five seconds.
      for (let tries = 0; tries < 3 && !(await isPrimary()); tries++) {
        await admin.cluster("FAILOVER");
        await until(isPrimary, "the replica has taken over", 6_000).catch(() => {});
      }
    });
  }

  async #change(begin) {
    const roles = await Promise.all(this.nodes.map(({ admin }) => admin.role()));
    const replica = this.nodes[roles.findIndex(([role]) => role === "slave")];
    const old = this.nodes[roles.findIndex(([role, , replicas]) => role === "master" && replicas.length > 0)];
    const isPrimary = async () => (await replica.admin.role())[0] === "master";
    await begin(replica, old, isPrimary);
    await until(isPrimary, "the replica has taken over");
    return replica;
  }

  /** Moves the slot of a key to another primary, with what is in it at the end. */
  async beginToMove(key) {
    const slot = slotOf(key);
    const from = await this.ownerOf(key);
    const roles = await Promise.all(this.nodes.map(({ admin }) => admin.role()));
    const to = this.nodes.find((node, i) => node !== from && roles[i][0] === "master");
    const [fromId, toId] = [await from.admin.cluster("MYID"), await to.admin.cluster("MYID")];
    await to.admin.cluster("SETSLOT", slot, "IMPORTING", fromId);
    await from.admin.cluster("SETSLOT", slot, "MIGRATING", toId);
    const finish = async () => {
      const keys = await from.admin.cluster("GETKEYSINSLOT", slot, 100);
      if (keys.length > 0)
        await from.admin.call("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", ...keys);
      for (const { admin } of [to, from]) await admin.cluster("SETSLOT", slot, "NODE", toId);
    };
    return { from, to, finish };
  }

  stop = () => this.launched.stop();
}

/** Holds a lock and waits for it in each way, until the primary dies. The replica has all of it. */
export async function begin(ways, connect, keyOf, primary) {
  const stories = ways.map(async ({ title, library, waitBy }) => {
    const key = keyOf(title);
    const [holding, waiter] = [await connect(library), await connect(library)].map(
      (client) => new Redlock([client], { retryCount: -1, waitBy }),
    );
    // Long enough for a failover.
    const holder = (await holding.acquire([key], 30_000)).keep();
    const waiting = waiter.acquire([key], 30_000);
    await until(async () => (await primary.listening(key)).length === 1, `${title} waits`);
    const [token] = await primary.waiters(key);
    return { title, key, holder, waiter, waiting, token };
  });
  const begun = await Promise.all(stories);
  assert.equal(await primary.admin.call("WAIT", 1, 5000), 1);
  return begun;
}

/** At the new primary the holds go on, and then the waits end with their tokens. */
export async function end(stories, now) {
  for (const { title, key, holder, token } of stories) {
    assert.deepEqual(await now.holders(key), [holder.value], title);
    await until(async () => (await now.waiters(key)).includes(token), `${title} waits again`, 30_000);
    const { expiration, signal } = holder;
    // The next extension comes after ten seconds.
    const isExtended = () => holder.expiration > expiration + 1000;
    await until(() => signal.aborted || isExtended(), `${title} is extended`, 30_000);
    assert.equal(signal.error, undefined, title);
  }
  for (const { title, key, holder, waiter, waiting, token } of stories) {
    await holder.release();
    const lock = await waiting;
    assert.deepEqual([lock.value, await now.holders(key)], [token, [token]], title);
    assert.ok(lock.fence > holder.fence, `${title}: fences grow over the failover`);
    const next = waiter.acquire([key], 30_000);
    await until(async () => (await now.listening(key)).length === 1, `${title}: the next one waits there`);
    await lock.release();
    await (await next).release();
  }
}
