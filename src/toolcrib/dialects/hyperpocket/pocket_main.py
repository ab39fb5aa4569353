"""`hyperpocket.pocket_main`: a Pocket, which runs tools for a thread and a profile, authorized by a PocketAuth."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from inspect import getmro
from os import PathLike
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack
from urllib.parse import quote

from pydantic import BaseModel

from ...core import Call, Caller, Context, NameConflictError, Result, SetupError, Text, ToolError, ToolSpec
from ...schema import json_schema_check, require_schema, serialize_any
from ...tools import Tool as CoreTool
from ...tools.function import Parts
from ...workbench import Crib, Registry, Workbench, sync
from ...workbench.options import Options
from ._broker import PendingGrant, PocketBroker
from .builtin import get_builtin_tools
from .pocket_auth import PocketAuth
from .repository import Lockfile
from .server import stop_callback_server
from .tool import Tool, ToolAuth, ToolRequest, from_func
from .tool._core_tool import OWN, Listed
from .tool.function import FunctionTool
from .tool.tool import wrapped_schema
from .tool.wasm import WasmTool, WasmToolRequest, request_of
from .tool_like import ToolLike

_CALL_S = 180.0
"""How long a call may take, unless the Pocket is given another `timeout_s`."""
_LOADERS = 10
_LOCAL = Caller().principal


class Pocket:
    """Tools, called by name for a thread and a profile: credentials come from *auth*, and never from the model.

    *tools* are tools, functions, requests for tools in folders and repositories, or their addresses, and what `loaders`
    take. Where such tools come from is pinned in *lockfile_path*; with *force_update* it is found out again. With
    *use_profile* the model chooses the thread and the profile beside the `body`, among *threads* and *profiles*. The
    *options* are those of a Crib, such as `timeout_s`, `policy` and `recorder`.

    Raises RuntimeError for two tools of one name, ValueError for what is not a tool, and DefinitionError for a tool
    that cannot work.
    """

    loaders: ClassVar[Mapping[type, Callable[[Any], Tool]]] = {}
    """What makes a tool of other things than tools and functions, by their type. A subclass adds its own."""

    auth: PocketAuth
    tools: dict[str, Tool]
    use_profile: bool
    lockfile: Lockfile

    def __init__(
        self,
        tools: Iterable[ToolLike] = (),
        auth: PocketAuth | None = None,
        use_profile: bool = False,
        *,
        profiles: Iterable[str] = ("default",),
        threads: Iterable[str] = ("default",),
        lockfile_path: str | PathLike[str] = "pocket.lock",
        force_update: bool = False,
        **options: Unpack[Options],
    ) -> None:
        self.auth = PocketAuth() if auth is None else auth
        self.use_profile = use_profile
        self._listed = Listed(_names(threads, "threads"), _names(profiles, "profiles"))
        self.lockfile, self._force_update = Lockfile(lockfile_path), force_update
        self.tools = {}
        self._registry = Registry()
        if "broker" in options:
            raise SetupError("A Pocket is authorized by its PocketAuth: Pocket(tools, auth=PocketAuth(...)).")
        given: Options = {"timeout_s": _CALL_S, "max_result_chars": 0, **options}
        given["broker"] = self._broker = PocketBroker(self.auth, self._tool_instance)
        self._crib = Crib(self._registry, **given)
        self.load_tools(tools)
        for tool in get_builtin_tools(self.auth):
            self._add(tool)

    # Tools

    def load_tools(self, tools: Iterable[ToolLike]) -> None:
        """Add *tools*, as the constructor does."""
        with ThreadPoolExecutor(_LOADERS, thread_name_prefix="tool-loader") as threads:
            loaded = list(threads.map(self._load_tool, tools))
        if self.lockfile.referenced_locks:
            self.lockfile.write()
        for tool in loaded:
            self._add(tool)

    def remove_tool(self, tool_name: str) -> bool:
        """Take a tool out. False where there is none of that name."""
        if self.tools.pop(tool_name, None) is None:
            return False
        self._registry.remove(tool_name)
        return True

    def _load_tool(self, tool_like: ToolLike) -> Tool:
        """Return the tool of *tool_like*. A subclass may do that in its own way."""
        if isinstance(tool_like, Tool):
            return tool_like
        loaders: dict[type, Callable[[Any], Tool]] = {}
        for kind in reversed(type(self).__mro__):
            loaders |= vars(kind).get("loaders", {})
        load = next((loaders[kind] for kind in getmro(type(tool_like)) if kind in loaders), None)
        if load is not None:
            tool = load(tool_like)
            if isinstance(tool_like, ToolRequest):
                tool.override_tool_variables(tool_like.overridden_tool_vars)
                tool.with_postprocessings(tool_like.postprocessings or [])
            return tool
        if isinstance(tool_like, tuple) and len(tool_like) == 2:
            return self._load_tool(tool_like[0]).override_tool_variables(tool_like[1])
        request = request_of(tool_like) if isinstance(tool_like, str) else tool_like
        if isinstance(request, WasmToolRequest):
            self.lockfile.sync_once(request.lock, self._force_update)
            return WasmTool.from_tool_request(request, lockfile=self.lockfile)
        if isinstance(request, ToolRequest):
            name = type(request).__name__
            raise ValueError(
                f"No loader makes a tool of '{request}' ({name}). Give the Pocket one: "
                f"class MyPocket(Pocket): loaders = {{{name}: load}}, where load returns a Tool."
            )
        if callable(tool_like):
            return from_func(tool_like)
        raise ValueError(f"Invalid tool type: {type(tool_like)}. A tool is a Tool, a function, or what a loader takes.")

    def _add(self, tool: Tool) -> None:
        try:
            self._registry.add(tool.__toolcrib__())
        except NameConflictError as error:
            raise RuntimeError(f"Duplicate tool name: {tool.name}. {error}") from None
        self.tools[tool.name] = tool

    def _tool_instance(self, tool_name: str) -> Tool:
        return self.tools[tool_name]

    def grouping_tool_by_auth_provider(self) -> dict[str, list[Tool]]:
        """Return the tools that need authentication, by the name of the provider."""
        grouped: dict[str, list[Tool]] = {}
        for tool in self.tools.values():
            if tool.auth is not None and tool.auth.auth_provider is not None:
                grouped.setdefault(tool.auth.auth_provider.name, []).append(tool)
        return grouped

    # Calls

    def workbench(self, thread_id: str = "default", profile: str = "default") -> Workbench:
        """Return Toolcrib's workbench of this thread and profile: its results say whether a call has failed."""
        return self._crib.workbench(Caller(thread_id, profile, thread_id))

    def invoke(self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default") -> str:
        """Call a tool and return its result as text; that of an error, too. Works inside a running event loop."""
        return sync.run(self.ainvoke(tool_name, body, thread_id, profile))

    async def ainvoke(self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default") -> str:
        """`invoke`, for async code."""
        return (await self.ainvoke_with_state(tool_name, body, thread_id, profile))[0]

    def invoke_with_state(
        self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default"
    ) -> tuple[str, bool]:
        """`invoke`, and whether the call is paused: then the text has the URL at which the user grants what it needs.

        The same call runs once that is done.
        """
        return sync.run(self.ainvoke_with_state(tool_name, body, thread_id, profile))

    async def ainvoke_with_state(
        self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default"
    ) -> tuple[str, bool]:
        """`invoke_with_state`, for async code."""
        result = await self._call(tool_name, body, thread_id, profile)
        return _text(result), result.pending is not None

    async def acall(
        self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default"
    ) -> tuple[Any, bool]:
        """`ainvoke_with_state`, whose result is what the tool or its last postprocessing has returned.

        A FunctionTool returns text. Text has its secrets redacted.
        """
        result = await self._call(tool_name, body, thread_id, profile)
        tool = self.tools.get(tool_name)
        is_text = result.status != "success" or isinstance(result.value, str)
        if is_text or (isinstance(tool, FunctionTool) and not tool.postprocessings):
            return _text(result), result.pending is not None
        return result.value, False

    async def _call(self, tool_name: str, body: Any, thread_id: str, profile: str) -> Result[Any]:
        if self._offers_identity(self.tools.get(tool_name)):
            try:
                self._listed.require(tool_name, "thread_id", thread_id, OWN)
                self._listed.require(tool_name, "profile", profile, OWN)
            except ToolError as error:
                return Result(None, (Text(error.message),), error, tool=tool_name)
        arguments = body.model_dump(mode="json") if isinstance(body, BaseModel) else body
        return await self._run(Call(tool_name, arguments, data={"hyperpocket": self._listed}), thread_id, profile)

    async def _run(self, call: Call, thread_id: str, profile: str) -> Result[Any]:
        bench = self.workbench(thread_id, profile)
        try:
            return await bench.call(call)
        finally:
            await bench.stop()

    def _offers_identity(self, tool: Tool | None) -> bool:
        """Whether a model is offered the thread and the profile of *tool*."""
        return self.use_profile or (tool is not None and tool.use_profile)

    # Authentication before a call

    async def initialize_tool_auth(self, thread_id: str = "default", profile: str = "default") -> dict[str, str]:
        """Return, by provider, the text with the URL for what all tools need and is not granted yet."""
        asked = {
            provider: await self.prepare_auth([tool.name for tool in tools], thread_id, profile)
            for provider, tools in self.grouping_tool_by_auth_provider().items()
        }
        return {provider: text for provider, text in asked.items() if text is not None}

    async def wait_tool_auth(self, thread_id: str = "default", profile: str = "default") -> bool:
        """Wait until all that `initialize_tool_auth` asked for is granted. Raises TimeoutError where it is not."""
        for tools in self.grouping_tool_by_auth_provider().values():
            await self.authenticate([tool.name for tool in tools], thread_id, profile)
        return True

    async def prepare_auth(
        self, tool_name: str | Sequence[str], thread_id: str = "default", profile: str = "default"
    ) -> str | None:
        """Return the text with the URL for what tools of one provider need together; None where nothing is missing.

        Raises ValueError for tools with different providers or handlers.
        """
        about = self._united(tool_name)
        if about is None:
            return None
        text = await self.auth.prepare(self._request(about), **_which(about), thread_id=thread_id, profile=profile)
        if text is not None:
            self._broker.require_callback_server(text)
        return text

    async def authenticate(
        self, tool_name: str | Sequence[str], thread_id: str = "default", profile: str = "default"
    ) -> dict[str, str]:
        """Return the credentials of tools of one provider by name. Waits for a grant that was prepared."""
        about = self._united(tool_name)
        if about is None:
            return {}
        context = await self.auth.authenticate_async(
            self._request(about), **_which(about), thread_id=thread_id, profile=profile
        )
        return context.to_dict()

    def _united(self, tool_name: str | Sequence[str]) -> ToolAuth | None:
        """What the tools of these names need together; None where they need nothing."""
        names = [tool_name] if isinstance(tool_name, str) else tool_name
        needed = [auth for name in names if (auth := self._tool_instance(name).auth) and auth.auth_provider is not None]
        if not needed:
            return None
        for what in ("auth_provider", "auth_handler"):
            if len(found := {getattr(auth, what) for auth in needed}) > 1:
                raise ValueError(
                    f"All tools should have the same {what}, and these have: {', '.join(sorted(map(str, found)))}. "
                    "Prepare them one by one."
                )
        scopes = sorted({scope for auth in needed for scope in auth.scopes or ()})
        return needed[0].model_copy(update={"scopes": scopes})

    def _request(self, about: ToolAuth) -> Any:
        return self.auth.make_request(auth_scopes=about.scopes, **_which(about))

    # Toolcrib's workbenches, and the end

    def __toolcrib__(self) -> list[CoreTool[..., Any]]:
        """Return its tools for other workbenches, authorized by its PocketAuth for the caller of each.

        With `use_profile` their schema has the thread and the profile, of which a model may choose those listed.
        """
        return [self._offered(tool) for tool in self.tools.values()]

    def _offered(self, tool: Tool) -> CoreTool[..., Any]:
        inner = self._registry.get(tool.name)
        if not self._offers_identity(tool):
            made = inner.wrapped(lambda _: self._call_for)
            made.spec, made.needs_context = replace(inner.spec, auth=None), True
            return made
        schema = wrapped_schema(tool.name, dict(inner.spec.input_schema))
        for name, listed in (("thread_id", self._listed.threads), ("profile", self._listed.profiles)):
            schema["properties"][name]["enum"] = sorted({*listed, OWN})
        spec = ToolSpec(tool.name, tool.get_description(use_profile=True), schema)
        check = partial(json_schema_check, schema=require_schema(schema, label=f"Tool '{tool.name}'"))
        made = CoreTool(Parts(spec, inner.fn, check, partial(partial, serialize_any), self._call_chosen, inner.home))
        made.at_deadline = inner.at_deadline
        return made

    async def _call_for(self, _: Mapping[str, Any], context: Context) -> Result[Any]:
        return await self._call_as(context, context.caller, context.call.arguments)

    async def _call_chosen(self, arguments: Mapping[str, Any], context: Context) -> Result[Any]:
        thread, profile = arguments.get("thread_id", OWN), arguments.get("profile", OWN)
        caller = context.caller
        caller = replace(
            caller,
            thread=caller.thread if thread == OWN else thread,
            profile=caller.profile if profile == OWN else profile,
        )
        return await self._call_as(context, caller, arguments["body"])

    async def _call_as(self, context: Context, caller: Caller, body: Any) -> Result[Any]:
        is_local = caller.principal == _LOCAL
        # The thread of another principal is theirs, whatever its name: sessions are told apart by it alone.
        thread = caller.thread if is_local else f"{quote(caller.principal, safe='')}/{quote(caller.thread, safe='')}"
        listed = self._listed if is_local else Listed(profiles=self._listed.profiles)
        call = Call(context.call.tool, body, cancellation=context.cancellation, data={"hyperpocket": listed})
        result = await self._run(call, thread, caller.profile)
        result.unwrap()  # raises where it failed, or waits
        return result

    def teardown(self) -> None:
        """Stop it, and the callback server if nobody else uses that."""
        sync.run(self._crib.stop())
        stop_callback_server(self._broker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.teardown()


def _text(result: Result[Any]) -> str:
    pending = result.pending
    return pending.text if isinstance(pending, PendingGrant) else result.text


def _names(names: Iterable[str], of: str) -> frozenset[str]:
    if isinstance(names, str):
        raise ValueError(f'Pocket: {of} are a list of names: {of}=["default", "work"].')
    return frozenset(names)


def _which(about: ToolAuth) -> dict[str, Any]:
    return {"auth_handler_name": about.auth_handler, "auth_provider": about.auth_provider}
