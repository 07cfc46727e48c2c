import { randomUUID } from "node:crypto";
import {
  connect,
  Driver,
  hostOf,
  isOfBytes,
  type Command,
  type Link,
  type Listening,
  type Node,
} from "../driver.js";
import { slotOf } from "../slot.js";
import { within } from "../timer.js";

/** What of a node-redis client (`createClient()`) is used. */
export interface NodeRedisClient {
  readonly isReady: boolean;
  readonly isOpen: boolean;
  readonly options?: NodeRedisOptions | undefined;
  sendCommand(command: (string | Buffer)[], options?: object): Promise<unknown>;
  duplicate(override?: object): NodeRedisClient;
  connect(): Promise<unknown>;
  destroy(): void;
  close(): unknown;
  subscribe(channel: string, listener: (message: Buffer) => unknown, bufferMode: true): Promise<unknown>;
  sSubscribe(channel: string, listener: (message: Buffer) => unknown, bufferMode: true): Promise<unknown>;
  on(event: "error" | "end" | "sharded-channel-moved", listener: () => void): unknown;
}

/** What of its options is used. */
export interface NodeRedisOptions {
  readonly socket?: object;
  readonly database?: number;
  readonly keyPrefix?: string | Buffer;
}

/** What of a node-redis Cluster client (`createCluster()`) is used. */
export interface NodeRedisCluster {
  readonly isOpen: boolean;
  readonly slots: readonly ({ readonly master: Master } | undefined)[];
  readonly masters: readonly Master[];
  nodeClient(node: never): unknown;
  sendCommand(firstKey: string, isReadonly: boolean, command: (string | Buffer)[]): Promise<unknown>;
  close(): unknown;
}

/** A primary of a cluster. */
export interface Master {
  readonly address: string;
  readonly client?: unknown;
}

/** What of a node-redis Sentinel client (`createSentinel()`) is used. */
export interface NodeRedisSentinel {
  readonly isReady: boolean;
  readonly isOpen: boolean;
  getSentinelNode(): unknown;
  sendCommand(isReadonly: boolean, command: (string | Buffer)[], options?: object): Promise<unknown>;
  duplicate(override?: object): NodeRedisSentinel;
  connect(): Promise<unknown>;
  destroy(): unknown;
  close(): Promise<unknown>;
  subscribe(channel: string, listener: (message: Buffer) => unknown, bufferMode: true): Promise<unknown>;
  on(event: "error" | "end", listener: () => void): unknown;
  on(event: "client-error" | "topology-change", listener: (event: { type: string }) => void): unknown;
}

/** How long the first connection of the user's client to a node, or an answer on it, may take. */
const CONNECT_MS = 1000;

/** node-redis tells by no event that the program has ended a Cluster or Sentinel client. */
abstract class OfNodeRedisKind<C extends { readonly isOpen: boolean; close(): unknown }> extends Driver {
  #wasOpen = false;

  constructor(protected readonly client: C) {
    super();
  }

  get hasEnded() {
    this.#wasOpen ||= this.client.isOpen;
    return this.#wasOpen && !this.client.isOpen;
  }

  /** Only a single client has public options. */
  get prefix() {
    const { options, _keyPrefix } = this.client as {
      options?: NodeRedisOptions;
      _keyPrefix?: string | Buffer;
    };
    return String(options?.keyPrefix ?? _keyPrefix ?? "");
  }

  async end() {
    await this.client.close();
  }
}

export class OfNodeRedis extends OfNodeRedisKind<NodeRedisClient> {
  #database: Promise<number> | undefined;

  async node(): Promise<Node> {
    const database = await (this.#database ??= this.#selected());
    return nodeOf(this.client, String(database), {}, { database }, false);
  }

  /** The library tells nobody what `select` has chosen. So the server is asked, once, if the client is connected and has the right. */
  async #selected(): Promise<number> {
    const asking = this.client.isReady ? this.client.sendCommand(["CLIENT", "INFO"]) : Promise.resolve("");
    const info = await within(CONNECT_MS, asking, "no answer").catch(() => "");
    return Number(/ db=(\d+)/.exec(String(info))?.[1] ?? this.client.options?.database ?? 0);
  }
}

export class OfNodeRedisCluster extends OfNodeRedisKind<NodeRedisCluster> {
  override readonly isCluster = true;

  async node(key: string): Promise<Node> {
    const master = this.client.slots[slotOf(key)]?.master;
    if (!master) throw new Error("the node of the key is not known");
    if (!clientOf(master)) {
      const connecting = Promise.resolve(this.client.nodeClient(master as never));
      await within(CONNECT_MS, connecting, "the node cannot be reached");
    }
    return this.at(master.address);
  }

