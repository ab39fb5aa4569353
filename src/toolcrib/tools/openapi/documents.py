"""OpenAPI documents as JSON data, and their parts by `$ref`: JSON pointers, and other files only where that is allowed.

A text is JSON, or YAML by the rules of YAML 1.2. It is from a stranger: bounded in size, in depth, and in what its
aliases stand for.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

import pydantic_core

from ...core import LoadError, SetupError
from ...sandbox import MAX_BYTES

MAX_VALUES = 4_000_000
"""How many values a YAML document may stand for, with its aliases written out."""
MAX_LEVELS = 150

_KEYS = ("openapi", "swagger")
_YAML_KEY = re.compile(rb"""^["']?(openapi|swagger)["']?\s*:\s*["']?\d""", re.MULTILINE)
_TAG = "tag:yaml.org,2002:"
_KINDS: Mapping[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"(~|null|Null|NULL)?$"), lambda _: None),
    "bool": (re.compile(r"(true|True|TRUE|false|False|FALSE)$"), lambda text: text.lower() == "true"),
    "int": (
        re.compile(r"([-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400})$"),
        lambda text: int(text, 0 if text[:2] in ("0o", "0x") else 10),
    ),
    "float": (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?$"), float),
}
"""The scalars that are not text, by their tags: how they are written, and the value that they are."""


def is_openapi(data: bytes) -> bool:
    """Return whether *data* is an OpenAPI or Swagger document, of whatever version, valid otherwise or not."""
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if data[:1] != b"{":
        return _YAML_KEY.search(data[:MAX_BYTES]) is not None
    if not any(f'"{key}"'.encode() in data for key in _KEYS):
        return False
    try:
        document = pydantic_core.from_json(data)
    except ValueError:
        return False
    return isinstance(document, dict) and any(isinstance(document.get(key), str) for key in _KEYS)


def read_text(data: bytes, where: str) -> Any:
    """Return the JSON value that *data* stands for. Raises LoadError, naming *where* it is from."""
    if len(data) > MAX_BYTES:
        raise LoadError(f"{where} has more than {MAX_BYTES // 1024**2} MiB. Cut it down to the operations you need.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise LoadError(f"{where} is not UTF-8 text.") from None
    try:
        if text.lstrip()[:1] in ("{", "["):
            return pydantic_core.from_json(text, allow_inf_nan=False)
        return _from_yaml(text)
    except ValueError as error:
        kind = "JSON" if text.lstrip()[:1] in ("{", "[") else "YAML"
        raise LoadError(f"{where} is not valid {kind}: {str(error)[:300]}.") from None


def _from_yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise SetupError(
            "An OpenAPI document in YAML needs the package 'pyyaml': pip install 'toolcrib[openapi]'."
        ) from None

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        # The core schema of YAML 1.2: dates, `yes` and `no` are text. None: whatever the first character.
        yaml_implicit_resolvers = MappingProxyType(
            {None: [(f"{_TAG}{kind}", pattern) for kind, (pattern, _) in _KINDS.items()]}
        )

    levels = 0
    try:
        # First, since what composes nodes recurses, in C, until the process ends.
        for event in yaml.parse(text, Loader=Loader):
            levels += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if levels > MAX_LEVELS:
                raise ValueError(f"it is nested more than {MAX_LEVELS} levels deep")
        root = yaml.compose(text, Loader=Loader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}: " if mark is not None else ""
        raise ValueError(f"{at}{getattr(error, 'problem', None) or type(error).__name__}") from None
    return None if root is None else _Nodes().read(root, 0)[0]


class _Nodes:
    """Makes JSON data of YAML nodes, and nothing but JSON's types. An alias is a node that is there again."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[Any, int, int] | None] = {}
        """By the node: its value, how many values that is with aliases written out, and the levels; None in between."""

    def read(self, node: Any, level: int) -> tuple[Any, int, int]:
        if node.id == "scalar":
            _, convert = _KINDS.get(node.tag.removeprefix(_TAG), (None, str))
            return convert(node.value), 1, 0
        if id(node) not in self._read:
            self._read[id(node)] = None
            self._read[id(node)] = self._collection(node, level)
        if (reading := self._read[id(node)]) is None:
            raise ValueError("an alias stands for what it is in itself")
        if level + reading[2] > MAX_LEVELS:
            raise ValueError(f"it is nested more than {MAX_LEVELS} levels deep")
        return reading

    def _collection(self, node: Any, level: int) -> tuple[Any, int, int]:
        is_mapping = node.id == "mapping"
        parts = [self.read(item[1] if is_mapping else item, level + 1) for item in node.value]
        size = 1 + sum(size for _, size, _ in parts)
        if size > MAX_VALUES:
            raise ValueError(f"with its aliases it stands for more than {MAX_VALUES:,} values")
        values = [value for value, _, _ in parts]
        value = _merged(zip(node.value, values, strict=True)) if is_mapping else values
        return value, size, 1 + max((height for _, _, height in parts), default=0)


def _merged(members: Iterable[tuple[tuple[Any, Any], Any]]) -> dict[str, Any]:
    """Return the mapping of *members*, with what `<<` names where it has no member of that name itself."""
    own: dict[str, Any] = {}
    bases: list[dict[str, Any]] = []
    for (key, _), value in members:
        if key.id != "scalar":
            raise ValueError("a key is not text")
        mappings = value if isinstance(value, list) else [value]
        if key.value == "<<" and all(isinstance(base, dict) for base in mappings):
            bases += mappings
        else:
            own[key.value] = value
    return {name: value for base in (*reversed(bases), own) for name, value in base.items()}


# References

ONE_WAY = frozenset({"readOnly", "writeOnly"})

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


def texts(value: Any) -> list[str]:
    """Return the texts in *value*, if it is a list."""
    return [item for item in listed(value) if isinstance(item, str)]


class Documents:
    """A document, *root*, at the address *where*, and those that its references lead to, which *read* gets."""

    def __init__(self, root: Mapping[str, Any], where: str, read: Read) -> None:
        self.where = where
        self.root = root
        self.is_swagger = "swagger" in root
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
            try:
                self._files[address] = self._read(address)
            except LoadError as error:
                self._files[address] = error  # and is not asked for again
        if isinstance(why := self._files[address], LoadError):
            raise Unusable(f"its '$ref' '{ref[:100]}' cannot be followed: {str(why).rstrip('.')}")
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
        for _ in range(MAX_LEVELS):
            if not isinstance(value, dict):
                raise Unusable("an object is missing where it has to be")
            if "$ref" not in value:
                return value, file
            rest = {key: value[key] for key in ("summary", "description") if key in value}
            value, file, _ = self.find(value["$ref"], file)
            if rest and isinstance(value, dict):
                value = {**value, **rest}
        raise Unusable("its references lead from one to the next without end")

    def whole(self, value: Any, file: str) -> tuple[Mapping[str, Any], str]:
        """Return the path item or operation *value*, followed. Raises Unusable where more stands beside its `$ref`."""
        for name in value if isinstance(value, dict) and "$ref" in value else ():
            if name not in ("$ref", "summary", "description") and not name.startswith("x-"):
                raise Unusable(f"'{name[:60]}' stands beside its '$ref', and only one of them can count")
        return self.followed(value, file)

    def one_way(self, schema: Mapping[str, Any], file: str) -> set[str]:
        """Return which of `readOnly` and `writeOnly` a field with *schema* is."""
        if "$ref" in schema:
            try:
                schema, _, _ = self.find(schema["$ref"], file)
            except Unusable:
                return set()
        return {mark for mark in ONE_WAY if schema.get(mark) is True} if isinstance(schema, dict) else set()
