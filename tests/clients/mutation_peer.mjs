// Clients of both versions of the Mutation Server Protocol against a real server of a real project:
// node mutation_peer.mjs VERSION SCENARIO port N
// node mutation_peer.mjs 0.4 SCENARIO start COMMAND WORD…
// VERSION is 0.4 (`mutation-server-protocol`, `vscode-jsonrpc`) or alpha (`ws`, `json-rpc-2.0`). A
// scenario prints its findings as JSON lines.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connectAlpha, connectV04 } from "./mutation_peer_clients.mjs";

const [version, scenario, ...target] = process.argv.slice(2);

const print = (value) => console.log(JSON.stringify(value));
const statuses = (results) =>
  Object.fromEntries(
    results.map(({ path, location, replacement, status }) => [
      `${path}:${location.start.line}: ${replacement}`,
      status,
    ]),
  );
const byId = (results) => [...results].sort((one, other) => (one.id < other.id ? -1 : 1));

/** Returns the error code of a request's response. */
async function codeOf(answer) {
  try {
    await answer;
  } catch (error) {
    return error.code;
  }
  assert.fail("expected an error");
}

const scenarios = {
  /** Lists and tests all mutants, then tests them again: the server reuses the verdicts. */
  async tests_mutants(client) {
    await client.begin();
    const listed = await client.list();
    assert.ok(listed.length > 0);
    assert.equal(new Set(listed.map((one) => one.id)).size, listed.length);
    const first = client.test();
    const reported = await first.answer;
    // All mutants were reported before the answer, each once.
    assert.deepEqual(byId(reported).map((one) => one.id), byId(listed).map((one) => one.id));
    print(statuses(reported));
    const again = await client.test().answer;
    print(statuses(again));
    // Equal durations show that no test ran again.
    const times = (results) =>
      byId(results)
        .filter((one) => one.status !== "Timeout")
        .map((one) => [one.id, one.duration]);
    assert.deepEqual(times(again), times(reported));
    assert.ok(reported.some((one) => one.duration > 0));
    await client.end();
  },

  /** Prints the members of mutants and results by the names that an editor uses. */
  async shapes(client) {
    await client.begin();
    const name = ({ path, mutatorName, location: { start, end }, replacement }) =>
      `${path} ${mutatorName}(${start.line}:${start.column}-${end.line}:${end.column}) (${replacement})`;
    // An empty list is equivalent to an absent one.
    const members = (mutant) => Object.entries(mutant).filter(([key, value]) => key !== "path" && value?.length !== 0);
    const type = (value) => (Array.isArray(value) ? `${typeof value[0]}s` : typeof value);
    const shape = (mutant) => Object.fromEntries(members(mutant).map(([key, value]) => [key, type(value)]).sort());
    const shapes = (mutants) => Object.fromEntries(mutants.map((mutant) => [name(mutant), shape(mutant)]).sort());
    print(shapes(await client.list()));
    const results = await client.test().answer;
    print(shapes(results));
    print(statuses(results));
    // StrykerJS does not exit at the end of its standard input.
    const exited = once(client.child, "exit");
    client.child.kill();
    await exited;
  },

  /** Lists and tests all mutants. */
  async lists_and_tests(client) {
    await client.begin();
    const listed = await client.list();
    const reported = await client.test().answer;
    assert.deepEqual(byId(reported).map((one) => one.id), byId(listed).map((one) => one.id));
    assert.ok(listed.every((one) => /^[0-9a-f]{16}$/.test(one.id)));
    print(statuses(reported));
    await client.end();
  },

  /** Cancels a running and a waiting request; a third request is served. */
  async cancels(client, place) {
    await client.begin();
    const running = client.test();
    await Promise.race([running.reported, running.answer]);
    const waiting = client.test();
    waiting.cancel();
    assert.equal(await codeOf(waiting.answer), -32000);
    running.cancel();
    assert.equal(await codeOf(running.answer), -32000);
    const third = await client.test(place).answer;
    print(statuses(third));
    await client.end();
  },

  /** Provokes every error code. */
  async errors(client) {
    const codes = [];
    if (version === "alpha") {
      codes.push(await codeOf(client.request("mutate", {})));
      codes.push(await codeOf(client.request("initialize", { clientInfo: { version: "7.0.0" } })));
    }
    await client.begin();
    codes.push(await client.codeOfBody("{"));
    codes.push(await client.codeOfBody(`{"jsonrpc":"1.0","id":1000000000,"method":"discover"}`));
    codes.push(await codeOf(client.request("none", {})));
    const [find, run] = version === "alpha" ? ["instrument", "mutate"] : ["discover", "mutationTest"];
    codes.push(await codeOf(client.request(find, { files: 7, globPatterns: 7 })));
    codes.push(await codeOf(client.request(run, [1])));
    // The project's tests fail even without a mutant.
    await assert.rejects(client.test().answer, (error) => {
      codes.push(error.code);
      print(error.message);
      return true;
    });
    print(codes);
    await client.end();
  },

  /** Tests mutants until the process is killed. */
  async waits_to_be_killed(client) {
    await client.begin();
    const running = client.test();
    await Promise.race([running.reported, running.answer]);
    print("running");
    await once(process, "never");
  },
};

const connect = version === "alpha" ? connectAlpha : connectV04;
await scenarios[scenario](await connect(...target), process.env.HEELER_PLACE);
print("passed");
process.exit(0);
