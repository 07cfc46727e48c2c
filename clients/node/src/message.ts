/** The end of a wait, as the server publishes it. */
export interface Message {
  /** `granted`, `timeout`, `tryagain`, `wrongtype`, `deadlock`, `cancelled`; perhaps another one in later versions. */
  readonly event: string;
  /** 0 where there is none. */
  readonly fence: number;
  readonly key: string;
  readonly token: string;
}

const SPACE = " ".charCodeAt(0);

/** Reads `event fence key-length key token`. Undefined if it is no message of the module. */
export function parseMessage(bytes: Buffer): Message | undefined {
  const head = /^([a-z]+) ([0-9]+) ([0-9]+) /.exec(bytes.toString("latin1"));
  if (!head) return undefined;
  const [start, event, fence, length] = head;
  // Only the length tells where the key ends: it may contain spaces, and is counted in bytes.
  const end = start.length + Number(length);
  if (bytes[end] !== SPACE) return undefined;
  const key = bytes.toString("utf8", start.length, end);
  return { event: event!, fence: Number(fence), key, token: bytes.toString("utf8", end + 1) };
}
