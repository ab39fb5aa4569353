"""The tools of a source from outside that is not trusted: what runs in the sandbox, and no Python in this process."""

from pathlib import Path
from typing import Any

from .address import GitSource
from .function import Tool
from .modules import LoadFailed, LoadProblem, python_files, sandboxed_in
from .permissions import Permissions
from .wasm import wasm_tools

_PYTHON = (
    "It is Python, which would run in this process, and a source from outside is not trusted. If you have read it and "
    "trust it, write `trusted = true` in its [[source]] of toolcrib.toml, or in a program: "
    "Permissions(trusted=True).to(source)."
)


def sandboxed_tools(
    source: GitSource, folder: Path, permissions: Permissions
) -> tuple[list[Tool[..., Any]], list[LoadProblem]]:
    """The tools of *source*, which is in *folder*, and a problem for each that cannot be one.

    Python beside folders of tools is a problem where it may define tools. Raises LoadError where no tool is left.
    """
    paths = sandboxed_in(folder)
    files = [] if paths == [folder] else python_files(folder)
    refused = [file for file in files if not paths or b"toolcrib" in file.read_bytes()]
    problems = [LoadProblem(f"{source}: {file.name}", _PYTHON) for file in refused]
    if not paths:
        raise LoadFailed(problems or [LoadProblem(str(source), "There is no tool.toml and no .wasm file in it.")])
    tools, others = wasm_tools(paths, permissions)
    return tools, problems + others
