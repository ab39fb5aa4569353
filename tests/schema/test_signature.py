"""What is read of a callable: which parameters a model sees, which the host fills in, and what cannot work."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from toolcrib import Context, Depends, Tool, Workbench, tool

from .calling import called, refused_definition

if TYPE_CHECKING:
    from decimal import Decimal

F = TypeVar("F", bound=Callable[..., Any])


def properties(fn: Callable[..., Any]) -> dict[str, Any]:
    [spec] = Workbench([fn]).specs()
    return dict(spec.input_schema["properties"])


async def value_of(fn: Callable[..., Any], arguments: str) -> Any:
    return (await called(fn, arguments)).unwrap()


# What can be a tool


def plain(a: int, b: int = 2) -> int:
    return a * b


async def eventually(a: int, b: int = 2) -> int:
    return a * b


class Calculator:
    factor = 10

    class Setting(BaseModel):
        add: int

    def times(self, a: int) -> int:
        return a * self.factor

    async def later(self, a: int) -> int:
        return a * self.factor

    @classmethod
    def of_class(cls, a: int) -> int:
        return a * cls.factor

    @staticmethod
    def of_nothing(a: int) -> int:
        return a * 100

    def set(self, setting: Setting) -> int:
        return setting.add

    def list(self, names: list[str]) -> list[str]:
        return names

    def __call__(self, a: int) -> int:
        return a + self.factor


class AsyncCallable:
    """Adds a thousand."""

    async def __call__(self, a: int) -> int:
        return a + 1000


def outside(fn: F) -> F:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


def _later(a: int) -> Coroutine[Any, Any, int]:
    return eventually(a)


def _awaitable(a: int) -> Awaitable[int]:
    import asyncio

    return asyncio.ensure_future(eventually(a))


@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (plain, 6),
        (eventually, 6),
        (lambda a: a, 3),
        (Calculator().times, 30),
        (Calculator().later, 30),
        (Calculator.of_class, 30),
        (Calculator().of_class, 30),
        (Calculator.of_nothing, 300),
        (Calculator(), 13),
        (AsyncCallable(), 1003),
        (functools.partial(plain, b=5), 15),
        (functools.partial(eventually, b=5), 15),
        (outside(plain), 6),
        (outside(eventually), 6),
        (_later, 6),
        (_awaitable, 6),
    ],
)
async def test_every_kind_of_callable_is_a_tool(fn: Callable[..., Any], value: int) -> None:
    made = Tool(fn, name="made")
    assert next(iter(made.spec.input_schema["properties"])) == "a"
    async with Workbench([made]) as bench:
        assert (await bench.call("made", '{"a": 3}')).unwrap() == value


async def test_builtins_are_tools_where_python_knows_their_signature() -> None:
    assert await value_of(math.gcd, '{"integers": [12, 18]}') == 6
    assert await value_of(math.sqrt, '{"x": 9}') == 3.0
    assert await value_of(operator.add, '{"a": 1, "b": 2}') == 3
    assert refused_definition(max) == (
        "Tool 'max' has no signature that Python can read. Wrap it in a function with annotated parameters."
    )


# Partials


def _send(to: str, text: str, urgent: bool = False, **headers: str) -> str:
    return f"{to}: {text} {urgent} {headers}"


def test_what_a_partial_has_fixed_is_neither_shown_nor_a_default() -> None:
    spec = Tool(functools.partial(plain, b=5), name="made").spec
    assert spec.input_schema == {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert list(properties(functools.partial(_send, "bob", urgent=True))) == ["text"]


@pytest.mark.parametrize("name", ["to", "urgent", "secret"])
async def test_a_model_cannot_overrule_what_a_partial_has_fixed(name: str) -> None:
    fixed = functools.partial(_send, "bob", urgent=True, secret="s")
    async with Workbench([fixed]) as bench:
        result = await bench.call("_send", {"text": "hi", name: "mallory"})
    assert result.error is not None
    assert result.error.code == "invalid_arguments"
    assert name in result.error.message


async def test_a_model_cannot_name_self_in_a_method_that_takes_any_name() -> None:
    class Open:
        def take(self, **rest: str) -> dict[str, str]:
            return rest

    async with Workbench([Open().take]) as bench:
        refused = await bench.call("take", {"self": "x"})
        taken = await bench.call("take", {"other": "x"})
    assert refused.error is not None
    assert refused.error.code == "invalid_arguments"
    assert taken.value == {"other": "x"}


# Annotations that are text


async def test_annotations_may_name_what_is_local_to_the_function_around() -> None:
    class Local(BaseModel):
        y: int

    def use(x: Local) -> Local:
        return x

    result = await value_of(use, '{"x": {"y": 1}}')
    assert result == Local(y=1)
    assert type(result) is Local


def factory() -> tuple[Callable[..., Any], type[BaseModel]]:
    class Local(BaseModel):
        y: int

    class Record(TypedDict):
        local: Local

    def provide() -> Local:
        return Local(y=4)

    @tool
    def made(x: Local, record: Record, given: Annotated[Local, Depends(provide)]) -> Local:
        return Local(y=x.y + record["local"].y + given.y)

    return made, Local


def test_a_name_that_the_function_closes_over_is_known() -> None:
    def make() -> Callable[..., Any]:
        class Enclosed(BaseModel):
            y: int

        def made(x: Enclosed) -> object:
            return Enclosed(y=x.y)

        return made

    assert properties(make()) == {"x": {"$ref": "#/$defs/Enclosed"}}


async def test_a_marked_function_remembers_the_local_names_of_the_function_that_made_it() -> None:
    made, local = factory()
    result = await value_of(made, '{"x": {"y": 1}, "record": {"local": {"y": 2}}}')
    assert type(result) is local
    assert result.model_dump() == {"y": 7}


def test_without_a_mark_a_local_name_of_a_function_that_ended_is_a_clear_error() -> None:
    def make() -> Callable[..., Any]:
        class Gone(BaseModel):
            y: int

        def made(x: Gone) -> int:
            return x.y

        return made

    assert refused_definition(make()) == (
        "Tool 'made': the name 'Gone' in its annotations is not defined. Import it at the top of the module, outside "
        "`if TYPE_CHECKING:`; where it is local to a function, mark the tool there with @tool."
    )


async def test_annotations_may_name_what_stands_in_the_body_of_the_class() -> None:
    class Marked:
        class Setting(BaseModel):
            add: int

        @tool
        def apply(self, setting: Setting) -> int:
            return setting.add

    assert await value_of(Marked().apply, '{"setting": {"add": 4}}') == 4
    assert await value_of(Calculator().set, '{"setting": {"add": 5}}') == 5


async def test_a_method_that_is_called_like_a_type_is_not_taken_for_it() -> None:
    class Marked:
        @tool
        def list(self, names: list[str]) -> list[str]:
            return names

        @tool
        def more(self, names: list[str]) -> list[str]:
            return names

    for method in (Marked().list, Marked().more, Calculator().list):
        assert await value_of(method, '{"names": ["a"]}') == ["a"]


def test_the_annotations_are_those_of_the_signature_that_a_wrapper_shows() -> None:
    import inspect

    @functools.wraps(plain)
    def wrapper(*args: Any, **kwargs: Any) -> Any: ...

    shown = [inspect.Parameter("a", inspect.Parameter.KEYWORD_ONLY, annotation="str | None")]
    wrapper.__signature__ = inspect.Signature(shown, return_annotation=str)  # type: ignore[attr-defined]
    made = Tool(wrapper)
    assert made.spec.input_schema["properties"] == {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    assert made.spec.output_schema == {"type": "string"}


# What the host provides


def get_number() -> int:
    return 7


async def get_async(ctx: Context) -> str:
    return ctx.caller.principal


def get_generated(number: Annotated[int, Depends(get_number)], factor: int = 2) -> Iterator[int]:
    yield number * factor


async def get_async_generated(
    who: Annotated[str, Depends(get_async, scope="call")], number: Annotated[int, Depends(get_generated)]
) -> AsyncIterator[str]:
    yield f"{who} {number}"


async def test_what_the_host_provides_is_injected_and_hidden() -> None:
    def use(
        ctx: Context,
        a: int,
        maybe: Annotated[int, Depends(get_generated), "text"],
        *,
        deep: Annotated[str, Depends(get_async_generated, scope="call")],
    ) -> str:
        return f"{ctx.call.tool} {a} {maybe} {deep}"

    assert properties(use) == {"a": {"type": "integer"}}
    assert await value_of(use, '{"a": 1}') == "use 1 14 local 14"


@pytest.mark.parametrize("name", ["ctx", "number"])
async def test_a_model_cannot_send_what_the_host_provides(name: str) -> None:
    def closed(ctx: Context, number: Annotated[int, Depends(get_number)]) -> int:
        return number

    def opened(ctx: Context, number: Annotated[int, Depends(get_number)], **rest: Any) -> int:
        return number

    async with Workbench([closed, opened]) as bench:
        for tool_name in ("closed", "opened"):
            result = await bench.call(tool_name, {name: 1})
            assert result.error is not None
            assert result.error.code == "invalid_arguments"


async def test_an_optional_context_is_a_context() -> None:
    def use(a: int, ctx: Context | None = None, other: int = 0) -> bool:
        return ctx is not None

    assert list(properties(use)) == ["a", "other"]
    assert await value_of(use, '{"a": 1}') is True


def _needs_more(a: int) -> int:
    return a


def _needs_context(ctx: Context) -> int:
    return 1


def _one(two: Annotated[int, Depends(_two_late)]) -> int:
    return two


def _two(one: Annotated[int, Depends(_one)]) -> int:
    return one


_two_late = _two


def _shorter(number: Annotated[int, Depends(get_number, scope="session")]) -> int:
    return number


def use_two(one: Context, two: Context) -> None: ...
def use_default(number: int = Depends(get_number)) -> None: ...  # type: ignore[assignment]
def use_inside(number: Annotated[int, Depends(get_number)] | None) -> None: ...
def use_place(ctx: Context, /) -> None: ...
def use_number_place(number: Annotated[int, Depends(get_number)], /) -> None: ...
def use_many(*numbers: Annotated[int, Depends(get_number)]) -> None: ...
def use_more(number: Annotated[int, Depends(_needs_more)]) -> None: ...
def use_session(number: Annotated[int, Depends(_needs_context)]) -> None: ...
def use_program(number: Annotated[int, Depends(_shorter, scope="program")]) -> None: ...
def use_itself(one: Annotated[int, Depends(_one)]) -> None: ...
def use_nothing(number: Annotated[int, Depends(7)]) -> None: ...  # type: ignore[arg-type]
def use_scope(number: Annotated[int, Depends(get_number, scope="request")]) -> None: ...  # type: ignore[arg-type]
def pay(amount: Decimal) -> None: ...


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (use_two, "has two Context parameters, 'one' and 'two'. Keep one: both are the same."),
        (
            use_default,
            "parameter 'number' has Depends as its default. "
            "Write it as an annotation: number: Annotated[..., Depends(...)].",
        ),
        (
            use_inside,
            "Depends of 'number' is inside another type, where it is not provided. "
            "Write it around the whole: number: Annotated[..., Depends(...)].",
        ),
        (use_place, "parameter 'ctx' is provided by name; write it after the '/', and without '*'."),
        (use_number_place, "parameter 'number' is provided by name; write it after the '/', and without '*'."),
        (use_many, "parameter 'numbers' is provided by name; write it after the '/', and without '*'."),
        (
            use_more,
            "the provider of 'number' takes a, and the host provides no such values. "
            "A provider's parameters are Caller, Variables, Context or Depends themselves, or have defaults.",
        ),
        (
            use_session,
            "'number' lasts as long as a session, and its provider needs something that ends with a call. "
            'Write Depends(..., scope="call").',
        ),
        (
            use_program,
            "'number' lasts as long as a program, and its provider needs something that ends with a session. "
            'Write Depends(..., scope="session").',
        ),
        (use_itself, "needs itself, through what it needs."),
        (use_nothing, "Depends of 'number' takes a callable that returns the value, not int."),
        (use_scope, "'number' has the scope 'request'. Scopes are: call, session, program."),
        (
            pay,
            "the name 'Decimal' in its annotations is not defined. Import it at the top of the module, outside "
            "`if TYPE_CHECKING:`; where it is local to a function, mark the tool there with @tool.",
        ),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_what_the_host_cannot_provide_is_refused_with_the_way_out(fn: Callable[..., Any], message: str) -> None:
    text = refused_definition(fn)
    assert text.startswith(f"Tool '{fn.__name__}'")
    assert text.endswith(message)
