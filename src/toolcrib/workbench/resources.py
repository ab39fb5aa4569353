"""What is offered beside tools: resources to read, and prompts to fill in, both by calls that go through the pipeline.

A program registers them with its crib. There a function may be sync, which runs in a thread, or async; where one of its
parameters is annotated with `Caller`, it is given the caller that asks. Sources have others, and large results are
resources too: `Offers` is all that one caller can see. A source that fails, or is slow to answer, costs what it offers,
and nothing else.
"""

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, get_args, get_origin, overload
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from ..call import Runtime
from ..core import (
    Audio,
    Call,
    Caller,
    Content,
    Credential,
    Data,
    DefinitionError,
    File,
    Hints,
    Image,
    NameConflictError,
    Pending,
    Redaction,
    Result,
    Text,
    Tool,
    ToolAuth,
    ToolcribError,
    ToolError,
    ToolSpec,
)
from ..core.source import Listeners, Prompt, PromptArgument, PromptMessage, Resource, ResourceContent, ResourceTemplate
from ..core.spec import Kind
from ..machinery import (
    RESULT_CHARS,
    Check,
    Checked,
    Encode,
    Work,
    current_caller,
    in_thread,
    in_thread_if_long,
    log_failure,
    redacted,
)
from .lifespan import name_of

if TYPE_CHECKING:
    from .results import ResultContent

_ABSOLUTE = re.compile(r"(?:[A-Za-z]:)?[/\\]")
_EXPRESSION = re.compile(r"\{([+?]?)([A-Za-z_]\w*(?:,[A-Za-z_]\w*)*)\}")

RESULT_TEMPLATE = "toolcrib://results/{handle}{?offset,limit,pointer}"
DEFAULT_PART_CHARS = RESULT_CHARS
"""How much of a large result is read at once, unless a limit is given; then at most 1,048,576 characters."""

READ, FOLLOW, GET = "resources/read", "resources/subscribe", "prompts/get"
_SOURCE_TIMEOUT_S = 10.0
MAX_NAME_CHARS = 8192
MAX_SHOWN_CHARS = 500
MAX_RESOURCE_BYTES = 16 * 1024 * 1024

_SCHEMA = {"type": "object", "additionalProperties": {"type": "string"}}

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Listener = Callable[[str | None], None]


class About(TypedDict, total=False):
    """What is said of a resource or a prompt. *meta* has further members, such as MCP's `annotations` and `icons`."""

    name: str
    title: str
    description: str
    meta: Mapping[str, Any]


class AboutResource(About, total=False):
    media_type: str


class URITemplate:
    """A URI template (RFC 6570), as far as resources need it: `{name}`, `{+name}` with slashes, `{?a,b}` for a query.

    `names` are its variables. Raises DefinitionError for others than these.

    Each segment has at most one variable, and a template at most one `{+name}`: so a regular expression decides in
    linear time, also about the templates and URIs of others.
    """

    def __init__(self, text: str) -> None:
        self.names: list[str] = []
        self._query: list[str] = []
        pattern, at = "", 0
        for match in _EXPRESSION.finditer(text):
            kind, names = match[1], match[2].split(",")
            pattern += re.escape(text[at : match.start()])
            at = match.end()
            if kind == "?" and at == len(text):
                self._query = names
            elif kind == "?" or len(names) > 1:
                raise _unreadable(text)
            else:
                pattern += "([^?#]+)" if kind else "([^/?#]+)"
            self.names += names
        is_distinct = len(set(self.names)) == len(self.names)
        if not is_distinct or not _is_linear(text):
            raise _unreadable(text)
        self._pattern = re.compile(pattern + re.escape(text[at:]))

    def fits(self, uri: str) -> bool:
        """Return whether *uri* has the form of this template, whatever it has for the variables."""
        return self._pattern.fullmatch(uri.partition("?")[0] if self._query else uri) is not None

    def match(self, uri: str) -> Mapping[str, str] | None:
        """Return the values of the variables in *uri*; None where it does not match.

        A value with a segment `..`, or a NUL, does not match, and neither does an absolute path outside of the query:
        it may become the path of a file.
        """
        path, _, query = uri.partition("?") if self._query else (uri, "", "")
        if (match := self._pattern.fullmatch(path)) is None:
            return None
        values = dict(zip(self.names, map(unquote, match.groups()), strict=False))
        if any(map(_ABSOLUTE.match, _texts_of(values))):
            return None
        values |= {name: value for name, value in parse_qsl(query) if name in self._query}
        return None if any("\0" in text or ".." in re.split(r"[/\\]", text) for text in _texts_of(values)) else values


