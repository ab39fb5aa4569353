"""The wheel: what is in it, and that it works where nothing else is installed, alone and with each extra."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from toolcrib.bridges import FRAMEWORKS

pytestmark = pytest.mark.full

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]

CleanEnv = Callable[..., Path]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

TOOLS = '''
"""A user's tools."""

from dataclasses import dataclass
from typing import Literal

from toolcrib import Workbench, tool


@dataclass
class Part:
    name: str
    count: int = 1


@tool
async def order(parts: list[Part], how: Literal["post", "van"] = "post") -> dict[str, int]:
    """Order parts.

    Args:
        parts: What to order.
        how: By which way.
    """
    return {part.name: part.count for part in parts}


if __name__ == "__main__":
    bench = Workbench([order])
    result = bench.call_sync("order", '{"parts": "[{\\\\"name\\\\": \\\\"bolt\\\\", \\\\"count\\\\": \\\\"2\\\\"}]"}')
    print(result.status, result.text, len(result.repairs))
    result = bench.call_sync("order", {"parts": [{"name": "bolt"}], "haw": "van"})
    print(result.status, result.error.code, "Did you mean 'how'?" in result.text)
    print(bench.specs()[0].input_schema["properties"]["how"])
'''

TOOLS_OUTPUT = """\
success {"bolt":2} 2
error invalid_arguments True
{'description': 'By which way.', 'enum': ['post', 'van'], 'type': 'string', 'default': 'post'}
"""

SOURCE = """
import sys
from toolcrib import MCPSource, Workbench

program = '''
from mcp.server.mcpserver import MCPServer
server = MCPServer("calculator")
@server.tool(structured_output=False)
def add(a: int, b: int) -> str:
    return str(a + b)
