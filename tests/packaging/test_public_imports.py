"""What dialects and bridges import of Toolcrib: names that users could import, too."""

import ast
import importlib
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import toolcrib

SRC = Path(toolcrib.__file__).parent
USERS = (
    *(f"dialects.{dialect}" for dialect in ("autogen", "hyperpocket", "spark", "swarm")),
    *(f"bridges.{file.stem}" for file in (SRC / "bridges").glob("[a-z]*.py")),
)
INNER: frozenset[str] = frozenset(
    {
        "bridges.autogen: formats.offer.Offered",
        "bridges.autogen: formats.picture.decoded",
        "bridges.autogen: workbench.sync",
        "bridges.foreign: schema.json_schema_validator.validator",
        "bridges.google_adk: formats.accepts.GEMINI",
        "bridges.google_adk: formats.content.json_value",
        "bridges.google_adk: formats.offer.Offered",
        "bridges.host: formats.offer.Offer",
        "bridges.host: formats.offer.offer",
        "bridges.host: formats.reading.join_surrogates",
        "bridges.host: schema.dialect.Accepts",
        "bridges.langchain: formats.content.media_content",
        "bridges.langchain: formats.offer.Offer",
        "bridges.langchain: workbench.sync",
        "bridges.llamaindex: formats.content.media_content",
        "bridges.llamaindex: formats.offer.Offered",
        "bridges.llamaindex: workbench.sync",
        "bridges.openai_agents: formats.accepts.RESPONSES",
        "bridges.openai_agents: formats.content.media_content",
        "bridges.openai_agents: formats.offer.Offered",
        "bridges.pydantic_ai: formats.content.json_value",
        "bridges.pydantic_ai: formats.content.media_content",
        "bridges.pydantic_ai: workbench.sync",
        "bridges.smolagents: formats.accepts.GEMINI",
        "bridges.smolagents: formats.content.json_value",
        "bridges.smolagents: formats.offer.Offered",
        "bridges.smolagents: formats.picture.decoded",
        "bridges.smolagents: workbench.sync",
        "dialects.autogen.tools._function_tool: tools.work.by_name",
        "dialects.autogen.tools._function_tool: tools.work.work_of",
        "dialects.autogen.tools._static_workbench: formats.picture.decoded",
        "dialects.hyperpocket.auth._catalogue: auth.catalogue.HandlerName",
        "dialects.hyperpocket.auth._catalogue: auth.catalogue.Provider",
        "dialects.hyperpocket.auth._handlers: auth.catalogue.HandlerName",
        "dialects.hyperpocket.auth._handlers: workbench.sync.run",
        "dialects.hyperpocket.auth._models: auth.catalogue.HandlerName",
        "dialects.hyperpocket.config.settings: schema.toml.parse_toml",
        "dialects.hyperpocket.pocket_main: tools.function.Parts",
        "dialects.hyperpocket.pocket_main: workbench.options.Options",
        "dialects.hyperpocket.pocket_main: workbench.sync",
        "dialects.hyperpocket.repository.lock: tools.address.GitAddress",
        "dialects.hyperpocket.repository.lock: tools.address.GitSource",
        "dialects.hyperpocket.repository.lock: tools.address.parse_git_address",
        "dialects.hyperpocket.repository.lock: tools.git.commit_of",
        "dialects.hyperpocket.repository.lock: tools.git.fetch",
        "dialects.hyperpocket.tool._core_tool: tools.function.Parts",
        "dialects.hyperpocket.tool._core_tool: tools.spec.require_name",
        "dialects.hyperpocket.tool.function._binding: tools.work.Runs",
        "dialects.hyperpocket.tool.function._binding: tools.work.by_name",
        "dialects.hyperpocket.tool.function._binding: tools.work.generates",
        "dialects.hyperpocket.tool.function.tool: tools.work.work_of",
        "dialects.hyperpocket.tool.function.tool: workbench.sync",
        "dialects.hyperpocket.tool.tool: workbench.sync",
        "dialects.hyperpocket.tool.wasm._files: schema.toml.parse_toml",
        "dialects.hyperpocket.tool.wasm.invoker: sandbox.folders.folder_digest",
        "dialects.hyperpocket.tool.wasm.invoker: tools.python_folder.EnvironmentWork",
        "dialects.hyperpocket.tool.wasm.invoker: tools.python_folder.python_program",
        "dialects.hyperpocket.tool.wasm.invoker: tools.wasm.GuestCodec",
        "dialects.hyperpocket.tool.wasm.invoker: workbench.sync",
        "dialects.hyperpocket.tool.wasm.tool: sandbox.folders.folder_digest",
        "dialects.hyperpocket.tool.wasm.tool: tools.address.is_git_address",
        "dialects.hyperpocket.tool.wasm.tool: tools.address.parse_git_address",
        "dialects.hyperpocket: core.lazy.lazy_names",
        "dialects.spark.models.openai: agent.sdk.PerLoop",
        "dialects.spark.models.openai: agent.sdk.ProviderErrors",
        "dialects.spark.models.openai: agent.sdk.package",
        "dialects.spark.tools._blocks: formats.bedrock_blocks.read_block",
        "dialects.spark.tools._metadata: schema.signature.enclosing_names",
        "dialects.spark.tools.decorator: tools.work.by_name",
        "dialects.spark.tools.registry: tools.spec.require_name",
        "dialects.spark.tools.tools: tools.spec.require_name",
        "dialects.swarm.definitions: workbench.registry.unknown",
        "dialects.swarm.tool: tools.spec.require_name",
        "dialects.swarm.tool: workbench.sync",
    }
)
"""Inner names that are still imported, each with its importer. The list only shrinks."""


def modules(user: str) -> Iterator[tuple[str, Path]]:
    """Yield the modules of *user*, a package or a module, and their files."""
    path = SRC.joinpath(*user.split("."))
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]:
        parts = file.relative_to(SRC).with_suffix("").parts
        yield ".".join(("toolcrib", *parts)), file


def imports(module: str, file: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules and names that *module* imports, also inside functions."""
    package = module.removesuffix(".__init__") if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            yield from ((source, alias.name) for alias in node.names)


def is_public(source: str, name: str) -> bool:
    """Return whether *name* of the module *source* is of the package itself, or in the `__all__` of a room.

    A room, and a module that its `__init__` offers (such as `formats.bedrock`), may be imported as a whole.
    """
    if source == "toolcrib":
        return name in toolcrib.__all__ or (SRC / name / "__init__.py").is_file()
    if source.count(".") > 1:
        return False
    room = importlib.import_module(source)
    return name in room.__all__ or f"{source}.{name}" in PUBLIC_MODULES


PUBLIC_MODULES = frozenset(
    f"toolcrib.formats.{form}" for form in ("anthropic", "bedrock", "gemini", "mcp", "openai", "openai_responses")
)


def test_dialects_and_bridges_import_public_names_only() -> None:
    inner = {
        f"{module.removeprefix('toolcrib.').removesuffix('.__init__')}: {source.removeprefix('toolcrib.')}.{name}"
        for user in USERS
        for module, file in modules(user)
        for source, name in imports(module, file)
        if source.split(".")[0] == "toolcrib"
        and not f"{source}.".startswith(f"toolcrib.{user.partition('.')[0]}.")
        and not is_public(source, name)
    }
    assert inner == INNER
