// Real servers for the tests, and a way to cut connections.
import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Redis } from "ioredis";
import * as redis from "redis";
import * as valkey from "iovalkey";

export { Redis };
const root = fileURLToPath(new URL("../../../", import.meta.url));
const launcher = join(root, "clients/testing/servers.py");
const version = process.env.REDIS_LOCK_SERVER ?? "redis-7.0.15";

const ADMIN = { retryStrategy: () => 50, maxRetriesPerRequest: null };

/** What clients/testing/servers.py starts. It ends with this process, if not before. */
export class Launched {
  static async start(kind, ...words) {
    const launched = new Launched();
    const stdio = ["pipe", "pipe", "inherit"];
    launched.process = spawn("python3", [launcher, kind, ...words.map(String)], { stdio });
    launched.lines = createInterface({ input: launched.process.stdout });
    const started = await launched.#line();
    launched.servers = started.split(" ").map((one) => new Server(launched, one));
    await Promise.all(launched.servers.map(({ admin }) => admin.ping()));
    return launched;
  }

  async #line() {
    const ended = once(this.process, "exit").then(() => Promise.reject(new Error("no server started")));
    const [line] = await Promise.race([once(this.lines, "line"), ended]);
    return line;
  }

  async stop() {
    for (const { admin } of this.servers) admin.disconnect();
    this.process.stdin.end();
    if (this.process.exitCode === null) await once(this.process, "exit");
  }
}

/** A server with the module (or without), and an ioredis client to look at it. */
export class Server {
  static async start({ withModule = true, settings = [], moduleSettings = [] } = {}) {
    const without = withModule ? [] : ["--without-module"];
    const launched = await Launched.start("server", ...without, ...moduleSettings, ...settings);
    return launched.servers[0];
  }

  constructor(launched, text) {
    this.launched = launched;
    [this.port, this.pid] = text.split("/").map(Number);
    this.admin = new Redis(this.port, ADMIN);
    this.admin.on("error", () => {});
  }

  /** As a machine that fails. */
  crash = () => process.kill(this.pid, "SIGKILL");
  stop = () => this.launched.stop();

  /** The clients that the server knows, but `admin`, replicas, primaries, Sentinels, and nodes that have moved a slot here. */
  async clients() {
    const [list, own] = [await this.admin.client("LIST"), await this.admin.client("ID")];
    const lines = list.trim().split("\n");
    const clients = lines.map((line) => fieldsOf(line.split(" ").flatMap((field) => field.split("=", 2))));
    return clients.filter(
      ({ id, flags, name, cmd }) =>
        Number(id) !== own && !/[SM]/.test(flags) && !/^sentinel-/.test(name) && cmd !== "restore-asking",
    );
  }

  /** The tokens that wait for a lock, in order; those of them that wait on a connection or for a message; and those that hold it. */
  waiters = async (key) => (await this.places(key)).map(({ token }) => token);
  listening = async (key) => {
    return (await this.places(key)).flatMap(({ client, channel, token }) =>
      client || channel ? [token] : [],
    );
  };
  holders = async (key) => (await this.#listed(key, "holders")).map(({ token }) => token);
  /** The places in the queue of a lock, in order: `token`, `waited`, and `client` or `channel` or neither. */
  places = (key) => this.#listed(key, "waiters");

  async #listed(key, what) {
    const info = await this.admin.call("LOCK.INFO", key);
    return info ? fieldsOf(info)[what].map(fieldsOf) : [];
  }

  /** How often a command was called, all clients together. */
  async calls(command) {
    const stats = await this.admin.info("commandstats");
    return Number(stats.match(new RegExp(`cmdstat_${command}:calls=(\\d+)`, "i"))?.[1] ?? 0);
  }
}

/** Names and values in turns, as a reply in RESP2 has them. */
export function fieldsOf(reply) {
  return Object.fromEntries(reply.flatMap((name, i) => (i % 2 ? [] : [[name, reply[i + 1]]])));
}

/** Waits for a condition, with a bound. */
export async function until(condition, what = condition.toString(), ms = 10_000) {
  for (const end = Date.now() + ms; !(await condition()); await sleep(10)) {
    if (Date.now() > end) throw new Error(`waited too long for: ${what}`);
  }
}

const nodesOf = (ports) => ports.map((port) => ({ host: "127.0.0.1", port }));

const likeIoredis = (Redis) => ({
  connect: (port, options = {}) => begin(new Redis({ port, lazyConnect: true, ...options })),
  async connectSentinel(ports) {
    return this.connect(undefined, { sentinels: nodesOf(ports), name: "locks", retryStrategy: () => 50 });
  },
  connectCluster: (ports, options = {}) =>
    begin(new Redis.Cluster(nodesOf(ports), { lazyConnect: true, ...options })),
  end: (client) => client.disconnect(),
  isLikeIoredis: true,
});