def _is_linear(text: str) -> bool:
    """Return whether a template has braces of variables alone, one in a segment, and one with slashes."""
    rest = _EXPRESSION.sub(lambda match: "" if match[1] == "?" else "\0", text)
    has_one_each = all(segment.count("\0") <= 1 for segment in re.split("[/?#]", rest))
    return has_one_each and text.count("{+") <= 1 and not re.search("[{}]", rest)


def _texts_of(values: Mapping[str, str]) -> list[str]:
    """Return *values* as they are, and as they are read by those who decode them."""
    return [text for value in values.values() for text in decoded(value)]


def _unreadable(text: str) -> DefinitionError:
    return DefinitionError(
        f"'{text[:200]}' is not a URI template that can be read. Write each variable once, one in a segment, "
        "as {{name}}; one as {{+name}} for a value with slashes; or as {{?a,b}} at the end for a query."
    )


class _Observable:
    def __init__(self) -> None:
        self._listeners = Listeners()

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Call *listener* when the list changes, with None, and when one resource does, with its URI.

        Returns a function that ends that.
        """
        return self._listeners.add(listener)


@dataclass(frozen=True, slots=True)
class _Registered:
    offer: Resource | ResourceTemplate
    template: URITemplate
    read: "_Function | str | bytes"


class ResourceList(_Observable):
    """The resources of a crib: what clients can read by its URI."""

    def __init__(self) -> None:
        super().__init__()
        self._registered: dict[str, _Registered] = {}

    @overload
    def add(self, uri: str, read: str | bytes, /, **about: Unpack[AboutResource]) -> None: ...
    @overload
    def add(self, uri: str, read: F, /, **about: Unpack[AboutResource]) -> F: ...
    @overload
    def add(self, uri: str, /, **about: Unpack[AboutResource]) -> Callable[[F], F]: ...
    def add(self, uri: str, read: Any = None, /, **about: Unpack[AboutResource]) -> Any:
        """Offer what *read* returns at *uri*: text or bytes, or such a value itself. Without *read*, a decorator.

        Where *uri* has variables, as in `notes://{id}`, it is a template, and the function takes them as text. Any
        other value it returns is sent as JSON. A name and a description come from the function, if not given.

        Raises DefinitionError where the variables are not the parameters, and NameConflictError for a URI twice.
        """
        if read is None:
            return lambda read: self.add(uri, read, **about)
        template = URITemplate(uri)
        if not urlsplit(uri).scheme:
            raise DefinitionError(f"'{uri[:200]}' is not the URI of a resource: it has no scheme, as in notes://today.")
        function = None if isinstance(read, str | bytes) else _Function(read, f"The resource '{uri}'")
        _require_same_names(uri, template.names, [] if function is None else function.names)
        if uri in self._registered:
            raise NameConflictError(f"There are two resources at '{uri}'. Give one of them another URI.")
        fields: dict[str, Any] = {
            "name": uri,
            "media_type": "application/octet-stream" if isinstance(read, bytes) else "text/plain",
            **({} if function is None else {"name": function.name, "description": function.description}),
            **about,
        }
        offer = ResourceTemplate(uri_template=uri, **fields) if template.names else Resource(uri=uri, **fields)
        self._registered[uri] = _Registered(offer, template, function or read)
        self._listeners.notify(None)
        return read

    def remove(self, uri: str) -> None:
        """Take back what is offered at *uri*, or under this template. Raises KeyError where nothing is."""
        del self._registered[uri]
        self._listeners.notify(None)

    def updated(self, uri: str) -> None:
        """Tell the clients that follow *uri* to read it again."""
        self._listeners.notify(uri)

    def listed(self) -> Sequence[Resource]:
        return [entry.offer for entry in self._registered.values() if isinstance(entry.offer, Resource)]

    def templates(self) -> Sequence[ResourceTemplate]:
        return [entry.offer for entry in self._registered.values() if isinstance(entry.offer, ResourceTemplate)]

    async def read(self, uri: str, caller: Caller) -> ResourceContent | None:
        """Return what is read at *uri*; None where nothing is offered there. Raises what the function raises."""
        # Its own URI first; a template is not the URI that it is written as.
        for entry in sorted(self._registered.values(), key=lambda entry: bool(entry.template.names)):
            if (values := entry.template.match(uri)) is not None:
                data = await entry.read(values, caller) if isinstance(entry.read, _Function) else entry.read
                media_type = entry.offer.media_type
                if not isinstance(data, str | bytes):
                    write = partial(json.dumps, data, ensure_ascii=False, default=str)
                    data, media_type = await in_thread_if_long(write, data), "application/json"
                return ResourceContent(uri=uri, data=data, media_type=media_type)
        return None


class PromptList(_Observable):
    """The prompts of a crib: templates of messages that a person chooses, with arguments that are text."""

    def __init__(self) -> None:
        super().__init__()
        self._registered: dict[str, tuple[Prompt, _Function]] = {}

    @overload
    def add(self, function: F, /, **about: Unpack[About]) -> F: ...
    @overload
    def add(self, /, **about: Unpack[About]) -> Callable[[F], F]: ...
    def add(self, function: Any = None, /, **about: Unpack[About]) -> Any:
        """Offer the prompt that *function* returns: text, content such as an Image, PromptMessages, or a list of these.

        Its parameters are the arguments, which are text. Those annotated with a `Literal` are completed. A decorator,
        with options or without. Raises NameConflictError for a name twice, and DefinitionError.
        """
        if function is None:
            return lambda function: self.add(function, **about)
        label = f"The prompt '{about.get('name', getattr(function, '__name__', 'prompt'))}'"
        prompt_function = _Function(function, label)
        fields: dict[str, Any] = {"name": prompt_function.name, "description": prompt_function.description, **about}
        prompt = Prompt(arguments=prompt_function.arguments(), **fields)
        if prompt.name in self._registered:
            raise NameConflictError(f"There are two prompts named '{prompt.name}'. Give one another name: name=...")
        self._registered[prompt.name] = (prompt, prompt_function)
        self._listeners.notify(None)
        return function

    def remove(self, name: str) -> None:
        """Take back the prompt *name*. Raises KeyError where there is none."""
        del self._registered[name]
        self._listeners.notify(None)

    def listed(self) -> Sequence[Prompt]:
        return [prompt for prompt, _ in self._registered.values()]

    async def get(self, name: str, arguments: Mapping[str, str], caller: Caller) -> Sequence[PromptMessage] | None:
        """Return the messages of *name*; None where there is none. Raises ToolError `invalid_arguments`."""
        if name not in self._registered:
            return None
        prompt, function = self._registered[name]
        _require_arguments(prompt, arguments)
        value = await function(arguments, caller)
        return [_message(message) for message in (value if isinstance(value, list | tuple) else [value])]

    def complete(self, name: str, argument: str, prefix: str) -> Sequence[str]:
        """Return the values of *argument* that begin with *prefix*, as far as its type lists them."""
        entry = self._registered.get(name)
        choices = () if entry is None else entry[1].choices(argument)
        return [choice for choice in choices if choice.lower().startswith(prefix.lower())]


class _Function:
    """A function of the program, called with text by name, and with the caller where it asks for them."""

    def __init__(self, function: Callable[..., Any], label: str) -> None:
        if not callable(function):
            raise DefinitionError(f"{label} is a {type(function).__name__}, which cannot be called.")
        from ..schema import read_docstring, read_signature  # bring pydantic: with the first function

        self._signature = read_signature(function, label=label)
        if self._signature.needs.depends or self._signature.needs.context or self._signature.needs.variables:
            raise DefinitionError(f"{label} can take arguments and a Caller, and nothing else that a tool can.")
        self._function = function
        doc = read_docstring(inspect.getdoc(function))
        self._described = doc.parameters
        self.description = doc.description or None
        self.name = getattr(function, "__name__", type(function).__name__)
        self.names = [parameter.name for parameter in self._signature.parameters]

    def arguments(self) -> tuple[PromptArgument, ...]:
        return tuple(
            PromptArgument(
                name=parameter.name,
                description=self._described.get(parameter.name),
                required=parameter.default is inspect.Parameter.empty,
            )
            for parameter in self._signature.parameters
        )

    def choices(self, name: str) -> Sequence[str]:
        kind = next((parameter.annotation for parameter in self._signature.parameters if parameter.name == name), None)
        return [value for value in get_args(kind) if isinstance(value, str)] if get_origin(kind) is Literal else ()

    async def __call__(self, arguments: Mapping[str, str], caller: Caller) -> Any:
        own = self._signature.needs.caller
        values: dict[str, Any] = {**arguments, **({own: caller} if own else {})}
        if self._signature.is_async:
            return await self._function(**values)
        return await in_thread(lambda: self._function(**values))


def _require_same_names(uri: str, variables: Sequence[str], parameters: Sequence[str]) -> None:
    if {*variables} != {*parameters}:
        raise DefinitionError(
            f"The resource '{uri}' takes {', '.join(variables) or 'nothing'}, and its function "
            f"{', '.join(parameters) or 'nothing'}. Let them have the same names."
        )


def _require_arguments(prompt: Prompt, arguments: Mapping[str, str]) -> None:
    names = [argument.name for argument in prompt.arguments]
    required = [argument.name for argument in prompt.arguments if argument.required]
    problems = [f"'{name}' is missing" for name in required if name not in arguments]
    problems += [f"there is no argument '{name[:100]}'" for name in arguments if name not in names]
    if problems:
        message = f"Prompt '{prompt.name}': {problems[0]}. It takes: {', '.join(names) or 'nothing'}."
        raise ToolError(message, "invalid_arguments")


def _message(value: Any) -> PromptMessage:
    match value:
        case PromptMessage():
            return value
        case str():
            return PromptMessage("user", Text(value))
        case Text() | Data() | Image() | Audio() | File():
            return PromptMessage("user", value)
        case _:
            return PromptMessage("user", Text(json.dumps(value, ensure_ascii=False, default=str)))


# Reads, prompts, lists and names that no tool has, as calls


class Unlisted(Tool):
    """A tool that no model is shown: *work* on what has a *name*, by a *method* of MCP. Its arguments are texts.

    To *labels* the work adds those of what it reads.
    """

    needs_context = False

    def __init__(
        self,
        kind: Kind,
        method: str,
        name: str,
        work: Callable[[dict[str, Any]], Awaitable[Any]],
        labels: AbstractSet[str] = frozenset(),
    ) -> None:
        self.spec = replace(spec_of(kind, method, name), labels=labels)
        self.check: Check = partial(_check, kind, name)
        self.work: Work = lambda arguments, _: work(arguments)
        self.encode: Encode = json.dumps

    def body(self) -> str:
        return self.spec.kind  # a server may give one of its tools this name


def spec_of(kind: Kind, method: str, name: str) -> ToolSpec:
    """Return the spec of an unlisted tool."""
    hints = Hints(read_only=True if kind != "other" else None)
    return ToolSpec(f"{method} {name}".strip(), "", _SCHEMA, hints=hints, kind=kind)


def spellings(spec: ToolSpec) -> tuple[str, ...]:
    """Return the names by which rules know what is called: of a resource its URI, and decoded, with slashes only."""
    name = spec.name.partition(" ")[2]
    return (name, unquote(name).replace("\\", "/")) if spec.kind == "resource" and "%" in name else (name,)


def _unknown(kind: Kind, name: str) -> ToolError:
    """Return the error of what is not there, or not for this caller."""
    from ..schema import display_name  # brings pydantic: with the first message, and not with the package

    return ToolError(f"There is no {kind} {'at ' if kind == 'resource' else ''}'{display_name(name)}'.", "unknown_tool")


def decoded(text: str) -> Iterator[str]:
    """Yield *text*, and as it is read by those who decode it once, or once more."""
    yield text
    for _ in range(2):
        if (text := unquote(before := text)) == before:
            return
        yield text


def _is_plain_uri(uri: str) -> bool:
    parts = (part for text in decoded(uri) for part in re.split(r"[/\\?#&=]", text))
    return not any(part in (".", "..") or "\0" in part for part in parts) and not re.search(r"[\\ ]", uri)


def _check(kind: Kind, name: str, arguments: Any, repair: bool, /) -> Checked:
    """Return *arguments*. Raises ToolError for a *name* that nothing has, before a rule is asked.

    Servers read a URI with a segment `.` or `..`, a backslash or a space as another one, so it passes no rule.
    """
    is_plain = 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()
    if not is_plain or (kind == "resource" and not _is_plain_uri(name)):
        raise _unknown(kind, name)
    return dict(json.loads(arguments) if isinstance(arguments, str | bytes) else arguments or {}), ()


# All that a caller can see


def result_uri(handle: str, **part: Any) -> str:
    """Return where the result under *handle* is read, or a *part* of it: offset, limit and pointer."""
    query = urlencode({name: value for name, value in part.items() if value not in (None, "")})
    return f"toolcrib://results/{quote(handle, safe='')}{f'?{query}' if query else ''}"


class Offers:
    """What the caller of *runtime* is offered: by the crib itself, and by the sources that *sources* lists.

    *run* runs a call of a tool that is not listed, *hides* is whether the policy denies every call of one, *run_source*
    starts a source for the caller, and *view* finds their large results. Of each URI, and each prompt's name, the first
    counts. What a source lists may be fewer than it has: `only` of a source has patterns by kind.
    """

    def __init__(
        self,
        runtime: Runtime,
        own_resources: ResourceList,
        own_prompts: PromptList,
        sources: Callable[[], list[Any]],
        *,
        run: Callable[[Call, Tool], Awaitable[Result[Any]]],
        hides: Callable[[ToolSpec], bool],
        run_source: Callable[[Any], Awaitable[Any]],
        view: "Callable[[str], Awaitable[ResultContent]]",
    ) -> None:
        self.redaction = runtime.redaction
        self._runtime = runtime
        self._own_resources = own_resources
        self._own_prompts = own_prompts
        self._sources = sources
        self._run = run
        self._hides = hides
        self._run_source = run_source
        self._view = view
        self._results = URITemplate(RESULT_TEMPLATE)
        self._followed: dict[str, list[list[Any]]] = {}

    async def resources(self) -> Sequence[Resource]:
        return self._shown([*self._own_resources.listed(), *await self._of_sources("resources")])

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        own = ResourceTemplate(
            uri_template=RESULT_TEMPLATE,
            name="toolcrib-result",
            title="Large results",
            description="A result that was too large to be shown whole, in parts. Offset and limit are in characters, "
            "or bytes of what is not text; pointer is a JSON pointer (RFC 6901).",
        )
        templates = [*self._own_resources.templates(), *await self._of_sources("resource_templates"), own]
        return self._shown(templates)

    async def prompts(self) -> Sequence[Prompt]:
        return self._shown([*self._own_prompts.listed(), *await self._of_sources("prompts")])

    async def read(self, uri: str) -> Result[Sequence[ResourceContent]]:
        """Return what is at *uri*, secrets redacted: `unknown_tool` where there is nothing, or a rule denies it."""
        labels = set[str]()
        return await self._call("resource", READ, uri, {}, lambda _: self._read(uri, labels), labels)

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> Result[Sequence[PromptMessage]]:
        """Return the messages of the prompt *name*, secrets redacted: `unknown_tool` where there is none, or a rule
        denies it.
        """
        labels = set[str]()
        work: Any = lambda checked: self._get_prompt(name, checked, labels)  # noqa: E731
        return await self._call("prompt", GET, name, arguments, work, labels)

    async def relay(
        self, method: str, server: str, arguments: Mapping[str, Any], work: Callable[[dict[str, Any]], Awaitable[Any]]
    ) -> Result[Any]:
        """Return the result of *work*: what an MCP *server* asks the caller's client by a *method*."""
        return await self._run(Call(f"{method} {server}", arguments), Unlisted("other", method, server, work))

    def complete(self, name: str, argument: str, prefix: str) -> Sequence[str]:
        """Return the values of *argument* of the crib's own prompt *name* that begin with *prefix*."""
        return () if self._is_hidden("prompt", name) else self._own_prompts.complete(name, argument, prefix)

    async def _call(
        self,
        kind: Kind,
        method: str,
        name: str,
        arguments: Mapping[str, str],
        work: Callable[[dict[str, Any]], Awaitable[Sequence[Any]]],
        labels: AbstractSet[str] = frozenset(),
    ) -> Result[Any]:
        """Return the result of *work*, as a call that rules, limits, deadlines and the log see. What a rule denies does
        not exist for the caller. *work* adds to *labels*.
        """

        async def work_of_call(checked: dict[str, Any]) -> Result[Sequence[Any]]:
            current_caller.set(self._runtime.caller)
            items = await work(checked)
            return Result(items, tuple(map(_content_of, items)))

        tool = Unlisted(kind, method, name, work_of_call, labels)
        # As it is logged, also where it is refused: what a caller has written.
        shown = redacted(tool.spec.name, self.redaction)[:MAX_SHOWN_CHARS]
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
        result = await self._run(Call(shown, arguments), tool)
        if result.error is not None and result.metadata.get("decision", {}).get("do") == "deny":
            result.error, result.content = (error := _unknown(kind, name)), (Text(error.message),)
            result.metadata.clear()
        elif result.status == "success":
            result.value = list(map(partial(_with_content, self.redaction), result.value, result.content))
        return result

    async def _read(self, uri: str, labels: set[str]) -> Sequence[ResourceContent]:
        if (part := self._results.match(uri)) is not None:
            return [await self._part_of_result(uri, part, labels)]
        own = await self._own_resources.read(uri, self._runtime.caller)
        if own is not None:
            return _bounded([own])
        for running in await self._sources_of(uri):
            labels |= running.labels
            try:
                return _bounded(await running.source.read_resource(uri))
            except ToolError as error:
                if error.code != "unknown_tool":
                    raise
        raise _unknown("resource", uri)

    async def _get_prompt(self, name: str, arguments: Mapping[str, str], labels: set[str]) -> Sequence[PromptMessage]:
        messages = await self._own_prompts.get(name, arguments, self._runtime.caller)
        if messages is not None:
            return messages
        for source in (running for running in await self._offering("get_prompt") if running.lets("prompt", name)):
            if any(prompt.name == name for prompt in await self._listed(source, "prompts")):
                labels |= source.labels
                of_source: Sequence[PromptMessage] = await source.source.get_prompt(name, arguments)
                return of_source
        raise _unknown("prompt", name)

    # Updates

    async def follow(self, uri: str) -> Result[Any]:
        """Have sources report when the resource at *uri* changes, until `unfollow` was called as often. Where the
        result is a success: who may not read it does not follow it.
        """

        async def follow(_: dict[str, Any]) -> Sequence[Any]:
            running = await self._sources_of(uri)
            sources = await self._each([of.source for of in running], "follow_resource", uri)
            self._followed.setdefault(uri, []).append(sources)
            return ()

        return await self._call("resource", FOLLOW, uri, {}, follow)

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

    async def _part_of_result(self, uri: str, part: Mapping[str, str], labels: set[str]) -> ResourceContent:
        from .results import MAX_PART_CHARS, read_part  # brings pydantic

        content = await self._view(part["handle"])
        labels |= content.labels
        pointer, (offset, limit) = part.get("pointer", ""), _bounds_of(part)
        size = min(limit, MAX_PART_CHARS)
        # Twice as much room as *size*, since the limit is in bytes, and base64 needs a third more characters.
        read = partial(read_part, content, pointer=pointer, offset=offset, limit=size, room=2 * size, by_items=False)
        excerpt = await in_thread_if_long(read, content.text)
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

    async def _offering(self, method: str) -> "list[_Running]":
        """Return the sources, as they run for the caller, that have *method*."""
        sources = [source for source in self._sources() if hasattr(source, method) or hasattr(source, "open")]
        running = await asyncio.gather(*(self._running(source) for source in sources))
        return [
            _Running(running_source, getattr(source, "only", None) or {}, getattr(source, "labels", frozenset()))
            for source, running_source in zip(sources, running, strict=True)
            if hasattr(running_source, method)
        ]

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
        broker: Any = self._runtime.broker
        has_granted = getattr(broker, "has_granted", None)  # a broker of another kind gives credentials to calls alone
        try:
            if has_granted is None or not await has_granted(auth, self._runtime.caller):
                return None
            credentials = await broker.authorize([auth], self._runtime.caller, Call(auth.provider, {}))
        except ToolError:
            return None
        if isinstance(credentials, Pending):
            return None
        self._runtime.redact_also(credentials[0])
        return credentials[0]  # type: ignore[no-any-return]

    async def _of_sources(self, method: str) -> list[Any]:
        lists = await self._lists(await self._offering(method), method)
        return [item for items in lists for item in items]

    async def _lists(self, sources: "Iterable[_Running]", method: str) -> list[Sequence[Any]]:
        return await asyncio.gather(*(self._listed(source, method) for source in sources))

    async def _listed(self, running: "_Running", method: str) -> Sequence[Any]:
        if not hasattr(running.source, method):
            return ()
        try:
            async with asyncio.timeout(_SOURCE_TIMEOUT_S):
                return [item for item in await getattr(running.source, method)() if running.lets(*_named(item))]
        except Exception as error:
            log_failure(f"What {name_of(running.source)} offers could not be listed", error, self.redaction)
            return ()

    async def _sources_of(self, uri: str) -> "list[_Running]":
        """Return those to ask for *uri*: who lists it, else those with a template for it."""
        sources = [running for running in await self._offering("read_resource") if running.lets("resource", uri)]
        for running, items in zip(sources, await self._lists(sources, "resources"), strict=True):
            if any(resource.uri == uri for resource in items):
                return [running]
        return await self._with_template(sources, uri)

    async def _with_template(self, sources: "list[_Running]", uri: str) -> "list[_Running]":
        """Return those of *sources* with a template for *uri*, else all: not all have to be listed. None where it fits
        a template, and what it has for a variable is not safe.
        """
        lists = await self._lists(sources, "resource_templates")
        matches = [_fitting(uri, items) for items in (self._own_resources.templates(), *lists)]
        if any(template.match(uri) is None for templates in matches for template in templates):
            return []
        return [running for running, templates in zip(sources, matches[1:], strict=True) if templates] or sources

    def _shown(self, items: Iterable[T]) -> Sequence[T]:
        """Return those of *items* that the policy does not hide, the first of each name."""
        firsts: dict[tuple[Kind, str], T] = {}
        for item in items:
            firsts.setdefault(_named(item), item)
        return [item for named, item in firsts.items() if not self._is_hidden(*named)]

    def _is_hidden(self, kind: Kind, name: str) -> bool:
        return self._hides(spec_of(kind, READ if kind == "resource" else GET, name))


