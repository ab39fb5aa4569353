"""AutoGen's tools as tools of the core, which checks their arguments, runs them, times them out and cancels them.

`native` is what a tool's `__toolcrib__()` returns: its values and errors are those of any tool of Toolcrib. `called` is
for AutoGen's workbenches: values are text or images, and an error is the text of the exception.
"""

import base64
import copy
import dataclasses
import inspect
import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, NotRequired, Protocol, cast, runtime_checkable

import pydantic_core
from pydantic import BaseModel
from typing_extensions import TypedDict

from ....core import Context, Emitted, Image, Result, Source, Text, ToolcribError, ToolError, ToolSpec
from ....machinery import AtDeadline, Check
from ....machinery import Work as CoreWork
from ....schema import inlined, json_schema_check, model_check, require_schema
from ....tools import Tool as CoreTool
from ....tools import from_work
from .._cancellation_token import CancellationToken
from .._image import Image as AutoGenImage


class ParametersSchema(TypedDict):
    """The arguments of a tool. There are `$defs` as well for models that contain themselves."""

    type: str
    properties: dict[str, Any]
    required: NotRequired[Sequence[str]]
    additionalProperties: NotRequired[bool]


class ToolSchema(TypedDict):
    """A tool as it is described to models."""

    parameters: NotRequired[ParametersSchema]
    name: str
    description: NotRequired[str]
    strict: NotRequired[bool]


class ToolOverride(BaseModel):
    """Override configuration for a tool's name and/or description."""

    name: str | None = None
    description: str | None = None


@runtime_checkable
class Tool(Protocol):
    """What a workbench needs of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> ToolSchema: ...
    def args_type(self) -> type[BaseModel]: ...
    def return_type(self) -> type[Any]: ...
    def state_type(self) -> type[BaseModel] | None: ...
    def return_value_as_string(self, value: Any) -> str: ...
    def run_json(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> Coroutine[Any, Any, Any]: ...
    async def save_state_json(self) -> Mapping[str, Any]: ...
    async def load_state_json(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class StreamTool(Tool, Protocol):
    """A tool that streams."""

    def run_json_stream(
        self, args: Mapping[str, Any], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> AsyncGenerator[Any, None]: ...


_SCALARS = frozenset({str, int, float, bool})
_JSON = (BaseModel, dict, list, tuple, type(None), Mapping, Set)


def parameters_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of arguments that are one *model*, with `$ref`s inlined, and without other properties.

    Raises ValueError for a model that is not an object.
    """
    schema = model.model_json_schema()
    if "$ref" in schema:  # of a model that contains itself
        schema = {**schema["$defs"][schema["$ref"].rpartition("/")[2]], "$defs": schema["$defs"]}
    properties = schema.get("properties", {})
    if schema.get("type", "object") != "object":
        raise ValueError(
            f"{model.__name__} is JSON of type '{schema['type']}'. The arguments of a tool are an object: use a model "
            "with fields."
        )
    for name, member in properties.items():
        if "$ref" in member and member.get("description") == name:
            del member["description"]  # it would replace the description of the type
    schema = inlined({**schema, "properties": properties})
    parameters = {
        "type": "object",
        "properties": schema["properties"],
        "required": schema.get("required", []),
        "additionalProperties": schema.get("additionalProperties", False),
    }
    return {**parameters, "$defs": schema["$defs"]} if "$defs" in schema else parameters


def value_as_text(value: Any) -> str:
    """Return text as it is, structured values as JSON, and the `str` of other values.

    A custom serializer of a model may make text of it.
    """
    is_structured = isinstance(value, _JSON) or (dataclasses.is_dataclass(value) and not isinstance(value, type))
    if type(value) in _SCALARS or not is_structured:
        return str(value)
    try:
        data = json.loads(pydantic_core.to_json(value, by_alias=False, inf_nan_mode="null", fallback=str))
    except (ValueError, RecursionError):  # bytes that are not UTF-8, half a character, a value inside itself
        return str(value)
    return str(data) if isinstance(data, str | int | float) else json.dumps(data, ensure_ascii=False)


def error_as_text(error: BaseException) -> str:
    """Return the text of *error*, or of each error in a group; its type, if it has no text."""
    if isinstance(error, BaseExceptionGroup):
        return "\n".join(map(error_as_text, error.exceptions))
    return str(error).strip() or type(error).__name__


