// Plays one scenario: node main.mjs NAME, in a directory with the programs, with the server's executable in
// $HEELER. Exits with 0 if the scenario passes.
import assert from "node:assert/strict";
import * as scenarios from "./scenarios.mjs";

const [name] = process.argv.slice(2);
assert.ok(typeof scenarios[name] === "function", `there is no scenario ${name}`);
await scenarios[name]();
// Sockets of a disconnected server may still be open on this side.
process.exit(0);
