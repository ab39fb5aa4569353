"""`toolcrib sandbox`: what the sandbox has on this machine, and the Python that it runs folders with."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json
from .terminal import Output, echo, one_line

if TYPE_CHECKING:
    from ..sandbox.python_build import PythonState

sandbox = typer.Typer(help="What tools that are not trusted run in.")


@sandbox.command("status")
def status(as_json: Json = False) -> int:
    """Show whether the Python of the sandbox was made, and where it is."""
    from ..sandbox.python_build import BUILD_COMMAND, python_state

    state = python_state()
    output = Output(exclusive=True)
    if as_json:
        output.json(_data(state))
    elif state.is_built:
        output.write(_line(state))
    else:
        output.write(f"Python: not made yet. Make it once: {BUILD_COMMAND}")
    return 0


@sandbox.command("build-python")
def build(
    force: Annotated[bool, typer.Option("--force", help="Make it again, though it is there.")] = False,
    as_json: Json = False,
) -> int:
    """Make the Python that folders with 'runtime = "python"' run in. It takes up to a minute, once."""
    from ..sandbox.python_build import build_python

    output = Output(exclusive=True)
    state = build_python(lambda step: echo(f"{step} ..."), force=force)
    if as_json:
        output.json(_data(state))
    else:
        output.write(_line(state))
    return 0


def _line(state: "PythonState") -> str:
    return one_line(f"Python: {state.file} ({state.size_bytes // 1024**2} MiB)")


def _data(state: "PythonState") -> dict[str, Any]:
    return {"python": {"is_built": state.is_built, "file": str(state.file), "size_bytes": state.size_bytes}}
