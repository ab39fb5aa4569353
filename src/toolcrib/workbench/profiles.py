"""The choice of a profile by a model: for tools that need credentials, and only among those that the host listed."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..call import Runtime, resolved
from ..core import Call, Caller, SetupError, Tool, ToolError, ToolSpec
from .registry import Registry

_NAMES = ("profile", "auth_profile")
_ABSENT = object()


class Profiles:
    """The profiles among which the calls of *caller* choose. *make* makes a workbench for another one."""

    def __init__(self, registry: Registry, caller: Caller, make: Callable[[str], tuple[Any, Runtime]]) -> None:
        self.names: tuple[str, ...] = ()
        self.benches: dict[str, Any] = {}
        self._runtimes: dict[str, Runtime] = {}
        self._registry = registry
        self._caller = caller
        self._make = make

    def set(self, names: Iterable[str]) -> None:
        """List *names*, and no others. Raises SetupError for what is not a list of names."""
        profiles: list[Any] = [None] if isinstance(names, str) else list(names)
        if not all(isinstance(name, str) and name for name in profiles):
            raise SetupError('Profiles are a list of names: bench.specs(profiles=["work", "home"]).')
        self.names = tuple(dict.fromkeys(profiles))

    def specs(self, specs: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
        """Return *specs*, where those of tools that need credentials have an argument for the profile."""
        return (
            tuple(self._with_argument(spec) if spec.requirements else spec for spec in specs) if self.names else specs
        )

    async def choose(self, call: Call, own: Runtime) -> tuple[Call, Runtime]:
        """Return *call* without the argument, and the runtime of the profile that it chose: *own* where none is to be
        chosen.

        A call that chooses none of those listed gets a runtime that refuses it.
        """
        if not self.names:
            return call, own
        tool = await self._find(call, own)
        if tool is None or not tool.spec.requirements:
            return call, own
        name, profile = argument_of(tool.spec), own.caller.profile
        choice, arguments = _taken(call.arguments, name)
        if choice is _ABSENT and profile in self.names:
            choice = profile
        if not isinstance(choice, str) or choice not in self.names:
            return call, self._refusing(own, tool.spec)
        call = replace(call, arguments=arguments)
        if choice == profile:
            return call, own
        if choice not in self.benches:
            self.benches[choice], self._runtimes[choice] = self._make(choice)
        return call, self._runtimes[choice]

    async def _find(self, call: Call, own: Runtime) -> Tool | None:
        tool: Tool | None = self._registry.find(call.tool)
        if tool is None:
            with suppress(ToolError):
                return await resolved(call, own)  # a source that was not started yet may have it
        return tool

    def _refusing(self, own: Runtime, spec: ToolSpec) -> Runtime:
        """Return *own* as one that says which profiles there are, unless its policy hides the tool and refuses it."""
        hides = getattr(own.policy, "hides", None)  # then the arguments are explained to no caller
        is_hidden = hides is not None and hides(spec, own.caller)
        return own if is_hidden else replace(own, ready={}, resolve=self._refuse)

    async def _refuse(self, call: Call) -> Tool:
        name = argument_of(self._registry.get(call.tool).spec)
        raise ToolError(
            f"Tool '{call.tool}' needs the argument '{name}', one of: {', '.join(map(repr, self.names))}.",
            "invalid_arguments",
        )

    def _with_argument(self, spec: ToolSpec) -> ToolSpec:
        name, own, schema = argument_of(spec), self._caller.profile, spec.input_schema
        argument: dict[str, Any] = {
            "type": "string",
            "enum": list(self.names),
            "description": "The profile whose credentials are used.",
        }
        if own in self.names:
            argument["default"] = own
            required, examples = schema.get("required"), spec.examples
        else:
            required = [*schema.get("required", ()), name]
            examples = tuple({**example, name: self.names[0]} for example in spec.examples)
        schema = {**schema, "properties": {**schema.get("properties", {}), name: argument}}
        return replace(
            spec, input_schema=schema if required is None else {**schema, "required": required}, examples=examples
        )


def argument_of(spec: ToolSpec) -> str:
    """Return the argument of *spec* that takes the profile: `profile`, else `auth_profile`, with `_` behind it if need
    be.
    """
    from ..schema import SchemaView  # brings pydantic: with the first choice, and not with the package

    names_used = {name for names in spec.names for name in names}
    names_used.update(*(form.members for form in SchemaView(spec.input_schema).alternatives))
    first, name = _NAMES
    if first not in names_used:
        return first
    while name in names_used:
        name += "_"
    return name


def _taken(arguments: Any, name: str) -> tuple[Any, Any]:
    """Return the member *name* of *arguments*, and these without it, otherwise as they were written.

    It is absent from what is not a JSON object, or has it twice: the check of the tool has the message.
    """
    from ..schema import object_members  # brings pydantic: with the first call, and not with the package

    if isinstance(arguments, Mapping):
        return arguments.get(name, _ABSENT), {key: value for key, value in arguments.items() if key != name}
    try:
        text = arguments if isinstance(arguments, str) else bytes(arguments).decode()
        members = list(object_members(text))
    except (ValueError, TypeError, RecursionError):
        return _ABSENT, arguments
    values = [member.value for member in members if member.name == name]
    if len(values) != 1 or text[members[-1].end :].strip(" \t\r\n") != "}":
        return _ABSENT, arguments
    return values[0], _text_without(name, members, text)


def _text_without(name: str, members: Iterable[Any], text: str) -> str:
    """Return the JSON object of *members*, but for *name*, with their values as *text* has them."""
    rest = (member for member in members if member.name != name)
    return f"{{{', '.join(f'{json.dumps(member.name)}: {text[member.start : member.end]}' for member in rest)}}}"
