"""`@tool` and `Tool`: what is marked stays what it was, and what cannot work is refused with the way out."""

import asyncio
import functools
import gc
import inspect
import math
import os.path
import pickle
import re
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import Field

from toolcrib import Context, Result, Tool, ToolAuth, ToolSpec, Workbench, formats, tool
from toolcrib.core import DefinitionError, Hints
from toolcrib.tools import from_schema, from_work, reference, referent
from toolcrib.workbench import prefixed


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool(title="Slowly", timeout_s=3)
async def later(a: int) -> int:
    return a + 1


class Counter:
    def __init__(self, start: int) -> None:
        self.value = start

    @tool
    def increase(self, by: int = 1) -> int:
        """Count on."""
        self.value += by
        return self.value

    @tool
    async def wait(self, by: int) -> int:
        self.value += by
        return self.value

    @tool
    @classmethod
    def above(cls, a: int) -> str:
        return f"{cls.__name__} {a}"

    @classmethod
    @tool
    def below(cls, a: int) -> str:
        return f"{cls.__name__} {a}"

    @tool
    @staticmethod
    def outer(a: int) -> int:
        return a

    @staticmethod
    @tool(name="inner_static")
    def inner(a: int) -> int:
        return a


class Faster(Counter):
    pass


def refusal(make: Callable[[], Any]) -> str:
    with pytest.raises(DefinitionError) as raised:
        make()
    return str(raised.value)


async def call(source: Any, arguments: str = "{}", **options: Any) -> Result[Any]:
    async with Workbench([source], **options) as bench:
        return await bench.call(bench.specs()[0].name, arguments)


# The marked function is the function


def test_a_marked_function_is_the_function_itself() -> None:
    def plain(a: int) -> int:
        return a

    assert tool(plain) is plain
    assert tool(name="other")(plain) is plain
    assert add(1, 3) == 4
    assert str(inspect.signature(add)) == "(a: int, b: int = 2) -> int"
    assert add.__doc__ == "Add two numbers."
    assert pickle.loads(pickle.dumps(add)) is add
    assert inspect.iscoroutinefunction(later)
    assert not inspect.iscoroutinefunction(add)
    assert asyncio.run(later(1)) == 2


async def test_a_marked_method_binds_as_it_did() -> None:
    one, other = Counter(0), Counter(100)
    assert one.increase() == 1
    assert await other.wait(5) == 105
    async with Workbench([one.increase]) as bench, Workbench([other.increase]) as second:
        assert (await bench.call("increase", {"by": 4})).value == 5
        assert (await second.call("increase", {})).value == 106
        assert (await bench.call(one.increase, by=1)).value == 6
    assert (one.value, other.value) == (6, 106)
    assert pickle.loads(pickle.dumps(Counter.increase)) is Counter.increase


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (Counter.above, "Counter 1"),
        (Counter.below, "Counter 1"),
        (Faster(1).below, "Faster 1"),
        (Counter.outer, 1),
        (Counter.inner, 1),
        (Faster(3).increase, 4),
    ],
)
async def test_class_and_static_methods_are_tools_in_either_order_of_decorators(source: Any, value: Any) -> None:
    arguments = '{"by": 1}' if isinstance(value, int) and value == 4 else '{"a": 1}'
    assert (await call(source, arguments)).unwrap() == value
    assert source(1) == (5 if value == 4 else value)


async def test_what_cannot_be_marked_comes_back_as_the_same_call() -> None:
    root = tool(name="root")(math.sqrt)
    assert root(9.0) == 3.0
    assert (await call(root, '{"x": 16}')).value == 4.0
    counter = Counter(0)
    count = tool(name="count")(counter.increase)
    assert count() == 1
    assert Workbench([count]).specs()[0].name == "count"
    assert Workbench([counter.increase]).specs()[0].name == "increase"


async def test_an_object_that_can_be_called_can_be_marked() -> None:
    class Greets:
        """Greets."""

        def __call__(self, name: str) -> str:
            return f"Hello {name}"

    class Marked:
        @tool(name="hello", timeout_s=4)
        def __call__(self, name: str) -> str:
            """Says hello."""
            return f"Hello {name}"

    greets = tool(name="greet")(Greets())
    assert greets("you") == "Hello you"
    assert (await call(greets, '{"name": "A"}')).value == "Hello A"
    assert Workbench([greets]).specs()[0].description == "Greets."
    spec = Workbench([Marked()]).specs()[0]
    assert (spec.name, spec.description, spec.timeout_s) == ("hello", "Says hello.", 4)


