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
    return all;
  }

  get ports() {
    return this.sentinels.map(({ port }) => port);
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
    return old;
  }

  /** Until there is a replica again, which a failover needs. */
  async isWhole() {
    const primary = await this.primary();
    const other = this.servers.find((server) => server !== primary);
    // The Sentinels would tell it so, after 10 seconds.
    await other.admin.replicaof("127.0.0.1", primary.port);
    await until(async () => {
      const info = await other.admin.info("replication");
      return info.includes(`master_port:${primary.port}`) && info.includes("master_link_status:up");
    }, "the former primary is a replica");
    await until(async () => {
      const replicas = await this.sentinels[0].admin.call("SENTINEL", "REPLICAS", "locks");
      return replicas
        .map(fieldsOf)
        .some(({ flags, port }) => flags === "slave" && Number(port) === other.port);
    }, "the Sentinels know it");
  }

  async stop() {
    await this.launched.stop();
  }
}

/** Three primaries with a part of the slots each, and a replica of the first one. */
export class TestCluster {
  static async start() {
    const cluster = new TestCluster();
    cluster.launched = await Launched.start("cluster");
    cluster.nodes = cluster.launched.servers;
    await cluster.isWhole();
    return cluster;
  }

  get ports() {
    return this.nodes.map(({ port }) => port);
  }

  /** All nodes agree on all slots, and the replica of the first part follows. */
  async isWhole() {
    await until(async () => {
      const views = await Promise.all(this.nodes.map(({ admin }) => admin.cluster("SLOTS")));
      const texts = views.map((view) =>
        view
          .map(
            ([from, to, [, port], ...replicas]) => `${from}-${to} ${port} ${replicas.map((one) => one[1])}`,
          )
          .sort()
          .join(),
      );
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

  /** A key of the part that has a replica, or of another one. */
  async key(name, hasReplica = true) {
    const withReplica = (
      await Promise.all(this.nodes.map(({ admin }) => admin.info("replication")))
    ).findIndex((info) => info.includes("connected_slaves:1"));
    for (let i = 0; ; i++) {
      const key = `${name} ${i}`;
      const index = this.nodes.indexOf(await this.ownerOf(key));
      if ((index === withReplica) === hasReplica) return key;
    }
  }

  /** The primary with a replica dies, and the others make the replica a primary. */
  async failOver() {
    const roles = await Promise.all(this.nodes.map(({ admin }) => admin.role()));
    const replica = this.nodes[roles.findIndex(([role]) => role === "slave")];
    const old = this.nodes[roles.findIndex(([role, , replicas]) => role === "master" && replicas.length > 0)];
    old.crash();
    await until(async () => (await replica.admin.role())[0] === "master", "the replica has taken over");
    return { old, now: replica };
  }

  /** The replica takes over, in agreement with its primary, which becomes its replica. */
  async switchOver() {
    for (const { admin } of this.nodes) {
      const role = await admin.role();
      if (role[0] !== "slave") continue;
      const isPrimary = async () => (await admin.role())[0] === "master";
      // The nodes vote for a shard once in a while only, and a failover without votes ends after five seconds.
      for (let tries = 0; tries < 3 && !(await isPrimary()); tries++) {
        await admin.cluster("FAILOVER");
        await until(isPrimary, "the replica has taken over", 6_000).catch(() => {});
      }
      return until(isPrimary, "the replica has taken over");
    }
    throw new Error("there is no replica");
  }

  /** Moves the slot of a key, with what is in it, to another primary. */
  async moveSlot(key) {
    const { to, finish } = await this.beginToMove(key);
    await finish();
    return to;
  }

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

  async stop() {
    await this.launched.stop();
  }
}

/** Of a reply in RESP2: names and values in turns. */
function fieldsOf(reply) {
  return Object.fromEntries(reply.flatMap((name, i) => (i % 2 ? [] : [[name, reply[i + 1]]])));
}

/** Holds a lock and waits for it in each way, until the primary dies. The replica has all of it. */
export async function begin(ways, connect, keyOf, primary) {
  const stories = ways.map(async ({ title, library, waitBy }) => {
    const story = { title, key: keyOf(title), isAborted: false };
    const holder = new Redlock([await connect(library)], { waitBy });
    const waiter = new Redlock([await connect(library)], { retryCount: -1, waitBy });
    const done = new Promise((resolve) => (story.finish = resolve));
    await new Promise((resolve, reject) => {
      const routine = async (signal, lock) => {
        story.holder = lock;
        resolve();
        await done;
        story.isAborted = signal.aborted;
      };
      // Long enough for a failover, and extended many times meanwhile.
      const settings = { automaticExtensionThreshold: 19_500 };
      story.holding = holder.using([story.key], 20_000, settings, routine);
      story.holding.catch(reject);
    });
    story.waiting = waiter.acquire([story.key], 30_000);
    story.waiting.then(() => (story.isGranted = true));
    await until(async () => (await primary.listening(story.key)).length === 1, `${title} waits`);
    [story.token] = await primary.waiters(story.key);
    return story;
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
    const since = holder.remaining;
    await until(() => holder.remaining > since, `${title} is extended`, 30_000);
  }
  for (const { title, key, token, finish, holding, waiting, isGranted, ...story } of stories) {
    assert.ok(!isGranted, title);
    finish();
    await holding;
    assert.equal(story.isAborted, false, title);
    const lock = await waiting;
    assert.equal(lock.value, token, `${title} has kept its token`);
    assert.deepEqual(await now.holders(key), [token], title);
    assert.ok(lock.fence > story.holder.fence, `${title}: fences grow over the failover`);
    await lock.release();
  }
}
