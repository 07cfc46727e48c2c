import { randomUUID } from "node:crypto";
import { type Command, type Driver, hostOf, isOfBytes, type Link } from "../driver.js";
import type { Wire } from "../wire.js";
import { slotOf, tagOfSlot } from "../slot.js";
import { LATE, within } from "../timer.js";

type Options = Record<string, any>;

/** What of a node-redis client of any kind but a Cluster is used. */
interface NodeRedis {
  readonly isReady: boolean;
  readonly isOpen: boolean;
  connect(): Promise<unknown>;
  destroy(): unknown;
  close(): unknown;
  duplicate(override?: object): this;
  subscribe(channel: string, listener: (message: Buffer) => unknown, bufferMode: true): Promise<unknown>;
  on(event: string, listener: (event: { type: string }) => void): unknown;
}

/** What of a node-redis client (`createClient()`) is used. */
export interface NodeRedisClient extends NodeRedis {
  readonly options?: Record<string, any> | undefined;
  sendCommand(command: (string | Buffer)[], options?: object): Promise<unknown>;
  sSubscribe(channel: string, listener: (message: Buffer) => unknown, bufferMode: true): Promise<unknown>;
}

/** What of a node-redis Sentinel client (`createSentinel()`) is used. */
export interface NodeRedisSentinel extends NodeRedis {
  getSentinelNode(): unknown;
  sendCommand(isReadonly: boolean, command: (string | Buffer)[], options?: object): Promise<unknown>;
}

/** What of a node-redis Cluster client (`createCluster()`) is used. */
export interface NodeRedisCluster {
  readonly isOpen: boolean;
  readonly slots: readonly ({ readonly master: Master } | undefined)[];
  nodeClient(node: any): Promise<unknown>;
  sendCommand(firstKey: string, isReadonly: boolean, command: (string | Buffer)[]): Promise<unknown>;
  close(): unknown;
}

/** A primary of a cluster. */
export interface Master {
  readonly address: string;
  readonly client?: NodeRedisClient | undefined;
}

/** How long the first connection of the user's client to a node, or an answer on it, may take. */
const CONNECT_MS = 1000;

/** What all kinds have in common. */
function common(client: { readonly isOpen: boolean; close(): unknown }) {
  let wasOpen = client.isOpen;
  // Only a single client has public options.
  const { options, _keyPrefix } = client as { options?: Options; _keyPrefix?: string | Buffer };
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
  /** The library tells nobody what `select` has chosen. So the server is asked, once, if the client can do it. */
  const ask = async () => {
    const info = await within(CONNECT_MS, client.sendCommand(["CLIENT", "INFO"]), LATE).catch(() => "");
    return Number(/ db=(\d+)/.exec(String(info))?.[1] ?? client.options?.database ?? 0);
  };
  let selected: Promise<number> | undefined;
  return {
    ...common(client),
    place: async () => String(await (selected ??= ask())),
    open: (place, wire) => open(client, { database: Number(place) }, false, wire),
  };
}

export function ofNodeRedisCluster(client: NodeRedisCluster): Driver {
  return {
    ...common(client),
    async place(key) {
      const master = client.slots[slotOf(key)]?.master;
      // It has no client before its first command, if the program wants few connections.
      if (master && !master.client) await within(CONNECT_MS, client.nodeClient(master), LATE);
      return master?.address;
    },
    open(place, wire) {
      const known = client.slots.find((shard) => shard?.master.address === place)?.master.client;
      const template = known ?? client.slots.find((shard) => shard?.master.client)?.master.client;
      if (!template) throw new Error("no node of the cluster is known");
      return open(template, known ? {} : { socket: hostOf(place) }, true, wire);
    },
    /**
     * The library asks for the masters when a node redirects a command. This one changes nothing. It goes to the node that had the slot,
     * or, if that one is away, to any other.
     */
    async discover(key) {
      const isReady = (shard: (typeof client.slots)[number]) => shard?.master.client?.isReady;
      const own = slotOf(key);
      const slot = isReady(client.slots[own]) ? own : client.slots.findIndex(isReady);
      const words = ["LOCK.RENEW", key, randomUUID(), "1"];
      return slot < 0 ? undefined : client.sendCommand(tagOfSlot(slot), false, words);
    },
  };
}

/** Each link is a client with one connection to the master. The library would go on with the next master: to us that is another link. */
export function ofNodeRedisSentinel(client: NodeRedisSentinel): Driver {
  return {
    ...common(client),
    place: async () => "",
    open(_, wire) {
      const own = client.duplicate({ masterPoolSize: 1, replicaPoolSize: 0, reserveClient: true });
      own.on("error", () => {});
      own.on("end", wire.close);
      return {
        async connect() {
          await own.connect();
          for (const name of ["client-error", "topology-change"])
            own.on(name, ({ type }) => /^MASTER(_CHANGE)?$/.test(type) && wire.close());
        },
        send: (command) => own.sendCommand(false, ...given(command)),
        subscribe: (channel) => own.subscribe(channel, wire.onMessage, true),
        close: () => (async () => own.destroy())().catch(() => {}),
      };
    },
  };
}

function open(template: NodeRedisClient, override: Options, isSharded: boolean, wire: Wire): Link {
  const sockets = { ...template.options?.socket, ...override.socket };
  const own = template.duplicate({
    ...override,
    // A ping would stand behind the BLOCK.
    pingInterval: undefined,
    // Those of the program's own commands.
    commandOptions: undefined,
    commandsQueueMaxLength: undefined,
    socket: { ...sockets, reconnectStrategy: false, socketTimeout: undefined },
  });
  // A connection that is not made again ends by an error only.
  for (const event of ["error", "end"]) own.on(event, () => own.isOpen || wire.close());
  own.on("sharded-channel-moved", wire.close);
  return {
    connect: () => own.connect(),
    send: (command) => own.sendCommand(...given(command)),
    subscribe: (channel) => own[isSharded ? "sSubscribe" : "subscribe"](channel, wire.onMessage, true),
    close: () => own.isOpen && own.destroy(),
  };
}

/** How it is given to node-redis, which takes no numbers. 36 is the type of bulk strings in the protocol, a `$`. */
function given(command: Command): [words: (string | Buffer)[], options: object] {
  const words = command.map((arg) => (typeof arg === "number" ? String(arg) : arg));
  return [words, isOfBytes(command) ? { typeMapping: { 36: Buffer } } : {}];
}
