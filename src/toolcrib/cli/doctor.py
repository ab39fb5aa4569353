"""`toolcrib doctor`: what is installed, and whether what is configured works on this machine. It changes nothing."""

import asyncio
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..core import StoreError, ToolcribError
from .options import Config, Json, Store
from .terminal import Output, one_line

if TYPE_CHECKING:
    from ..store import Store as Database
    from ..store.schema import Schema
    from ..workbench.settings import Settings

_REQUIRED = re.compile(r"(?P<name>[A-Za-z0-9._-]+).*;.*extra == ['\"](?P<extra>[a-z-]+)['\"]")
_ANSWER = "42"
# A WebAssembly program that writes the answer.
_PROGRAM = f"""(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\\10\\00\\00\\00\\02\\00\\00\\00") (data (i32.const 16) "{_ANSWER}")
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out of one thing. Only a `problem` makes the command fail: what is `missing` is optional."""

    name: str
    status: Literal["ok", "missing", "problem"]
    detail: str


def doctor(config: Config = None, store: Store = None, as_json: Json = False) -> int:
    """Show what is installed, and whether it works.

    The settings, the sandbox, the key and the store are tried. Nothing of yours is made or changed. The exit status is
    1 where something does not work.
    """
    output = Output()
    found = [*_findings(config, store)]
    is_well = all(one.status != "problem" for one in found)
    if as_json:
        output.json({"ok": is_well, "checks": [asdict(one) for one in found]})
    else:
        width = max(len(one.name) for one in found)
        for one in found:
            output.write(f"{one.status:<8} {one.name:<{width}}  {one_line(one.detail)}")
    return 0 if is_well else 1


def _findings(config: Path | None, store: str | None) -> Iterator[Finding]:
    yield Finding("toolcrib", "ok", f"{version('toolcrib')}, Python {platform.python_version()}, {sys.platform}")
    yield from _extras()
    settings, found = _settings(config)
    yield found
    yield _checked("worker processes", _worker)
    yield _checked("WebAssembly", _webassembly)
    yield _checked("Python in the sandbox", _sandboxed_python)
    if settings is not None:
        yield from _store(settings, store)
    yield _node()


def _extras() -> Iterator[Finding]:
    extras: dict[str, list[str]] = {}
    for line in metadata("toolcrib").get_all("Requires-Dist") or ():
        if (found := _REQUIRED.fullmatch(line)) and found["extra"] != "all" and found["name"] != "toolcrib":
            extras.setdefault(found["extra"], []).append(found["name"])
    for extra, packages in sorted(extras.items()):
        absent = [name for name in packages if not _is_installed(name)]
        if absent:
            yield Finding(f"extra {extra}", "missing", f"{', '.join(absent)}: pip install 'toolcrib[{extra}]'")
        else:
            yield Finding(f"extra {extra}", "ok", ", ".join(f"{name} {version(name)}" for name in packages))


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def _settings(config: Path | None) -> "tuple[Settings | None, Finding]":
    from ..workbench.settings import find_settings, read_settings

    try:
        file = find_settings(config)
        settings = read_settings(file)
    except ToolcribError as error:
        return None, Finding("settings", "problem", f"{error} (The store was not looked at.)")
    return settings, Finding(
        "settings", "missing" if file is None else "ok", "none here" if file is None else str(file)
    )


def _checked(name: str, check: Callable[[], Finding | str]) -> Finding:
    try:
        found = check()
    except Exception as error:
        return Finding(name, "problem", f"{error}" or type(error).__name__)
    return found if isinstance(found, Finding) else Finding(name, "ok", found)


def _worker() -> str:
    from ..demo import days_between
    from ..tools import Tool

    isolated = Tool(days_between, isolation="process")
    _call(isolated, "days_between", {"start": "2026-01-01", "end": "2026-01-02"})
    return "a tool ran in a process of its own"


def _webassembly() -> Finding | str:
    if not _is_installed("wasmtime"):
        return Finding("WebAssembly", "missing", "pip install 'toolcrib[sandbox]'")
    import wasmtime

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.wasm"
        file.write_bytes(bytes(wasmtime.wat2wasm(_PROGRAM)))
        _call(file, "answer", {})
    return "a module ran in the sandbox"


def _call(source: Any, name: str, arguments: dict[str, Any]) -> None:
    from ..workbench import Workbench

    async def call() -> None:
        async with Workbench([source], timeout_s=60) as bench:
            (await bench.call(name, arguments)).unwrap()

    asyncio.run(call())


def _sandboxed_python() -> Finding | str:
    if not _is_installed("wasmtime"):
        return Finding("Python in the sandbox", "missing", "pip install 'toolcrib[sandbox]'")
    from ..sandbox.python_build import BUILD_COMMAND, python_state

    state = python_state()
    if not state.is_built:
        return Finding("Python in the sandbox", "missing", f"not made yet: {BUILD_COMMAND}")
    return str(state.file)


def _store(settings: "Settings", where: str | None) -> Iterator[Finding]:
    from ..workbench.credentials import store_of

    if not _is_installed("sqlalchemy"):
        yield Finding("store", "missing", "pip install 'toolcrib[store]'")
        return
    try:
        store = store_of(settings, where)
    except ToolcribError as error:
        yield Finding("store", "problem", str(error))
        return
    try:
        if store.file is not None and not store.file.exists():
            yield Finding("store", "missing", f"{store.place}: not made yet; it is when it is first used")
            return
        yield _checked("store", lambda: _tables(store))
        yield _checked("key of the store", lambda: _key(store))
    finally:
        store.close()


def _key(store: "Database") -> Finding | str:
    if (file := store.keys.file) is not None and not file.exists():
        if not asyncio.run(store.has_sealed()):
            return Finding("key of the store", "missing", f"{file}: not made yet; it is when something is sealed")
        raise StoreError(f"The key file {file} is not there. Without it, what is sealed in the store cannot be opened.")
    store.keys.unseal(store.keys.seal(b"", "doctor"), "doctor")
    return f"readable: {store.keys.place}"


def _tables(store: "Database") -> Finding | str:
    from ..record.call_rows import RECORD

    schemas: list[Schema] = []
    if _is_installed("authlib"):
        from ..auth.sealed import AUTH

        schemas.append(AUTH)
    if _is_installed("mcp"):
        from ..serve.keys import KEYS

        schemas.append(KEYS)
    schemas.append(RECORD)
    for schema in schemas:
        store.use(schema)
    behind = asyncio.run(store.pending_migrations())
    if behind:
        return Finding(
            "store", "ok", f"{store.place}: reachable; tables that come with the next use: {', '.join(behind)}"
        )
    return f"{store.place}: reachable, and its tables are current"


def _node() -> Finding:
    node = shutil.which("node")
    if node is None:
        return Finding("Node", "missing", "only for MCP servers that are started with npx")
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("Node", "problem", f"{node}: {type(error).__name__}")
    return Finding("Node", "ok", f"{done.stdout.strip()}, {node}")