CALLED: Mapping[str, Any] = {"autogen": "call"}
STREAMED: Mapping[str, Any] = {"autogen": "stream"}
"""`Call.data` of the calls of AutoGen's workbenches."""

_NOTHING: Any = object()

Run = Callable[[Any, CancellationToken], Any]


@dataclass(frozen=True, slots=True)
class Work:
    """How the core checks the arguments of an AutoGen tool, and runs it.

    *check* takes the name of the tool, for error messages. *run* is the work. *stream*, if there is one, takes what
    that takes; its last item is the value. *fn* is the function that the tool is made of, if it is one.
    """

    parameters: Mapping[str, Any]
    check: Callable[[str], Check]
    run: CoreWork
    stream: Callable[[dict[str, Any], Context], AsyncGenerator[Any, None]] | None = None
    needs_context: bool = True
    at_deadline: AtDeadline = "cancelled"
    fn: Callable[..., Any] | None = None


def work_of_model(model: type[BaseModel], name: str, run: Run, stream: Run | None = None) -> Work:
    """Return the Work of the tool *name* that takes one *model* of all arguments, and a token."""
    parameters = parameters_of(model)
    check_for = partial(model_check, model=model, schema=parameters)
    whole = check_for(name, arguments=lambda args: {"args": args})

    def with_model(run: Run) -> Callable[[dict[str, Any], Context], Any]:
        # Policies read arguments by name. These are not all that the model's validators have made of the arguments, so
        # the model comes with them, once: where they are copied, and for a retry, it is validated anew.
        def begin(arguments: dict[str, Any], context: Context) -> Any:
            args = vars(arguments).pop("model", None) if type(arguments) is _Named else None
            if args is None:
                args = whole(context.call.arguments, True)[0]["args"]
            return run(args, token_of(context))

        return begin

    return Work(parameters, partial(check_for, arguments=_by_name), with_model(run), stream and with_model(stream))


def work_of_json(tool: Tool) -> Work:
    """Return the Work of a tool that reads its arguments itself, in its `run_json`."""
    parameters = {"type": "object", **tool.schema.get("parameters", {})}
    stream = getattr(tool, "run_json_stream", None)
    check = partial(json_schema_check, schema=parameters)
    return Work(parameters, check, with_token(tool.run_json), stream and with_token(stream))


def with_token(run: Any) -> Callable[[dict[str, Any], Context], Any]:
    """Return what calls *run* with the arguments, the token and, if it takes one, the id of a call."""
    takes = inspect.signature(run).parameters.values()
    takes_id = any(parameter.name == "call_id" or parameter.kind is parameter.VAR_KEYWORD for parameter in takes)

    def begin(arguments: dict[str, Any], context: Context) -> Any:
        options = {"call_id": context.call.id} if takes_id else {}
        return run(arguments, token_of(context), **options)

    return begin


def native(tool: Tool, work: Work, *, home: str | None = None) -> CoreTool[..., Any]:
    """Return *tool* as a tool for any workbench of Toolcrib. *home* is the module that offers it."""
    own = None if is_plain(tool, "return_value_as_string") else tool.return_value_as_string

    def show(value: Any) -> Any:
        return with_core_images(value) if own is None else Result(value, (Text(own(value)),))

    strict = getattr(tool, "_strict", False)
    plain = ToolSchema(
        name=tool.name, description=tool.description, parameters=cast(Any, work.parameters), strict=strict
    )
    schema = plain if is_plain(tool, "schema") else tool.schema
    fn = work.fn or getattr(tool, "run", tool.run_json)
    return core_tool(spec_from(schema), work, show, fn=fn, home=home or type(tool).__module__)


def called(tool: Tool, work: Work, name: str) -> CoreTool[..., Any]:
    """Return *tool* as an AutoGen workbench calls it, under *name*. It streams in a call that is not `CALLED`."""
    own = None if is_plain(tool, "return_value_as_string") else tool.return_value_as_string

    def show(value: Any) -> Any:
        if own is not None:
            return own(value)
        if type(value) in _SCALARS:
            return str(value)
        content = with_core_images(value)
        return content if isinstance(content, Image) or content is not value else value_as_text(value)

    spec = ToolSpec(name, tool.description, work.parameters)
    return core_tool(spec, work, show, emitted=lambda value: Emitted((), value))


def spec_from(schema: ToolSchema, name: str | None = None) -> ToolSpec:
    """Return the core's spec for *schema*, under another *name* if there is one."""
    parameters = {"type": "object", **schema.get("parameters", {})}
    strict = schema.get("strict") or None
    return ToolSpec(name or schema["name"], schema.get("description", ""), parameters, strict=strict)


