import { type Argument, type Driver, hostOf, isOfBytes, type Node } from "../driver.js";
import { slotOf } from "../slot.js";

/** What of an ioredis or iovalkey client (`Redis`) is used. */
export interface IoredisClient {
  readonly status: string;
  readonly options: Record<string, any>;
  /** Of its connection, while it has one. */
  readonly condition?: { readonly select: number } | null | undefined;
  call(command: string, ...args: Argument[]): Promise<unknown>;
  callBuffer(command: string, ...args: Argument[]): Promise<unknown>;
  duplicate(override?: object): IoredisClient;
  connect(): Promise<unknown>;
  disconnect(): void;
  quit(): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  ssubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (channel: Buffer, message: Buffer) => void): unknown;
}

/** What of an ioredis or iovalkey `Cluster` is used. */
export interface IoredisCluster {
  readonly isCluster: boolean;
  readonly status: string;
  readonly options: { readonly keyPrefix?: string | undefined };
  readonly slots: readonly (readonly string[] | undefined)[];
  nodes(role?: "master"): IoredisClient[];
  quit(): Promise<unknown>;
}

/** What both kinds have in common. A Cluster stays at `close` when the program ends it, and is `reconnecting` at once otherwise. */
function common(client: IoredisClient | IoredisCluster) {
  return {
    prefix: client.options.keyPrefix ?? "",
    hasEnded: () => client.status === "end" || client.status === "close",
    end: () => client.quit(),
  };
}

export function ofIoredis(client: IoredisClient): Driver {
  return {
    ...common(client),
    /** The client may have selected another database since. `duplicate()` goes to that of the options. */
    async node() {
      const db = client.condition?.select ?? client.options.db ?? 0;
      return nodeOf(client, String(db), { db }, false);
    },
  };
}

export function ofIoredisCluster(client: IoredisCluster): Driver {
  const addressOf = ({ options }: IoredisClient) => `${options.host}:${options.port}`;
  const at = (address: string) => {
    const nodes = client.nodes();
    const known = nodes.find((node) => addressOf(node) === address);
    const template = known ?? nodes[0];
    if (template === undefined) throw new Error("no node of the cluster is known");
    return nodeOf(template, address, known ? {} : { ...hostOf(address), path: undefined }, true);
  };
  return {
    ...common(client),
    async node(key) {
      const address = client.slots[slotOf(key)]?.[0];
      if (address === undefined) throw new Error("the node of the key is not known");
      return at(address);
    },
    cluster: { at, addresses: () => client.nodes().map(addressOf) },
  };
}

function nodeOf(template: IoredisClient, id: string, override: object, isSharded: boolean): Node {
  return {
    id,
    open(onLost, onMessage) {
      const own = template.duplicate({ ...OPTIONS, ...override });
      // A failure is told to the sender of a command. But older versions emit the message that a slot has gone as an error.
      own.on("error", () => isSharded && onLost());
      own.on("moved", onLost);
      own.on("end", onLost);
      own.on(isSharded ? "smessageBuffer" : "messageBuffer", (_, message) => onMessage(message));
      return {
        connect: () => own.connect(),
        isOpen: () => own.status === "ready",
        send: (command) => (isOfBytes(command) ? own.callBuffer(...command) : own.call(...command)),
        subscribe: (channel) => (isSharded ? own.ssubscribe(channel) : own.subscribe(channel)),
        close: () => own.disconnect(),
      };
    },
  };
}

const OPTIONS = {
  lazyConnect: true,
  retryStrategy: null,
  // Asked once: the caller asks again.
  sentinelRetryStrategy: null,
  // These are meant for the program's own commands, and the core has times of its own.
  keyPrefix: "",
  commandTimeout: undefined,
  socketTimeout: undefined,
  enableOfflineQueue: true,
  // Nothing is sent again by the library. Without the second option, commands in flight would never be answered.
  autoResubscribe: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
};
