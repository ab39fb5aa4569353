"""How a function takes what a model sends and what the host gives: found out once, when its tool is made."""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from .....core import Check, Checked
from .....schema import (
    EMPTY,
    RawArguments,
    json_schema_check,
    model_check,
    read_arguments,
    read_signature,
    require_schema,
    with_documents,
)
from .....tools.work import Runs, by_name, generates
from ...util.function_to_model import function_to_model
from .._core_tool import OWN

IDENTITY = ("thread_id", "profile")
"""What the host decides of a call: a function may have parameters for it."""


class Binding:
    """The arguments of *fn*: their *schema*, the check of what a model sends, and how *fn* is called.

    Without *schema*, it is that of the signature. With *keeps_structure*, *fn* takes them whole, as `body`.
    """

    def __init__(
        self, fn: Callable[..., Any], name: str, schema: Mapping[str, Any] | None, *, keeps_structure: bool
    ) -> None:
        self._label = f"Tool '{name}'"
        self._keeps_structure = keeps_structure
        self.fn = fn
        self.signature = read_signature(fn, label=self._label)
        parameters = self.signature.parameters
        self._named = {each.name for each in parameters if each.kind not in _VARIADIC}
        self._takes_rest = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
        self.identity = tuple(each.name for each in parameters if each.name in IDENTITY and each.default == OWN)
        is_annotated = all(each.annotation is not EMPTY for each in parameters if each.kind not in _VARIADIC)
        self.model: type[BaseModel] | None = None
        if schema is None or (is_annotated and not keeps_structure and self._named):
            self.model = function_to_model(fn)
        self._checks: dict[str, Check] = {}
        self.runs: Runs = generates(fn) or ("async" if self.signature.is_async else "sync")
        self._given = schema

    @cached_property
    def call(self) -> Callable[..., Any]:
        """What takes arguments by name and calls the function with them."""
        return self.fn if self._keeps_structure else by_name(self.fn, self.signature, self._label)

    def check(self, schema: Mapping[str, Any], name: str) -> Check:
        """Return the check of what a model sends, for errors that call the tool *name*; *schema* is what it sees.

        Where the schema was given, it decides what is valid, and the signature what it becomes.
        """
        if name not in self._checks:
            self._checks[name] = self._new_check(name, schema)
        return self._checks[name]

    def _new_check(self, name: str, schema: Mapping[str, Any]) -> Check:
        by_model = None
        if self.model is not None:
            by_model = model_check(name, self.model, schema=schema, arguments=read_arguments)
            if self._given is None:
                return by_model
        by_schema = json_schema_check(name, require_schema(schema, label=self._label))
        if by_model is None or not self._reads(schema):
            return by_schema

        def check(raw: RawArguments, repair: bool, /) -> Checked:
            found, repairs = by_schema(raw, repair)
            rest = {key: value for key, value in found.items() if key not in self._named}
            read, also = by_model({key: value for key, value in found.items() if key in self._named}, repair)
            return {**rest, **read}, repairs + also

        return with_documents(check, getattr(by_schema, "document", None))

    def _reads(self, schema: Mapping[str, Any]) -> bool:
        """Whether arguments that fit *schema* are those of the signature."""
        return self._named.issuperset(schema.get("properties", {}))

    def arguments(
        self, checked: Mapping[str, Any], host: Mapping[str, Any], given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return how the function is called: with what was *checked*, and `**kwargs` with *given* and *host*.

        *given* are the credentials and tool variables by name; *host* is what else the call came with.
        """
        if self._keeps_structure:
            return {"body": dict(checked), **host, "envs": dict(given)}
        found = {key: value for key, value in checked.items() if key in self._named or self._takes_rest}
        if self._takes_rest:
            found |= given
            found |= {key: value for key, value in host.items() if key not in self._named}
        return found


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
