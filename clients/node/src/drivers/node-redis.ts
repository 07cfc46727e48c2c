import { randomUUID } from "node:crypto";
import { type Command, connect, type Driver, hostOf, isOfBytes, type Node } from "../driver.js";
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

/** What all kinds have in common. */
function common(client: { readonly isOpen: boolean; close(): unknown }) {
  let wasOpen = false;
  // Only a single client has public options.
  const { options, _keyPrefix } = client as { options?: NodeRedisOptions; _keyPrefix?: string | Buffer };
  return {
    prefix: String(options?.keyPrefix ?? _keyPrefix ?? ""),
    /** The library tells by no event that the program has ended a Cluster or Sentinel client. */
    hasEnded() {
      wasOpen ||= client.isOpen;
      return wasOpen && !client.isOpen;
    },
    end: async () => client.close(),
  };
}

export function ofNodeRedis(client: NodeRedisClient): Driver {
  /** The library tells nobody what `select` has chosen. So the server is asked, once, if the client is connected and has the right. */
  const ask = async () => {
    const asking = client.isReady ? client.sendCommand(["CLIENT", "INFO"]) : Promise.resolve("");
    const info = await within(CONNECT_MS, asking, "no answer").catch(() => "");
    return Number(/ db=(\d+)/.exec(String(info))?.[1] ?? client.options?.database ?? 0);
  };
  let selected: Promise<number> | undefined;
  return {
    ...common(client),
    async node() {
      const database = await (selected ??= ask());
      return nodeOf(client, String(database), { database }, false);
    },
  };
}

export function ofNodeRedisCluster(client: NodeRedisCluster): Driver {
  const at = (address: string) => {
    const known = clientOf(client.masters.find((master) => master.address === address));
    const template = known ?? client.masters.map(clientOf).find(Boolean);
    if (!template) throw new Error("no node of the cluster is known");
    return nodeOf(template, address, known ? {} : { socket: hostOf(address) }, true);
  };
  return {
    ...common(client),
    async node(key) {
      const master = client.slots[slotOf(key)]?.master;
      if (!master) throw new Error("the node of the key is not known");
      if (!clientOf(master)) {
        const connecting = Promise.resolve(client.nodeClient(master as never));
        await within(CONNECT_MS, connecting, "the node cannot be reached");
      }
      return at(master.address);
    },
    cluster: {
      at,
      /**
       * The library asks for the masters when a node redirects a command. This one changes nothing. It goes to the node that had the slot,
       * or, if that one is away, to any other.
       */
      async discover(key) {
        const { slots, masters } = client;
        const ask = (at: string) => client.sendCommand(at, false, ["LOCK.RENEW", key, randomUUID(), "1"]);
        const last = slots[slotOf(key)]?.master;
        if (clientOf(last)?.isReady) return ask(key);
        const other = masters.find((master) => master !== last && clientOf(master)?.isReady);
        for (let i = 0; other && i < 10_000; i++)
          if (slots[slotOf(String(i))]?.master === other) return ask(String(i));
        return undefined;
      },
    },
  };
}

/** Each link is a client with one connection to the master. The library would go on with the next master: to us that is another link. */
export function ofNodeRedisSentinel(client: NodeRedisSentinel): Driver {
  const node: Node = {
    id: "",
    async open(onLost, onMessage) {
      const own = client.duplicate({ masterPoolSize: 1, replicaPoolSize: 0, reserveClient: true });
      const close = () => (async () => own.destroy())().catch(() => {});
      own.on("error", () => {});
      own.on("end", onLost);
      await connect(own, close);
      for (const event of ["client-error", "topology-change"] as const)
        own.on(event, ({ type }) => /^MASTER(_CHANGE)?$/.test(type) && onLost());
      return {
        isOpen: () => own.isReady,
        send: (command) => own.sendCommand(false, textsOf(command), optionsOf(command)),
        subscribe: (channel) => own.subscribe(channel, onMessage, true),
        close,
      };
    },
  };
  return { ...common(client), node: async () => node };
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

function nodeOf(template: NodeRedisClient, id: string, override: NodeRedisOptions, isSharded: boolean): Node {
  return {
    id,
    async open(onLost, onMessage) {
      const sockets = { ...template.options?.socket, ...override.socket };
      const own = template.duplicate({
        ...override,
        // A ping would stand behind the BLOCK.
        pingInterval: undefined,
        socket: { ...sockets, reconnectStrategy: false, socketTimeout: undefined },
      });
      const close = () => own.isOpen && own.destroy();
      // A connection that is not made again ends by an error only.
      for (const event of ["error", "end"] as const) own.on(event, () => own.isOpen || onLost());
      own.on("sharded-channel-moved", onLost);
      await connect(own, close);
      return {
        isOpen: () => own.isReady,
        send: (command) => own.sendCommand(textsOf(command), optionsOf(command)),
        subscribe: (channel) =>
          isSharded ? own.sSubscribe(channel, onMessage, true) : own.subscribe(channel, onMessage, true),
        close,
      };
    },
  };
}
