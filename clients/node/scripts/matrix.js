// Runs all tests with each version of each library that package.json accepts, on the packed file, each in a folder of its own below
// target/. Prints one line for each, and writes all to MATRIX.tsv. Ends with 1 when a test has failed. Arguments: only these rows.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The oldest and the newest of each major version. */
const VERSIONS = {
  ioredis: ["5.3.0", "5.11.1", "6.0.0"],
  iovalkey: ["0.1.0", "0.4.0"],
  redis: ["5.0.0", "5.12.1", "6.0.0", "6.3.1"],
};

/** As the tests call them. */
const NAMES = { ioredis: "ioredis", iovalkey: "iovalkey", redis: "node-redis" };

/** A run that takes longer is ended. */
const LIMIT_MS = 15 * 60_000;

const folder = fileURLToPath(new URL("..", import.meta.url));
const target = join(folder, "target/matrix");
const file = join(folder, "MATRIX.tsv");
const otel = ["api", "sdk-metrics", "sdk-trace-base"].map((name) => `@opentelemetry/${name}`);
const { devDependencies } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));

const npm = (args, cwd) =>
  execFileSync("npm", args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });

mkdirSync(target, { recursive: true });
// Where the copies of the tests look for the servers and the vectors.
for (const [from, to] of [
  ["..", "target/clients"],
  ["../vectors", "target/matrix/vectors"],
])
  if (!existsSync(join(folder, to))) symlinkSync(join(folder, from), join(folder, to));
const packed = npm(["pack", "--silent", "--pack-destination", target], folder).trim().split("\n").at(-1);

const wanted = process.argv.slice(2);
const lines = ["language\tlibrary\tversion\tpassed\tfailed\tskipped"];

let hasFailed = false;
for (const [library, versions] of Object.entries(VERSIONS))
  for (const version of versions) {
    if (wanted.length > 0 && !wanted.includes(`${library}@${version}`)) continue;
    const { passed, failed, skipped } = await test(library, version);
    const line = ["node", NAMES[library], version, passed, failed, skipped].join("\t");
    console.log(line);
    lines.push(line);
    hasFailed ||= failed > 0 || passed === 0;
  }
if (wanted.length === 0) writeFileSync(file, `${lines.join("\n")}\n`);
process.exit(hasFailed ? 1 : 0);

async function test(library, version) {
  const place = join(target, `${library}-${version}`);
  rmSync(place, { recursive: true, force: true });
  mkdirSync(place);
  // The tests look at the servers with ioredis, and the old clients are those of node-redlock: so the others are there as well.
  const others = ["express", "ioredis", "iovalkey", "redis", "redlock", "redlock-5", ...otel];
  const dependencies = Object.fromEntries(others.map((name) => [name, devDependencies[name]]));
  dependencies[library] = version;
  dependencies["redis-lock-client"] = `file:${join(target, packed)}`;
  writeFileSync(
    join(place, "package.json"),
    JSON.stringify({ name: "matrix", private: true, type: "module", dependencies }),
  );
  // Neither --force nor --legacy-peer-deps: the package has to accept this version.
  npm(["install", "--no-audit", "--no-fund", "--silent", "--prefer-offline"], place);
  cpSync(join(folder, "test"), join(place, "test"), { recursive: true });
  symlinkSync(join(place, "node_modules/redis-lock-client/dist"), join(place, "dist"));
  symlinkSync(join(folder, "src"), join(place, "src"));

  const child = spawn("sh", ["-c", "exec node --test --test-reporter=tap test/*.test.js"], {
    cwd: place,
    env: { ...process.env, REDIS_LOCK_LIBRARIES: NAMES[library] },
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  const limit = setTimeout(() => process.kill(-child.pid, "SIGKILL"), LIMIT_MS);
  let text = "";
  child.stdout.on("data", (data) => (text += data));
  await once(child, "close");
  clearTimeout(limit);
  writeFileSync(join(place, "tests.tap"), text);
  const count = (name) => Number(text.match(new RegExp(`^# ${name} (\\d+)`, "m"))?.[1] ?? 0);
  // A run without a summary was ended.
  const isWhole = /^# pass /m.test(text);
  return {
    passed: count("pass"),
    failed: count("fail") + count("cancelled") + (isWhole ? 0 : 1),
    skipped: count("skipped"),
  };
}
