"""`toolcrib sandbox`: what the sandbox has on this machine, and the Python that it runs folders with."""

from typing import Annotated, Any

import typer

from .app import Session, command, group
from .terminal import UsageError, echo

_CACHED = {
    "wasm": "Compiled programs",
    "git": "Folders of repositories",
    "environments": "Virtual environments",
    "python": "Python",
}

sandbox = group("Where tools that are not trusted run.")


@command(sandbox, "status", takes="json")
def status(session: Session) -> None:
    """Show whether its Python was made, and what is in the cache."""
    from ..sandbox.cache import LIMITS, cache_folder, entries
    from ..sandbox.python_build import BUILD_COMMAND, python_state

    state = python_state()
    cached = {name: entries(name) for name in LIMITS}
    data: dict[str, dict[str, Any]] = {
        name: {
            "folder": str(cache_folder(name)),
            "entries": len(found),
            "size_bytes": sum(entry.size_bytes for entry in found),
            "limit_bytes": LIMITS[name],
        }
        for name, found in cached.items()
    }
    if session.as_json:
        session.output.json({**_python_data(state), "cache": data})
        return
    session.output.line(
        _python_line(state) if state.is_built else f"Python: not made yet. Make it once: {BUILD_COMMAND}"
    )
    for name, cache in data.items():
        if name != "python" and cache["entries"]:
            size = f"{_mib(cache['size_bytes'])} of {_mib(cache['limit_bytes'])}"
            session.output.line(f"{_CACHED[name]}: {cache['entries']} in {cache['folder']} ({size})")


@command(sandbox, "clear", takes="json")
def clear(
    session: Session,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CACHE...]", help=f"One or more of: {', '.join(_CACHED)}. By default all but python."),
    ] = None,
) -> None:
    """Clear the cache. What is in use stays; what is removed is made or fetched again when it is needed."""
    from ..sandbox.cache import clear, entries

    chosen = what or [name for name in _CACHED if name != "python"]
    if unknown := [name for name in chosen if name not in _CACHED]:
        raise UsageError(f"There is no cache '{unknown[0]}'. There are: {', '.join(_CACHED)}.")
    removed = {name: clear(name) for name in chosen}
    left = {name: len(entries(name)) for name in chosen}
    if session.as_json:
        data = {name: {"removed": count, "bytes": size, "left": left[name]} for name, (count, size) in removed.items()}
        session.output.json(data)
        return
    for name, (count, size_bytes) in removed.items():
        in_use = f"; {left[name]} in use" if left[name] else ""
        session.output.write(f"{_CACHED[name]}: {count} removed ({_mib(size_bytes)}){in_use}")


@command(sandbox, "build-python", takes="json")
def build(
    session: Session,
    force: Annotated[bool, typer.Option("--force", help="Make it again, though it is there.")] = False,
) -> None:
    """Make the Python of the sandbox. Folders with 'runtime = "python"' run in it; it takes up to a minute, once."""
    from ..sandbox.python_build import build_python

    output = session.output  # claimed before what the build prints
    state = build_python(lambda step: echo(f"{step} ..."), force=force)
    if session.as_json:
        output.json(_python_data(state))
    else:
        output.line(_python_line(state))


def _mib(size_bytes: int) -> str:
    return f"{round(size_bytes / 1024**2)} MiB"


def _python_line(state: Any) -> str:
    return f"Python: {state.file} ({state.size_bytes // 1024**2} MiB)"


def _python_data(state: Any) -> dict[str, Any]:
    return {"python": {"is_built": state.is_built, "file": str(state.file), "size_bytes": state.size_bytes}}
