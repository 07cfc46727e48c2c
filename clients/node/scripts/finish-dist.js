// The package is of type "module": the CommonJS half says what it is in a package.json of its own.
import { writeFileSync } from "node:fs";

writeFileSync(new URL("../dist/cjs/package.json", import.meta.url), '{ "type": "commonjs" }\n');
