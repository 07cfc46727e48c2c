// Files that use one another can only be understood together.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const src = fileURLToPath(new URL("../src/", import.meta.url));
const files = readdirSync(src, { recursive: true }).filter((file) => file.endsWith(".ts"));

/** The files that each file names, those of types included. */
const uses = new Map(
  files.map((file) => {
    const paths = readFileSync(join(src, file), "utf8").matchAll(/from "(\.[^"]+)\.js"/g);
    return [file, [...paths].map(([, path]) => `${normalize(join(dirname(file), path))}.ts`)];
  }),
);

function circle(file, path = []) {
  if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
  for (const used of uses.get(file)) {
    const found = circle(used, [...path, file]);
    if (found) return found;
  }
  return undefined;
}

test("no files of the source use one another in a circle", () => {
  assert.ok([...uses.values()].flat().length >= 50, "the imports were seen");
  for (const file of files) assert.equal(circle(file)?.join(" → "), undefined);
});
