"""What the formats share: a `Format`, whose methods are the functions of a provider's module, and its `Stream`.

`Format` has the public functions, over hooks that a provider implements; `ReadableFormat` reads conversations back.
`BlockFormat` is for Anthropic, Bedrock and Gemini, whose messages alternate between user and model and are made of
blocks, the results of calls among them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ..core import Call, Content, Result, SetupError, ToolSpec
from ..schema.lower import Loss
from . import history, reading
from .accepts import Accepts
from .history import ToolOutput
from .offer import Offer, Offered
from .turns import Choice, Conversation, Reply, Results, TextDelta, Turn, User

Entry = User | Reply | ToolOutput
Object = dict[str, Any]


class ReplyStream(ABC):
    """Reads a reply while it is streamed. Each format's `Stream` is one."""

    accepts: ClassVar[Accepts]

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> None:
        self.tools = Offer.of(specs, self.accepts, strict=strict)

    def add(self, chunk: Any) -> list[TextDelta]:
        """Return the text that *chunk* adds. Raises ValueError where it is malformed or reports an error."""
        text = self._add(chunk)
        return [TextDelta(reading.join_surrogates(text))] if isinstance(text, str) and text else []

    @abstractmethod
    def reply(self) -> Reply:
        """Return the whole reply. Raises ValueError where the stream ended before the reply did."""

    @abstractmethod
    def _add(self, chunk: Any) -> Any:
        """Return the text that *chunk* adds; anything but text is none."""