async def test_the_mark_goes_through_decorators_and_partials() -> None:
    @tool(name="sum", timeout_s=7)
    def summed(a: int, b: int) -> int:
        return a + b

    @functools.wraps(summed)
    def outside(*args: int, **kwargs: int) -> int:
        return summed(*args, **kwargs) * 10

    inside = tool(name="sum", timeout_s=7)(functools.wraps(summed)(lambda *args, **kwargs: summed(*args, **kwargs)))
    for made, value in ((outside, 30), (inside, 3), (functools.lru_cache(summed), 3)):
        spec = Workbench([made]).specs()[0]
        assert (spec.name, spec.timeout_s, list(spec.input_schema["properties"])) == ("sum", 7, ["a", "b"])
        assert (await call(made, '{"a": 1, "b": 2}')).value == value
    fixed = functools.partial(summed, b=5)
    spec = Workbench([fixed]).specs()[0]
    assert (spec.name, spec.timeout_s, list(spec.input_schema["properties"])) == ("sum", 7, ["a"])
    assert (await call(fixed, '{"a": 1}')).value == 6


async def test_a_partial_of_a_tool_that_needs_credentials_still_needs_them() -> None:
    @tool(auth=ToolAuth("github"))
    def delete(name: str = "") -> str:
        raise AssertionError("ran")

    for source in (
        functools.partial(delete, "x"),
        functools.lru_cache(delete),
        Tool(delete, name="other"),
        tool(title="Other")(functools.partial(delete, "x")),
        tool(name="other")(functools.lru_cache(delete)),
        tool(timeout_s=3)(delete),
    ):
        assert (await call(source)).error.code == "unauthorized"


def test_a_tool_can_be_called_as_its_function() -> None:
    made = Tool(add)
    assert made(1, b=3) == 4
    assert made.fn is add
    assert repr(made) == "<Tool add>"
    assert made.arguments(1, b=3) == {"a": 1, "b": 3}
    with pytest.raises(TypeError, match="unexpected keyword"):
        made.arguments(c=3)  # type: ignore[call-arg]


# Arguments of every kind


async def test_positional_only_and_keyword_only_parameters_and_any_number() -> None:
    def kinds(a: int, b: int = 20, /, c: int = 30, *rest: int, d: int = 40, **named: int) -> list[Any]:
        return [a, b, c, rest, d, named]

    async with Workbench([kinds]) as bench:
        for arguments, value in (
            ({"a": 1}, [1, 20, 30, (), 40, {}]),
            ({"a": 1, "c": 3}, [1, 20, 3, (), 40, {}]),
            ({"a": 1, "rest": [5, 6]}, [1, 20, 30, (5, 6), 40, {}]),
            ({"a": 1, "b": 2, "c": 3, "rest": [5], "d": 4, "x": 9}, [1, 2, 3, (5,), 4, {"x": 9}]),
        ):
            assert (await bench.call("kinds", arguments)).unwrap() == value
        assert (await bench.call(kinds, 1, 2, 3, 5, d=4, x=9)).unwrap() == [1, 2, 3, (5,), 4, {"x": 9}]
    assert bench.specs()[0].input_schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "integer", "default": 20},
            "c": {"type": "integer", "default": 30},
            "rest": {"items": {"type": "integer"}, "type": "array"},
            "d": {"type": "integer", "default": 40},
        },
        "required": ["a"],
        "additionalProperties": {"type": "integer"},
    }


async def test_of_positional_only_parameters_a_later_one_may_be_given_alone() -> None:
    def place(a: int = 1, b: int = 2, c: int = 3, /) -> list[int]:
        return [a, b, c]

    assert (await call(place, '{"c": 9}')).unwrap() == [1, 2, 9]


