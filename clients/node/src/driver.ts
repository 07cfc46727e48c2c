import type { Wire } from "./wire.js";

/** An argument of a command. */
export type Argument = string | number | Buffer;

export type Command = readonly [name: string, ...args: Argument[]];

/** Values may have any bytes: the replies to these commands are buffers. */
export function isOfBytes([name]: Command): boolean {
  return name === "GET" || name === "LOCK.ONCE";
}

/** A connection of our own, to one server. Once it is lost it stays lost, and the library answers nothing on it any more. */
export interface Link {
  connect(): Promise<unknown>;
  send(command: Command): Promise<unknown>;
  /** In a cluster to a shard channel. */
  subscribe(channel: string): Promise<unknown>;
  close(): unknown;
}

/**
 * What the core needs of a library: open, send and listen. The user's client is only a template for connections of our own, so nothing
 * that prolongs or ends a hold waits behind the user's commands.
 */
export interface Driver {
  /** Libraries do not add their prefix to keys of commands that they do not know. */
  readonly prefix: string;
  /** The program has ended its client, or the library will not connect it again. */
  hasEnded(): boolean;
  /** Ends the user's client. */
  end(): unknown;
  /** Where the key is, as far as the client knows: a database, in a cluster the address of a node. */
  place(key: string): Promise<string | undefined>;
  /** The link closes the wire when the connection, or only a channel, is lost, and calls its `onMessage`. */
  open(place: string, wire: Wire): Link;
  /** Of a cluster client only: has it ask again where the slots are. */
  discover?(key: string): Promise<unknown>;
}

/** `host:port`, of which the host may have colons. */
export function hostOf(address: string): { host: string; port: number } {
  const colon = address.lastIndexOf(":");
  return { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
}