  override at(address: string): Node {
    const known = clientOf(this.client.masters.find((master) => master.address === address));
    const template = known ?? this.client.masters.map(clientOf).find(Boolean);
    if (!template) throw new Error("no node of the cluster is known");
    return nodeOf(template, address, known ? {} : hostOf(address), {}, true);
  }

  /**
   * The library asks for the masters when a node redirects a command. This one changes nothing. It goes to the node that had the slot, or,
   * if that one is away, to any other.
   */
  protected override async discover(key: string) {
    const { slots, masters } = this.client;
    const ask = (at: string) => this.client.sendCommand(at, false, ["LOCK.RENEW", key, randomUUID(), "1"]);
    const last = slots[slotOf(key)]?.master;
    if (clientOf(last)?.isReady) return ask(key);
    const other = masters.find((master) => master !== last && clientOf(master)?.isReady);
    for (let i = 0; other && i < 10_000; i++)
      if (slots[slotOf(String(i))]?.master === other) return ask(String(i));
    return undefined;
  }
}

export class OfNodeRedisSentinel extends OfNodeRedisKind<NodeRedisSentinel> {
  async node(): Promise<Node> {
    return {
      id: "",
      open: async (onLost) => sentinelLink(await this.#open(onLost)),
      listen: async (onMessage, onLost) => {
        const own = await this.#open(onLost);
        return Object.assign(sentinelLink(own), {
          subscribe: (channel: string) => own.subscribe(channel, onMessage, true),
        });
      },
    };
  }

  /** A client of its own, with one connection to the master. The library would go on with the next master: to us that is another link. */
  async #open(onLost: () => void): Promise<NodeRedisSentinel> {
    const own = this.client.duplicate({ masterPoolSize: 1, replicaPoolSize: 0, reserveClient: true });
    own.on("error", () => {});
    own.on("end", onLost);
    const lose = (type: string) => {
      if (type !== "MASTER" && type !== "MASTER_CHANGE") return;
      endSentinel(own);
      onLost();
    };
    const opened = await connect(own, endSentinel);
    for (const event of ["client-error", "topology-change"] as const) own.on(event, ({ type }) => lose(type));
    return opened;
  }
}

function endSentinel(own: NodeRedisSentinel): void {
  void Promise.resolve()
    .then(() => own.destroy())
    .catch(() => {});
}

function sentinelLink(own: NodeRedisSentinel): Link {
  let isClosed = false;
  return {
    isOpen: () => !isClosed && own.isReady,
    send: (command) => own.sendCommand(false, textsOf(command), optionsOf(command)),
    close: () => {
      isClosed = true;
      endSentinel(own);
    },
  };
}

/** The client of a node, whether or not it is connected. */
function clientOf(master: Master | undefined): NodeRedisClient | undefined {
  const client = master?.client as NodeRedisClient | undefined;
  return client && "duplicate" in client ? client : undefined;
}

/** node-redis takes no numbers. */
function textsOf(command: Command): (string | Buffer)[] {
  return command.map((arg) => (typeof arg === "number" ? String(arg) : arg));
}

/** 36 is the type of bulk strings in the protocol, a `$`. */
function optionsOf(command: Command): object {
  return isOfBytes(command) ? { typeMapping: { 36: Buffer } } : {};
}

function nodeOf(
  template: NodeRedisClient,
  id: string,
  socket: object,
  override: object,
  isSharded: boolean,
): Node {
  const open = async (onLost: () => void) => {
    const own = template.duplicate({
      // A ping would stand behind the BLOCK.
      pingInterval: undefined,
      socket: { ...template.options?.socket, ...socket, reconnectStrategy: false, socketTimeout: undefined },
      ...override,
    });
    const lose = () => own.isOpen || onLost();
    // A connection that is not made again ends by an error only.
    own.on("error", lose);
    own.on("end", lose);
    return connect(own, () => own.isOpen && own.destroy());
  };
  const link = (own: NodeRedisClient): Link => ({
    isOpen: () => own.isReady,
    send: (command) => own.sendCommand(textsOf(command), optionsOf(command)),
    close: () => own.isOpen && own.destroy(),
  });
  return {
    id,
    open: async (onLost) => link(await open(onLost)),
    async listen(onMessage, onLost): Promise<Listening> {
      const own = await open(onLost);
      own.on("sharded-channel-moved", onLost);
      const subscribe = (channel: string) =>
        isSharded ? own.sSubscribe(channel, onMessage, true) : own.subscribe(channel, onMessage, true);
      return Object.assign(link(own), { subscribe });
    },
  };
}
