"""What a crib offers beside tools, registered by the program: resources to read, and prompts to fill in.

A function may be sync, which runs in a thread, or async. Where one of its parameters is annotated with `Caller`, it is
given the caller that asks.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_args, get_origin, overload
from urllib.parse import parse_qsl, unquote, urlsplit

from ..core import Audio, Caller, Data, DefinitionError, File, Image, NameConflictError, Text, ToolError
from ..core.source import Prompt, PromptArgument, PromptMessage, Resource, ResourceContent, ResourceTemplate
from ..machinery import in_thread

MAX_URI_CHARS = 8192
_EXPRESSION = re.compile(r"\{([+?]?)([A-Za-z_]\w*(?:,[A-Za-z_]\w*)*)\}")

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
        rest = _EXPRESSION.sub(lambda match: "" if match[1] == "?" else "\0", text)
        is_linear = all(segment.count("\0") <= 1 for segment in re.split("[/?#]", rest)) and text.count("{+") <= 1
        is_distinct = len(set(self.names)) == len(self.names)
        if len(text) > MAX_URI_CHARS or "{" in rest or "}" in rest or not is_linear or not is_distinct:
            raise _unreadable(text)
        self._pattern = re.compile(pattern + re.escape(text[at:]))

    def match(self, uri: str) -> Mapping[str, str] | None:
        """Return the values of the variables in *uri*; None where it does not match.

        A value with a segment `..`, or a NUL, does not match: it may become the path of a file.
        """
        path, _, query = uri.partition("?") if self._query else (uri, "", "")
        match = self._pattern.fullmatch(path) if len(uri) <= MAX_URI_CHARS else None
        if match is None:
            return None
        values = dict(zip(self.names, map(unquote, match.groups()), strict=False))
        values |= {name: value for name, value in parse_qsl(query) if name in self._query}
        is_unsafe = any("\0" in value or ".." in re.split(r"[/\\]", value) for value in values.values())
        return None if is_unsafe else values


def _unreadable(text: str) -> DefinitionError:
    return DefinitionError(
        f"'{text[:200]}' is not a URI template that can be read. Write each variable once, one in a segment, "
        "as {{name}}; one as {{+name}} for a value with slashes; or as {{?a,b}} at the end for a query."
    )


class _Listeners:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def on_change(self, listener: Listener) -> Callable[[], None]:
        """Call *listener* when the list changes, with None, and when one resource does, with its URI.

        Returns a function that ends that.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _notify(self, uri: str | None = None) -> None:
        for listener in tuple(self._listeners):
            listener(uri)


@dataclass(frozen=True, slots=True)
class _Registered:
    offer: Resource | ResourceTemplate
    template: URITemplate
    read: "_Function | str | bytes"


class ResourceList(_Listeners):
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
        if set(template.names) != set(() if function is None else function.names):
            raise DefinitionError(
                f"The resource '{uri}' takes {', '.join(template.names) or 'nothing'}, and its function "
                f"{', '.join(() if function is None else function.names) or 'nothing'}. Let them have the same names."
            )
        if uri in self._registered:
            raise NameConflictError(f"There are two resources at '{uri}'. Give one of them another URI.")
        fields: dict[str, Any] = {
            "name": uri if function is None else function.name,
            "description": None if function is None else function.description,
            "media_type": "application/octet-stream" if isinstance(read, bytes) else "text/plain",
            **about,
        }
        offer = ResourceTemplate(uri_template=uri, **fields) if template.names else Resource(uri=uri, **fields)
        self._registered[uri] = _Registered(offer, template, function or read)
        self._notify()
        return read

    def remove(self, uri: str) -> None:
        """Take back what is offered at *uri*, or under this template. Raises KeyError where nothing is."""
        del self._registered[uri]
        self._notify()

    def updated(self, uri: str) -> None:
        """Tell the clients that follow *uri* to read it again."""
        self._notify(uri)

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
                    data, media_type = json.dumps(data, ensure_ascii=False, default=str), "application/json"
                return ResourceContent(uri=uri, data=data, media_type=media_type)
        return None


class PromptList(_Listeners):
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
        self._notify()
        return function

    def remove(self, name: str) -> None:
        """Take back the prompt *name*. Raises KeyError where there is none."""
        del self._registered[name]
        self._notify()

    def listed(self) -> Sequence[Prompt]:
        return [prompt for prompt, _ in self._registered.values()]

    async def get(self, name: str, arguments: Mapping[str, str], caller: Caller) -> Sequence[PromptMessage] | None:
        """Return the messages of *name*; None where there is none. Raises ToolError `invalid_arguments`."""
        if name not in self._registered:
            return None
        prompt, function = self._registered[name]
        parameter_names = [argument.name for argument in prompt.arguments]
        required = [argument.name for argument in prompt.arguments if argument.required]
        missing = [name for name in required if name not in arguments]
        unknown = [name for name in arguments if name not in parameter_names]
        if missing or unknown:
            wrong = f"'{missing[0]}' is missing" if missing else f"there is no argument '{unknown[0][:100]}'"
            takes = ", ".join(parameter_names) or "nothing"
            raise ToolError(f"Prompt '{name}': {wrong}. It takes: {takes}.", "invalid_arguments")
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
