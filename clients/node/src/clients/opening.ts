import { within } from "../timer.js";

/** How long the server may be silent on a new connection. */
const SILENCE_MS = 4000;

/** Connects. The libraries have a time-out for the way to the server, and none for its answers. */
export async function connect(own: {
  connect(): Promise<unknown>;
  on(event: "connect", listener: () => void): unknown;
}): Promise<void> {
  const connecting = own.connect();
  const met = new Promise<void>((resolve) => own.on("connect", resolve));
  const answered = met.then(() => within(SILENCE_MS, connecting, "the server says nothing"));
  await Promise.race([connecting, answered]);
}
