// Runs the tests that node-redlock 4 has in its package, unchanged, against this package, without those that PEER-SUITE.md
// names. Prints the numbers; exits with 1 when a test has failed, none has passed, or a name in the list fits no test.
import { readFileSync } from "node:fs";
import Module, { createRequire } from "node:module";
import Mocha from "mocha";
import { Server } from "../test/harness.js";

const require = createRequire(import.meta.url);
const suite = require.resolve("redlock/test.js");
const list = readFileSync(new URL("../PEER-SUITE.md", import.meta.url), "utf8");
const doesNotApply = [...list.matchAll(/^- `(.*)`:/gm)].map(([, pattern]) => new RegExp(pattern));

const server = await Server.start();
const redis = require("node-redis-3");
const { Redis } = require("ioredis");
const instead = {
  "./redlock": require("./redlock-4.cjs"),
  redis: { createClient: (options) => redis.createClient(server.port, "127.0.0.1", options) },
  // A constructor that returns another object.
  ioredis: function (options) {
    return new Redis({ ...options, port: server.port });
  },
};
const load = Module._load;
Module._load = (request, parent, ...rest) =>
  parent?.filename === suite && request in instead ? instead[request] : load(request, parent, ...rest);

const mocha = new Mocha({ reporter: "dot", timeout: 10_000 });
mocha.addFile(suite);
mocha.loadFiles();

const fitting = doesNotApply.map((pattern) => ({ pattern, isUsed: false }));
mocha.suite.eachTest((test) => {
  const one = fitting.find(({ pattern }) => pattern.test(test.fullTitle()));
  if (!one) return;
  test.pending = true;
  one.isUsed = true;
});

mocha.files = [];
const runner = mocha.run(async () => {
  await server.stop();
  const unused = fitting.filter(({ isUsed }) => !isUsed);
  for (const { pattern } of unused) console.log(`listed, but there is no such test: ${pattern}`);
  const { passes, failures, pending } = runner.stats;
  console.log(`node-redlock 4.2.0: ${passes} passed, ${failures} failed, ${pending} do not apply`);
  // The suite leaves connections open.
  process.exit(failures > 0 || unused.length > 0 || passes === 0 ? 1 : 0);
});
