// Measures runs of all tests of a program: node time_run.mjs ROUNDS PROGRAM CALLBACK, with the server's executable in
// $HEELER and CALLBACK "callback" or "main". Prints the milliseconds from the request to the handling of the
// completion, one line for each round.
import assert from "node:assert/strict";
import { UPDATES, dialled } from "./session.mjs";

const [rounds, program, connection] = process.argv.slice(2);
const session = await dialled([program]);
const provider = connection === "callback" ? { callbackProvider: await session.callbackProvider() } : {};
await session.initialize({ debuggerProvider: false, ...provider });
for (let round = 0; round < Number(rounds); round += 1) {
  const start = performance.now();
  const run = session.run();
  await session.until(({ method, params }) => method === UPDATES && params.runId === run.runId && params.changes === null);
  const took = performance.now() - start;
  await run.answered;
  const ends = session.record.flatMap(({ params }) => params?.changes ?? []).filter(({ node }) => node["execution-state"] === "passed");
  assert.equal(ends.length, Number(process.env.TESTS), "every test has passed");
  console.log(took.toFixed(1));
  session.record = [];
}
assert.equal(await session.exit(), 0);
process.exit(0);