class BlockStream(ReplyStream):
    """A stream of the blocks of a message, or the items of a response, by their indexes."""

    def __init__(self, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> None:
        super().__init__(specs, strict=strict)
        self._blocks: dict[int, Object] = {}

    def _ordered_blocks(self) -> list[Object]:
        return [self._blocks[index] for index in sorted(self._blocks)]


class Format(ABC):
    """A provider's JSON: tools, calls, results and conversations, to it and back."""

    stream: ClassVar[type[ReplyStream]]

    def tools(self, specs: Iterable[ToolSpec], *, strict: bool | None = None) -> list[Any]:
        """Return the provider's definitions of *specs*: the request's `tools`.

        *strict* None means as each spec says. A tool that strict mode would change is sent non-strict, and `losses`
        says why. Gemini has no strict mode.
        """
        return self.definitions(self.offer_of(specs, strict).tools)

    def losses(self, specs: Iterable[ToolSpec], *, strict: bool | None = None) -> dict[str, tuple[Loss, ...]]:
        """Return what `tools` could not express, by tool; only tools that lost something."""
        return self.offer_of(specs, strict).losses

    def tool_choice(
        self,
        choice: Choice | list[str] | tuple[str, ...] = "auto",
        specs: Iterable[ToolSpec] = (),
        *,
        parallel: bool = True,
    ) -> dict[str, Any]:
        """Return the request's parameters for *choice*; empty where it is the provider's default.

        A list of names is for a model that must call one of these tools, of all that it is sent; Anthropic and Bedrock
        cannot say so, and raise SetupError for several.
        Send it with tools only: a choice without tools is refused. Gemini and Bedrock cannot limit a model to one call
        at a time, so *parallel* has no effect there. Raises SetupError for the name of no tool, and for "none" where
        the provider does not have it.
        """
        if choice in ("auto", "any", "none"):
            return self.choice_parameters(choice, "", parallel)
        specs, choices = tuple(specs), [choice] if isinstance(choice, str) else dict.fromkeys(choice)
        names = [self.offer_of(specs).name_of(reading.require_tool(name, specs)) for name in choices]
        if not names:
            raise SetupError('A tool choice of no tool: name those that may be called, or choose "none".')
        if len(names) > 1:
            return self.choice_among(names, parallel)
        return self.choice_parameters("tool", names[0], parallel)

    def calls(self, answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> list[Call]:
        """Return the calls in *answer*, in its order; see `reply`."""
        return list(self.reply(answer, specs, strict=strict).calls)

    def reply(self, answer: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None) -> Reply:
        """Return the reply in *answer*: a whole answer or the chunks of a streamed one, as dictionaries or the SDK's
        objects.

        Its `native` keeps reasoning and its signatures. *strict* is what `tools` was given. Raises ValueError, with the
        place, where *answer* is malformed, reports an error, or the stream ended before the answer did.
        """
        stream = self.stream(specs, strict=strict)
        chunks = reading.chunks_of(answer)
        if chunks is None:
            return self.read_answer(answer, stream)
        for chunk in chunks:
            stream.add(chunk)
        return stream.reply()

    def messages(self, results: Sequence[Result[Any]], specs: Iterable[ToolSpec] = ()) -> list[Any]:
        """Return the results of one turn's calls, as the messages that the provider expects next, in their order.

        *specs* give the tools the names under which the provider knows them. Raises ValueError where a result has no id
        of its call.
        """
        return self.joined(self.result_messages(history.identified(results), self.offer_of(specs)))

    def conversation(
        self, turns: Iterable[Turn], specs: Iterable[ToolSpec] = (), *, instructions: str = ""
    ) -> dict[str, Any]:
        """Return the request's parameters for *turns* and *instructions*.

        Raises ValueError, with the place, where a reply's calls and the results after it do not pair.
        """
        tools = self.offer_of(specs)
        messages: list[Object] = []
        for turn in history.ordered(turns):
            match turn:
                case User(content):
                    messages += self.user_messages(content)
                case Reply() if not turn.is_empty:
                    messages += self.reply_messages(turn, tools)
                case Results(results):
                    messages += self.result_messages(history.identified(results), tools)
                case _:
                    pass
        return self.request(self.joined(messages), instructions)

    def offer_of(self, specs: Iterable[ToolSpec], strict: bool | None = None) -> Offer:
        return Offer.of(specs, self.stream.accepts, strict=strict)

    # What a provider implements

    @abstractmethod
    def definitions(self, tools: Sequence[Offered]) -> list[Object]: ...

    @abstractmethod
    def choice_parameters(self, kind: str, name: str, parallel: bool) -> Object:
        """Return the parameters for "auto", "any", "none", or "tool" with the provider's *name* of it."""

    def choice_among(self, names: Sequence[str], parallel: bool) -> Object:
        """Return the parameters for a call of one of the provider's *names*. Raises SetupError where it has none."""
        raise SetupError("This provider cannot choose among some of the tools. Send it only these, and choose 'any'.")

    @abstractmethod
    def read_answer(self, answer: Any, stream: ReplyStream) -> Reply:
        """Return the reply in a whole answer. *stream* is a new one, with the tools that the model got."""

    @abstractmethod
    def user_messages(self, content: Sequence[Content]) -> list[Object]: ...

    @abstractmethod
    def reply_messages(self, turn: Reply, offered: Offer) -> list[Object]: ...

    @abstractmethod
    def result_messages(self, results: Sequence[Result[Any]], offered: Offer) -> list[Object]: ...

    @abstractmethod
    def request(self, messages: list[Object], instructions: str) -> Object: ...

    def joined(self, messages: list[Object]) -> list[Object]:
        """Return *messages* as they are sent in one request."""
        return messages


class ReadableFormat(Format):
    """A format in which programs store conversations, so that it is read back too."""

    def read_conversation(
        self, request: Any, specs: Iterable[ToolSpec] = (), *, strict: bool | None = None, repair: bool = False
    ) -> Conversation:
        """Return the conversation in *request*, a list of messages or a request's parameters: inverse of
        `conversation`.

        With *repair*, a call without a result gets the error `lost`, and a result without a call becomes text of the
        user. Raises ValueError, with the place, where a message is malformed, or calls and results do not pair; the
        calls of the last message may be open.
        """
        messages, parameters = reading.messages_in(request)
        instructions, entries = self.read_messages(messages, parameters, self.offer_of(specs, strict))
        return history.assemble(instructions, entries, repair=repair)

    @abstractmethod
    def read_messages(
        self, messages: Sequence[Object], parameters: Mapping[str, Any], offered: Offer
    ) -> tuple[str, list[Entry]]:
        """Return the instructions and the entries of a conversation. *parameters* are the others of the request."""


class BlockFormat(Format):
    """A format whose messages alternate: none is empty, and the results of a reply are together in the next message."""

    content_key: ClassVar[str] = "content"
    model_role: ClassVar[str] = "assistant"

    def text_block(self, text: str) -> Object:
        return {"text": text}

    def user_blocks(self, content: Sequence[Content]) -> list[Object]:
        return [block for part in content for block in self.content_blocks(part)]

    def result_content(self, result: Result[Any]) -> list[Object]:
        """Return the content of a result. For errors, Claude accepts text only."""
        if result.status == "error":
            return [self.text_block(result.text)] if result.text.strip() else []
        return [block for part in result.content for block in self.content_blocks(part, in_result=True)]

    def user_messages(self, content: Sequence[Content]) -> list[Object]:
        return [{"role": "user", self.content_key: self.user_blocks(content)}]

    def reply_messages(self, turn: Reply, offered: Offer) -> list[Object]:
        text = [self.text_block(turn.text)] if turn.text else []
        blocks = self.native_blocks(turn) or [*text, *self.call_blocks(turn.calls, offered)]
        return [{"role": self.model_role, self.content_key: blocks}]

    def result_messages(self, results: Sequence[Result[Any]], offered: Offer) -> list[Object]:
        return [{"role": "user", self.content_key: [self.result_block(result, offered) for result in results]}]

    def joined(self, messages: list[Object]) -> list[Object]:
        key = self.content_key
        turns: list[Object] = []
        for message in messages:
            if turns and message[key] and turns[-1]["role"] == message["role"]:
                turns[-1][key] += message[key]
            elif message[key]:
                turns.append({**message, key: [*message[key]]})  # a copy: never the list of a reply's `native`
        return turns

    # What a provider implements

    @abstractmethod
    def content_blocks(self, part: Content, *, in_result: bool = False) -> list[Object]: ...

    @abstractmethod
    def native_blocks(self, turn: Reply) -> list[Object] | None:
        """Return the blocks of a reply of this provider; None for another's: a conversation may change its model."""

    @abstractmethod
    def call_blocks(self, calls: Sequence[Call], offered: Offer) -> list[Object]: ...

    @abstractmethod
    def result_block(self, result: Result[Any], offered: Offer) -> Object: ...