async def test_any_name_python_takes_may_be_a_parameter() -> None:
    def awkward(
        schema: int, copy: int, self: int, _x: int, cls: int, model_config: int, kwargs: int, args: int, context: int
    ) -> list[int]:
        return [schema, copy, self, _x, cls, model_config, kwargs, args, context]

    names = ["schema", "copy", "self", "_x", "cls", "model_config", "kwargs", "args", "context"]
    given = {name: number for number, name in enumerate(names)}
    async with Workbench([awkward]) as bench:
        assert list(bench.specs()[0].input_schema["properties"]) == names
        assert (await bench.call("awkward", given)).unwrap() == list(range(9))
        assert (await bench.call(awkward, **given)).unwrap() == list(range(9))
        assert (await bench.call(Tool(awkward).fn, **given)).unwrap() == list(range(9))


async def test_a_mutable_default_is_not_shared_between_calls() -> None:
    def collect(item: int, into: list[int] = [], settings: dict[str, list[int]] = {"seen": []}) -> int:
        into.append(item)
        settings["seen"].append(item)
        return len(into) + len(settings["seen"])

    async with Workbench([collect]) as bench:
        assert [(await bench.call("collect", {"item": n})).value for n in range(3)] == [2, 2, 2]
    assert inspect.signature(collect).parameters["into"].default == []


def test_a_default_that_cannot_be_copied_is_refused() -> None:
    import threading

    def use(locks: dict[str, Any] = {"a": threading.Lock()}) -> None: ...

    assert "the default of 'locks' cannot be copied, so all calls would share it" in refusal(lambda: Tool(use))


async def test_a_parameter_with_an_alias_is_called_by_it_and_given_by_its_own_name_in_python() -> None:
    def send(sender: Annotated[str, Field(alias="from")], to: str = "all") -> str:
        return f"{sender} {to}"

    async with Workbench([send]) as bench:
        assert list(bench.specs()[0].input_schema["properties"]) == ["from", "to"]
        assert (await bench.call("send", '{"from": "me"}')).unwrap() == "me all"
        assert (await bench.call(send, "me", to="you")).unwrap() == "me you"
        assert (await bench.call(send, sender="me")).unwrap() == "me all"


# A schema of one's own


BARE = {
    "type": "object",
    "properties": {"when": {"type": "string", "format": "date"}, "n": {"type": "integer", "minimum": 1}},
    "required": ["when"],
}


async def test_arguments_are_validated_against_parameters_and_stay_json() -> None:
    def use(when: str, n: int = 5) -> list[Any]:
        return [when, n]

    made = Tool(use, parameters=BARE)
    assert made.spec.input_schema == {**BARE, "additionalProperties": False}
    async with Workbench([made]) as bench:
        assert (await bench.call("use", '{"when": "2024-02-29"}')).unwrap() == ["2024-02-29", 5]
        for wrong, words in (
            ('{"when": "2023-02-29"}', "when"),
            ('{"when": "soon"}', "when"),
            ('{"when": "2024-02-29", "n": 0}', "n"),
            ('{"n": 1}', "when"),
            ('{"when": "2024-02-29", "whem": 1}', "whem"),
        ):
            result = await bench.call("use", wrong)
            assert result.error.code == "invalid_arguments"
            assert words in result.error.message


async def test_parameters_that_let_others_through_need_a_function_that_takes_them() -> None:
    def closed(when: str) -> str:
        return when

    def opened(when: str, **rest: Any) -> Any:
        return rest

    schema = {"properties": {"when": {"type": "string"}}, "required": ["when"]}
    assert (await call(Tool(opened, parameters=schema), '{"when": "a", "x": 1}')).value == {"x": 1}
    shut = {**schema, "additionalProperties": False}
    assert (await call(Tool(opened, parameters=shut), '{"when": "a", "x": 1}')).error is not None
    for loose in (
        {"additionalProperties": True},
        {"additionalProperties": {"type": "string"}},
        {"patternProperties": {"^x": True}},
    ):
        assert "lets other arguments through" in refusal(
            lambda loose=loose: Tool(closed, parameters={**schema, **loose})
        )