def core_tool(
    spec: ToolSpec,
    work: Work,
    show: Callable[[Any], Any],
    *,
    emitted: Callable[[Any], Any] | None = None,
    fn: Callable[..., Any] | None = None,
    home: str = __name__,
) -> CoreTool[..., Any]:
    """Return a tool whose value goes through *show*, and what it streams before that through *emitted*, or *show*."""

    async def run(arguments: dict[str, Any], context: Any) -> Any:
        if work.stream is not None and context.call.data != CALLED:
            return show(await _last(work.stream(arguments, context), context, emitted or show))
        return show(await work.run(arguments, context))

    needs, at_deadline = work.needs_context, work.at_deadline
    return from_work(spec, run, check=work.check, fn=fn, home=home, needs_context=needs, at_deadline=at_deadline)


async def _last(items: AsyncGenerator[Any, None], context: Context, emitted: Callable[[Any], Any]) -> Any:
    """Return the last of *items*. Those before it are emitted; so is the last one where an error comes after it."""
    last: Any = _NOTHING
    try:
        async with aclosing(items):
            async for item in items:
                if last is not _NOTHING:
                    await context.emit(emitted(last))
                last = item
    except Exception:
        if last is not _NOTHING:
            await context.emit(emitted(last))
        raise
    return None if last is _NOTHING else last


def token_of(context: Context) -> CancellationToken:
    """Return the token of a call: the caller's own, or one that is cancelled when the call is given up or times out."""
    call = context.call
    is_own = isinstance(call.cancellation, CancellationToken) and call.data in (CALLED, STREAMED)
    return call.cancellation if is_own else linked_token(context)  # type: ignore[return-value]


def linked_token(context: Context) -> CancellationToken:
    """Return a token that is cancelled when the call is given up or times out, as work in a thread needs to know."""
    token = CancellationToken()
    context.cancellation.add_callback(token.cancel)
    return token


def is_plain(tool: Any, method: str) -> bool:
    """Return whether *tool* has the *method*, or property, of BaseTool itself."""
    member = getattr(type(tool), method, None)
    return getattr(getattr(member, "fget", member), "__module__", "").startswith(f"{__package__}.")


class _Named(dict[str, Any]):
    """Fields by their names in the schema, and the `model` that has them."""


def _by_name(args: BaseModel) -> dict[str, Any]:
    """Return the fields that were set, by the names of the schema. A default may be another one each time."""
    fields = type(args).model_fields
    by_name = {
        alias if isinstance(alias := field.validation_alias, str) else name: getattr(args, name)
        for name, field in fields.items()
        if name in args.model_fields_set
    }
    fields_by_name = _Named({**by_name, **(args.model_extra or {})})
    fields_by_name.model = args  # type: ignore[attr-defined]
    return fields_by_name


def with_core_images(value: Any) -> Any:
    """Return *value* with each AutoGen image, it or an item of it, as an image of the core."""
    if isinstance(value, AutoGenImage):
        return Image(base64.b64decode(value.to_base64()))
    if type(value) in (list, tuple) and any(isinstance(item, AutoGenImage | Image) for item in value):
        return [with_core_images(item) for item in value]
    return value


MAX_NAME_CHARS = 64

_log = logging.getLogger("toolcrib")


