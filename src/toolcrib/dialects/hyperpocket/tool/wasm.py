"""`hyperpocket.tool.wasm`: tools in folders and git repositories, which run in the sandbox."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field, PrivateAttr, ValidationError, field_validator

from ....core import Context, LoadError, ToolError, ToolSpec
from ....machinery import Work
from ....sandbox import folder_digest
from ....tools import Tool as CoreTool
from ....tools import from_work, is_git_address, parse_git_address, program_work
from ....workbench import Workbench, sync
from ..._modules import also_as
from ..config import pocket_logger, problems
from ..repository import GitLock, LocalLock, Lock, Lockfile
from .tool import Tool, ToolAuth, ToolRequest, core_tool, envs_of, postprocessed


class ScriptRuntime(Enum):
    """What runs a tool. The sandbox runs Python."""

    Node = "node"
    Python = "python"
    Wasm = "wasm"


_LIMITS = {"memory_bytes": 256 * 1024**2, "output_bytes": 8 * 1024**2}


class WasmInvoker:
    """Runs programs in the sandbox: with no files but their own, no network, and within limits.

    With `trusted`, what cannot run there has a process and an environment of its own, and this process's permissions. A
    subclass may run programs elsewhere. A Pocket calls `ainvoke`.
    """

    trusted: bool = False

    def invoke(self, tool_path: str, runtime: ScriptRuntime, body: Any, envs: Mapping[str, str], **kwargs: Any) -> str:
        """Do the same as `ainvoke`, for sync code; also inside a running loop."""
        return sync.run(self.ainvoke(tool_path, runtime, body, envs, **kwargs))

    async def ainvoke(
        self, tool_path: str, runtime: ScriptRuntime, body: Any, envs: Mapping[str, str], **kwargs: Any
    ) -> str:
        """Run the program in the folder *tool_path* with *body* as JSON and *envs* as its environment.

        Returns its output. Raises ToolError where it failed or was stopped, or cannot run.
        """
        work = _program(tool_path, None, envs, trusted=self.trusted)
        tool = from_work(ToolSpec("program", "", {"type": "object"}), work, home=__name__)
        async with Workbench([tool], variables=envs) as bench:
            return str((await bench.call("program", body)).unwrap())


class _HostWith:
    """The *host* of a call, with other *variables*: all that the program is to have."""

    def __init__(self, host: Any, variables: Mapping[str, str]) -> None:
        self._host = host
        self.variables = variables

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


def _program(tool_path: str, digest: str | None, envs: Mapping[str, str], *, trusted: bool) -> Work:
    """Return the work of the program in the folder *tool_path*, as *digest* or as it is now. Raises ToolError."""
    try:
        return _work(tool_path, digest or folder_digest(Path(tool_path)), tuple(sorted(envs)), trusted)
    except LoadError as error:
        raise ToolError(f"Tool '{Path(tool_path).name}' cannot run: {error}", "unavailable") from None


@cache
def _work(tool_path: str, digest: str, variables: tuple[str, ...], trusted: bool) -> Work:
    """Return the work of the program in the folder *tool_path*, as *digest* has it. Raises LoadError."""
    folder = Path(tool_path)
    mains = [folder / "main.py"] if (folder / "main.py").is_file() else sorted(folder.glob("*/__main__.py"))
    if len(mains) != 1:
        raise LoadError(f"it has no main.py, and {len(mains)} packages with a __main__.py. It needs one of these.")
    main = mains[0].relative_to(folder).as_posix()
    try:
        return program_work(folder, main, digest=digest, limits=_LIMITS, variables=variables, trusted=trusted)
    except LoadError as error:
        raise LoadError(f"{error} A WasmTool is trusted by tool.invoker.trusted = True.") from None


class ToolConfig(BaseModel, coerce_numbers_to_str=True, hide_input_in_errors=True):
    """`config.toml`. Unknown keys are ignored."""

    name: str
    description: str | None = None
    language: str
    auth: ToolAuth | None = None
    tool_vars: dict[str, str] = Field(default_factory=dict[str, str])

    @field_validator("auth", mode="before")
    @classmethod
    def _read_empty(cls, table: Any) -> Any:
        return table or None

    @field_validator("language")
    @classmethod
    def _check_language(cls, language: str) -> str:
        if language.lower() != "python":
            raise ValueError(f"the language '{language[:80]}' is not supported: the sandbox runs Python")
        return language.lower()


def read_config(folder: Path) -> ToolConfig:
    """Return the content of `config.toml` in *folder*. Raises ValueError."""
    try:
        return ToolConfig.model_validate(tomllib.loads(_text_of(folder, "config.toml")))
    except ValidationError as error:
        reason = problems(error)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise ValueError(f"Failed to load config.toml: {reason.rstrip('.')} ({folder / 'config.toml'}).")


def read_schema(folder: Path) -> dict[str, Any] | None:
    """Return the JSON Schema in `schema.json`. Without one, warn and return None: the tool takes any arguments."""
    try:
        schema: Any = json.loads(_text_of(folder, "schema.json"))
    except (OSError, ValueError, RecursionError) as error:
        schema = error
    if isinstance(schema, dict):
        return schema
    reason = f"{schema}" if isinstance(schema, Exception) else "it is not a JSON object"
    pocket_logger.warning("%s: %s. The tool takes any arguments.", folder / "schema.json", reason)
    return None


def read_readme(folder: Path) -> str | None:
    """Return the text of `README.md`; None where there is none. Raises ValueError."""
    try:
        return _text_of(folder, "README.md")
    except FileNotFoundError:
        return None


def _text_of(folder: Path, name: str) -> str:
    """Return the text of the file *name* in *folder*: a regular file of it, and no link to elsewhere."""
    file = (folder / name).resolve()
    if not file.exists():
        raise FileNotFoundError(2, "there is no such file")
    if not file.is_relative_to(folder) or not file.is_file():
        raise ValueError(f"{name} is not a file of the folder {folder}")
    return file.read_text("utf-8-sig")


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
    if address and Path(address).expanduser().exists():
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
        """Do the same as `invoke`, for async code."""
        return await self.invoker.ainvoke(self.tool_path, self.runtime, body, self._environment(envs or {}))

    def __toolcrib__(self) -> CoreTool[..., Any]:
        digest = folder_digest(Path(self.tool_path))
        # The digest is a part of the function, since an approval is bound to that.
        return core_tool(self, partial(self._invoke, digest), partial(self._call, digest), is_sync=False)

    def _invoke(self, digest: str, /, **kwargs: Any) -> str:
        return self.invoke(**kwargs)

    async def _call(self, digest: str, arguments: dict[str, Any], context: Context) -> Any:
        envs, invoker = envs_of(self, context), self.invoker
        if type(self).ainvoke is WasmTool.ainvoke and type(invoker).ainvoke is WasmInvoker.ainvoke:
            envs = self._environment(envs)
            host: Any = _HostWith(context.host, envs)
            work = _program(self.tool_path, digest, envs, trusted=invoker.trusted)
            value = await work(arguments, replace(context, host=host, credentials={}))
        else:
            value = await self.ainvoke(body=arguments, envs=envs)
        return await postprocessed(self, value)


also_as(__name__, "invoker", "script", "tool")
