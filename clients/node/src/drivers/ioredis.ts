import { connect, Driver, hostOf, isOfBytes, type Link, type Listening, type Node } from "../driver.js";
import type { Argument } from "../driver.js";
import { slotOf } from "../slot.js";

/** What of an ioredis or iovalkey client (`Redis`) is used. */
export interface IoredisClient {
  readonly status: string;
  readonly options: {
    readonly keyPrefix?: string | undefined;
    readonly host?: string | undefined;
    readonly port?: number | undefined;
    readonly db?: number | undefined;
  };
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
  on(event: "error" | "end" | "moved", listener: () => void): unknown;
  on(
    event: "messageBuffer" | "smessageBuffer",
    listener: (channel: Buffer, message: Buffer) => void,
  ): unknown;
}

/** What of an ioredis or iovalkey `Cluster` is used. */
export interface IoredisCluster {
  readonly isCluster: boolean;
  readonly status: string;
  readonly options: { readonly keyPrefix?: string | undefined };
  readonly slots: readonly (readonly string[] | undefined)[];
  nodes(role?: "master"): IoredisClient[];
  refreshSlotsCache(callback: () => void): void;
  quit(): Promise<unknown>;
}

/** What both kinds have in common. */
abstract class OfIoredisKind<C extends IoredisClient | IoredisCluster> extends Driver {
  constructor(protected readonly client: C) {
    super();
  }

  get hasEnded() {
    return this.client.status === "end";
  }

  get prefix() {
    return this.client.options.keyPrefix ?? "";
  }

  end() {
    return this.client.quit();
  }
}

export class OfIoredis extends OfIoredisKind<IoredisClient> {
  /** The client may have selected another database since. `duplicate()` goes to that of the options. */
  async node(): Promise<Node> {
    const db = this.client.condition?.select ?? this.client.options.db ?? 0;
    return nodeOf(this.client, String(db), { db }, false);
  }
}

export class OfIoredisCluster extends OfIoredisKind<IoredisCluster> {
  override readonly isCluster = true;

  override get hasEnded() {
    // It stays at `close` when the program ends it, and is `reconnecting` at once otherwise.
    return super.hasEnded || this.client.status === "close";
  }

  async node(key: string): Promise<Node> {
    const address = this.client.slots[slotOf(key)]?.[0];
    if (address === undefined) throw new Error("the node of the key is not known");
    return this.at(address);
  }

  override at(address: string): Node {
    const nodes = this.client.nodes();
    const known = nodes.find(({ options }) => `${options.host}:${options.port}` === address);
    const template = known ?? nodes[0];
    if (template === undefined) throw new Error("no node of the cluster is known");
    return nodeOf(template, address, known ? {} : { ...hostOf(address), path: undefined }, true);
  }

  protected override discover() {
    return new Promise<void>((resolve) => this.client.refreshSlotsCache(resolve));
  }
}

function nodeOf(template: IoredisClient, id: string, override: object, isSharded: boolean): Node {
  return {
    id,
    open: async (onLost) => linkOf(await open(template, override, onLost)),
    async listen(onMessage, onLost): Promise<Listening> {
      const own = await open(template, override, onLost);
      own.on(isSharded ? "smessageBuffer" : "messageBuffer", (_, message) => onMessage(message));
      // The slot has gone. Older versions do not know what to do with the message that says so, and emit an error.
      if (isSharded) for (const event of ["moved", "error"] as const) own.on(event, onLost);
      const subscribe = (channel: string) => (isSharded ? own.ssubscribe(channel) : own.subscribe(channel));
      return Object.assign(linkOf(own), { subscribe });
    },
  };
}

function linkOf(own: IoredisClient): Link {
  return {
    isOpen: () => own.status === "ready",
    send: (command) => (isOfBytes(command) ? own.callBuffer(...command) : own.call(...command)),
    close: () => own.disconnect(),
  };
}

async function open(template: IoredisClient, override: object, onLost: () => void): Promise<IoredisClient> {
  const own = template.duplicate({
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
    ...override,
  });
  // A failure is told to the sender of a command.
  own.on("error", () => {});
  own.on("end", onLost);
  return connect(own, () => own.disconnect());
}
