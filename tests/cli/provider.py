"""A small OAuth 2.0 provider on loopback, and the tools and settings of a folder that uses it."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

TOOLS = '''
from toolcrib import Context, Secret, ToolAuth, tool


@tool(auth=ToolAuth("test", scopes=["a"]))
async def me(ctx: Context) -> str:
    """Who am I?"""
    return (await ctx.http("test").get("URL/me")).text


@tool(auth=Secret("WEATHER_KEY"))
async def weather(ctx: Context) -> int:
    """How long the key is."""
    return len(ctx.credentials["WEATHER_KEY"].secret)
'''

PROVIDERS = """
[test]
title = "Test"
source = "https://example.com/docs"
checked = 2026-01-01
hosts = ["HOST"]

[test.oauth2]
authorize_url = "URL/authorize"
token_url = "URL/token"
device_url = "URL/device"
revoke_url = "URL/revoke"

[test.token]
"""

SETTINGS = """
providers = "providers.toml"

[[source]]
from = "tools.py"

[auth.test]
client_id = "this-program"
client_secret = "${env:TEST_SECRET}"

[store]
url = "data/store.db"

[net]
allow = ["127.0.0.1"]
"""


class LoopbackProvider:
    """Grants whatever is asked, at once. *tokens* are all that it gave; *denies* has it refuse."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.tokens: list[str] = []
        self.revoked: list[str] = []
        self.denies = False
        self.device_is_open = False
        self.device_lives_s = 60

    def answer(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, Any]:
        if path == "/me":
            return 200, {"known": authorization.removeprefix("Bearer ") in self.tokens}
        if path == "/device":
            code = {"device_code": "device-code", "user_code": "ABCD", "verification_uri": f"{self.url}/activate"}
            return 200, {**code, "expires_in": self.device_lives_s, "interval": 0.05}
        if path == "/revoke":
            self.revoked.append(form["token"])
            return 200, {}
        if form.get("device_code") and not self.device_is_open:
            return 400, {"error": "authorization_pending"}
        number = len(self.tokens)
        self.tokens.append(f"canary-token-{number}")
        grant = {"access_token": self.tokens[-1], "refresh_token": f"canary-refresh-{number}"}
        return 200, {**grant, "expires_in": 3600, "token_type": "Bearer"}

    def write(self, folder: Path) -> None:
        """Write the tools and settings of somebody who uses it."""
        for name, text in (("tools.py", TOOLS), ("providers.toml", PROVIDERS), ("toolcrib.toml", SETTINGS)):
            (folder / name).write_text(text.replace("URL", self.url).replace("HOST", urlsplit(self.url).netloc))


@contextmanager
def loopback_provider() -> Generator[LoopbackProvider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = urlsplit(self.path)
            if where.path != "/authorize":
                self.reply(*provider.answer(where.path, {}, self.headers.get("Authorization", "")))
                return
            query = {name: values[0] for name, values in parse_qs(where.query).items()}
            granted = {"error": "access_denied"} if provider.denies else {"code": "the-code"}
            self.send_response(302)
            self.send_header("Location", f"{query['redirect_uri']}?{urlencode({**granted, 'state': query['state']})}")
            self.end_headers()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self.reply(*provider.answer(self.path, form, ""))

        def reply(self, status: int, data: Any) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider = LoopbackProvider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