/** Since version 6 a Sentinel client can be duplicated. */
const hasSentinel =
  "duplicate" in redis.createSentinel({ name: "locks", sentinelRootNodes: [{ host: "", port: 1 }] });

/** All libraries that the package works with: how to make a client, and how to end it. */
const all = {
  ioredis: likeIoredis(Redis),
  "node-redis": {
    connect: (port, options = {}) => begin(redis.createClient({ socket: nodesOf([port])[0], ...options })),
    connectSentinel:
      hasSentinel &&
      ((ports) => begin(redis.createSentinel({ name: "locks", sentinelRootNodes: nodesOf(ports) }))),
    connectCluster: (ports, options = {}) =>
      begin(redis.createCluster({ rootNodes: nodesOf(ports).map((socket) => ({ socket })), ...options })),
    end: (client) => client.isOpen && client.destroy(),
    isLikeIoredis: false,
  },
  iovalkey: likeIoredis(valkey.Redis ?? valkey.default.Redis),
};

async function begin(client) {
  client.on("error", () => {});
  await client.connect();
  return client;
}

/** Those that are asked for. iovalkey is ioredis of some time ago: `make matrix` runs all tests with it. */
const chosen = process.env.REDIS_LOCK_LIBRARIES?.split(",") ?? ["ioredis", "node-redis"];
export const libraries = Object.fromEntries(chosen.map((name) => [name, all[name]]));
export const allLibraries = process.env.REDIS_LOCK_LIBRARIES ? libraries : all;
export const [library] = Object.values(libraries);
/** One with the options of ioredis, for tests that need them. */
export const ioredis = Object.values(libraries).find(({ isLikeIoredis }) => isLikeIoredis) ?? all.ioredis;

/** The clients of a test, which it ends together. */
export class Clients {
  #ends = [];

  constructor(library) {
    this.library = library;
  }

  connect = (...given) => this.add(this.library, "connect", ...given);

  /** By any library, and in any way. */
  async add(library, how, ...given) {
    const client = await library[how](...given);
    this.#ends.push(() => library.end(client));
    return client;
  }

  /** A proxy of the test. */
  async proxy(port) {
    const proxy = await Proxy.start(port);
    this.#ends.push(proxy.cutForGood);
    return proxy;
  }

  end = () =>
    Promise.all(
      this.#ends
        .splice(0)
        .reverse()
        .map((end) => end()),
    );
}

/** Each library in each way of waiting. */
export const waysOf = (libraries) =>
  Object.entries(libraries).flatMap(([name, library]) =>
    ["block", "notify"].map((waitBy) => ({ title: `${name}, ${waitBy}`, library, waitBy })),
  );
export const ways = waysOf(libraries);

/** Stands between a client and a server, and fails on demand. */
export class Proxy {
  #pairs = new Set();
  /** The next reply is lost, and its connection. */
  losesNextReply = false;
  /** The first connection to send such a thing gets no answer to it, nor to anything after it. */
  silentAfter;

  static async start(port) {
    const proxy = new Proxy();
    proxy.server = net.createServer((client) => {
      const server = net.connect(port, "127.0.0.1");
      const pair = [client, server];
      proxy.#pairs.add(pair);
      for (const socket of pair) {
        socket.on("error", () => {});
        socket.on("close", () => (pair.forEach((other) => other.destroy()), proxy.#pairs.delete(pair)));
      }
      client.on("data", (data) => {
        if (!proxy.silentAfter?.test(data)) return server.write(data);
        proxy.silentAfter = undefined;
        client.removeAllListeners("data").resume();
      });
      server.on("data", (data) => {
        if (!proxy.losesNextReply) return client.write(data);
        proxy.losesNextReply = false;
        client.destroy();
      });
    });
    await proxy.listen();
    proxy.port = proxy.server.address().port;
    return proxy;
  }

  async listen() {
    this.server.listen(this.port ?? 0, "127.0.0.1");
    await once(this.server, "listening");
  }

  #all = () => [...this.#pairs].flat();
  #newest = () => [...this.#pairs].at(-1);
  /** Keeps the connections, and lets nothing through. */
  hold = () => this.#all().forEach((socket) => socket.pause());
  holdNewest = () => this.#newest().forEach((socket) => socket.pause());
  /** Lets through what was held. */
  go = () => this.#all().forEach((socket) => socket.resume());
  /** Cuts all connections. New ones are made as ever. */
  cut = () => this.#all().forEach((socket) => socket.destroy());
  /** And refuses new ones until `listen()`. */
  cutForGood = () => (this.server.close(), this.cut());
}

/** Gathers the warnings of the process by their codes. Returns what stops it. */
export function gatherWarnings(codes) {
  const note = ({ code, name }) => codes.push(code ?? name);
  process.on("warning", note);
  return () => process.removeListener("warning", note);
}
