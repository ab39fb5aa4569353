"""Each recipe in examples/ does what its README shows, by the command in it, with real servers on loopback."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import httpx2
import pytest
from watchfiles import watch

from toolcrib.auth import Client, Flow
from toolcrib.auth.catalogue import OAuth2
from toolcrib.serve.access.tokens import AccessTokens

from ..auth.oidc.conftest import REDIRECT, SECRET, Provider
from ..docs.test_examples import fits
from ..ports import free_port
from .conftest import ROOT

PATIENCE_S = 120
RECIPES = ("approvals", "own_loop", "openapi_login", "github", "long_task", "gateway")


class Recipe:
    """A copy of a recipe's folder. Its commands run as its reader would run them, with *programs* first on PATH."""

    def __init__(self, name: str, folder: Path, *programs: Path) -> None:
        self.folder = folder / name
        shutil.copytree(ROOT / "examples" / name, self.folder, ignore=shutil.ignore_patterns("__pycache__", "*.db"))
        readme = (self.folder / "README.md").read_text()
        (self.command,) = re.findall(r"^```sh\n(.+)\n```$", readme, re.M)
        (self.shown,) = re.findall(r"^```text\n(.+?)\n```$", readme, re.M | re.S)
        path = os.pathsep.join([*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        plain = {name: value for name, value in os.environ.items() if not name.startswith("TOOLCRIB_")}
        data = {"HOME": str(folder), "XDG_DATA_HOME": str(folder / "data"), "NO_COLOR": "1", "TERM": "dumb"}
        self.env = plain | data | {"PATH": path, "PYTHONUNBUFFERED": "1"}

    def replace(self, **texts: str) -> None:
        """Put each text in the place of the one with that name, in all files: the addresses are the reader's own."""
        for file in self.folder.iterdir():
            text = file.read_text()
            for place, value in texts.items():
                text = text.replace(PLACES[place], value)
            file.write_text(text)
        (settings,) = (file for file in self.folder.glob("*.toml") if file.name != "providers.toml")
        settings.write_text(f'{settings.read_text()}\n[net]\nallow = ["127.0.0.1"]\n')

    def start(self, command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        """What *command* prints until it ends. An address that it shows is opened, as in a browser."""
        lines = []
        with self.start(command) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if re.match(r"http://127\.0\.0\.1:\d+/authorize\?", line):
                    urlopen(line.strip(), timeout=PATIENCE_S).close()
        assert process.returncode == 0, "".join(lines)
        return "".join(lines)


PLACES = {
    "issuer": "https://login.example.com",
    "base": "https://tools.example.com",
    "group": '"travel"',
    "parts": "https://parts.example.com",
    "parts_host": "parts.example.com",
    "github": "https://api.github.com",
}


@pytest.fixture
def recipe(request: pytest.FixtureRequest, forked_toolcrib: Path, forked_python: str, tmp_path: Path) -> Recipe:
    return Recipe(request.param, tmp_path, forked_toolcrib.parent, Path(forked_python).parent)


def of(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recipe", [name], indirect=True)


@contextmanager
def served(answer: Any) -> Generator[str]:
    """Serve *answer*: a function of the path, the query or form, the JSON and the bearer token of a request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(b"")

        def do_POST(self) -> None:
            self.reply(self.rfile.read(int(self.headers["Content-Length"])))

        def reply(self, body: bytes) -> None:
            address = urlsplit(self.path)
            form = {name: values[0] for name, values in parse_qs(address.query or body.decode()).items()}
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            data = answer(address.path, form, body, token)
            text = json.dumps(data).encode()
            self.send_response(302 if "location" in data else 200)
            if "location" in data:
                self.send_header("Location", data["location"])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def accounts(*people: str, **resources: dict[str, list[Any]]) -> Any:
    """A service at which one after the other of *people* logs in, and each sees an own list of *resources*."""
    waiting = iter(people)

    def answer(path: str, form: dict[str, str], body: bytes, token: str) -> Any:
        if path == "/authorize":
            query = urlencode({"code": f"of-{next(waiting)}", "state": form["state"]})
            return {"location": f"{form['redirect_uri']}?{query}"}
        if path == "/token":
            return {"access_token": form["code"], "token_type": "Bearer", "expires_in": 3600}
        return resources[path.strip("/")][token.removeprefix("of-")]

    return answer


def test_every_recipe_has_a_short_readme_and_is_in_the_list() -> None:
    listed = re.findall(r"\]\((\w+)/README\.md\)", (ROOT / "examples" / "README.md").read_text())
    assert sorted(listed) == sorted(RECIPES) == sorted(p.parent.name for p in ROOT.glob("examples/*/README.md"))
    assert [name for name in RECIPES if len((ROOT / f"examples/{name}/README.md").read_text().splitlines()) > 20] == []


@of("approvals")
def test_a_refund_waits_for_another_person_and_runs_once(recipe: Recipe) -> None:
    shown = recipe.run(recipe.command)
    assert fits(recipe.shown, shown), shown


@of("own_loop")
def test_a_loop_with_a_providers_sdk_goes_on_after_a_wrong_call(recipe: Recipe) -> None:
    wrong = {"item": "screw"}
    turns: Iterator[Any] = iter([[{"part": "nut", "count": "3"}, wrong], recipe.shown.splitlines()[-1]])

    def answer(path: str, form: Any, body: bytes, token: str) -> Any:
        turn = next(turns)
        message: dict[str, Any] = {"role": "assistant", "content": turn if isinstance(turn, str) else None}
        if not isinstance(turn, str):
            functions = [{"name": "price", "arguments": json.dumps(arguments)} for arguments in turn]
            message["tool_calls"] = [
                {"id": f"call_{number}", "type": "function", "function": function}
                for number, function in enumerate(functions)
            ]
        choice = {"index": 0, "finish_reason": "stop" if isinstance(turn, str) else "tool_calls", "message": message}
        return {"id": "1", "object": "chat.completion", "created": 0, "model": "test", "choices": [choice]}

    with served(answer) as url:
        recipe.env |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "test"}
        shown = recipe.run(recipe.command)
    assert fits(recipe.shown, shown), shown


@of("openapi_login")
def test_an_operation_runs_with_the_account_that_logged_in(recipe: Recipe) -> None:
    login, call = recipe.command.split(" && ")
    with served(accounts("ann", parts={"ann": ["bolt of ann"]})) as url:
        recipe.replace(parts=url, parts_host=urlsplit(url).netloc)
        shown = [*recipe.run(login).splitlines()[-1:], recipe.run(call)]
    assert fits(recipe.shown, "\n".join(shown)), shown


@of("github")
def test_two_users_see_their_own_issues_and_a_third_gets_an_address(recipe: Recipe) -> None:
    *logins, program = recipe.command.split(" && ")
    issues = {"ann": [{"title": "Fix the door"}], "bob": [{"title": "Paint the wall"}]}
    with served(accounts("ann", "bob", issues=issues)) as url:
        recipe.replace(github=url)
        stand_in = f"""
            github.title = "GitHub"
            github.recommended_scopes = ["repo"]
            github.hosts = ["{urlsplit(url).netloc}"]
            github.oauth2 = {{ authorize_url = "{url}/authorize", token_url = "{url}/token" }}
        """
        (recipe.folder / "github.toml").write_text(stand_in)
        recipe.env |= {
            "GITHUB_CLIENT_ID": "Iv1.0123456789",
            "GITHUB_CLIENT_SECRET": "canary-secret",
            "TOOLCRIB_PROVIDERS": str(recipe.folder / "github.toml"),
        }
        for login in logins:
            assert "Logged in to" in recipe.run(login)
        shown = recipe.run(program)
    assert fits(recipe.shown, shown), shown


@of("long_task")
@pytest.mark.full  # fifteen seconds, until the other worker knows that one has died
def test_a_task_survives_the_worker_that_is_killed_in_the_middle(recipe: Recipe) -> None:
    settings = recipe.folder / "toolcrib.toml"
    settings.write_text(settings.read_text().replace("pause_s = 600", "pause_s = 0.5"))
    worker, call = recipe.command.split(" & ")
    counted = recipe.folder / "counted"
    with recipe.start(call) as caller, recipe.start(worker) as first:
        for _ in watch(recipe.folder, yield_on_timeout=True):
            if counted.exists() and len(counted.read_text().splitlines()) == 2:
                break
        first.kill()
        with recipe.start(worker) as second:
            assert caller.stdout is not None
            shown = caller.stdout.read()
            second.terminate()
    assert fits(recipe.shown, shown), shown
    assert counted.read_text().splitlines()[0] == "0"
    assert set(counted.read_text().splitlines()) == set("012345")


async def bearer_of(login: str, provider: Provider, audience: str) -> str:
    """An access token for *audience*, as a client gets it when somebody logs in."""
    tokens = AccessTokens(provider.issuer, audience, allow=["127.0.0.1"])
    table = OAuth2(issuer=provider.issuer, resource=audience, client_auth="basic")
    flow = Flow("provider", table, Client("web", SECRET), tokens.http)
    url = await flow.authorization_url(redirect_uri=REDIRECT, scopes=["read"], state="s", verifier="v" * 43)
    back = await asyncio.to_thread(provider.grant, url, login=login)
    (code,) = parse_qs(urlsplit(back).query)["code"]
    return (await flow.exchange_code(code, redirect_uri=REDIRECT, verifier="v" * 43, scopes=["read"])).access_token


@of("gateway")
async def test_rules_of_a_gateway_know_who_logged_in_at_the_provider(recipe: Recipe) -> None:
    provider, base = Provider(), f"http://127.0.0.1:{(port := free_port())}"
    try:
        recipe.replace(issuer=provider.issuer, base=base, group='"of-alice"')
        with recipe.start(f"{recipe.command} --port {port}") as server:
            try:
                assert server.stdout is not None
                assert recipe.shown.replace(PLACES["base"], base) in map(str.rstrip, server.stdout)
                async with httpx2.AsyncClient(base_url=base) as client:
                    assert (await client.get("/api/tools")).status_code == 401
                    names = {}
                    for login in ("alice", "bob"):
                        bearer = await bearer_of(login, provider, f"{base}/mcp")
                        listed = await client.get("/api/tools", headers={"Authorization": f"Bearer {bearer}"})
                        names[login] = {tool["name"] for tool in listed.json()["tools"]}
                    assert names["alice"] - names["bob"] == {"demo_convert_time"}
                    assert "demo_now" in names["bob"]
            finally:
                server.terminate()
    finally:
        provider.close()
