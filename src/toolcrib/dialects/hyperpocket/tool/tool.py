"""`hyperpocket.tool.tool`: the base of tools, what a tool needs to be authorized, and requests for tools."""

import abc
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, Field, model_validator

from ....core import Call, Context, DefinitionError, ToolError, ToolSpec
from ....core import ToolAuth as CoreToolAuth
from ....machinery import Check, Work, in_thread
from ....schema import returns_awaitable
from ....tools import Tool as CoreTool
from ....tools import from_work
from ....workbench import sync
from ..auth import AuthProvider, core_handler, environment_of, is_scoped
from ..config import config
from ..prompts import pocket_extended_tool_description
from ..util import json_schema_to_model

OWN = "default"
"""The thread or profile that a model names for its own."""

Listed = Mapping[str, frozenset[str]]
"""The threads and profiles that a model may name, by `thread_id` and `profile`. A Pocket gives it in `Call.data`."""


def require_listed(listed: Listed, tool: str, name: str, value: Any, own: str) -> str:
    """Return the thread or profile that a model has named: *own* for "default". Raises ToolError for another."""
    if value in (None, OWN, own):
        return own
    if not isinstance(value, str) or value not in listed[name]:
        choices = ", ".join(map(repr, sorted({*listed[name], own})))
        raise ToolError(f"Tool '{tool}' does not take this '{name}'. It takes: {choices}.", "invalid_arguments")
    return value


def core_tool(
    tool: Any, fn: Any, work: Work, *, is_sync: bool, check: Callable[[str], Check] | None = None
) -> CoreTool[..., Any]:
    """Return *tool*, a Tool of hyperpocket, as one of Toolcrib's, which does *work*.

    Raises DefinitionError for a name or a schema that cannot work.
    """
    auth = None
    if tool.auth is not None and (provider := tool.auth.auth_provider) is not None:
        handler = core_handler(provider, tool.auth.auth_handler)
        auth = CoreToolAuth(provider.value, handler, tuple(tool.auth.scopes or ()))
    return from_work(
        ToolSpec(tool.name, tool.description, {"type": "object", **(tool.argument_json_schema or {})}, auth=auth),
        work,
        check=check,
        fn=fn,
        home=getattr(fn, "__module__", None) or type(tool).__module__,
        at_deadline="left_running" if is_sync else "cancelled",
    )


def envs_of(tool: Any, context: Context) -> dict[str, str]:
    """Return the credentials of a call under the names that hyperpocket's tools know them by."""
    envs: dict[str, str] = {**options_of(context.call).get("envs", {})}
    for credential in context.credentials.values():
        if (own := getattr(credential, "envs", None)) is not None:  # of a Pocket
            envs |= own
            continue
        names = environment_of(credential, None if tool.auth is None else tool.auth.auth_handler)
        secret = credential.secret
        if credential.kind == "basic":
            secret = b64encode(secret.encode()).decode()
        envs |= dict(zip(names, secret.split(":", 1) if len(names) > 1 else [secret], strict=True))
    return envs


def options_of(call: Call) -> dict[str, Any]:
    """Return what the program has given to a call of a Pocket by name, beside the arguments."""
    return {**(call.data or {}).get("options", {})}


def host_of(context: Context) -> dict[str, Any]:
    options = options_of(context.call)
    options.pop("envs", None)
    return {**options, "thread_id": context.caller.thread, "profile": context.caller.profile}


async def postprocessed(tool: Any, value: Any) -> Any:
    """Pass *value* through the postprocessings of *tool*, in order, the sync ones in threads."""
    for process in tool.postprocessings or ():
        value = process(value) if returns_awaitable(process) else await in_thread(partial(process, value))
        if hasattr(type(value), "__await__"):
            value = await value
    return value


class ToolAuth(BaseModel):
    """What a tool needs to be authorized: credentials of which provider, by which handler, with which scopes."""

    scopes: list[str] | None = Field(
        default=None,
        description="Scopes that the tool needs. None where nothing is authorized, or the handler has no scopes.",
    )
    auth_provider: AuthProvider | None = Field(
        default=None, description="Whose credentials the tool needs. None where it needs no authentication."
    )
    auth_handler: str | None = Field(
        default=None, description="The handler that gives them. None for the default one of the provider."
    )

    @model_validator(mode="after")
    def _check_scopes(self) -> Self:
        if not self.scopes:
            return self
        label = f"ToolAuth has scopes ({', '.join(self.scopes)})"
        if self.auth_provider is None:
            raise DefinitionError(f"{label} and no provider to ask. Name the auth_provider, or leave the scopes out.")
        if is_scoped(self.auth_provider, self.auth_handler) is False:
            handler = self.auth_handler or f"the default one of {self.auth_provider.name}"
            raise DefinitionError(f"{label}, and its handler, {handler}, has none. Leave them out.")
        return self


class _Postprocessed:
    """The postprocessings of a tool, and of a request for one."""

    if TYPE_CHECKING:
        postprocessings: list[Callable[..., Any]] | None

    def with_postprocessings(self, postprocessings: list[Callable[..., Any]]) -> Self:
        """Append *postprocessings* to those that the result goes through. Returns the object itself."""
        self.postprocessings = [*(self.postprocessings or ()), *postprocessings]
        return self

    def __or__(self, other: Callable[..., Any]) -> Self:
        return self.with_postprocessings([other])


