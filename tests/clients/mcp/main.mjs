// Plays one scenario: node main.mjs NAME, in a directory with the programs, with Heeler's executable in
// $HEELER. Exits with 0 if the scenario passes.
import assert from "node:assert/strict";
import * as filter from "./filter.mjs";
import * as serve from "./serve.mjs";

const scenarios = { ...filter, ...serve };
const [name] = process.argv.slice(2);
assert.ok(typeof scenarios[name] === "function", `there is no scenario ${name}`);
await scenarios[name]();
process.exit(0);
