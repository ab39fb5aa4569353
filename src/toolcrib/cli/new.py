"""`toolcrib init` and `new`: a project that works, and a tool that does, with a test. The files are in `templates`."""

import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from ..core import ToolcribError
from ..machinery import raise_missing_extra
from ..schema import display_name
from .app import Session, command, group
from .terminal import UsageError

app = group()

_TEMPLATES = Path(__file__).with_name("templates")
_STORE, _IGNORED = Path(".toolcrib"), ".toolcrib/"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_KINDS = ("function", "python", "wasm")


@command(app, "init", takes="")
def init(session: Session) -> None:
    """Begin a project here, with settings, a tool and a test.

    It has a store of its own, and asks before destructive tools. Nothing that is there is changed, but for a line that
    is added to .gitignore. In a folder with settings only that and the folder of the store are made.
    """
    from ..workbench.settings import find_settings

    settings = find_settings(None, {})
    is_project = settings is not None and settings.parent == Path()
    written: list[str] = []
    kept = [str(settings)] if is_project else []
    try:
        if not is_project:
            _make_files(written, kept)
        written += _make_store()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else ".gitignore is not UTF-8 text"
        raise ToolcribError(f"The project cannot be written here: {reason}. Written: {', '.join(written)}.") from None
    for name in written:
        session.output.write(name)
    for name in kept:
        session.output.write(f"{name} is there, and stays as it is")
    call = "toolcrib list" if kept else 'toolcrib call add_note text="Call Ann."'
    session.output.write(
        f"\nCall a tool: {call}\nServe it while you write it: toolcrib dev\n"
        "Give it to Claude: toolcrib install claude-code"
    )


def _make_files(written: list[str], kept: list[str]) -> None:
    for template in sorted((_TEMPLATES / "init").iterdir()):
        file = Path(template.name.removesuffix(".txt"))
        if file.exists() or (file.name == "test_notes.py" and "notes.py" in kept):  # it is about that one
            kept.append(file.name)
        else:
            with file.open("xb") as target:
                target.write(template.read_bytes())
            written.append(file.name)


def _make_store() -> list[str]:
    """Make the folder of the store, and have Git ignore it. Returns what was written."""
    written: list[str] = []
    if not _STORE.exists():
        _STORE.mkdir(mode=0o700)
        (_STORE / ".gitignore").write_text("*\n")
        written.append(_IGNORED)
    ignore = Path(".gitignore")
    text = ignore.read_text("utf-8") if ignore.exists() else ""
    if _IGNORED.strip("/") not in [line.strip().strip("/") for line in text.splitlines()]:
        with ignore.open("a", encoding="utf-8") as lines:
            lines.write(f"{'' if not text or text.endswith(chr(10)) else chr(10)}{_IGNORED}\n")
        written.append(".gitignore")
    return written


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
    """Return the content of each file: that of a template, with NAME in place of its name.

    The template's own name ends in `.txt`, so that it is not a tool.
    """
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
        except ModuleNotFoundError as missing:
            raise_missing_extra(missing, "A tool of this kind needs", "sandbox")
        files[folder / f"{name}.wasm"] = bytes(wasmtime.wat2wasm(files[folder / f"{name}.wat"].decode()))
    return files
