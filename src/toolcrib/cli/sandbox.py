"""`toolcrib sandbox`: what the sandbox has on this machine, and the Python that it runs folders with."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json
from .terminal import Output, UsageError, echo, one_line

if TYPE_CHECKING:
    from ..sandbox.python_build import PythonState

_CACHED = {
    "wasm": "Compiled programs",
    "git": "Folders of repositories",
    "environments": "Virtual environments",
    "python": "Python",
}

sandbox = typer.Typer(help="Where tools that are not trusted run.")


@sandbox.command("status")
def status(as_json: Json = False) -> int:
    """Show whether its Python was made, and what is in the cache."""
    from ..sandbox.cache import LIMITS
    from ..sandbox.python_build import BUILD_COMMAND, python_state

    state = python_state()
    output = Output()
    if as_json:
        output.json({**_data(state), "cache": {name: _cache_data(name) for name in LIMITS}})
        return 0
    output.write(_line(state) if state.is_built else f"Python: not made yet. Make it once: {BUILD_COMMAND}")
    for name in LIMITS:
        if name != "python" and (cached := _cache_data(name))["entries"]:
            size, most = _mib(cached["size_bytes"]), _mib(cached["limit_bytes"])
            output.write(one_line(f"{_CACHED[name]}: {cached['entries']} in {cached['folder']} ({size} of {most})"))
    return 0


@sandbox.command("clear")
def clear(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CACHE...]", help=f"One or more of: {', '.join(_CACHED)}. By default all but python."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Clear the cache. What is in use stays; what is removed is made or fetched again when it is needed."""
    from ..sandbox.cache import clear, entries

    chosen = what or [name for name in _CACHED if name != "python"]
    if unknown := [name for name in chosen if name not in _CACHED]:
        raise UsageError(f"There is no cache '{one_line(unknown[0])}'. There are: {', '.join(_CACHED)}.")
    output = Output()
    removed = {name: clear(name) for name in chosen}
    left = {name: len(entries(name)) for name in chosen}
    if as_json:
        output.json(
            {name: {"removed": removed[name][0], "bytes": removed[name][1], "left": left[name]} for name in chosen}
        )
        return 0
    for name in chosen:
        count, size_bytes = removed[name]
        in_use = f"; {left[name]} in use" if left[name] else ""
        output.write(f"{_CACHED[name]}: {count} removed ({_mib(size_bytes)}){in_use}")
    return 0


@sandbox.command("build-python")
def build(
    force: Annotated[bool, typer.Option("--force", help="Make it again, though it is there.")] = False,
    as_json: Json = False,
) -> int:
    """Make the Python of the sandbox. Folders with 'runtime = "python"' run in it; it takes up to a minute, once."""
    from ..sandbox.python_build import build_python

    output = Output()
    state = build_python(lambda step: echo(f"{step} ..."), force=force)
    if as_json:
        output.json(_data(state))
    else:
        output.write(_line(state))
    return 0


def _cache_data(name: str) -> dict[str, Any]:
    from ..sandbox.cache import LIMITS, cache_folder, entries

    found = entries(name)
    return {
        "folder": str(cache_folder(name)),
        "entries": len(found),
        "size_bytes": sum(one.size_bytes for one in found),
        "limit_bytes": LIMITS[name],
    }


def _mib(size_bytes: int) -> str:
    return f"{round(size_bytes / 1024**2)} MiB"


def _line(state: "PythonState") -> str:
    return one_line(f"Python: {state.file} ({state.size_bytes // 1024**2} MiB)")


def _data(state: "PythonState") -> dict[str, Any]:
    return {"python": {"is_built": state.is_built, "file": str(state.file), "size_bytes": state.size_bytes}}
