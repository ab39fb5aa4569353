// A program of its own over the official TypeScript SDK. It takes the settings that other clients take, as a file, and
// makes each line of standard input a call, as a model would: {"name": ..., "arguments": ...}.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { url, command, args } = JSON.parse(readFileSync(process.argv[2])).mcpServers.toolcrib;
const client = new Client({ name: "two-minutes", version: "1" });
await client.connect(url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport({ command, args }));
console.log((await client.listTools()).tools.map((tool) => tool.name).join(" "));
for await (const line of createInterface({ input: process.stdin })) {
  const { content, isError } = await client.callTool(JSON.parse(line));
  console.log(JSON.stringify({ isError: isError ?? false, text: content.map((block) => block.text).join("\n") }));
}
await client.close();
