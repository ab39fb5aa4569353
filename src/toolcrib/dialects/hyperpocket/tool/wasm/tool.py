"""`hyperpocket.tool.wasm.tool`: tools in folders and git repositories, which run in the sandbox."""

from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from pydantic import PrivateAttr

from .....core import Context
from .....sandbox import folder_digest
from .....tools import Tool as CoreTool
from .....tools import is_git_address, parse_git_address
from ...config import config
from ...repository import GitLock, LocalLock, Lock, Lockfile
from .._core_tool import core_tool, envs_of, postprocessed
from ..tool import Tool, ToolRequest
from ._files import read_config, read_readme, read_schema
from .invoker import RUNNING, Running, WasmInvoker
from .script import ScriptRuntime


class WasmToolRequest(ToolRequest):
    """The tool in the folder *rel_path* of what *lock* names, with *tool_vars* in place of its own."""

    lock: Lock
    rel_path: str

    def __init__(self, lock: Lock, rel_path: str = "", tool_vars: Mapping[str, str] | None = None) -> None:
        self.lock = lock
        self.rel_path = rel_path
        self.overridden_tool_vars = dict(tool_vars or {})

    def __str__(self) -> str:
        return f"WasmToolRequest(lock={self.lock}, rel_path={self.rel_path})"


def from_local(path: str, tool_vars: Mapping[str, str] | None = None) -> WasmToolRequest:
    """Ask for the tool in the folder *path*."""
    return WasmToolRequest(LocalLock(path), "", tool_vars)


def from_git(
    repository: str, ref: str = "HEAD", rel_path: str = "", tool_vars: Mapping[str, str] | None = None
) -> WasmToolRequest:
    """Ask for the tool in the folder *rel_path* of *repository*, at *ref*: a branch, a tag, or HEAD."""
    return WasmToolRequest(GitLock(repository_url=repository, git_ref=ref), rel_path, tool_vars)


def request_of(address: str) -> WasmToolRequest:
    """Ask for the tool at *address*: a folder, or a git address, such as `https://github.com/OWNER/REPO/tree/REF/PATH`.

    Raises ValueError for other text.
    """
    if address and "\0" not in address and Path(address).expanduser().exists():
        return from_local(address)
    if is_git_address(address):
        place = parse_git_address(address)
        return from_git(place.repository, place.ref, place.folder)
    raise ValueError(
        f"'{address[:200]}' is not where a tool is: there is no such folder, and it is not a git address. Name one, or "
        "give the Pocket a loader: class MyPocket(Pocket): loaders = {str: load}, where load returns a Tool."
    )


class WasmTool(Tool):
    """A tool in a folder: `config.toml`, `schema.json`, `README.md`, and a program in Python.

    The program gets its arguments as JSON on standard input, the credentials and tool variables in its environment, and
    its standard output is the result.
    """

    pkg_lock: Lock
    rel_path: str = ""
    runtime: ScriptRuntime = ScriptRuntime.Python
    json_schema: dict[str, Any] | None = None
    readme: str | None = None
    _invoker: WasmInvoker = PrivateAttr(default_factory=WasmInvoker)

    @classmethod
    def from_tool_request(cls, tool_req: WasmToolRequest, lockfile: Lockfile | None = None, **kwargs: Any) -> Self:
        """Return the requested tool, at the commit in *lockfile*, which has its lock, synced.

        Raises ValueError for a folder or a `config.toml` that cannot be used. Without a `schema.json` that can be read,
        the tool takes any arguments. Where `config.toml` has no description, that is `README.md`, or else the name.
        """
        if lockfile is None:
            raise ValueError(
                "lockfile is required: WasmTool.from_tool_request(request, lockfile=Lockfile('pocket.lock'))"
            )
        tool_req.lock = lockfile.get_lock(tool_req.lock.key())
        folder = tool_req.lock.folder(tool_req.rel_path)
        settings, schema, readme = read_config(folder), read_schema(folder), read_readme(folder)
        return cls(
            name=settings.name,
            description=settings.description or readme or settings.name,
            argument_json_schema=schema,
            json_schema=schema,
            auth=settings.auth,
            runtime=ScriptRuntime.Python,
            readme=readme,
            pkg_lock=tool_req.lock,
            rel_path=tool_req.rel_path,
            postprocessings=tool_req.postprocessings,
            default_tool_vars=settings.tool_vars,
            overridden_tool_vars=tool_req.overridden_tool_vars,
            **kwargs,
        )

    @cached_property
    def tool_path(self) -> str:
        """The folder in which it is."""
        return str(self.pkg_lock.folder(self.rel_path))

    @property
    def invoker(self) -> WasmInvoker:
        """What runs it. Another one can be set."""
        return self._invoker

    @invoker.setter
    def invoker(self, invoker: WasmInvoker) -> None:
        self._invoker = invoker

    def invoke(self, body: Any = None, envs: Mapping[str, str] | None = None, **kwargs: Any) -> str:
        """Run it with *body*, the arguments, and *envs*, the credentials. Returns its output."""
        return self.invoker.invoke(self.tool_path, self.runtime, body, self._environment(envs or {}))

    async def ainvoke(self, body: Any = None, envs: Mapping[str, str] | None = None, **kwargs: Any) -> str:
        """`invoke`, for async code."""
        return await self.invoker.ainvoke(self.tool_path, self.runtime, body, self._environment(envs or {}))

    def __toolcrib__(self) -> CoreTool[..., Any]:
        digest = folder_digest(Path(self.tool_path))
        # The digest is a part of the function, since an approval is bound to that.
        return core_tool(self, partial(self._invoke, digest), partial(self._call, digest), is_sync=False)

    def _invoke(self, digest: str, /, **kwargs: Any) -> str:
        return self.invoke(**kwargs)

    async def _call(self, digest: str, arguments: dict[str, Any], context: Context) -> Any:
        token = RUNNING.set(Running(context, self.tool_path, digest))
        try:
            value = await self.ainvoke(body=arguments, envs=envs_of(self, context))
        finally:
            RUNNING.reset(token)
        return await postprocessed(self, value)

    def _environment(self, envs: Mapping[str, str]) -> dict[str, str]:
        """Return *envs*, the credentials, and the tool variables. Of the settings' it gets those that it names."""
        settings = {name: value for name, value in config().tool_vars.items() if name in self.default_tool_vars}
        return {**envs, **self.default_tool_vars, **settings, **self.overridden_tool_vars}
