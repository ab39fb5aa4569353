"""What one caller can read and fill in: of the crib's own registrations, of its sources, and their large results.

A source that fails, or is slow to answer, costs what it offers, and nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from ..core import Call, Caller, Credential, Data, Pending, Redaction, Text, ToolAuth, ToolcribError, ToolError
from ..core.source import Prompt, PromptMessage, Resource, ResourceContent, ResourceTemplate
from ..machinery import RESULT_CHARS, in_thread, log_failure, redacted, redacted_content
from .lifespan import name_of
from .resources import PromptList, ResourceList, URITemplate

if TYPE_CHECKING:
    from .read_result import ResultContent

T = TypeVar("T")

RESULT_TEMPLATE = "toolcrib://results/{handle}{?offset,limit,pointer}"
DEFAULT_PART_CHARS = RESULT_CHARS
"""How much of a large result is read at once, unless a limit is given; then at most 1,048,576 characters."""

_SOURCE_TIMEOUT_S = 10.0
MAX_RESOURCE_BYTES = 16 * 1024 * 1024


def result_uri(handle: str, **part: Any) -> str:
    """Return where the result under *handle* is read, or a *part* of it: offset, limit and pointer."""
    query = urlencode({name: value for name, value in part.items() if value not in (None, "")})
    return f"toolcrib://results/{quote(handle, safe='')}{f'?{query}' if query else ''}"


class Offers:
    """What a caller is offered: by the crib itself, and by the sources that *offering* lists.

    *run_source* starts a source for the caller, and *view* finds their large results. Of each URI, and each prompt's
    name, the first counts.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        own_resources: ResourceList,
        own_prompts: PromptList,
        offering: Callable[[], list[Any]],
        *,
        caller: Caller,
        run_source: Callable[[Any], Awaitable[Any]],
        view: "Callable[[str], Awaitable[ResultContent]]",
        redaction: Redaction | None,
        redact_also: Callable[[Iterable[str]], None],
    ) -> None:
        self.redaction = redaction
        self._options = options
        self._own_resources = own_resources
        self._own_prompts = own_prompts
        self._sources = offering
        self._caller = caller
        self._run_source = run_source
        self._view = view
        self._redact_also = redact_also
        self._results = URITemplate(RESULT_TEMPLATE)
        self._followed: dict[str, list[list[Any]]] = {}

    async def resources(self) -> Sequence[Resource]:
        resources = [*self._own_resources.listed(), *await self._of_sources("resources")]
        return _first_of_each(resources, lambda resource: resource.uri)

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        own = ResourceTemplate(
            uri_template=RESULT_TEMPLATE,
            name="toolcrib-result",
            title="Large results",
            description="A result that was too large to be shown whole, in parts. Offset and limit are in characters, "
            "or bytes of what is not text; pointer is a JSON pointer (RFC 6901).",
        )
        templates = [*self._own_resources.templates(), *await self._of_sources("resource_templates"), own]
        return _first_of_each(templates, lambda template: template.uri_template)

    async def prompts(self) -> Sequence[Prompt]:
        prompts = [*self._own_prompts.listed(), *await self._of_sources("prompts")]
        return _first_of_each(prompts, lambda prompt: prompt.name)

    async def read(self, uri: str) -> Sequence[ResourceContent]:
        """Return what is at *uri*, secrets redacted. Raises ToolError: `unknown_tool` where there is nothing."""
        if (part := self._results.match(uri)) is not None:
            return [await self._part_of_result(uri, part)]
        own = await self._run(f"The resource '{uri}'", self._own_resources.read(uri, self._caller))
        if own is not None:
            return self._shown([own])
        for source in await self._sources_of(uri):
            try:
                read = source.read_resource(uri)
                return self._shown(await self._run(f"The resource '{uri}' of {name_of(source)}", read))
            except ToolError as error:
                if error.code != "unknown_tool":
                    raise
        raise ToolError(f"There is no resource at '{uri[:500]}'.", "unknown_tool")

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> Sequence[PromptMessage]:
        """Return the messages of the prompt *name*, secrets redacted. Raises ToolError: `unknown_tool` where there is
        none.
        """
        label = f"The prompt '{name}'"
        messages = await self._run(label, self._own_prompts.get(name, arguments, self._caller))
        if messages is None:
            for source in await self._offering("get_prompt"):
                if any(prompt.name == name for prompt in await self._listed(source, "prompts")):
                    messages = await self._run(f"{label} of {name_of(source)}", source.get_prompt(name, arguments))
                    break
        if messages is None:
            raise ToolError(f"There is no prompt '{name[:200]}'.", "unknown_tool")
        return [PromptMessage(message.role, redacted_content(message.content, self.redaction)) for message in messages]

    # Updates

    async def follow(self, uri: str) -> None:
        """Have sources report when the resource at *uri* changes, until `unfollow` was called as often."""
        self._followed.setdefault(uri, []).append(await self._each(await self._sources_of(uri), "follow_resource", uri))

    async def unfollow(self, uri: str) -> None:
        if subscriptions := self._followed.get(uri):
            await self._each(subscriptions.pop(), "unfollow_resource", uri)
        if not subscriptions:
            self._followed.pop(uri, None)

    async def _each(self, sources: Iterable[Any], method: str, uri: str) -> list[Any]:
        """Return those of *sources* whose *method* took *uri*."""
        done: list[Any] = []
        for source in sources:
            try:
                if hasattr(source, method):
                    async with asyncio.timeout(_SOURCE_TIMEOUT_S):
                        await getattr(source, method)(uri)
                    done.append(source)
            except Exception as error:
                label = f"Updates of a resource of {name_of(source)} cannot be followed, or not ended"
                log_failure(label, error, self.redaction)
        return done

    async def _part_of_result(self, uri: str, part: Mapping[str, str]) -> ResourceContent:
        from .read_result import LONG_CHARS, read_part  # brings pydantic

        content = await self._view(part["handle"])
        pointer, limit = part.get("pointer", ""), part.get("limit", str(DEFAULT_PART_CHARS))
        try:
            offset, size = int(part.get("offset", "0")), min(int(limit), LONG_CHARS)
            if offset < 0 or size < 1:
                raise ValueError
        except ValueError:
            raise ToolError("offset and limit are numbers: from 0 and from 1 on.", "invalid_arguments") from None
        # Twice as much room as *size*, since the limit is in bytes, and base64 needs a third more characters.
        read = partial(read_part, content, pointer=pointer, offset=offset, limit=size, room=2 * size, by_items=False)
        excerpt = await in_thread(read) if len(content.text) > LONG_CHARS else read()
        data: str | bytes = excerpt.text
        is_whole = offset == 0 and excerpt.end == excerpt.total
        media_type: str | None = "application/json" if is_whole and content.looks_like_json else "text/plain"
        if content.data is not None:
            data = content.data[excerpt.start : excerpt.end]
            media_type = next((p.media_type for p in content.whole() if not isinstance(p, Text | Data)), None)
        meta: dict[str, Any] = {
            "toolcrib/offset": excerpt.start,
            "toolcrib/end": excerpt.end,
            "toolcrib/total": excerpt.total,
        }
        if excerpt.end < excerpt.total:
            following = result_uri(part["handle"], offset=excerpt.end, limit=part.get("limit"), pointer=pointer)
            meta["toolcrib/next"] = following
        return ResourceContent(uri=uri, data=data, media_type=media_type, meta=meta)

    # Sources

    async def _offering(self, method: str) -> list[Any]:
        """Return the sources, as they run for the caller, that have *method*."""
        sources = [source for source in self._sources() if hasattr(source, method) or hasattr(source, "open")]
        running = await asyncio.gather(*(self._running(source) for source in sources))
        return [source for source in running if hasattr(source, method)]

    async def _running(self, source: Any) -> Any:
        try:
            async with asyncio.timeout(_SOURCE_TIMEOUT_S):
                running = await self._run_source(source) or source
                if hasattr(running, "authorize"):
                    running.authorize(await self._credential(running.auth))
                return running
        except (ToolcribError, TimeoutError):
            return None  # logged, where it does not start

    async def _credential(self, auth: ToolAuth) -> Credential | None:
        """Return what the caller has granted of *auth*; None where they have not: a list asks no questions."""
        broker = self._options["broker"]
        has_granted = getattr(broker, "has_granted", None)  # a broker of another kind gives credentials to calls alone
        try:
            if has_granted is None or not await has_granted(auth, self._caller):
                return None
            credentials = await broker.authorize([auth], self._caller, Call(auth.provider, {}))
        except ToolError:
            return None
        if isinstance(credentials, Pending):
            return None
        self._redact_also(credentials[0].secrets)
        return credentials[0]  # type: ignore[no-any-return]

    async def _of_sources(self, method: str) -> list[Any]:
        sources = await self._offering(method)
        return [
            item
            for items in await asyncio.gather(*(self._listed(source, method) for source in sources))
            for item in items
        ]

    async def _listed(self, source: Any, method: str) -> Sequence[Any]:
        if not hasattr(source, method):
            return ()
        try:
            async with asyncio.timeout(_SOURCE_TIMEOUT_S):
                items: Sequence[Any] = await getattr(source, method)()
                return items
        except Exception as error:
            log_failure(f"What {name_of(source)} offers could not be listed", error, self.redaction)
            return ()

    async def _sources_of(self, uri: str) -> list[Any]:
        """Return those to ask for *uri*: who lists it, else who has a template for it, else all: not all have to be
        listed.
        """
        sources = await self._offering("read_resource")
        lists = await asyncio.gather(*(self._listed(source, "resources") for source in sources))
        for source, items in zip(sources, lists, strict=True):
            if any(resource.uri == uri for resource in items):
                return [source]
        templates = await asyncio.gather(*(self._listed(source, "resource_templates") for source in sources))
        matching = [
            source
            for source, items in zip(sources, templates, strict=True)
            if any(_matches(template.uri_template, uri) for template in items)
        ]
        return matching or sources

    async def _run(self, what: str, work: Awaitable[T]) -> T:
        """Return the value of *work*, within a deadline. Raises ToolError, and nothing of the program's own errors."""
        limit_s = self._options["timeout_s"]
        try:
            async with asyncio.timeout(limit_s):
                return await work
        except ToolError as error:
            raise ToolError(redacted(error.message, self.redaction), error.code, retry=error.retry) from None
        except TimeoutError:
            raise ToolError(f"{what} did not come in time.", "timeout") from None
        except Exception as error:
            log_failure(f"{what} failed", error, self.redaction)
            raise ToolError(f"{what} failed. The detail is in the log.", "failed") from None

    def _shown(self, read: Sequence[ResourceContent]) -> Sequence[ResourceContent]:
        size = sum(len(content.data) for content in read)
        if size > MAX_RESOURCE_BYTES:
            raise ToolError(f"The resource is too large: {size} bytes, of at most {MAX_RESOURCE_BYTES}.", "too_large")
        redaction = self.redaction
        return [
            content if isinstance(content.data, bytes) else replace(content, data=redacted(content.data, redaction))
            for content in read
        ]


def _first_of_each(items: Iterable[T], name: Callable[[T], str]) -> Sequence[T]:
    firsts: dict[str, T] = {}
    for item in items:
        firsts.setdefault(name(item), item)
    return list(firsts.values())


def _matches(template: str, uri: str) -> bool:
    try:
        return URITemplate(template).match(uri) is not None
    except ToolcribError:
        return False
