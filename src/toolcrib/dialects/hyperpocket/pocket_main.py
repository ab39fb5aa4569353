"""`hyperpocket.pocket_main`: a Pocket, which runs tools for a thread and a profile, authorized by a PocketAuth."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from inspect import getmro, isawaitable
from os import PathLike
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack, cast
from urllib.parse import quote

from pydantic import BaseModel

from ...core import (
    Broker,
    Call,
    Caller,
    Context,
    Credential,
    NameConflictError,
    Pending,
    Requirement,
    Result,
    SetupError,
    Text,
    ToolError,
    ToolSpec,
)
from ...machinery import MIN_SECRET_CHARS, Check
from ...tools import Tool as CoreTool
from ...tools import from_work
from ...workbench import Crib, Options, Registry, Workbench, sync
from .auth import AuthContext, AuthenticateRequest, AuthProvider, secrets_of
from .builtin import get_builtin_tools
from .config import config
from .pocket_auth import PocketAuth
from .repository import Lockfile
from .server import needs_callback, start_callback_server, stop_callback_server
from .tool import Tool, ToolAuth, ToolRequest, from_func
from .tool.function import FunctionTool
from .tool.tool import OWN, Listed, options_of, require_listed, wrapped_schema
from .tool.wasm import WasmTool, WasmToolRequest, request_of
from .tool_like import ToolLike

DEFAULT_TIMEOUT_S = 180.0
"""The time limit of a call, unless the Pocket is given another `timeout_s`."""
_LOCAL = Caller().principal


_URL = re.compile(r"https?://\S+")


@dataclass(frozen=True, slots=True)
class PocketCredential(Credential):
    """An AuthContext as a credential: `envs` is its `to_dict()`."""

    envs: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    texts: Sequence[str] = field(default=(), repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(text for text in self.texts if len(text) >= MIN_SECRET_CHARS)


@dataclass(frozen=True, slots=True)
class PendingGrant(Pending):
    """A grant that a call waits for, with the *text* that hyperpocket gives for it."""

    text: str = ""


class PocketBroker(Broker):
    """Authorizes the calls of tools by *auth*; *tool_of* finds a tool by its name."""

    def __init__(self, auth: PocketAuth, tool_of: Callable[[str], Tool]) -> None:
        self._auth = auth
        self._tool_of = tool_of

    async def authorize(
        self, _: Sequence[Requirement], caller: Caller, call: Call, /
    ) -> Sequence[Credential] | Pending:
        """Return PocketAuth's context as a credential, or the grant that is missing, with the URL."""
        tool, options = self._tool_of(call.tool), options_of(call)
        if tool.auth is not None and (envs := options.pop("envs", None)) is not None:
            provider, texts = str(tool.auth.auth_provider), tuple(map(str, envs.values()))
            return (PocketCredential(provider, "", envs=envs, texts=texts),)
        answer: Any = self._auth.invoke(tool, thread_id=caller.thread, profile=caller.profile, wait=False, **options)
        answer = await answer if isawaitable(answer) else answer
        if answer is None:
            return ()
        if isinstance(answer, AuthContext):
            assert tool.auth is not None
            provider = str(tool.auth.auth_provider or tool.auth.auth_handler)
            envs, texts = answer.to_dict(), secrets_of(answer)
            return (
                PocketCredential(provider, answer.access_token, expires_at=answer.expires_at, envs=envs, texts=texts),
            )
        self.require_callback_server(answer)
        url = _URL.search(answer)
        return PendingGrant(
            id=call.id,
            kind="authorization",
            message=answer if url is None else answer.replace(url[0], "").strip().removesuffix(":"),
            digest="",
            tool=call.tool,
            principal=caller.principal,
            thread=caller.thread,
            expires_at=datetime.now(UTC) + timedelta(seconds=config().auth_timeout_s),
            url=None if url is None else url[0],
            text=answer,
        )

    def require_callback_server(self, text: str) -> None:
        """Start the callback server where the URL in *text* leads back to it. Raises ToolError where it cannot."""
        try:
            if needs_callback(text):
                start_callback_server(self)
        except SetupError as error:
            raise ToolError(str(error), "unavailable") from None