class ToolState(Source):
    """The state of *tool*, under its name or its `state_key`. The first start remembers it for `reset`."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._initial: Mapping[str, Any] | None = None
        self._is_started = False

    @property
    def state_key(self) -> str:
        return getattr(self._tool, "state_key", None) or self._tool.name

    def tools(self) -> Sequence[Any]:
        return [self._tool]

    async def start(self) -> None:
        if self._is_started:
            return
        self._is_started = True
        try:
            self._initial = copy.deepcopy(await self._tool.save_state_json())
        except Exception:
            name = self._tool.name
            _log.warning("The state of the tool '%s' cannot be saved, so `reset` does not change it", name)

    async def reset(self) -> None:
        if self._initial is not None:
            await self._tool.load_state_json(copy.deepcopy(self._initial))

    async def save_state(self) -> Any:
        return _json_state(await self._tool.save_state_json(), f"the tool '{self._tool.name}'")

    async def load_state(self, state: Any, /) -> None:
        await self._tool.load_state_json(state)


class WorkbenchSource(Source):
    """The tools of *workbench*, one of AutoGen, which are listed when it has started and again after every call.

    Its state is saved under its attribute `state_key`, or the name of its class.
    """

    def __init__(self, workbench: Any) -> None:
        self._workbench = workbench
        self._schemas: list[ToolSchema] = []
        self._tools: list[CoreTool[..., Any]] = []

    def __reduce__(self) -> tuple[type["WorkbenchSource"], tuple[Any]]:
        return WorkbenchSource, (self._workbench,)  # of a copy, that of the copy

    @property
    def state_key(self) -> str:
        return getattr(self._workbench, "state_key", None) or type(self._workbench).__name__

    def tools(self) -> Sequence[CoreTool[..., Any]]:
        return self._tools

    async def start(self) -> None:
        await self._workbench.start()
        try:
            await self._list()
        except BaseException:
            await self._workbench.stop()
            raise

    async def stop(self) -> None:
        await self._workbench.stop()

    async def reset(self) -> None:
        await self._workbench.reset()
        await self._list()

    async def save_state(self) -> Any:
        return _json_state(await self._workbench.save_state(), self.state_key)

    async def load_state(self, state: Any, /) -> None:
        await self._workbench.load_state(state)

    async def _list(self) -> None:
        schemas = await self._workbench.list_tools()
        if schemas == self._schemas:
            return
        self._schemas, self._tools = schemas, []
        names = core_names(schema["name"] for schema in schemas)
        for schema in schemas:
            try:
                self._tools.append(self._tool(schema, names[schema["name"]]))
            except ToolcribError as error:
                _log.warning("Not loaded: the tool '%s' of %s: %s", schema["name"], self.state_key, error)
        self.changed()

    def _tool(self, schema: ToolSchema, name: str) -> CoreTool[..., Any]:
        spec = spec_from(schema, name)
        parameters = require_schema(schema.get("parameters", {}), label=f"Tool '{name}'")
        call = with_token(partial(self._workbench.call_tool, schema["name"]))
        stream_call = getattr(self._workbench, "call_tool_stream", None)

        async def run(arguments: dict[str, Any], context: Context) -> Any:
            result = await call(arguments, context)
            await self._list_again()
            return result

        async def stream(items: Any, arguments: dict[str, Any], context: Context) -> AsyncGenerator[Any, None]:
            async for item in items(arguments, context):
                yield item
            await self._list_again()

        streamed = stream_call and partial(stream, with_token(partial(stream_call, schema["name"])))
        work = Work(parameters, partial(json_schema_check, schema=parameters), run, streamed)
        return core_tool(spec, work, _shown, home=type(self._workbench).__module__)

    async def _list_again(self) -> None:
        try:
            await self._list()
        except Exception:
            _log.warning("The tools of %s are unchanged: they could not be listed", self.state_key, exc_info=True)


def core_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each of *names* the one that it has in the core: the same, wherever models could call it by that.

    AutoGen takes any text for a name, and two that differ only in `-` and `_`.
    """
    core_name: dict[str, str] = {}
    names_in_use: set[str] = set()
    for name in names:
        stem = free = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:MAX_NAME_CHARS] or "tool"
        number = 1
        while free.replace("-", "_") in names_in_use:
            number += 1
            free = f"{stem[: MAX_NAME_CHARS - len(str(number)) - 1]}_{number}"
        names_in_use.add(free.replace("-", "_"))
        core_name[name] = free
    return core_name


def _json_state(state: Any, owner: str) -> Any:
    """Return *state* as JSON data. Raises ToolcribError, which names the *owner*, for state that JSON cannot hold."""
    try:
        return pydantic_core.to_jsonable_python(state)
    except ValueError as error:
        raise ToolcribError(f"The state of {owner} cannot be saved: {error}") from error


def _shown(value: Any) -> Any:
    """Return a ToolResult as a Result, and anything that came before it as it is. Raises ToolError for a failure."""
    parts = getattr(value, "result", None)
    if getattr(value, "type", None) != "ToolResult" or not isinstance(parts, list):
        return with_core_images(value)
    content = tuple(map(_content_of, parts))
    if value.is_error:
        raise ToolError("\n".join(part.text for part in content) or "The tool failed.")
    texts = [part.text for part in content if not isinstance(part, Image)]
    return Result("\n".join(texts), content or (Text(""),))


def _content_of(part: Any) -> Any:
    return with_core_images(part.content) if isinstance(part.content, AutoGenImage) else Text(part.content)
