"""`toolcrib new`: a tool that works, with a test. The files are in `templates`, with NAME in place of its name."""

import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from ..core import ToolcribError
from ..schema import display_name
from .app import Session, command, group
from .terminal import UsageError

app = group()

_TEMPLATES = Path(__file__).with_name("templates")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_KINDS = ("function", "python", "wasm")


@command(app, "new", example="toolcrib new count_words --kind wasm", takes="")
def new(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that models see.")],
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="function: Python in your process. python, wasm: a folder for the sandbox, which needs no trust.",
        ),
    ] = "function",
) -> None:
    """Write a new tool that works, and its test, here."""
    if not _NAME.fullmatch(name):
        raise UsageError("The name of a tool has only lower-case letters, digits and _, and begins with a letter.")
    if keyword.iskeyword(name):
        raise UsageError(f"'{name}' is a word of Python itself, so no function has this name. Choose another.")
    if kind not in _KINDS:
        raise UsageError(f"--kind: there is no kind '{display_name(kind)}'. The kinds are: {', '.join(_KINDS)}.")
    files = _files(name, kind)
    for path in files:
        if path.exists():
            raise ToolcribError(f"{path} is there already. Choose another name, or remove it.")
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        session.output.write(str(path))
    if kind == "python":
        session.output.write("\nIt needs the Python of the sandbox, which is made once: toolcrib sandbox build-python")
    source = f"{name}.py" if kind == "function" else f"{name}/"
    session.output.write(f'\nTry it: toolcrib call {source} {name} text="two words"\nCheck it: toolcrib check {source}')


def _files(name: str, kind: str) -> dict[Path, bytes]:
    """Return the content of each file: that of a template, whose name ends in `.txt` so that it is not a tool."""
    folder = Path() if kind == "function" else Path(name)
    files = {
        folder / template.name.removesuffix(".txt").replace("NAME", name): template.read_bytes().replace(
            b"NAME", name.encode()
        )
        for template in sorted((_TEMPLATES / kind).iterdir())
    }
    if kind == "wasm":
        try:
            import wasmtime
        except ModuleNotFoundError:
            raise ToolcribError(
                "A tool of this kind needs the package 'wasmtime': pip install 'toolcrib[sandbox]'."
            ) from None
        files[folder / f"{name}.wasm"] = bytes(wasmtime.wat2wasm(files[folder / f"{name}.wat"].decode()))
    return files
