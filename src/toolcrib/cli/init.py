"""`toolcrib init`: a project that works. The files are in `templates/init`."""

from pathlib import Path

from ..core import ToolcribError
from .app import Session, command, group

app = group()

_TEMPLATES = Path(__file__).with_name("templates") / "init"
_STORE, _IGNORED = Path(".toolcrib"), ".toolcrib/"


@command(app, "init", takes="json")
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
        for template in () if is_project else sorted(_TEMPLATES.iterdir()):
            file = Path(template.name.removesuffix(".txt"))
            if file.exists() or (file.name == "test_notes.py" and "notes.py" in kept):  # it is about that one
                kept.append(file.name)
                continue
            with file.open("xb") as target:
                target.write(template.read_bytes())
            written.append(file.name)
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
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else ".gitignore is not UTF-8 text"
        raise ToolcribError(f"The project cannot be written here: {reason}. Written: {', '.join(written)}.") from None
    if session.as_json:
        session.output.json({"written": written, "kept": kept})
        return
    for name in written:
        session.output.write(name)
    for name in kept:
        session.output.write(f"{name} is there, and stays as it is")
    call = "toolcrib list" if kept else 'toolcrib call add_note text="Call Ann."'
    session.output.write(
        f"\nCall a tool: {call}\nServe it while you write it: toolcrib dev\n"
        "Give it to Claude: toolcrib install claude-code"
    )
