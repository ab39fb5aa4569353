"""Folders of Python as tools, and what they cannot do. Those that run in the sandbox are `full`: it has to be built."""

import importlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Caller, Workbench
from toolcrib.core import LoadError
from toolcrib.sandbox import python_build
from toolcrib.tools import Permissions, load

from .conftest import Service, build_sandbox_python
from .guests import outcome, outcomes

GUEST = Path(python_build.__file__).with_name("python")

Folder = Callable[..., Path]


@pytest.fixture
def python(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_sandbox_python(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with a `tool.toml` and a `main.py`; *files* are others, by name."""

    def make(code: str, manifest: str = "", files: dict[str, str] | None = None, *, name: str = "guest") -> Path:
        made = tmp_path / name
        manifest = f'name = "{name}"\ndescription = "Does something."\nruntime = "python"\n{manifest}'
        for path, text in {"main.py": code, "tool.toml": manifest, **(files or {})}.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(text)
        return made

    return make


async def test_without_the_python_of_the_sandbox_a_call_names_the_command_that_makes_it(folder: Folder) -> None:
    assert await outcome(folder("print(1)")) == (
        "unavailable",
        "Tool 'guest' runs in the sandbox's Python, which is not there yet. The operator makes it once: "
        "toolcrib sandbox build-python",
    )


@pytest.mark.parametrize(
    ("files", "manifest", "reason"),
    [
        ({"vendor/fast.cpython-314-x86_64-linux-gnu.so": ""}, "", "It has native code (vendor/fast.cpython-314"),
        ({"libfast.so.1": ""}, "", "If you trust its source, write 'trusted = true' in its [[source]]"),
        ({"requirements.txt": "# all\nnumpy==2\n"}, "", "It needs packages that are not in it (numpy==2)."),
        ({"pyproject.toml": '[project]\ndependencies = ["numpy"]'}, "", "It needs packages that are not in it (numpy)"),
        ({"requirements.txt": "-r ../other.txt"}, "", "among its requirements. They are packages, without options."),
        ({}, 'hosts = ["example.com"]', "needs what was not granted: the host example.com"),
    ],
)
def test_what_cannot_run_in_the_sandbox_is_refused_with_the_reason(
    folder: Folder, files: dict[str, str], manifest: str, reason: str
) -> None:
    with pytest.raises(LoadError) as raised:
        load(folder("print(1)", manifest, files))
    assert reason in str(raised.value)


def test_no_mount_takes_the_place_of_its_own_folder(folder: Folder, tmp_path: Path) -> None:
    made = folder("print(1)", 'mounts = [{ name = "tool" }]')
    with pytest.raises(LoadError, match="no mount of it can have the name 'tool'"):
        load(Permissions(mounts={"tool": tmp_path}).to(made))


def test_another_content_of_any_of_its_files_is_another_body(folder: Folder) -> None:
    bodies = {
        load(folder("print(1)", "", files)).tools[0].body()
        for files in ({}, {"inner.py": ""}, {"inner.py": "x = 1"}, {"other.py": "x = 1"})
    }
    assert len(bodies) == 4


def test_fetch_outside_of_the_sandbox_is_the_same(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(GUEST)
    guest = importlib.import_module("toolcrib_guest")
    service.replies["/json"] = (200, {"content-type": "application/json"}, '{"a": "å"}'.encode())
    service.replies["/latin"] = (404, {"content-type": "x/y; charset=latin-1"}, "å".encode("latin-1"))
    url = f"http://localhost:{service.port}"
    response = guest.fetch(f"{url}/json", "post", {"X-Mine": "1"}, json={"b": 1})
    assert (response.status, response.json(), response.headers["content-type"]) == (200, {"a": "å"}, "application/json")
    missing = guest.fetch(f"{url}/latin")
    assert (missing.status, missing.text) == (404, "å")
    assert (service.requests[0][2]["x-mine"], service.requests[0][3]) == ("1", b'{"b": 1}')
    for wrong in ("file:///etc/passwd", "http://localhost:1/"):
        with pytest.raises(guest.FetchError):
            guest.fetch(wrong)


# In the sandbox


@pytest.mark.full
async def test_a_folder_gets_its_arguments_and_gives_its_result_with_what_is_vendored_in_it(
    python: None, folder: Folder
) -> None:
    code = """
import csv, datetime, decimal, email.message, hashlib, json, random, re, sqlite3, sys, tomllib, urllib.parse, zlib
import asyncio, xml.etree.ElementTree
import inner.deep, tiny
arguments = json.load(sys.stdin)
assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
assert "é".encode("cp1252") == b"\\xe9"
asyncio.run(asyncio.wait_for(asyncio.sleep(0.01), 1))
print("to the log", file=sys.stderr)
print(json.dumps({**arguments, "inner": inner.deep.NAME, "tiny": tiny.NAME, "random": random.random()}))
"""
    files = {"inner/deep.py": "NAME = __name__", "vendor/tiny.py": "NAME = 'vendored'"}
    async with Workbench([folder(code, "", files)]) as bench:
        values = [(await bench.call("guest", {"city": "Oslo"})).unwrap() for _ in range(2)]
    assert values[0]["random"] != values[1]["random"]
    for value in values:
        del value["random"]
        assert value == {"city": "Oslo", "inner": "inner.deep", "tiny": "vendored"}


TRIES = """
import os, socket, subprocess, sys, threading
def attempt(what):
    try:
        return f"did it: {what()!r}"
    except Exception as error:
        return type(error).__name__
for what in (
    lambda: open("/etc/passwd").read(),
    lambda: open("../../../../etc/passwd").read(),
    lambda: open("/tool/../../etc/passwd").read(),
    lambda: open("/proc/self/environ").read(),
    lambda: os.listdir("/"),
    lambda: open("/tool/new", "w"),
    lambda: open("/tool/main.py", "a"),
    lambda: os.remove("/tool/main.py"),
    lambda: os.symlink("/etc", "/tool/link"),
    lambda: os.system("id"),
    lambda: subprocess.run(["id"]),
    lambda: threading.Thread(target=print).start(),
    lambda: socket.create_connection(("127.0.0.1", 22)),
    lambda: socket.getaddrinfo("localhost", 80),
    lambda: socket.socket().bind(("127.0.0.1", 0)),
    lambda: __import__("ctypes"),
    lambda: __import__("toolcrib"),
):
    found = attempt(what)
    if found.startswith("did it"):
        print(found)
print(sorted(os.environ), os.listdir("/tool"))
"""


@pytest.mark.full
async def test_it_has_no_files_but_its_own_no_processes_no_sockets_and_no_environment(
    python: None, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "not for guests")
    assert await outcome(folder(TRIES)) == ("success", "[] ['main.py', 'tool.toml']")


@pytest.mark.full
async def test_variables_and_credentials_are_in_its_environment(
    python: None, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    from toolcrib.auth import CredentialBroker

    code = 'import os\nprint(os.environ["UNITS"], os.environ["KEY"])\nraise ValueError(os.environ["KEY"])'
    made = folder(code, 'variables = ["UNITS"]\nauth = [{ secret = "KEY" }]')
    permissions = Permissions(variables=["UNITS"], secrets=["KEY"])
    options: dict[str, Any] = {"caller": Caller("alice"), "variables": {"UNITS": "metric"}}
    found = await outcome(permissions.to(made), broker=CredentialBroker(secrets={"KEY": "canary-5521"}), **options)
    assert found == ("failed", "Tool 'guest' failed: ValueError: [secret]")
    assert "ValueError: [secret]" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.full
async def test_it_has_the_folders_that_were_granted_and_writes_in_those_that_may_be_written(
    python: None, folder: Folder, tmp_path: Path
) -> None:
    for name in ("data", "work"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "seen.txt").write_text(name)
    code = 'print(open("/data/seen.txt").read(), open("/work/new.txt", "w").write("new"))\nopen("/data/new.txt", "w")'
    made = folder(code, 'mounts = [{ name = "data" }, { name = "work", read_only = false }]')
    mounts = {name: tmp_path / name for name in ("data", "work")}
    code, text = await outcome(Permissions(mounts=mounts, writable=["work"]).to(made))
    assert (code, "PermissionError" in text) == ("failed", True)
    assert (tmp_path / "work" / "new.txt").read_text() == "new"


@pytest.mark.full
async def test_how_it_ends_has_its_code_and_one_line(
    python: None, folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    deep = "(" * 5000 + ")" * 5000
    codes = {
        "raise ValueError('no such\\ncity')": ("failed", "Tool 'guest_0' failed: ValueError: no such city"),
        "import sys\nprint('no city', file=sys.stderr)\nsys.exit(3)": (
            "failed",
            "Tool 'guest_1' ended with status 3. It wrote: no city",
        ),
        "def f(): f()\nf()": ("failed", "Tool 'guest_2' failed: RecursionError: maximum recursion depth exceeded"),
        "x = 'a' * 10**9": (
            "trapped",
            "Tool 'guest_3' was stopped: it needed more than the 64 MiB of memory that it may have.",
        ),
        "print(": ("failed", "Tool 'guest_4' failed: SyntaxError: '(' was never closed"),
        "import numpy": ("failed", "Tool 'guest_5' failed: ModuleNotFoundError: No module named 'numpy'"),
        "print('fine')": ("success", "fine"),
    }
    with caplog.at_level(logging.INFO):
        sources = [folder(code, name=f"guest_{number}") for number, code in enumerate(codes)]
        assert await outcomes(*sources) == list(codes.values())
    logged = [record.getMessage() for record in caplog.records if record.name == "toolcrib.tool.guest_0"]
    assert logged == [
        "Traceback (most recent call last):\n"
        '  File "/tool/main.py", line 1, in <module>\n'
        "    raise ValueError('no such\\ncity')\n"
        "ValueError: no such\ncity"
    ]
    # However deep its calls, in Python or in C, the host lives.
    code, _ = await outcome(folder(f"import json\njson.loads('[' * 100000)\n{deep}", name="deep"))
    assert code in ("failed", "trapped")


@pytest.mark.full
async def test_it_reaches_the_hosts_that_it_was_granted_and_no_others(
    python: None, folder: Folder, service: Service
) -> None:
    here = f"localhost:{service.port}"
    service.replies["/"] = (200, {}, b"hello")
    service.replies["/away"] = (302, {"location": f"{service.url}/"}, b"")
    service.replies["/json"] = (201, {"x-one": "1"}, b'{"a": 1}')
    service.replies["/large"] = (200, {}, bytes(8 * 1024**2))
    code = f"""
import json
from toolcrib_guest import FetchError, fetch
response = fetch("http://{here}/json", "POST", {{"X-Mine": "1"}}, json={{"b": 1}}, timeout_s=5)
found = [response.status, response.json(), response.headers["x-one"], fetch("http://{here}/").text]
found.append(len(fetch("http://{here}/large").content))
for url in ("http://{here}/away", "{service.url}/", "https://169.254.169.254/", "file:///etc/passwd"):
    try:
        found.append(fetch(url).status)
    except FetchError as error:
        found.append("may not" in str(error) or str(error)[:26])
print(json.dumps(found))
"""
    hosts = [here, "169.254.169.254"]
    made = folder(code, f"hosts = {json.dumps(hosts)}")
    status, text = await outcome(Permissions(hosts=hosts, private_hosts=["localhost"]).to(made))
    assert status == "success", text
    assert json.loads(text) == [
        *(201, {"a": 1}, "1", "hello", 8 * 1024**2),
        *(True, True, True, "A URL begins with https://"),
    ]
    assert [path for _, path, _, _ in service.requests] == ["/json", "/", "/large", "/away"]
    assert (service.requests[0][2]["x-mine"], service.requests[0][3]) == ("1", b'{"b": 1}')


@pytest.mark.full
async def test_a_folder_that_is_trusted_runs_in_an_environment_of_its_own(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import importlib.metadata, json, os, sys
from toolcrib_guest import fetch
arguments = json.load(sys.stdin)
if arguments.get("fail"):
    raise ValueError("no such city")
version, is_own = importlib.metadata.version("annotated-doc"), sys.prefix != sys.base_prefix
print(json.dumps({**arguments, "version": version, "is_own": is_own, "host": os.environ.get("OF_THE_HOST")}))
"""
    made = folder(code, "timeout_s = 20", {"requirements.txt": "annotated-doc==0.0.6\n"})
    monkeypatch.setenv("OF_THE_HOST", "not for guests")
    async with Workbench([Permissions(trusted=True).to(made)]) as bench:
        for _ in range(2):
            result = await bench.call("guest", {"city": "Oslo"})
            assert result.unwrap() == {"city": "Oslo", "version": "0.0.6", "is_own": True, "host": None}
        failed = await bench.call("guest", {"fail": True})
        assert (failed.status, failed.text) == ("error", "Tool 'guest' failed: ValueError: no such city")
        assert bench.registry.get("guest").isolation == "process"


@pytest.mark.full
async def test_an_environment_that_cannot_be_made_is_the_reason_why_a_tool_is_unavailable(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    made = folder("print(1)", "", {"requirements.txt": "toolcrib-has-no-such-package==99\n"})
    code, text = await outcome(Permissions(trusted=True).to(made))
    assert (code, text) == (
        "unavailable",
        "The virtual environment of tool 'guest' cannot be made. The detail is in the log.",
    )
    assert "toolcrib-has-no-such-package" in caplog.text
