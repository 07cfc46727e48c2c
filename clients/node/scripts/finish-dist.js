// The package is of type "module": the CommonJS half says what it is in a package.json of its own.
import { copyFileSync, existsSync, writeFileSync } from "node:fs";

writeFileSync(new URL("../dist/cjs/package.json", import.meta.url), '{ "type": "commonjs" }\n');

// The licences stand in the root of the repository, and are to be in every package.
for (const name of ["LICENSE-APACHE", "LICENSE-MIT"]) {
  const licence = new URL(`../../../${name}`, import.meta.url);
  if (existsSync(licence)) copyFileSync(licence, new URL(`../${name}`, import.meta.url));
}