@dataclass(frozen=True, slots=True)
class _Running:
    """A *source* as it runs for a caller, *only* what of it is offered, as patterns by kind, and its *labels*."""

    source: Any
    only: Mapping[str, re.Pattern[str]]
    labels: frozenset[str] = frozenset()

    def lets(self, kind: Kind, name: str) -> bool:
        pattern = self.only.get(kind)
        return pattern is None or all(map(pattern.fullmatch, spellings(spec_of(kind, READ, name))))


def _bounds_of(part: Mapping[str, str]) -> tuple[int, int]:
    """Return the offset and the limit of a *part* of a large result. Raises ToolError `invalid_arguments`."""
    with suppress(ValueError):
        offset, limit = int(part.get("offset", "0")), int(part.get("limit", str(DEFAULT_PART_CHARS)))
        if offset >= 0 and limit >= 1:
            return offset, limit
    raise ToolError("offset and limit are numbers: from 0 and from 1 on.", "invalid_arguments")


def _named(item: Any) -> tuple[Kind, str]:
    """Return the kind and the name of a resource, a template or a prompt."""
    if isinstance(item, Prompt):
        return "prompt", item.name
    return "resource", item.uri if isinstance(item, Resource) else item.uri_template


def _fitting(uri: str, items: Iterable[ResourceTemplate]) -> list[URITemplate]:
    """Return those of *items* that *uri* fits. What cannot be read as a template fits nothing."""
    templates: list[URITemplate] = []
    for item in items:
        with suppress(ToolcribError):
            templates.append(URITemplate(item.uri_template))
    return [template for template in templates if template.fits(uri)]


def _bounded(contents: Sequence[ResourceContent]) -> Sequence[ResourceContent]:
    size = sum(len(content.data) for content in contents)
    if size > MAX_RESOURCE_BYTES:
        raise ToolError(f"The resource is too large: {size} bytes, of at most {MAX_RESOURCE_BYTES}.", "too_large")
    return contents


def _content_of(item: ResourceContent | PromptMessage) -> Content:
    """Return *item* as content, in which secrets are redacted."""
    if isinstance(item, PromptMessage):
        return item.content
    return Text(item.data) if isinstance(item.data, str) else File(item.data)


def _with_content(redaction: Redaction | None, item: Any, content: Content) -> ResourceContent | PromptMessage:
    if isinstance(item, PromptMessage):
        return replace(item, content=content)
    data = content.text if isinstance(content, Text) else item.data
    content_there: ResourceContent = replace(item, uri=redacted(item.uri, redaction), data=data)
    return content_there
