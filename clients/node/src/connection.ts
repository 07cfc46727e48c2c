/** What of an ioredis client (`Redis`) is used. */
export interface IoredisClient {
  readonly status: string;
  readonly options: { readonly keyPrefix?: string | undefined };
  call(command: string, ...args: (string | number)[]): Promise<unknown>;
  duplicate(override?: object): IoredisClient;
  connect(): Promise<unknown>;
  disconnect(): void;
  quit(): Promise<unknown>;
  on(event: "error" | "close" | "end", listener: () => void): unknown;
}

/** What of a node-redis client (`createClient()`) is used. */
export interface NodeRedisClient {
  readonly isReady: boolean;
  readonly options?: { readonly socket?: object } | undefined;
  sendCommand(command: readonly string[]): Promise<unknown>;
  duplicate(override?: object): NodeRedisClient;
  connect(): Promise<unknown>;
  destroy(): void;
  close(): Promise<unknown>;
  on(event: "error" | "end", listener: () => void): unknown;
}

export type Client = IoredisClient | NodeRedisClient;

export type Command = readonly [name: string, ...args: (string | number)[]];

/** One connection, whichever library has made it. */
export interface Connection {
  readonly isOpen: boolean;
  /** Grows when the library may have sent again what was not answered yet, of which it tells nobody. */
  readonly resends: number;
  send(command: Command): Promise<unknown>;
  close(): void;
  /** Another one to the same server, for commands that block. Once it is lost it stays lost. */
  open(): Promise<Connection>;
  quit(): Promise<unknown>;
  onEnd(listener: () => void): void;
  /** The name of the resource's key: clients do not add their prefix to commands that they do not know. */
  key(resource: string): string;
}

const connections = new WeakMap<Client, Connection>();

/** The connection of a client: one, however many there are who use it. */
export function connectionOf(client: Client): Connection {
  let connection = connections.get(client);
  if (connection === undefined) connections.set(client, (connection = connect(client)));
  return connection;
}

function connect(client: Client): Connection {
  // One is ioredis's, the other node-redis's.
  if (("isCluster" in client && client.isCluster) || "masters" in client)
    throw new TypeError("Redlock does not know clusters yet: give it a client of the lock's node.");
  if ("call" in client) return new OfIoredis(client);
  // Pools and clients of sentinels send commands, too, but lack one of these.
  if ("isReady" in client && "duplicate" in client) return new OfNodeRedis(client);
  throw new TypeError("Redlock needs clients of ioredis (Redis) or of node-redis (createClient).");
}

class OfIoredis implements Connection {
  resends = 0;

  constructor(private readonly client: IoredisClient) {
    client.on("close", () => this.resends++);
  }

  get isOpen() {
    return this.client.status === "ready";
  }

  send([name, ...args]: Command) {
    return this.client.call(name, ...args);
  }

  close() {
    this.client.disconnect();
  }

  async open() {
    const own = this.client.duplicate({
      lazyConnect: true,
      retryStrategy: null,
      // These are meant for commands that are answered at once.
      commandTimeout: undefined,
      socketTimeout: undefined,
      // Without the second, commands in flight on a lost connection would never be answered at all.
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
    });
    own.on("error", ignore);
    await own.connect();
    return new OfIoredis(own);
  }

  quit() {
    return this.client.quit();
  }

  onEnd(listener: () => void) {
    this.client.on("end", listener);
  }

  key(resource: string) {
    return (this.client.options.keyPrefix ?? "") + resource;
  }
}

class OfNodeRedis implements Connection {
  /** It rejects what is not answered when the connection is lost. */
  readonly resends = 0;

  constructor(private readonly client: NodeRedisClient) {}

  get isOpen() {
    return this.client.isReady;
  }

  send(command: Command) {
    return this.client.sendCommand(command.map(String));
  }

  close() {
    this.client.destroy();
  }

  async open() {
    const own = this.client.duplicate({
      // A ping would stand behind the BLOCK.
      pingInterval: undefined,
      socket: { ...this.client.options?.socket, reconnectStrategy: false, socketTimeout: undefined },
    });
    own.on("error", ignore);
    await own.connect();
    return new OfNodeRedis(own);
  }

  quit() {
    return this.client.close();
  }

  onEnd(listener: () => void) {
    this.client.on("end", listener);
  }

  key(resource: string) {
    return resource;
  }
}

/** What goes wrong on a connection is told to who sends a command on it. */
function ignore() {}
