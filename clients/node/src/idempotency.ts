import { createHash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { ExecutionError } from "./errors.js";
import { once } from "./once.js";
import type { Redlock } from "./redlock.js";

/** A request of Express, or of another framework over `node:http`. */
export type WebRequest = IncomingMessage & { readonly originalUrl?: string; readonly body?: unknown };

/** Times are in milliseconds. */
export interface IdempotencySettings {
  /** How long an answer is kept. A day */
  readonly keep?: number | undefined;
  /** When a process dies, the next request with the key may run after this time. 30,000 */
  readonly ttl?: number | undefined;
  /** How long a request waits for the answer to an earlier one before it gets 409. 0 */
  readonly wait?: number | undefined;
  /** Who calls: keys of different callers are different. By default the headers Authorization and Cookie say it. */
  readonly owner?: ((request: WebRequest) => string) | undefined;
}

/** An answer as it is kept, in JSON. */
interface Answer {
  /** The fingerprint of its request. */
  readonly request: string;
  readonly status: number;
  readonly headers: Record<string, number | string | string[]>;
  /** In base64. */
  readonly body: string;
}

const DAY_MS = 86_400_000;

/** The headers that are kept. The others, such as Set-Cookie, only the first client gets. */
const KEPT = /^(content-(type|encoding|language)|etag|last-modified|link|location)$/;

/**
 * Middleware for the header Idempotency-Key. The first request with a key is answered by the handlers behind it, and its repetitions by
 * the answer that is kept, with the header `Idempotency-Replayed: true`. Requests without the header pass through.
 *
 *     app.post("/payments", express.json(), idempotency(redlock), pay);
 *
 * A request gets 409 while the first one is being answered, and 422 if the key came with another method, target or body before. An answer
 * of 500 or above is not kept: the next request runs. It stands behind what parses the body, which is a part of the fingerprint. If the
 * locks fail, no handler runs, and `next` gets the error with the status 503.
 */
export function idempotency(redlock: Redlock, settings: IdempotencySettings = {}) {
  const { keep = DAY_MS, ttl = 30_000, wait = 0, owner = caller } = settings;
  return (request: WebRequest, response: ServerResponse, next: (error?: unknown) => void): void => {
    const { body, headers, method = "" } = request;
    const key = headers["idempotency-key"];
    if (!key) return next();
    const hasBody = headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
    if (hasBody && !request.readableDidRead)
      return next(new Error("idempotency() stands behind what parses the body, such as express.json()."));
    const target = request.originalUrl ?? request.url ?? "";
    const isRaw = typeof body === "string" || body instanceof Uint8Array;
    const fingerprint = digest(method, target, isRaw ? body : (JSON.stringify(body) ?? ""));
    let first: Awaited<ReturnType<typeof recorded>> | undefined;
    const make = async () => {
      first = await recorded(response, next);
      if (first.answer.status >= 500) throw new Error("a server error is not kept");
      return JSON.stringify({ request: fingerprint, ...first.answer });
    };
    // What a client has chosen is no part of the name: its braces would say in which slot it lies.
    const name = `idempotency:${digest(owner(request), String(key))}`;
    once(redlock, name, make, { keep, ttl, wait, early: null }).then(
      (text) => {
        if (first) return first.send();
        const answer = JSON.parse(text) as Answer;
        if (answer.request !== fingerprint)
          return problem(response, 422, "This Idempotency-Key was used with another request.");
        response.statusCode = answer.status;
        for (const [header, value] of Object.entries(answer.headers)) response.setHeader(header, value);
        response.setHeader("Idempotency-Replayed", "true").end(Buffer.from(answer.body, "base64"));
      },
      (error: Error) => {
        // Whatever became of the storing.
        if (first) first.send();
        else if (error instanceof ExecutionError && error.code === "ERR_LOCK_TAKEN")
          problem(response, 409, "A request with this Idempotency-Key is being answered.");
        else if (!response.destroyed) next(Object.assign(error, { status: 503 }));
      },
    );
  };
}

/** Runs the handlers, and resolves with what they have answered, and with how to send it. Nothing is sent before `send`. */
function recorded(response: ServerResponse, next: () => void) {
  const { destroy, end, flushHeaders, write, writeHead } = response;
  const chunks: Buffer[] = [];
  return new Promise<{ answer: Omit<Answer, "request">; send: () => void }>((resolve, reject) => {
    /** Also calls the callback that a writer may have given. */
    const add = (...args: unknown[]) => {
      const [chunk, encoding] = args;
      if (typeof chunk === "string") chunks.push(Buffer.from(chunk, (encoding ?? "utf8") as BufferEncoding));
      else if (chunk instanceof Uint8Array) chunks.push(Buffer.from(chunk));
      const done = args.find((arg) => typeof arg === "function");
      if (done) queueMicrotask(done as () => void);
      return true;
    };
    const send = () => {
      delete (response as { headersSent?: boolean }).headersSent;
      Object.assign(response, { destroy, end, flushHeaders, write, writeHead });
      response.end(Buffer.concat(chunks));
    };
    Object.assign(response, {
      flushHeaders() {},
      writeHead(status: number, ...rest: unknown[]) {
        response.statusCode = status;
        const given = rest.at(-1);
        const fields = given instanceof Object ? given : {};
        const flat = Array.isArray(given) ? given : Object.entries(fields).flat(1);
        for (let i = 0; i < flat.length; i += 2) response.setHeader(flat[i], flat[i + 1]);
        return response;
      },
      write: add,
      end(...args: unknown[]) {
        add(...args);
        // A handler that fails after its answer adds nothing: error handlers ask whether the headers were sent.
        Object.assign(response, { write: () => true, end: () => response });
        Object.defineProperty(response, "headersSent", { value: true, configurable: true });
        const headers = Object.entries(response.getHeaders()).filter(([name]) => KEPT.test(name));
        const kept = Object.fromEntries(headers) as Answer["headers"];
        const body = Buffer.concat(chunks).toString("base64");
        resolve({ answer: { status: response.statusCode, headers: kept, body }, send });
        return response;
      },
      // By a handler that gives up. A client that goes away does not call it: the handler works on.
      destroy(error?: Error) {
        reject(error ?? new Error("the handler has ended the connection"));
        return destroy.call(response, error);
      },
    });
    next();
  });
}

function problem(response: ServerResponse, status: number, title: string): void {
  response.statusCode = status;
  response.setHeader("Content-Type", "application/problem+json").end(JSON.stringify({ status, title }));
}

const caller = ({ headers }: WebRequest) => `${headers.authorization ?? ""}\n${headers.cookie ?? ""}`;

/** The same only for the same texts in the same order. A caller who is undefined throws: he is not one with all others who are. */
function digest(...texts: (string | Uint8Array)[]): string {
  const hash = createHash("sha256");
  for (const text of texts) hash.update(`${Buffer.byteLength(text)}:`).update(text);
  return hash.digest("hex");
}
