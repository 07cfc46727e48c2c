// The middleware for Idempotency-Key, under Express.
import assert from "node:assert/strict";
import { once as emitted } from "node:events";
import { after, afterEach, before, beforeEach, it } from "node:test";
import express from "express";
import { idempotency, Redlock } from "redis-lock-client";
import { Clients, library, Server, until } from "./harness.js";

const server = await Server.start();
after(server.stop);
const clients = new Clients(library);
let redlock, app, http, url;
beforeEach(async () => {
  await server.admin.flushall();
  redlock = new Redlock([await clients.connect(server.port)]);
  app = express().set("env", "test");
  http = app.listen(0, "127.0.0.1");
  await emitted(http, "listening");
  url = `http://127.0.0.1:${http.address().port}`;
});
afterEach(() => {
  http.closeAllConnections();
  http.close();
  clients.end();
});

/** Mounts a handler behind the middleware. */
const mount = (handler, settings) => app.all("/pay", express.json(), idempotency(redlock, settings), handler);

// Express knows an error handler by its four parameters.
const sayError = (error, req, res, next) => res.status(error.status ?? 500).send(error.message) && void next;

/** Asks with a key. Resolves with the status, the body, and the header of a replay. */
async function ask({ key = "k", method = "POST", path = "/pay", body = { amount: 5 }, headers = {} } = {}) {
  const json = { "Content-Type": "application/json", ...(key && { "Idempotency-Key": key }), ...headers };
  const answer = await fetch(url + path, { method, headers: json, body: JSON.stringify(body) });
  return { status: answer.status, text: await answer.text(), headers: answer.headers };
}
const isReplay = ({ headers }) => headers.get("Idempotency-Replayed") === "true";

it("answers a repetition by the first answer, and runs nothing", async () => {
  let charges = 0;
  mount((req, res) => {
    res.status(201).location("/charges/1").cookie("session", "1");
    res.json({ charge: ++charges, of: req.body.amount });
  });
  const [first, again] = [await ask(), await ask()];
  assert.deepEqual([first.status, first.text, isReplay(first)], [201, '{"charge":1,"of":5}', false]);
  assert.deepEqual([again.status, again.text, isReplay(again)], [201, first.text, true]);
  for (const name of ["content-type", "location", "etag"])
    assert.equal(again.headers.get(name), first.headers.get(name), name);
  assert.ok(first.headers.has("set-cookie") && !again.headers.has("set-cookie"));
  assert.equal(JSON.parse((await ask({ key: "other" })).text).charge, 2);
  assert.equal(JSON.parse((await ask({ key: "" })).text).charge, 3);
  for (const name of await server.admin.keys("*")) assert.ok((await server.admin.pttl(name)) > 86_000_000);
});

it("replays whatever way the handler has written in", async () => {
  mount((req, res) => {
    res.writeHead(202, "Fine", { "Content-Type": "application/x-bytes", "X-Own": "1" });
    res.flushHeaders();
    res.write(Buffer.of(0x7f, 0));
    res.write("ü", "latin1", () => res.end("41", "hex"));
  });
  for (const expected of [false, true]) {
    const answer = await ask();
    // Not UTF-8: it is read as a sign of its own.
    assert.equal(answer.text, "\u007f\0\ufffdA");
    assert.equal(isReplay(answer), expected);
    assert.deepEqual([answer.status, answer.headers.get("content-type")], [202, "application/x-bytes"]);
    assert.equal(answer.headers.has("x-own"), !expected);
  }
});

it("refuses another request with the key, and does not share those of different callers", async () => {
  let count = 0;
  mount((_, res) => res.send(`${++count}`));
  const callers = [{}, { Authorization: "one" }, { Authorization: "two" }, { Cookie: "a=1" }];
  for (const round of [1, 2])
    for (const [i, headers] of callers.entries())
      assert.equal((await ask({ headers })).text, `${i + 1}`, `round ${round}`);
  for (const other of [{ body: { amount: 6 } }, { path: "/pay?twice" }, { method: "PUT" }]) {
    const { status, text, headers } = await ask(other);
    assert.deepEqual([status, JSON.parse(text).status], [422, 422]);
    assert.equal(headers.get("content-type"), "application/problem+json");
  }
});

it("says that a request is in progress, or waits for it, and outlives its client", async () => {
  let finish;
  mount((_, res) => (finish = () => res.send("done")));
  app.post("/wait", express.json(), idempotency(redlock, { wait: 20_000 }), (_, res) => res.send("never"));
  const away = new AbortController();
  const headers = { "Idempotency-Key": "k", "Content-Type": "application/json" };
  const gone = fetch(`${url}/pay`, { method: "POST", headers, body: '{"amount":5}', signal: away.signal });
  await until(() => finish);
  assert.equal((await ask()).status, 409);
  const waiting = ask({ path: "/wait" });
  const [name] = await server.admin.keys("*");
  await until(async () => (await server.listening(name)).length === 1);
  away.abort();
  await assert.rejects(gone, { name: "AbortError" });
  finish();
  assert.equal((await waiting).status, 422, "it has another target");
  const again = await ask();
  assert.deepEqual([again.status, again.text, isReplay(again)], [200, "done", true]);
});

it("keeps no server error, and none of a handler that fails or gives up before its answer", async () => {
  const answers = [
    (res) => res.status(502).send("said"),
    () => assert.fail("mine"),
    (res) => res.destroy(),
    (res) => assert.fail(res.status(409).send("taken")),
  ];
  mount((_, res) => answers.shift()(res));
  app.use(sayError);
  assert.equal((await ask()).text, "said");
  assert.equal((await ask()).text, "mine");
  await assert.rejects(ask(), TypeError);
  await until(async () => (await server.admin.dbsize()) === 0);
  // As ever, Express ends the connection when a handler fails after its answer, for it knows that the headers were sent.
  await assert.rejects(ask(), TypeError);
  await until(async () => (await server.admin.keys("idempotency:*")).length === 1);
  const again = await ask();
  assert.deepEqual([again.status, again.text, isReplay(again)], [409, "taken", true]);
});

it("answers also when the answer cannot be kept", async () => {
  mount(async (_, res) => {
    await server.admin.acl("SETUSER", "default", "-set");
    res.send("done");
  });
  const { text } = await ask().finally(() => server.admin.acl("SETUSER", "default", "+set"));
  assert.equal(text, "done");
  assert.equal(await server.admin.dbsize(), 0);
});

it("runs nothing where the locks fail, or nobody has parsed the body", async () => {
  mount(() => assert.fail("it ran"));
  app.post("/raw", idempotency(redlock), () => assert.fail("it ran"));
  app.post("/no", express.json(), idempotency(redlock, { owner: () => {} }), () => assert.fail("it ran"));
  app.use(sayError);
  assert.match((await ask({ path: "/no" })).text, /must be of type string/);
  const raw = await ask({ path: "/raw" });
  assert.deepEqual([raw.status, /express\.json/.test(raw.text)], [500, true]);
  await redlock.quit();
  assert.equal((await ask()).status, 503);
});