class Pocket:
    """Tools, called by name for a thread and a profile: credentials come from *auth*, and never from the model.

    *tools* are tools, functions, requests for tools in folders and repositories, or their addresses, and what `loaders`
    take. Where such tools come from is pinned in *lockfile_path*; *force_update* pins it anew. With *use_profile* the
    model chooses the thread and the profile beside the `body`, among *threads* and *profiles*. The *options* are those
    of a Crib, such as `timeout_s`, `policy` and `recorder`.

    Raises RuntimeError for two tools of one name, ValueError for what is not a tool, or no list of names, and
    DefinitionError for a tool that cannot work.

    What else is given to a call by name reaches the handler of its provider, and the tool, as hyperpocket has it; no
    model gives such. With `envs=`, credentials by name, none are asked for.
    """

    loaders: ClassVar[Mapping[type, Callable[[Any], Tool]]] = {}
    """What makes a tool of other things than tools and functions, by their type. A subclass adds its own."""

    auth: PocketAuth
    tools: dict[str, Tool]
    use_profile: bool
    lockfile: Lockfile

    def __init__(
        self,
        tools: Iterable[ToolLike] | ToolLike | None = None,
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
        self._listed: Listed = {"thread_id": _names(threads, "threads"), "profile": _names(profiles, "profiles")}
        self.lockfile, self._force_update = Lockfile(lockfile_path), force_update
        self.tools = {}
        self._registry = Registry()
        if "broker" in options:
            raise SetupError("A Pocket is authorized by its PocketAuth: Pocket(tools, auth=PocketAuth(...)).")
        crib_options: Options = {"timeout_s": DEFAULT_TIMEOUT_S, "max_result_chars": 0, **options}
        crib_options["broker"] = self._broker = PocketBroker(self.auth, self.tools.__getitem__)
        self._crib = Crib(self._registry, **crib_options)
        self.load_tools(() if tools is None else tools)
        for tool in get_builtin_tools(self.auth):
            self._add(tool)

    # Tools

    def load_tools(self, tools: Iterable[ToolLike] | ToolLike) -> list[Tool]:
        """Add *tools*, one or several, as the constructor does, and return them."""
        is_varied = isinstance(tools, tuple) and len(tools) == 2 and isinstance(tools[1], Mapping)
        is_one = is_varied or isinstance(tools, str | Tool) or not isinstance(tools, Iterable)
        new_tools = [self._load_tool(tool) for tool in cast("Iterable[ToolLike]", [tools] if is_one else tools)]
        if self.lockfile.referenced_locks:
            self.lockfile.write()
        for tool in new_tools:
            self._add(tool)
        return new_tools

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
        if (load := self._loader_of(type(tool_like))) is not None:
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
        if callable(tool_like):
            return from_func(tool_like)
        name = type(request).__name__
        raise ValueError(
            f"Invalid tool type: {type(request)}. A tool is a Tool, a function, or what a loader of the Pocket "
            f"takes: class MyPocket(Pocket): loaders = {{{name}: load}}, where load returns a Tool."
        )

    def _loader_of(self, kind: type) -> Callable[[Any], Tool] | None:
        loaders: dict[type, Callable[[Any], Tool]] = {}
        for pocket in reversed(type(self).__mro__):
            loaders |= vars(pocket).get("loaders", {})
        return next((loaders[base] for base in getmro(kind) if base in loaders), None)

    def _add(self, tool: Tool) -> None:
        try:
            self._registry.add(tool.__toolcrib__())
        except NameConflictError as error:
            raise RuntimeError(f"Duplicate tool name: {tool.name}. {error}") from None
        self.tools[tool.name] = tool

    def grouping_tool_by_auth_provider(self) -> dict[str, list[Tool]]:
        """Return the tools that need authentication, by the name of the provider."""
        groups: dict[str, list[Tool]] = {}
        for tool in self.tools.values():
            if tool.auth is not None and tool.auth.auth_provider is not None:
                groups.setdefault(tool.auth.auth_provider.name, []).append(tool)
        return groups

    # Calls

    def workbench(self, thread_id: str = "default", profile: str = "default") -> Workbench:
        """Return Toolcrib's workbench of this thread and profile: its results say whether a call has failed."""
        return self._crib.workbench(Caller(thread_id, profile, thread_id))

    def invoke(
        self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default", **kwargs: Any
    ) -> str:
        """Call a tool and return its result, or its error, as text. Works inside a running event loop."""
        return sync.run(self.ainvoke(tool_name, body, thread_id, profile, **kwargs))

    async def ainvoke(
        self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default", **kwargs: Any
    ) -> str:
        """Do the same as `invoke`, for async code."""
        return (await self.ainvoke_with_state(tool_name, body, thread_id, profile, **kwargs))[0]

    def invoke_with_state(
        self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default", **kwargs: Any
    ) -> tuple[str, bool]:
        """Return what `invoke` does, and whether the call is paused: then the text has the URL of the grant.

        The same call runs once that is done.
        """
        return sync.run(self.ainvoke_with_state(tool_name, body, thread_id, profile, **kwargs))

    async def ainvoke_with_state(
        self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default", **kwargs: Any
    ) -> tuple[str, bool]:
        """Do the same as `invoke_with_state`, for async code."""
        result = await self._call(tool_name, body, thread_id, profile, kwargs)
        return _text(result), result.pending is not None

    async def acall(
        self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default", **kwargs: Any
    ) -> tuple[Any, bool]:
        """Do the same as `ainvoke_with_state`, whose result is the value of the tool or of its last postprocessing.

        A FunctionTool returns text. Text has its secrets redacted.
        """
        result = await self._call(tool_name, body, thread_id, profile, kwargs)
        tool = self.tools.get(tool_name)
        is_text = result.status != "success" or isinstance(result.value, str)
        if is_text or (isinstance(tool, FunctionTool) and not tool.postprocessings):
            return _text(result), result.pending is not None
        return result.value, False

    async def tool_call(
        self, tool_name: str, body: Any, thread_id: str = "default", profile: str = "default", **kwargs: Any
    ) -> Any:
        """Call a tool with what `authenticate` returned as `envs`, without asking for credentials. Returns its value.

        A failure is text, as of `acall`.
        """
        return (await self.acall(tool_name, body, thread_id, profile, **{"envs": {}, **kwargs}))[0]

    async def _call(
        self, tool_name: str, body: Any, thread_id: str, profile: str, options: Mapping[str, Any]
    ) -> Result[Any]:
        if self._offers_identity(self.tools.get(tool_name)):
            try:
                require_listed(self._listed, tool_name, "thread_id", thread_id, OWN)
                require_listed(self._listed, tool_name, "profile", profile, OWN)
            except ToolError as error:
                return Result(None, (Text(error.message),), error, tool=tool_name)
        arguments = body.model_dump(mode="json") if isinstance(body, BaseModel) else body
        data = {"hyperpocket": self._listed, "options": options}
        return await self._run(Call(tool_name, arguments, data=data), thread_id, profile)

    async def _run(self, call: Call, thread_id: str, profile: str) -> Result[Any]:
        bench = self.workbench(thread_id, profile)
        try:
            return await bench.call(call)
        finally:
            await bench.stop()

    def _offers_identity(self, tool: Tool | None) -> bool:
        """Check whether a model is offered the thread and the profile of *tool*."""
        return self.use_profile or (tool is not None and tool.use_profile)

    # Authentication before a call

    async def initialize_tool_auth(self, thread_id: str = "default", profile: str = "default") -> dict[str, str]:
        """Return, by provider, the text with the URL for what all tools need and is not granted yet."""
        texts = {
            provider: await self.prepare_auth([tool.name for tool in tools], thread_id, profile)
            for provider, tools in self.grouping_tool_by_auth_provider().items()
        }
        return {provider: text for provider, text in texts.items() if text is not None}

    async def wait_tool_auth(self, thread_id: str = "default", profile: str = "default") -> bool:
        """Wait until all that `initialize_tool_auth` asked for is granted. Raises TimeoutError where it is not."""
        for tools in self.grouping_tool_by_auth_provider().values():
            await self.authenticate([tool.name for tool in tools], thread_id, profile)
        return True

    async def prepare_auth(
        self, tool_name: str | Sequence[str], thread_id: str = "default", profile: str = "default", **kwargs: Any
    ) -> str | None:
        """Return the text with the URL for what tools of one provider need together; None where nothing is missing.

        Raises ValueError for tools with different providers or handlers.
        """
        if (request := self._request_for(tool_name)) is None:
            return None
        text = await self.auth.prepare(*request, thread_id, profile, **kwargs)
        if text is not None:
            self._broker.require_callback_server(text)
        return text

    async def authenticate(
        self, tool_name: str | Sequence[str], thread_id: str = "default", profile: str = "default", **kwargs: Any
    ) -> dict[str, str]:
        """Return the credentials of tools of one provider by name. Waits for a grant that was prepared."""
        if (request := self._request_for(tool_name)) is None:
            return {}
        return (await self.auth.authenticate_async(*request, thread_id, profile, **kwargs)).to_dict()

    def _request_for(
        self, tool_name: str | Sequence[str]
    ) -> tuple[AuthenticateRequest, str | None, AuthProvider | None] | None:
        """Return the request for what tools need together, its handler and provider; None where they need nothing."""
        names = [tool_name] if isinstance(tool_name, str) else tool_name
        needs = [auth for name in names if (auth := self.tools[name].auth) is not None and auth.auth_provider]
        if not needs:
            return None
        _require_same_handler(needs)
        scopes = sorted({scope for auth in needs for scope in auth.scopes or ()})
        handler = (needs[0].auth_handler, needs[0].auth_provider)
        return self.auth.make_request(scopes, *handler), *handler

    # Other workbenches, and the end

    def __toolcrib__(self) -> list[CoreTool[..., Any]]:
        """Return its tools for other workbenches, authorized by its PocketAuth for the caller of each.

        With `use_profile` their schema has the thread and the profile, of which a model may choose those listed.
        """
        return [self._offered(tool) for tool in self.tools.values()]

    def _offered(self, tool: Tool) -> CoreTool[..., Any]:
        inner, offers_identity = self._registry.get(tool.name), self._offers_identity(tool)
        check: Callable[[str], Check] | None = None if offers_identity else lambda name: inner.named(name).check
        spec = replace(inner.spec, auth=None)
        if offers_identity:
            schema = wrapped_schema(tool.name, dict(inner.spec.input_schema))
            for name, names in self._listed.items():
                schema["properties"][name]["enum"] = sorted({*names, OWN})
            spec = ToolSpec(tool.name, tool.get_description(use_profile=True), schema)

        async def work(arguments: Mapping[str, Any], context: Context) -> Result[Any]:
            caller, body = context.caller, context.call.arguments
            if offers_identity:
                choices = {"thread": arguments.get("thread_id", OWN), "profile": arguments.get("profile", OWN)}
                caller = replace(caller, **{name: choice for name, choice in choices.items() if choice != OWN})
                body = arguments["body"]
            return await self._call_as(context, caller, body)

        return from_work(spec, work, check=check, fn=inner.fn, home=inner.home, at_deadline=inner.at_deadline)

    async def _call_as(self, context: Context, caller: Caller, body: Any) -> Result[Any]:
        thread, names = caller.thread, self._listed
        if caller.principal != _LOCAL:
            # The thread of another principal is theirs, whatever its name: sessions are told apart by it alone.
            thread = f"{quote(caller.principal, safe='')}/{quote(caller.thread, safe='')}"
            names = {**names, "thread_id": frozenset()}
        call = Call(context.call.tool, body, cancellation=context.cancellation, data={"hyperpocket": names})
        result = await self._run(call, thread, caller.profile)
        result.unwrap()  # raises where it failed, or waits
        return result

    def teardown(self) -> None:
        """Stop it, and the callback server if no other Pocket uses that.

        Called on an event loop, it stops as soon as that goes on: its calls may have run there.
        """
        stop = self._crib.stop()
        try:
            self._stopping = asyncio.create_task(stop)
        except RuntimeError:  # no loop runs here
            sync.run(stop)
        stop_callback_server(self._broker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.teardown()


def _names(names: Iterable[str], option: str) -> frozenset[str]:
    if isinstance(names, str):  # whose letters would be names
        raise ValueError(f'Pocket: {option} is a list of names, as in {option}=["default", "work"].')
    return frozenset(names)


def _require_same_handler(needs: Sequence[ToolAuth]) -> None:
    for member in ("auth_provider", "auth_handler"):
        if len(values := {str(getattr(auth, member)) for auth in needs}) > 1:
            raise ValueError(
                f"All tools should have the same {member}, and these have: {', '.join(sorted(values))}. "
                "Prepare them one by one."
            )


def _text(result: Result[Any]) -> str:
    return result.pending.text if isinstance(result.pending, PendingGrant) else result.text