async def test_parameters_may_be_composed_of_parts() -> None:
    def use(a: int, b: int = 0, c: int = 0) -> list[int]:
        return [a, b, c]

    of_parts = {
        "allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}],
        "anyOf": [{"properties": {"b": {"type": "integer"}}}, {"properties": {"c": {"type": "integer"}}}],
    }
    assert (await call(Tool(use, parameters=of_parts), '{"a": 1, "c": 2}')).unwrap() == [1, 0, 2]
    result = await call(Tool(use, parameters=of_parts), '{"a": 2, "other": 2}')
    assert result.error.code == "invalid_arguments"


def _takes(a: int, b: int = 1) -> None: ...
def _takes_any(ctx: Context, **rest: Any) -> None: ...


@pytest.mark.parametrize(
    ("fn", "schema", "words"),
    [
        (_takes, "{}", "parameters is a JSON Schema, as a mapping"),
        (_takes, {"type": "array"}, "the root of parameters= has type 'array'. Arguments are an object"),
        (_takes, {"properties": {"a": {"pattern": "("}}, "required": ["a"]}, "not a JSON Schema 2020-12"),
        (
            _takes,
            {"properties": {"a": True, "c": True}, "required": ["a"]},
            "describes 'c', and the function takes no such",
        ),
        (_takes, {"properties": {"a": True}, "required": ["a", "c"]}, "requires 'c', and the function takes no such"),
        (_takes, {"properties": {"b": True}}, "the function needs 'a', and parameters= does not require it"),
        (
            _takes_any,
            {"properties": {"ctx": True}},
            "describes 'ctx', and the function takes no such argument from a model",
        ),
    ],
)
def test_parameters_that_cannot_work_are_refused(fn: Any, schema: Any, words: str) -> None:
    assert words in refusal(lambda: Tool(fn, parameters=schema))


# Options


def test_every_option_of_a_tool_is_in_its_spec() -> None:
    @tool(
        name="other-name",
        title="Other",
        description="Said otherwise.",
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
        long_running=True,
        tags=["b", "a"],
        version="1.2",
        examples=[{"a": 1}],
        timeout_s=2.5,
        strict=True,
        auth=ToolAuth("github", scopes=["repo"]),
    )
    def fn(a: int) -> str:
        """Not said."""
        return str(a)

    assert Workbench([fn]).specs() == (
        ToolSpec(
            name="other-name",
            description="Said otherwise.",
            input_schema={
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"],
                "additionalProperties": False,
            },
            output_schema={"type": "string"},
            title="Other",
            hints=Hints(read_only=True, destructive=False, idempotent=True, open_world=False, long_running=True),
            auth=ToolAuth("github", scopes=["repo"]),
            tags=frozenset({"a", "b"}),
            version="1.2",
            examples=({"a": 1},),
            strict=True,
            timeout_s=2.5,
        ),
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colour": "red"}, "Tool 'fn' has no option 'colour'. It has: name, title,"),
        (
            {"name": "a b"},
            "'a b' cannot be the name of a tool: model providers take 1 to 64 letters, digits, '_' and '-'.",
        ),
        ({"description": ["a"]}, "description is text"),
        ({"destructive": "no"}, "destructive is True, False or None"),
        ({"tags": "mail"}, "tags is a list of texts"),
        ({"examples": {"a": 1}}, "examples is a list of arguments"),
        ({"timeout_s": 0}, "timeout_s is a number of seconds above 0, or None for no limit"),
        ({"timeout_s": math.nan}, "timeout_s"),
        ({"available": True}, "available is a function that is given the Caller"),
        ({"auth": "github"}, 'auth is a ToolAuth, as in auth=ToolAuth("github", scopes=["repo"])'),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_definition(options: dict[str, Any], words: str) -> None:
    def fn(a: int) -> None: ...

    assert words in refusal(lambda: tool(**options)(fn))
    assert words in refusal(lambda: Tool(fn, **options))


def test_examples_that_do_not_work_are_refused() -> None:
    message = refusal(lambda: Tool(add, examples=[{"a": 1}, {"a": "x"}]))
    assert message.startswith("Tool 'add': example 2 is not a call that works: ")
    assert "example 1 is not a call that works" in refusal(lambda: Tool(add, examples=[{"a": "1"}]))


# What cannot be a tool

_INSTEAD = "Make a tool of a function, or of a method of an instance."


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tool(Counter), f"@tool cannot mark the class Counter. {_INSTEAD}"),
        (lambda: Tool(functools.partial(Counter, 1)), f"Tool 'Counter' is a class. {_INSTEAD}"),
        (lambda: tool(lambda a: a), "'<lambda>' cannot be the name of a tool"),
        (lambda: Tool(None), "A tool is made of something that can be called, not of NoneType."),  # type: ignore[arg-type]
        (lambda: tool(5), "@tool marks functions and methods, not int."),  # type: ignore[type-var]
        (lambda: Tool(functools.partial(Tool(add), b=1)), "'add' is a Tool already. To change it, make a Tool of its"),
        (lambda: tool(Tool(add)), "'add' is a Tool already. Mark its function, or make a Tool of that."),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_the_way_out(make: Callable[[], Any], message: str) -> None:
    assert refusal(make).startswith(message)


