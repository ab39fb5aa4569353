"""An MCP server over standard input and output that says what is in a file: JSON, by method and by tool.

A text is one line as it stands, with ID for the id of the request; an object is a result. Of a list each is written,
`WAIT` waits for the client's next message, and `STOP` reads nothing any more. A ping is answered at once, unless
what is said to it is null.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SAYS: dict[str, Any] = {
    "server/discover": '{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"Method not found"}}',
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "scripted", "version": "1"},
    },
    "tools/list": {"tools": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "prompts/list": {"prompts": []},
    **json.loads(Path(sys.argv[1]).read_text()),
}


def messages() -> Iterator[Any]:
    for message in map(json.loads, iter(sys.stdin.readline, "")):
        if message.get("method") != "ping":
            yield message
        elif SAYS.get("ping", {}) is not None:
            write(f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{{}}}}')


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


heard = messages()
for message in heard:
    if "id" not in message or "method" not in message:
        continue
    params = message.get("params") or {}
    reply = SAYS.get(f"{message['method']} {params.get('name', params.get('uri'))}", SAYS.get(message["method"], {}))
    for step in reply if isinstance(reply, list) else [reply]:
        if step == "WAIT":
            next(heard)
        elif step == "STOP":
            time.sleep(3600)
        else:
            line = step if isinstance(step, str) else f'{{"jsonrpc":"2.0","id":ID,"result":{json.dumps(step)}}}'
            write(line.replace("ID", json.dumps(message["id"])))
