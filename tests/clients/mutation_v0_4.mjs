// A client of the Mutation Server Protocol 0.4, which parses every answer with `mutation-server-protocol`:
// node mutation_v0_4.mjs SCENARIO PORT
import assert from "node:assert/strict";
import net from "node:net";
import { ConfigureResult, DiscoverResult, MutationTestResult } from "mutation-server-protocol";
import rpc from "vscode-jsonrpc/node";

const [scenario, port] = process.argv.slice(2);

/** The name that an editor uses for a mutant. */
const nameOf = ({ mutatorName, location: { start, end }, replacement }) =>
  `${mutatorName}(${start.line}:${start.column}-${end.line}:${end.column}) (${replacement})`;

const namesOf = (files) =>
  Object.entries(files).flatMap(([path, { mutants }]) => mutants.map((mutant) => `${path} ${nameOf(mutant)}`));

const scenarios = {
  async discovers_and_tests() {
    const socket = net.connect(Number(port), "localhost");
    const connection = rpc.createMessageConnection(socket, socket);
    const reported = [];
    connection.onNotification("reportMutationTestProgress", (params) => {
      reported.push(MutationTestResult.strict().parse(params));
    });
    connection.listen();
    const configured = ConfigureResult.strict().parse(await connection.sendRequest("configure", {}));
    assert.equal(configured.version, "0.4.0");
    const all = DiscoverResult.strict().parse(await connection.sendRequest("discover", {}));
    const files = [{ path: "src/" }];
    const found = DiscoverResult.strict().parse(await connection.sendRequest("discover", { files }));
    assert.ok(namesOf(found.files).length > 0 && namesOf(all.files).length > namesOf(found.files).length);
    assert.equal(new Set(namesOf(found.files)).size, namesOf(found.files).length);
    for (const params of [{ files }, { mutants: found.files }]) {
      reported.length = 0;
      const result = await connection.sendRequest("mutationTest", params);
      assert.deepEqual(MutationTestResult.strict().parse(result), { files: {} });
      // The server reports the same mutants by the same names.
      const names = reported.flatMap((one) => namesOf(one.files));
      assert.deepEqual(names.sort(), namesOf(found.files).sort());
    }
    await assert.rejects(connection.sendRequest("discover", { files: 7 }), { code: -32602 });
    await assert.rejects(connection.sendRequest("none", {}), { code: -32601 });
    connection.dispose();
    socket.destroy();
  },
};

await scenarios[scenario]();
console.log(`${scenario} passed`);
