"""How a call ended, for whoever typed it: the result to standard output, everything else to standard error."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core import Audio, Data, File, Image, Pending, Repair, Result, ToolcribError
from .ask import has_person
from .streams import Output, laid_out, tell
from .usage import UsageError


def require_writable(path: Path) -> None:
    """Raises UsageError for a path that no file can be saved under: better before the call than after it."""
    if path.is_dir():
        raise UsageError(f"--output {path} is a folder. Give the name of a file in it.")
    if not path.parent.is_dir():
        raise UsageError(f"--output {path}: there is no folder {path.parent}. Make it first.")


def write_result(result: Result[Any], output: Output, *, as_json: bool, save_to: Path | None) -> None:
    """Write *result*; what is no text is named, and saved where *save_to* says."""
    if as_json:
        output.json(result.to_dict())
    elif result.error is not None:
        output.require_reader()  # a tool that prints fails when nobody reads it: that is no news
        hint = " Call it with --show-errors to see it." if result.error.message.endswith("is in the log.") else ""
        tell(f"Error ({result.error.code}): {result.error.message}{hint}")
    elif result.pending is not None:
        _tell_pending(result.pending)
    if result.error is not None or result.pending is not None:
        return
    saved = _save(result, save_to) if save_to is not None else ()
    if as_json:
        return
    unsaved = False
    for part in result.content:
        if part in saved:
            continue
        if isinstance(part, Data) and output.is_terminal:
            output.json(part.value)
        else:
            output.write(part.text)
        unsaved = unsaved or isinstance(part, Image | Audio | File)
    if unsaved:
        tell("To save it: --output FILE")


def _tell_pending(pending: Pending) -> None:
    where = f"\nGo to: {pending.url}" if pending.url else ""
    if pending.others_only:
        way_out = "Whoever makes the call may not answer it."
    elif pending.kind in ("approval", "input") and not has_person():
        way_out = "Nobody can be asked here. Call it at a terminal, with this command."
    else:
        way_out = "It was left unanswered."
    tell(
        f"Pending ({pending.kind}): Tool '{pending.tool}' has not run. {pending.message}{where}\n"
        f"{laid_out(pending.arguments)}\n{way_out}"
    )


def tell_repairs(repairs: Sequence[Repair], *, by_key: bool) -> None:
    """Name what was repaired; *by_key* leaves out what only comes from `key=value` being text."""
    for repair in repairs:
        if by_key and repair.path.count("/") == 1 and repair.from_kind == "string":
            continue
        name = repair.path[1:] if repair.path.count("/") == 1 else repair.path
        if repair.from_kind == "key":
            tell(f"Repaired: '{name}' was taken for the argument of nearly that name.")
        else:
            what = f"'{name}'" if name else "the arguments"
            tell(f"Repaired: {what}, from {repair.from_kind} to {repair.to_kind}.")


def _save(result: Result[Any], path: Path) -> tuple[object, ...]:
    """Save what is no text, or if there is none, all text. Returns the parts that were saved."""
    parts = tuple(part for part in result.content if isinstance(part, Image | Audio | File))
    try:
        if not parts:
            text = result.text
            path.write_text(text if text.endswith("\n") else f"{text}\n", "utf-8", "surrogatepass")
            tell(f"Saved the text to {path}.")
            return result.content
        for number, part in enumerate(parts, 1):
            target = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
            target.write_bytes(part.data)
            tell(f"Saved {part.text.strip('[]')}, to {target}.")
        return parts
    except OSError as error:
        raise ToolcribError(f"The result cannot be saved to {path}: {error.strerror}.") from None
