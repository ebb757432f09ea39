// Scenarios of `heeler mcp filter`: the official clients see the server without its tests, and no other trace of the
// filter. Each scenario is a test in tests/e2e/mcp/node_clients.rs.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { connected, isHttp } from "./clients.mjs";

const SERVER = fileURLToPath(new URL("server.mjs", import.meta.url));
const notes = () => readFileSync(process.env.NOTES, "utf8").split("\n");

async function noted(text) {
  for (let waited = 0; waited < 30_000; waited += 20) {
    if (notes().includes(text)) return;
    await setTimeout(20);
  }
  assert.fail(`the server has not noted: ${text}`);
}

async function invisible(kind, library) {
  const direct = await connected(kind, process.execPath, [SERVER, library]);
  const all = await direct.tools();
  await direct.close();
  assert.equal(all.length, 8);
  const filtered = await connected(kind, process.env.HEELER, ["mcp", "filter", "--", "node", SERVER, library]);
  const tools = await filtered.tools();
  assert.deepEqual(tools, all.filter(({ name }) => !name.startsWith("mcp.test.")));
  assert.deepEqual(tools.map(({ name }) => name), ["add", "slow", "echo", "my.mcp.test.x"]);
  assert.equal((await filtered.call("add", { a: 2, b: 3 })).content[0].text, "5");
  const text = { text: "mcp.test.first \u2028 \ud83d\ude00", list: [1, { name: "mcp.test.first" }] };
  assert.deepEqual(JSON.parse((await filtered.call("echo", text)).content[0].text), text);
  await assert.rejects(filtered.call("mcp.test.first"), (error) => {
    assert.equal(error.code, -32602);
    assert.match(error.message, /Unknown tool: mcp\.test\.first/);
    return true;
  });
  const progress = [];
  const onprogress = ({ message }) => {
    progress.push(message);
    writeFileSync("seen", "");
  };
  const slow = await filtered.call("slow", { until: "seen" }, { onprogress });
  assert.equal(slow.content[0].text, "done");
  assert.deepEqual(progress, ["halfway"]);
  // Version 2 of the library serves the first era over HTTP without sessions, so a cancel finds no request.
  if (!(isHttp && library === "v2" && kind !== "v2-modern")) await cancels(filtered);
  await filtered.close();
  assert.ok(!notes().some((line) => line.startsWith("call mcp.test.")), "no test has reached the server");
}

async function cancels(filtered) {
  const controller = new AbortController();
  const cancelled = filtered.call("slow", { until: "never" }, { signal: controller.signal, onprogress: () => controller.abort("enough") });
  await assert.rejects(cancelled);
  await noted("cancelled slow");
}

export const filter_is_invisible_to_v1_client_of_v1_server = () => invisible("v1", "v1");
export const filter_is_invisible_to_v1_client_of_v2_server = () => invisible("v1", "v2");
export const filter_is_invisible_to_v2_client_of_v1_server = () => invisible("v2-legacy", "v1");
export const filter_is_invisible_to_v2_client_of_v2_server = () => invisible("v2-legacy", "v2");
export const filter_is_invisible_to_modern_client_of_v1_server = () => invisible("v2-modern", "v1");
export const filter_is_invisible_to_modern_client_of_v2_server = () => invisible("v2-modern", "v2");
