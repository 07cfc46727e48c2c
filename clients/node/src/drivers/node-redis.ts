import { type Command, type Driver, hostOf, isOfBytes, type Node } from "../driver.js";
import { slotOf } from "../slot.js";
import { within } from "../timer.js";

/** What of a node-redis client (`createClient()`) is used. */
export interface NodeRedisClient {
  readonly isReady: boolean;
  readonly isOpen: boolean;
  readonly options?: Record<string, any> | undefined;
  sendCommand(command: (string | Buffer)[], options?: object): Promise<unknown>;
  duplicate(override?: object): NodeRedisClient;
  connect(): Promise<unknown>;
  destroy(): void;
  close(): unknown;
  subscribe(channel: string, listener: (message: Buffer) => unknown, bufferMode: true): Promise<unknown>;
  sSubscribe(channel: string, listener: (message: Buffer) => unknown, bufferMode: true): Promise<unknown>;
  on(event: string, listener: () => void): unknown;
}

/** What of a node-redis Cluster client (`createCluster()`) is used. */
export interface NodeRedisCluster {
  readonly isOpen: boolean;
  readonly slots: readonly ({ readonly master: Master } | undefined)[];
  readonly masters: readonly Master[];
  nodeClient(node: any): Promise<unknown>;
  close(): unknown;
}

/** A primary of a cluster. */
export interface Master {
  readonly address: string;
  readonly client?: NodeRedisClient | undefined;
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
  on(event: string, listener: (event: { type: string }) => void): unknown;
}

/** How long the first connection of the user's client to a node, or an answer on it, may take. */
const CONNECT_MS = 1000;

/** What all kinds have in common. */
function common(client: { readonly isOpen: boolean; close(): unknown }) {
  let wasOpen = false;
  // Only a single client has public options.
  const { options, _keyPrefix } = client as { options?: Record<string, any>; _keyPrefix?: string | Buffer };
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
    const known = client.masters.find((master) => master.address === address)?.client;
    const template = known ?? client.masters.find((master) => master.client)?.client;
    if (!template) throw new Error("no node of the cluster is known");
    return nodeOf(template, address, known ? {} : { socket: hostOf(address) }, true);
  };
  return {
    ...common(client),
    async node(key) {
      const master = client.slots[slotOf(key)]?.master;
      if (!master) throw new Error("the node of the key is not known");
      // It has none before its first command, if the program wants few connections.
      if (!master.client) await within(CONNECT_MS, client.nodeClient(master), "the node cannot be reached");
      return at(master.address);
    },
    cluster: { at, addresses: () => client.masters.map(({ address }) => address) },
  };
}

/** Each link is a client with one connection to the master. The library would go on with the next master: to us that is another link. */
export function ofNodeRedisSentinel(client: NodeRedisSentinel): Driver {
  const node: Node = {
    id: "",
    open(onLost, onMessage) {
      const own = client.duplicate({ masterPoolSize: 1, replicaPoolSize: 0, reserveClient: true });
      own.on("error", () => {});
      own.on("end", onLost);
      return {
        async connect() {
          await own.connect();
          for (const event of ["client-error", "topology-change"])
            own.on(event, ({ type }) => /^MASTER(_CHANGE)?$/.test(type) && onLost());
        },
        isOpen: () => own.isReady,
        send: (command) => own.sendCommand(false, textsOf(command), optionsOf(command)),
        subscribe: (channel) => own.subscribe(channel, onMessage, true),
        close: () => (async () => own.destroy())().catch(() => {}),
      };
    },
  };
  return { ...common(client), node: async () => node };
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
  override: Record<string, any>,
  isSharded: boolean,
): Node {
  return {
    id,
    open(onLost, onMessage) {
      const sockets = { ...template.options?.socket, ...override.socket };
      const own = template.duplicate({
        ...override,
        // A ping would stand behind the BLOCK.
        pingInterval: undefined,
        socket: { ...sockets, reconnectStrategy: false, socketTimeout: undefined },
      });
      // A connection that is not made again ends by an error only.
      for (const event of ["error", "end"]) own.on(event, () => own.isOpen || onLost());
      own.on("sharded-channel-moved", onLost);
      return {
        connect: () => own.connect(),
        isOpen: () => own.isReady,
        send: (command) => own.sendCommand(textsOf(command), optionsOf(command)),
        subscribe: (channel) =>
          isSharded ? own.sSubscribe(channel, onMessage, true) : own.subscribe(channel, onMessage, true),
        close: () => own.isOpen && own.destroy(),
      };
    },
  };
}
