// A client of the official TypeScript SDK: connects to the URL, or starts the command, that it is given, and prints
// what it gets as one line of JSON.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, LoggingMessageNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [command, ...args] = process.argv.slice(2);
const transport = command.startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args });
const client = new Client({ name: "typescript", version: "1" }, { capabilities: { elicitation: { form: {}, url: {} } } });
const asked = [];
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  asked.push(params.message);
  return { action: "accept", content: { username: "ada", email: "ada@example.org" } };
});
const logged = [];
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => logged.push(params.data));
await client.connect(transport);

const progress = [];
const text = (result) => result.content.map((block) => block.text ?? block.type);
const found = {
  tools: (await client.listTools()).tools.length > 20,
  elicited: text(await client.callTool({ name: "test_elicitation", arguments: { message: "Who?" } })),
  progressed: text(
    await client.callTool({ name: "test_tool_with_progress" }, undefined, { onprogress: ({ progress: done }) => progress.push(done) }),
  ),
  logs: text(await client.callTool({ name: "test_tool_with_logging" })),
  kinds: text(await client.callTool({ name: "test_multiple_content_types" })),
  failed: (await client.callTool({ name: "test_error_handling" })).isError,
  resource: (await client.readResource({ uri: "test://template/7/data" })).contents[0].text,
  prompt: (await client.getPrompt({ name: "test_prompt_with_arguments", arguments: { arg1: "a", arg2: "b" } })).messages[0].content.text,
};
await client.close();
console.log(JSON.stringify({ ...found, asked, progress, logged }));