server.run("stdio")
'''
with Workbench([MCPSource(command=[sys.executable, "-c", program], required=True)]) as bench:
    print(bench.specs()[0].name, bench.call_sync("add", {"a": 1, "b": 2}).text)
"""

METRICS = """
from toolcrib import Workbench
from toolcrib.record import Metrics

def add(a: int, b: int) -> int:
    return a + b

metrics = Metrics()
with Workbench([add], recorder=metrics) as bench:
    bench.call_sync("add", {"a": 1, "b": 2})
found = [line for line in metrics.text().splitlines() if line.startswith("toolcrib_calls_total{")]
print(*(line.rpartition(" ")[2] for line in found))
"""

SPANS = """
from toolcrib import Workbench
from toolcrib.record import Spans

def add(a: int, b: int) -> int:
    return a + b

with Workbench([add], recorder=Spans()) as bench:
    print(bench.call_sync("add", {"a": 1, "b": 2}).status)
"""

SEARCH = """
from toolcrib import Workbench

def drop() -> str:
    "Delete all invoices."
    return "gone"

def show() -> str:
    "Show the weather."
    return "rain"

with Workbench([drop, show], search=True) as bench:
    print(bench.call_sync("find_tools", {"query": "invoices"}).unwrap()[0]["name"])
"""

CONSOLE = """
import toolcrib.serve.console
print("console")
"""

CLIENT = """
import asyncio
from mcp import Client, StdioServerParameters


async def main():
    async with Client(StdioServerParameters(command="toolcrib", args=["serve", "tools.py", "--stdio"])) as client:
        print([tool.name for tool in (await client.list_tools()).tools])
        print((await client.call_tool("order", {"parts": [{"name": "nut", "count": 3}]})).structured_content)


asyncio.run(main())
"""

CLIENT_OUTPUT = """\
['order', 'read_result']
{'nut': 3}
"""


# Nobody listens on the discard port: that a provider's package says so shows that it is there, and is used.
ASK = """
import asyncio
import os
import sys

from toolcrib import Text
from toolcrib.agent import ModelError, Request, {model}
from toolcrib.formats import User

os.environ |= {{"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}}
model = {model}("any", base_url="http://127.0.0.1:9", max_retries=0{options})
try:
    asyncio.run(model.reply(Request((User((Text("Hello"),)),))))
except ModelError as error:
    print(error.problem, sys.modules.keys() >= {{"{package}"}})
"""

IMAGE = """
from PIL import Image as Pillow

from toolcrib.dialects.autogen import Image

print(Image.from_base64(Image(Pillow.new("RGB", (2, 3))).to_base64()).image.size)
"""


LEASE = """
import asyncio
import sys

from toolcrib.store import Leases, Store, StoreError

try:
    print(asyncio.run(Leases(Store(sys.argv[1], key="store.key")).acquire("name", "owner", for_s=1)))
except StoreError as error:
    print(error)
"""

GUARD = """
import asyncio

from toolcrib.net import GuardError, client

try:
    asyncio.run(client().get("https://localhost/"))
except GuardError as error:
    print(error.code)
"""


@pytest.fixture
def run(tmp_path: Path, user_environ: Callable[[Path], dict[str, str]]) -> Run:
    """Runs a command of an environment in a folder with `tools.py` and `client.py` in it."""
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "client.py").write_text(CLIENT)

    def run(programs: Path, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=user_environ(programs),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def output(done: "subprocess.CompletedProcess[str]") -> str:
    """What was printed by a command that succeeded."""
    assert done.returncode == 0, done.stderr
    return done.stdout


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_the_package_its_licence_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    info = f"toolcrib-{wheel.name.split('-')[1]}.dist-info/"
    package = REPOSITORY / "src" / "toolcrib"
    source = {
        f"toolcrib/{file.relative_to(package).as_posix()}"
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert "toolcrib/py.typed" in source
    assert set(members(wheel)) == source | {
        f"{info}{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    }
    assert members(wheel)[f"{info}licenses/LICENSE"] == (REPOSITORY / "LICENSE").read_bytes()


def test_the_source_distribution_builds_the_wheel_that_the_checkout_builds(dist: Path, tmp_path: Path) -> None:
    # The wheel in dist was built from the source distribution.
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(REPOSITORY)]
    subprocess.run(command, check=True, capture_output=True)
    (from_sdist,), (from_checkout,) = dist.glob("*.whl"), tmp_path.glob("*.whl")
    assert members(from_sdist) == members(from_checkout)


def test_the_source_distribution_holds_what_builds_and_no_tests(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert tops - {"CHANGELOG.md"} == {"src", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}


def test_alone_it_defines_calls_and_lists_tools(clean_env: CleanEnv, run: Run) -> None:
    programs = clean_env()
    assert output(run(programs, "python", "-W", "error", "tools.py")) == TOOLS_OUTPUT
    assert output(run(programs, "toolcrib", "--version")) == f"toolcrib {version(programs, run)}\n"
    assert "order" in output(run(programs, "toolcrib", "list", "tools.py"))
    assert "days_between" in output(run(programs, "toolcrib", "list", "toolcrib.demo"))
    called = run(programs, "toolcrib", "call", "-s", "tools.py", "order", 'parts=[{"name": "bolt"}]')
    assert output(called) == '{"bolt":1}\n'
    assert output(run(programs, "python", "-m", "toolcrib", "list", "tools.py", "--json")).startswith("[")


def test_alone_its_pytest_plugin_gives_a_bench(clean_env: CleanEnv, run: Run, tmp_path: Path) -> None:
    (tmp_path / "test_tools.py").write_text(
        "from tools import order\n\n\n"
        "def test_it(bench):\n"
        "    assert bench(order).as_caller('alice').call_sync(order, []).value == {}\n"
    )
    programs = clean_env("--with", "pytest")
    assert "1 passed" in output(run(programs, "python", "-m", "pytest", "-W", "error", "-p", "no:cacheprovider"))


def check_serve(programs: Path, run: Run) -> None:
    assert output(run(programs, "python", "client.py")) == CLIENT_OUTPUT
    for command in ("auth list", "pending list", "keys list", "calls list", "tasks list"):
        assert "pip install" not in run(programs, "toolcrib", *command.split()).stderr
    assert output(run(programs, "python", "-W", "error", "-c", CONSOLE)) == "console\n"


def check_models(programs: Path, run: Run) -> None:
    for model, package, options in (
        ("AnthropicModel", "anthropic", ', api_key="none"'),
        ("BedrockModel", "boto3", ', region="eu-west-1"'),
        ("GeminiModel", "google.genai", ', api_key="none"'),
        ("OpenAIChat", "openai", ', api_key="none"'),
    ):
        ask = ASK.format(model=model, package=package, options=options)
        assert output(run(programs, "python", "-c", ask)) == "unavailable True\n"
    assert output(run(programs, "python", "-W", "error", "-c", IMAGE)) == "(2, 3)\n"


def check_store(programs: Path, run: Run) -> None:
    lease = "Lease(name='name', owner='owner', fence=1)\n"
    assert output(run(programs, "python", "-W", "error", "-c", LEASE, f"{uuid4().hex}.db")) == lease
    url = "postgresql://127.0.0.1:9/none"
    assert "cannot be reached" in output(run(programs, "python", "-W", "error", "-c", LEASE, url))


def check_durable(programs: Path, run: Run) -> None:
    check_store(programs, run)
    assert output(run(programs, "python", "-W", "error", "-c", GUARD)) == "denied\n"


GRANT = """
import asyncio
from toolcrib import Context, Crib, ToolAuth, tool
from toolcrib.auth import Client, CredentialBroker

@tool(auth=ToolAuth("github"))
async def issues(ctx: Context) -> str:
    return "none"

broker = CredentialBroker(clients={"github": Client("id", "a secret")}, redirect_uri="http://127.0.0.1/auth/callback")

async def main():
    async with Crib([issues], broker=broker) as crib:
        print((await crib.workbench().call("issues")).pending.url.partition("?")[0])

asyncio.run(main())
"""


def check_auth(programs: Path, run: Run) -> None:
    asked = output(run(programs, "python", "-W", "error", "-c", GRANT))
    assert asked == "https://github.com/login/oauth/authorize\n"


SESSIONS = """
from toolcrib.dialects.hyperpocket.config.session import SessionConfigRedis
from toolcrib.dialects.hyperpocket.session.redis import RedisSessionStorage

storage = RedisSessionStorage(SessionConfigRedis(host="127.0.0.1", port=9))
try:
    storage.get_by_thread_id("alice")
except Exception as error:
    print(type(error).__name__)
"""


def check_redis(programs: Path, run: Run) -> None:
    assert output(run(programs, "python", "-W", "error", "-c", SESSIONS)) == "ConnectionError\n"


GUEST = """
import wasmtime
from toolcrib import Workbench
text = '(module (memory (export "memory") 1) (func (export "_start") unreachable))'
with open("guest.wasm", "wb") as file:
    file.write(wasmtime.wat2wasm(text))
with Workbench(["guest.wasm"]) as bench:
    print(bench.call_sync("guest").error.code)
"""


DOCUMENT = """
from toolcrib import openapi_source
text = "openapi: 3.1.0\\nservers: [{url: https://api.example.com}]\\npaths: {/a: {get: {operationId: look}}}"
with open("api.yaml", "w") as file:
    file.write(text)
print(openapi_source("api.yaml").tools()[0].spec.name)
"""


def check_openapi(programs: Path, run: Run) -> None:
    assert output(run(programs, "python", "-W", "error", "-c", DOCUMENT)) == "look\n"


def prints(program: str, expected: str) -> Callable[[Path, Run], None]:
    """The check of an extra: what *program* prints, where it is installed."""

    def check(programs: Path, run: Run) -> None:
        assert output(run(programs, "python", "-W", "error", "-c", program)) == expected

    return check


def check_telemetry(programs: Path, run: Run) -> None:
    assert output(run(programs, "python", "-W", "error", "-c", METRICS)) == "1.0\n"
    assert output(run(programs, "python", "-W", "error", "-c", SPANS)) == "success\n"


def check_sandbox(programs: Path, run: Run) -> None:
    assert output(run(programs, "python", "-W", "error", "-c", GUEST)) == "trapped\n"


def check_all(programs: Path, run: Run) -> None:
    for extra, check in EXTRAS.items():
        if extra != "all":
            check(programs, run)


EXTRAS: dict[str, Callable[[Path, Run], None]] = {
    "all": check_all,
    "auth": check_auth,
    "durable": check_durable,
    "mcp": prints(SOURCE, "add 3\n"),
    "models": check_models,
    "openapi": check_openapi,
    "redis": check_redis,
    "sandbox": check_sandbox,
    "search": prints(SEARCH, "drop\n"),
    "serve": check_serve,
    "store": check_store,
    "telemetry": check_telemetry,
}


def test_each_extra_has_a_test() -> None:
    # Those of frameworks are in tests/bridges.
    assert {*EXTRAS, *FRAMEWORKS.values()} == {*PROJECT["optional-dependencies"]}


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_with_an_extra_it_does_what_the_extra_is_for(extra: str, clean_env: CleanEnv, run: Run) -> None:
    programs = clean_env("--extra", extra)
    assert output(run(programs, "python", "-W", "error", "tools.py")) == TOOLS_OUTPUT
    EXTRAS[extra](programs, run)


def test_it_works_with_the_lowest_versions_it_allows(clean_env: CleanEnv, run: Run) -> None:
    programs = clean_env("--lowest", "--extra", "serve")
    require_lowest([*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["serve"]], programs, run)
    assert output(run(programs, "python", "-W", "error", "tools.py")) == TOOLS_OUTPUT
    assert "days_between" in output(run(programs, "toolcrib", "list", "toolcrib.demo"))
    assert "Order parts." in output(run(programs, "toolcrib", "show", "-s", "tools.py", "order"))
    check_serve(programs, run)


def test_arguments_are_read_the_same_with_the_lowest_versions_it_allows(clean_env: CleanEnv) -> None:
    """The user: CrewAI takes no pydantic of 2.13 or later, where a class's own validators can be passed over."""
    needs = ("pytest>=9", "pytest-asyncio>=1.5", "pytest-xdist>=3.8", "hypothesis>=6.170")
    programs = clean_env(
        "--lowest", "--extra", "store", "--with", "pillow>=12", *(part for name in needs for part in ("--with", name))
    )
    pydantic = [programs / "python", "-c", "import pydantic; print(pydantic.VERSION)"]
    assert subprocess.run(pydantic, capture_output=True, text=True).stdout == "2.12.0\n"
    command = [programs / "python", "-m", "pytest", "-p", "no:cacheprovider", "-m", "not full and not nightly"]
    rooms = ["tests/schema", "tests/dialects/autogen"]
    done = subprocess.run([*command, "-n", "2", *rooms], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-5_000:]


@pytest.mark.nightly
def test_its_extras_work_with_the_lowest_versions_they_allow(clean_env: CleanEnv, run: Run) -> None:
    programs = clean_env("--lowest", "--extra", "all")
    # What these need themselves may be newer than what Toolcrib needs.
    named = [line for line in PROJECT["optional-dependencies"].items() if line[0] in EXTRAS.keys() - {"all", "serve"}]
    require_lowest([line for _, lines in named for line in lines], programs, run)
    check_all(programs, run)


@pytest.mark.nightly
@pytest.mark.parametrize("versions", ["--lowest", "--free"])
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_each_extra_works_with_each_python(python: str, versions: str, clean_env: CleanEnv, run: Run) -> None:
    programs = clean_env("--python", interpreter(python), versions, "--extra", "all")
    assert output(run(programs, "python", "-W", "error", "tools.py")) == TOOLS_OUTPUT
    check_all(programs, run)


def interpreter(version: str) -> str:
    """Return the Python of *version*: on the path, or beside the one that runs this, as pyenv has them."""
    beside = Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python3")
    for program in (shutil.which(f"python{version}"), *map(str, beside)):
        show = [program or "", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if program and subprocess.run(show, capture_output=True, text=True).stdout == f"{version}\n":
            return program
    pytest.skip(f"there is no Python {version} here")


def require_lowest(lines: list[str], programs: Path, run: Run) -> None:
    for name, lowest in re.findall(r"'([\w-]+)>=([\d.]+)", str(lines)):
        show = f"import importlib.metadata as m; print(m.version('{name}') + '.')"
        assert output(run(programs, "python", "-c", show)).startswith(f"{lowest}."), name


def version(programs: Path, run: Run) -> str:
    return output(run(programs, "python", "-c", "import toolcrib; print(toolcrib.__version__)")).strip()
