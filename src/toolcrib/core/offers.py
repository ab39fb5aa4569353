"""What a source may offer beside tools, as MCP has them: resources, which are read, and prompts, which are filled in.

A Source offers resources where it has `resources` (and may have `resource_templates` and `read_resource`), and prompts
where it has `prompts` and `get_prompt`. Both are data here; `serve` shows them to clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .call import Caller
from .content import Content


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something to read, by its *uri*. *meta* has what a remote server says of it beside (`annotations`, `icons`)."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    media_type: str | None = None
    size_bytes: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTemplate:
    """Many resources, by a URI template (RFC 6570)."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    media_type: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceContent:
    """What was read at *uri*: text, or bytes. *meta* is for programs, as MCP's `_meta`."""

    uri: str
    data: str | bytes
    media_type: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """One argument of a prompt, which is text."""

    name: str
    description: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A template of messages that a person chooses, with its arguments."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[PromptArgument, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a filled-in prompt."""

    role: Literal["user", "assistant"]
    content: Content


@dataclass(frozen=True, slots=True)
class OffersChange:
    """The list of resources, or of prompts, has changed; with *uri*, the resource there. For *caller*, or for all."""

    what: Literal["resources", "prompts"]
    uri: str | None = None
    caller: Caller | None = None


class OffersResources(Protocol):
    """A source of resources. `read_resource` raises ToolError `unknown_tool` where there is none at the URI."""

    async def resources(self) -> Sequence[Resource]: ...
    async def resource_templates(self) -> Sequence[ResourceTemplate]: ...
    async def read_resource(self, uri: str, /) -> Sequence[ResourceContent]: ...


class OffersPrompts(Protocol):
    """A source of prompts. `get_prompt` raises ToolError: `unknown_tool`, or `invalid_arguments`."""

    async def prompts(self) -> Sequence[Prompt]: ...
    async def get_prompt(self, name: str, arguments: Mapping[str, str], /) -> Sequence[PromptMessage]: ...
