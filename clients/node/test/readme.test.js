// The README's code for a test of an application is run as it stands there, on a free port.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const folder = fileURLToPath(new URL("..", import.meta.url));
const readme = join(folder, "README.md");
const IMPORTS = `import { spawn } from "node:child_process";
import { after, it } from "node:test";
import { Redis } from "ioredis";
import { Redlock } from "redis-lock-client";
`;

// `make matrix` runs a copy of the tests without it.
it("a test of an application", { skip: !existsSync(readme), timeout: 60_000 }, async (t) => {
  const [, code] = /test my code\?.*?```js\n(.*?)```/s.exec(readFileSync(readme, "utf8"));
  const free = net.createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address();
  free.close();
  // Below the package, which finds itself by its name.
  const place = join(folder, `target/readme-${port}`);
  mkdirSync(place, { recursive: true });
  t.after(() => rmSync(place, { recursive: true }));
  writeFileSync(join(place, "app.test.js"), IMPORTS + code.replaceAll("7777", port));
  const { NODE_TEST_CONTEXT, REDIS_LOCK_SERVERS, REDIS_LOCK_SERVER = "redis-7.0.15", ...env } = process.env;
  env.REDIS_SERVER = join(REDIS_LOCK_SERVERS, REDIS_LOCK_SERVER, "bin/server");
  const run = promisify(execFile)(process.execPath, ["--test", "--test-reporter=tap"], { cwd: place, env });
  assert.match((await run).stdout, /^# pass 1$/m);
});
