"""The parts of OpenAPI documents by `$ref`: JSON pointers, and other files only where that is allowed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ...core import LoadError

_MAX_FILES = _MAX_HOPS = 100

Read = Callable[[str], Any]
"""The JSON value in another file, by its address. Raises LoadError where it cannot be had, or may not be."""


class Unusable(LoadError):
    """Why an operation cannot be a tool. Its text goes on a sentence that names the operation."""


def mapping(value: Any) -> Mapping[str, Any]:
    """Return *value* if it is an object, else an empty one: what is malformed and optional is passed over."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> Sequence[Any]:
    """Return *value* if it is a list, else an empty one."""
    return value if isinstance(value, list) else ()


class Documents:
    """A document, *root*, at the address *where*, and those that its references lead to, which *read* gets."""

    def __init__(self, root: Mapping[str, Any], where: str, read: Read) -> None:
        self.where = where
        self._read = read
        self._files: dict[str, Any] = {where: root}
        own = root.get("$self")
        self._own = urljoin(where, own) if isinstance(own, str) else where

    def find(self, ref: Any, file: str) -> tuple[Any, str, str]:
        """Return what *ref*, written in *file*, leads to, with its file and its pointer there. Raises Unusable."""
        if not isinstance(ref, str):
            raise Unusable("a '$ref' in it is not text")
        address, fragment = (file, ref[1:]) if ref[:1] == "#" else urldefrag(urljoin(file, ref))
        address = self.where if address == self._own else address
        if address not in self._files:
            if len(self._files) >= _MAX_FILES:
                raise Unusable(f"its references lead to more than {_MAX_FILES} files")
            try:
                self._files[address] = self._read(address)
            except LoadError as error:
                raise Unusable(f"its '$ref' '{ref[:100]}' cannot be followed: {str(error).rstrip('.')}") from None
        pointer = unquote(fragment) if "%" in fragment else fragment
        return self.at(address, pointer), address, pointer

    def at(self, file: str, pointer: str) -> Any:
        """Return the value at *pointer* of *file*. Raises Unusable."""
        value = self._files[file]
        if pointer and pointer[0] != "/":
            raise Unusable(f"its '$ref' '#{pointer[:100]}' is not a JSON pointer")
        for step in pointer.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and name in value:
                value = value[name]
            elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            else:
                raise Unusable(f"its '$ref' to '{pointer[:100]}' leads nowhere")
        return value

    def followed(self, value: Any, file: str) -> tuple[Mapping[str, Any], str]:
        """Return the object *value* of *file*, or what its `$ref`s lead to, and the file of that. Raises Unusable."""
        for _ in range(_MAX_HOPS):
            if not isinstance(value, dict):
                raise Unusable("an object is missing where it has to be")
            if "$ref" not in value:
                return value, file
            rest = {key: value[key] for key in ("summary", "description") if key in value}
            value, file, _ = self.find(value["$ref"], file)
            if rest and isinstance(value, dict):
                value = {**value, **rest}
        raise Unusable("its references lead from one to the next without end")
