// The official clients on standard streams, or over HTTP if $TRANSPORT is "http": version 1, which knows only the
// handshake, and version 2 in both eras.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as Http1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Client as Client2, StreamableHTTPClientTransport as Http2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio2 } from "@modelcontextprotocol/client/stdio";

const INFO = { name: "heeler-test", version: "1.0.0" };

/** The kinds of clients, by name. */
export const KINDS = {
  v1: () => [new Client1(INFO), Stdio1, Http1],
  "v2-legacy": () => [new Client2(INFO), Stdio2, Http2],
  "v2-modern": () => [new Client2(INFO, { versionNegotiation: { mode: "auto" } }), Stdio2, Http2],
};

export const isHttp = process.env.TRANSPORT === "http";

/** Starts a server that prints its address; returns the address and the process. */
async function started(command, args) {
  const server = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
  const url = await new Promise((resolve, reject) => {
    for (const output of [server.stdout, server.stderr]) {
      createInterface({ input: output }).on("line", (line) => {
        const [address] = /http:\/\/\S+/.exec(line) ?? [];
        if (address) resolve(address);
        else console.error(line);
      });
    }
    server.on("exit", (code, signal) => reject(new Error(`${command} ended before it listened: ${code} ${signal}`)));
  });
  return { url, server };
}

/** Starts the HTTP equivalent of a command line for standard streams. */
async function startedOverHttp(command, args) {
  const [first, second, , ...wrapped] = args;
  if (first === "serve") return [await started(command, [...args, "--port", "0"])];
  if (first !== "mcp") return [await started(command, [...args, "http"])];
  assert.equal(second, "filter");
  const server = await started(wrapped[0], [...wrapped.slice(1), "http"]);
  return [await started(command, ["mcp", "filter", "--port", "0", server.url]), server];
}

/** Ends a started process and waits for its exit. */
async function ended({ server }) {
  const exit = new Promise((resolve) => server.once("exit", resolve));
  server.kill("SIGTERM");
  await exit;
}

/** Connects a client to a command. */
export async function connected(kind, command, args) {
  const [client, Stdio, Http] = KINDS[kind]();
  const servers = isHttp ? await startedOverHttp(command, args) : [];
  const transport = isHttp ? new Http(new URL(servers[0].url)) : new Stdio({ command, args, env: { ...process.env }, stderr: "inherit" });
  const errors = [];
  let isClosing = false;
  client.onerror = (error) => {
    // Version 1 reports errors on streams that it closed itself.
    if (isClosing) return;
    // The clients report this with any server when they read the last progress and the answer together.
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
    /** Closes the connection; the client must have reported no error. */
    async close() {
      isClosing = true;
      if (isHttp) await transport.terminateSession?.();
      await client.close();
      for (const server of servers) await ended(server);
      assert.deepEqual(errors, []);
    },
  };
}