def test_generators_promise_what_they_yield() -> None:
    def numbers(n: int) -> Iterator[int]:
        yield n

    async def more(n: int) -> AsyncIterator[int]:
        yield n

    class Yields:
        def __call__(self, n: int) -> Iterator[int]:
            yield n

    for fn, runs in (
        (numbers, "generator"),
        (more, "async_generator"),
        (functools.partial(numbers, 1), "generator"),
        (Yields(), "generator"),
    ):
        made = Tool(fn, name="n")
        assert (made.runs, made.spec.output_schema) == (runs, {"type": "integer"})


# Tools of given parts: of a spec and a callable, and of a spec and work that takes the Context of its call


SPEC = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})


async def work(arguments: dict[str, Any], context: Context) -> Any:
    return [arguments["a"], context.call.tool, context.caller.principal]


async def test_work_receives_checked_arguments_and_the_context() -> None:
    bench = Workbench([from_work(SPEC, work, home="here")])
    assert (await bench.call("add", {"a": "2"})).value == [2, "add", "local"]
    assert (await bench.call("add", {})).text == "Tool 'add': 'a' is missing. Expected integer."


async def test_a_callable_receives_the_arguments_by_name() -> None:
    bench = Workbench([from_schema(SPEC, lambda a: a + 1, runs="sync")])
    assert (await bench.call("add", {"a": 2})).value == 3


def test_a_name_or_a_schema_that_cannot_work_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'a b' cannot be the name of a tool"):
        from_work(ToolSpec("a b", "", {"type": "object"}), work, home="here")
    with pytest.raises(DefinitionError, match="Tool 'add'"):
        from_work(ToolSpec("add", "", {"type": "object", "properties": {"a": {"type": "nothing"}}}), work, home="here")


@pytest.mark.parametrize("name", ["files.read", "x" * 65])
async def test_a_name_that_others_gave_is_kept_and_providers_get_one_that_they_take(name: str) -> None:
    bench = Workbench([from_work(replace(SPEC, name=name), work, home="here")])
    assert (await bench.call(name, {"a": 1})).value == [1, name, "local"]
    (sent,) = formats.openai.tools(bench.specs())
    asked = {"id": "1", "function": {"name": sent["function"]["name"], "arguments": '{"a": 1}'}}
    (call,) = formats.openai.calls({"choices": [{"message": {"tool_calls": [asked]}}]}, bench.specs())
    assert call.tool == name
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", sent["function"]["name"])
    assert Workbench([prefixed(bench.registry, "own.")]).specs()[0].name == f"own.{name}"


def test_a_reference_leads_back_to_what_is_imported_and_imports_nothing() -> None:
    ref = reference(os.path.join)
    assert referent(ref) is os.path.join
    assert referent("os.path:nothing") is None
    assert referent("no_such_module:name") is None


def test_many_tools_take_little_memory_before_they_are_looked_at() -> None:
    def searching(number: int) -> Any:
        def search(query: str, limit: int = 10, tags: list[str] | None = None) -> str:
            return query

        search.__name__ = f"search_{number}"
        return search

    functions = [searching(number) for number in range(101)]
    Tool(functions.pop())  # imports what it needs
    gc.collect()
    tracemalloc.start()
    try:
        tools = [Tool(function) for function in functions]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(tools) < 8 * 1024
    assert tools[7].spec.input_schema["required"] == ["query"]
