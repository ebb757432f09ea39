// A server with ordinary tools and tests, on both official libraries: node server.mjs v1|v2 [http]. Calls
// and cancels are logged to the file $NOTES.
import { appendFileSync, existsSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { Server as Server1 } from "@modelcontextprotocol/sdk/server/index.js";
import { WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { Server as Server2, createMcpHandler } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const note = (text) => appendFileSync(process.env.NOTES, `${text}\n`);
const tool = (name) => ({ name, description: `the tool ${name}, "ü" \u2028`, inputSchema: { type: "object", properties: {} } });
// The second page contains only tests.
const PAGES = [["add", "mcp.test.first", "slow"], ["mcp.test.second", "mcp.test.third"], ["mcp.test.protocol", "echo", "my.mcp.test.x"]];

function page(cursor) {
  const number = Number(cursor ?? 0);
  const next = number + 1 < PAGES.length ? { nextCursor: String(number + 1) } : {};
  return { tools: PAGES[number].map(tool), ...next };
}

async function call({ name, arguments: args }, { signal, progress }) {
  note(`call ${name}`);
  if (name === "add") return { content: [{ type: "text", text: String(args.a + args.b) }] };
  if (name !== "slow") return { content: [{ type: "text", text: JSON.stringify(args ?? {}) }] };
  await progress({ progress: 1, total: 2, message: "halfway" });
  try {
    // Clients report an error if progress arrives together with the answer.
    while (!existsSync(args.until)) await setTimeout(5, undefined, { signal });
  } catch {
    note("cancelled slow");
  }
  return { content: [{ type: "text", text: "done" }] };
}

const capabilities = { capabilities: { tools: {} } };

function newServer1() {
  const server = new Server1({ name: "fixture", version: "1.0.0" }, capabilities);
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => page(params?.cursor));
  server.setRequestHandler(CallToolRequestSchema, ({ params }, extra) =>
    call(params, {
      signal: extra.signal,
      progress: (state) =>
        extra.sendNotification({ method: "notifications/progress", params: { progressToken: params._meta?.progressToken, ...state } }),
    }),
  );
  return server;
}

function newServer2() {
  const server = new Server2({ name: "fixture", version: "1.0.0" }, capabilities);
  server.setRequestHandler("tools/list", ({ params }) => page(params?.cursor));
  server.setRequestHandler("tools/call", ({ params }, ctx) =>
    call(params, {
      signal: ctx.mcpReq.signal,
      progress: (state) =>
        ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken: ctx.mcpReq._meta?.progressToken, ...state } }),
    }),
  );
  return server;
}

const [library, transport] = process.argv.slice(2);
if (transport === "http") {
  const { listen, withSessions } = await import("../../fixtures/mcp/http.mjs");
  if (library === "v1") listen(withSessions(WebStandardStreamableHTTPServerTransport, newServer1));
  else {
    const handler = createMcpHandler(newServer2);
    listen((request) => handler.fetch(request));
  }
} else {
  if (library === "v1") await newServer1().connect(new StdioServerTransport());
  else serveStdio(newServer2);
  process.stdin.on("end", () => process.exit(7));
}
