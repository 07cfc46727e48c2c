import { randomBytes } from "node:crypto";
import { performance } from "node:perf_hooks";
import type { Command, Connection, Node } from "../connection.js";
import { slotOf } from "../slot.js";
import { within } from "../timer.js";
import { EndWatch } from "./end-watch.js";
import {
  type NodeRedisClient,
  onEnded,
  openDedicated,
  openSubscriber,
  quitOf,
  textsOf,
} from "./node-redis.js";

/** What of a node-redis Cluster client (`createCluster()`) is used. */
export interface NodeRedisCluster {
  readonly isOpen: boolean;
  readonly slots: readonly ({ readonly master: Master } | undefined)[];
  readonly masters: readonly Master[];
  nodeClient(node: never): unknown;
  sendCommand(firstKey: string, isReadonly: boolean, command: (string | Buffer)[]): Promise<unknown>;
  close?(): unknown;
  quit(): Promise<unknown>;
}

interface Master {
  readonly address: string;
  /** In version 4 a promise, until it is connected. */
  readonly client?: unknown;
}

/** Since version 5. */
interface Discovering {
  readonly _slots?: { rediscover?(startWith: NodeRedisClient): Promise<unknown> };
  readonly _keyPrefix?: string | Buffer | undefined;
}

/** How long the first connection to a node may take. */
const CONNECT_MS = 1000;

/** Between two looks for another master. */
const LOOK_AGAIN_MS = 500;

export class OfNodeRedisCluster implements Connection {
  readonly isCluster = true;
  readonly knowsDatabase = true;
  /** It rejects what is not answered when the connection is lost. */
  readonly resends = 0;

  readonly #end: EndWatch;
  readonly #onReconnect: ((node: string) => void)[] = [];
  readonly #watched = new WeakSet<object>();
  #looking: Promise<unknown> | undefined;
  #lookedAt = -Infinity;

  constructor(private readonly client: NodeRedisCluster) {
    this.#end = new EndWatch(client);
  }

  get isOpen() {
    return this.client.isOpen;
  }

  get hasEnded() {
    return this.#end.hasEnded;
  }

  async send(command: Command, key: string) {
    // It would keep the command until a master that has died is back.
    await this.#connected(key);
    const reply = await this.client.sendCommand(key, false, textsOf(command));
    // A redirection may have led to any of them, and is told to nobody.
    for (const master of this.client.masters) {
      const client = connectedOf(master.client);
      if (client) this.#watch(client, master.address);
    }
    return reply;
  }

  async node(key: string): Promise<Node> {
    const { master, client } = await this.#connected(key);
    return {
      id: master.address,
      send: (command) => client.sendCommand(textsOf(command)),
      open: () => {
        this.#end.watch();
        return openDedicated(client);
      },
      subscriber: async (onMessage, onLost) => {
        this.#end.watch();
        // Version 4 throws, where nobody can catch it, when the server ends a subscription because the slot has moved.
        if (!client.destroy)
          throw new Error(
            "ERR NOTIFY in a cluster needs shard channels, which this version of the client cannot lose",
          );
        return openSubscriber(client, onMessage, onLost, true);
      },
    };
  }

  /** The master of the key, if it can be reached; else a look for another one, and an error. */
  async #connected(key: string): Promise<{ master: Master; client: NodeRedisClient }> {
    if (!this.client.isOpen) throw new Error("The client is closed");
    const master = this.client.slots[slotOf(key)]?.master;
    const client = master && connectedOf(await this.#connect(master));
    if (!master || !client) {
      await this.#look(key);
      // Not TRYAGAIN, by which a server says that it is there and cannot say yet.
      throw new Error("UNREACHABLE the node of the key cannot be reached");
    }
    this.#watch(client, master.address);
    return { master, client };
  }

  async #connect(master: Master): Promise<unknown> {
    try {
      const client = Promise.resolve(this.client.nodeClient(master as never));
      return await within(CONNECT_MS, client, "not connected");
    } catch {
      return undefined;
    }
  }

  /** Once per client of a node: its locks may linger. */
  #watch(client: NodeRedisClient, address: string): void {
    if (this.#watched.has(client)) return;
    this.#watched.add(client);
    const tell = () => this.#onReconnect.forEach((listener) => listener(address));
    client.on("reconnecting", tell);
    onEnded(client, tell);
  }

  /** node-redis asks for the masters again only when a node redirects a command, which one that has died does not. */
  async #look(key: string): Promise<void> {
    if (performance.now() - this.#lookedAt < LOOK_AGAIN_MS) return;
    this.#looking ??= this.#discover(key)
      .catch(() => {})
      .finally(() => {
        this.#looking = undefined;
        this.#lookedAt = performance.now();
      });
    await this.#looking;
  }

  async #discover(key: string): Promise<void> {
    const { slots, masters } = this.client;
    const other = masters.find((master) => connectedOf(master.client));
    if (!other) return;
    const { _slots } = this.client as Discovering;
    if (_slots?.rediscover) return void (await _slots.rediscover(connectedOf(other.client)!));
    // Version 4 has no way to say so. A command for the key at another node is redirected; this one changes nothing.
    const tag = tagOf((slot) => slots[slot]?.master === other);
    if (tag === undefined) return;
    await this.client.sendCommand(tag, false, ["LOCK.RENEW", key, randomBytes(16).toString("hex"), "1"]);
  }

  async quit() {
    await quitOf(this.client);
    this.#end.check();
  }

  onEnd(listener: () => void) {
    this.#end.onEnd(listener);
  }

  onReconnect(listener: (node: string) => void) {
    this.#onReconnect.push(listener);
  }

  key(resource: string) {
    return `${(this.client as Discovering)._keyPrefix ?? ""}${resource}`;
  }
}

/** A client that can be sent something now. */
function connectedOf(client: unknown): NodeRedisClient | undefined {
  const one = client as NodeRedisClient | undefined;
  return one?.isReady ? one : undefined;
}

function tagOf(isWanted: (slot: number) => boolean): string | undefined {
  for (let i = 0; i < 10_000; i++) if (isWanted(slotOf(String(i)))) return String(i);
  return undefined;
}
