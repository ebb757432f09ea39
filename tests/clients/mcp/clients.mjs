// The official clients: version 1, which knows the handshake only, and version 2 in both eras.
import assert from "node:assert/strict";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Client as Client2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio2 } from "@modelcontextprotocol/client/stdio";

const INFO = { name: "heeler-test", version: "1.0.0" };

/** The kinds of clients, by name. */
export const KINDS = {
  v1: () => [new Client1(INFO), Stdio1],
  "v2-legacy": () => [new Client2(INFO), Stdio2],
  "v2-modern": () => [new Client2(INFO, { versionNegotiation: { mode: "auto" } }), Stdio2],
};

/** Connects a client to a command. */
export async function connected(kind, command, args) {
  const [client, Stdio] = KINDS[kind]();
  const transport = new Stdio({ command, args, env: { ...process.env }, stderr: "inherit" });
  const errors = [];
  client.onerror = (error) => {
    // What the clients say when they read the last progress and the answer at once, whoever sends them.
    if (!error.message.startsWith("Received a progress notification for an unknown token")) errors.push(error);
  };
  await client.connect(transport);
  return {
    client,
    pid: transport.pid,
    /** Calls a tool. */
    call: (name, args = {}, options = {}) =>
      kind === "v1" ? client.callTool({ name, arguments: args }, undefined, options) : client.callTool({ name, arguments: args }, options),
    /** Lists all tools, page by page. */
    async tools() {
      const tools = [];
      let cursor;
      do {
        const page = await client.listTools(cursor === undefined ? undefined : { cursor });
        tools.push(...page.tools);
        cursor = page.nextCursor;
      } while (cursor !== undefined);
      return tools;
    },
    /** Closes the connection; the client has complained about nothing. */
    async close() {
      await client.close();
      assert.deepEqual(errors, []);
    },
  };
}
