"""`toolcrib sandbox`: the caches of the sandbox on this machine, and the Python that it runs folders with."""

from typing import Annotated, Any

import typer

from .app import Session, command, group
from .terminal import UsageError, echo

CACHES = ("wasm", "git", "environments", "python")

sandbox = group("Where tools that are not trusted run.")


@command(sandbox, "status", takes="json")
def status(session: Session) -> None:
    """Show whether its Python was made, and what is in the cache."""
    from ..sandbox.cache import LIMITS, cache_folder, entries

    caches = [
        {
            "cache": name,
            "entries": len(entries(name)),
            "size_bytes": sum(entry.size_bytes for entry in entries(name)),
            "limit_bytes": LIMITS[name],
            "folder": str(cache_folder(name)),
        }
        for name in CACHES
    ]
    if session.as_json:
        session.output.json({"python": _python(), "caches": caches})
    else:
        session.output.members(_python())
        session.output.table(caches, ("cache", "entries", "size_bytes", "limit_bytes", "folder"))


@command(sandbox, "clear", takes="json")
def clear(
    session: Session,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CACHE...]", help=f"One or more of: {', '.join(CACHES)}. By default all but python."),
    ] = None,
) -> None:
    """Clear the cache. What is in use stays; what is removed is made or fetched again when it is needed."""
    from ..sandbox.cache import clear, entries

    names = what or CACHES[:-1]
    if unknown := [name for name in names if name not in CACHES]:
        raise UsageError(f"There is no cache '{unknown[0]}'. There are: {', '.join(CACHES)}.")
    data: list[dict[str, Any]] = []
    for name in names:
        count, size_bytes = clear(name)
        data.append({"cache": name, "removed": count, "size_bytes": size_bytes, "in_use": len(entries(name))})
    session.show(data, columns=("cache", "removed", "size_bytes", "in_use"))


@command(sandbox, "build-python", takes="")
def build(
    session: Session, force: Annotated[bool, typer.Option("--force", help="Make it again, though it is there.")] = False
) -> None:
    """Make the Python of the sandbox. Folders with 'runtime = "python"' run in it; it takes up to a minute, once."""
    from ..sandbox.python_build import build_python

    output = session.output  # claimed before what the build prints
    build_python(lambda step: echo(f"{step} ..."), force=force)
    output.members(_python())


def _python() -> dict[str, Any]:
    from ..sandbox.python_build import BUILD_COMMAND, is_built, python_file

    file, is_there = python_file(), is_built()
    data = {"is_built": is_there, "file": str(file), "size_bytes": file.stat().st_size if is_there else 0}
    return data if is_there else {**data, "way_out": BUILD_COMMAND}
