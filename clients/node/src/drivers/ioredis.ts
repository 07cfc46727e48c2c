import { type Argument, type Driver, hostOf, isOfBytes, type Link } from "../driver.js";
import type { Wire } from "../wire.js";
import { slotOf } from "../slot.js";

/** What both kinds of client have in common. */
interface Ioredis {
  readonly status: string;
  readonly options: Record<string, any>;
  connect(): Promise<unknown>;
  quit(): Promise<unknown>;
}

/** What of an ioredis or iovalkey client (`Redis`) is used. */
export interface IoredisClient extends Ioredis {
  /** Of its connection, while it has one. */
  readonly condition?: { readonly select: number } | null | undefined;
  call(command: string, ...args: Argument[]): Promise<unknown>;
  callBuffer(command: string, ...args: Argument[]): Promise<unknown>;
  duplicate(override?: object): IoredisClient;
  disconnect(): void;
  subscribe(channel: string): Promise<unknown>;
  ssubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (channel: any, message: Buffer) => void): unknown;
}

/** What of an ioredis or iovalkey `Cluster` is used. */
export interface IoredisCluster extends Ioredis {
  readonly isCluster: boolean;
  readonly slots: readonly (readonly string[] | undefined)[];
  nodes(role?: "master"): IoredisClient[];
  refreshSlotsCache(callback: () => void): void;
}

function common(client: Ioredis) {
  return {
    prefix: client.options.keyPrefix ?? "",
    /**
     * A Cluster stays at `close` when the program ends it, and is `reconnecting` at once otherwise. What is ended while it reconnects gets
     * no other status for good (a Cluster `disconnecting`), and only a private property tells of it.
     */
    hasEnded() {
      const { status, manuallyClosing } = client as { status: string; manuallyClosing?: boolean };
      return /^(end|close)$/.test(status) || (manuallyClosing === true && /^(re|dis)c/.test(status));
    },
    end: () => client.quit(),
  };
}

export function ofIoredis(client: IoredisClient): Driver {
  return {
    ...common(client),
    /** The client may have selected another database since. `duplicate()` goes to that of the options. */
    place: async () => String(client.condition?.select ?? client.options.db ?? 0),
    open: (place, wire) => open(client, { db: Number(place) }, false, wire),
  };
}

export function ofIoredisCluster(client: IoredisCluster): Driver {
  return {
    ...common(client),
    async place(key) {
      // With `lazyConnect` nobody may have used it yet.
      if (client.status === "wait") await client.connect();
      return client.slots[slotOf(key)]?.[0];
    },
    open(place, wire) {
      const [template] = client.nodes();
      if (!template) throw new Error("no node of the cluster is known");
      // It may be the client of a replica.
      return open(template, { ...hostOf(place), path: undefined, readOnly: false }, true, wire);
    },
    discover: () => new Promise<void>((resolve) => client.refreshSlotsCache(resolve)),
  };
}

function open(template: IoredisClient, override: object, isSharded: boolean, wire: Wire): Link {
  const own = template.duplicate({ ...OPTIONS, ...override });
  let failure: unknown;
  // A failure is told to the sender of a command. But older versions emit the message that a slot has gone as an error.
  own.on("error", (error) => {
    failure = error;
    if (isSharded) wire.close();
  });
  own.on("moved", wire.close);
  own.on("end", wire.close);
  own.on(isSharded ? "smessageBuffer" : "messageBuffer", (_, message) => wire.onMessage(message));
  return {
    /** The library itself would say only that the connection is closed, also where the password is wrong. */
    connect: () => own.connect().catch((error) => Promise.reject(failure ?? error)),
    send: (command) => (isOfBytes(command) ? own.callBuffer(...command) : own.call(...command)),
    subscribe: (channel) => (isSharded ? own.ssubscribe(channel) : own.subscribe(channel)),
    close: () => own.disconnect(),
  };
}

const OPTIONS = {
  lazyConnect: true,
  retryStrategy: null,
  // Asked once: the caller asks again.
  sentinelRetryStrategy: null,
  // These are meant for the program's own commands, and the core has times of its own.
  keyPrefix: "",
  // With it ioredis mangles some of what `call` and `callBuffer` get.
  enableAutoPipelining: false,
  commandTimeout: undefined,
  socketTimeout: undefined,
};