class ToolRequest(_Postprocessed, abc.ABC):
    """What is needed to make a tool, not to call it. `Pocket.loaders` says how a tool is made of it."""

    postprocessings: list[Callable[..., Any]] | None = None
    overridden_tool_vars: dict[str, str]

    def __new__(cls, *_: Any, **__: Any) -> Self:
        request = super().__new__(cls)
        request.overridden_tool_vars = {}
        return request

    @abc.abstractmethod
    def __str__(self) -> str:
        raise NotImplementedError

    def add_postprocessing(self, postprocessing: Callable[..., Any]) -> None:
        """Append *postprocessing* to those that the result goes through."""
        self.with_postprocessings([postprocessing])

    def override_tool_variables(self, override_vars: dict[str, str]) -> Self:
        """Give the tool *override_vars* in place of its own. Returns the request itself."""
        self.overridden_tool_vars = dict(override_vars)
        return self


class Tool(_Postprocessed, BaseModel, abc.ABC):
    """The base of tools. A subclass defines `invoke` or `ainvoke`, and gives the fields their values.

    Both are called with `body`, the arguments that were checked, and with `thread_id`, `profile` and `envs`, the
    credentials and the tool variables.
    """

    name: str = Field(description="tool name")
    description: str = Field(description="tool description")
    argument_json_schema: dict[str, Any] | None = Field(default=None, description="tool argument json schema")
    auth: ToolAuth | None = Field(default=None, description="authentication information to invoke tool")
    postprocessings: list[Callable[..., Any]] | None = Field(
        default=None, description="postprocessing functions after tool is invoked"
    )
    default_tool_vars: dict[str, str] = Field(default_factory=dict[str, str], description="default tool variables")
    overridden_tool_vars: dict[str, str] = Field(
        default_factory=dict[str, str], description="overridden tool variables"
    )
    use_profile: bool = Field(default=False, description="whether a Pocket offers thread and profile to the model")

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if cls.invoke is Tool.invoke and cls.ainvoke is Tool.ainvoke:
            raise TypeError(f"{cls.__name__} defines neither 'invoke' nor 'ainvoke', so it does nothing. Define one.")
        return super().__new__(cls)

    def invoke(self, **kwargs: Any) -> Any:
        """Do the work, for sync code. Where only `ainvoke` is defined, run that; also inside a running loop."""
        return sync.run(self.ainvoke(**kwargs))

    async def ainvoke(self, **kwargs: Any) -> Any:
        """Do the work. Where only `invoke` is defined, call that in a thread."""
        return await in_thread(partial(self.invoke, **kwargs))

    def schema_model(self, use_profile: bool = True) -> type[BaseModel] | None:
        """Return a model of a call: `thread_id`, `profile`, and as `body` the arguments. None without a schema.

        Without *use_profile*, a model of the arguments alone.
        """
        if not self.argument_json_schema:
            return None
        body = {"description": "The argument of the tool.", **self.argument_json_schema}
        return json_schema_to_model(wrapped_schema(self.name, body) if use_profile else body, self.name)

    def get_description(self, use_profile: bool = False) -> str:
        """Return the description for a model; with *use_profile*, of a call as `schema_model` has it."""
        return pocket_extended_tool_description(self.description) if use_profile else self.description

    def override_tool_variables(self, override_vars: dict[str, str]) -> Self:
        """Set tool variables in place of the defaults. Returns the tool itself."""
        self.overridden_tool_vars |= override_vars
        return self

    @property
    def tool_vars(self) -> dict[str, str]:
        """The tool variables: the defaults, and what overrides them."""
        return self.default_tool_vars | self.overridden_tool_vars

    def _environment(self, envs: Mapping[str, str]) -> dict[str, str]:
        """Return *envs*, the credentials, and the tool variables: of those of the settings the ones that it names."""
        settings = {name: value for name, value in config().tool_vars.items() if name in self.default_tool_vars}
        return {**envs, **self.default_tool_vars, **settings, **self.overridden_tool_vars}

    def with_postprocessing(self, postprocessing: Callable[..., Any]) -> Self:
        """Append *postprocessing* to those that the result goes through. Returns the tool itself."""
        return self.with_postprocessings([postprocessing])

    def __str__(self) -> str:
        return self.name

    def __toolcrib__(self) -> CoreTool[..., Any]:
        """Return the tool for any workbench: its broker authorizes it, its caller is the thread and the profile."""
        return core_tool(self, self, self._work, is_sync=type(self).ainvoke is Tool.ainvoke)

    async def _work(self, arguments: dict[str, Any], context: Context) -> Any:
        value = await self.ainvoke(body=arguments, **host_of(context), envs=envs_of(self, context))
        return await postprocessed(self, value)


def wrapped_schema(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a call with a thread and a profile, whose `body` are the arguments."""
    return {
        "title": name,
        "type": "object",
        "properties": {
            "thread_id": {
                "type": "string",
                "default": "default",
                "description": "The ID of the chat thread in which the tool is invoked. Left out if it is not known.",
            },
            "profile": {
                "type": "string",
                "default": "default",
                "description": "As which of their profiles the user invokes the tool. Left out if they name none.",
            },
            "body": {**body, "title": name},
        },
        "required": ["body"],
    }
