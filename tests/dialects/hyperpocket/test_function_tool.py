"""Tools of functions: what a model sees, how the function is called, and what becomes of its result."""

import asyncio
from datetime import datetime
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from toolcrib import ToolError, Workbench
from toolcrib.dialects.hyperpocket import Pocket
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.tool import Tool, ToolAuth, from_dock, from_func, function_tool
from toolcrib.dialects.hyperpocket.tool.function import FunctionTool


class Address(BaseModel):
    street: str
    number: int = 1


def add(a: int, b: int = 2, **kwargs: Any) -> dict[str, Any]:
    """Add two numbers.

    Args:
        a (int): The first.
        b (int): The second.
    """
    return {"sum": a + b, "given": kwargs, "rest": None}


async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@pytest.mark.parametrize("make", [function_tool, function_tool(), from_func])
def test_what_cannot_be_called_is_refused_with_the_originals_words(make: Any):
    with pytest.raises(ValueError, match="FunctionTool can only be created from a callable"):
        make("add")


def test_a_tool_that_is_a_tool_already_stays_it_and_takes_the_variables():
    tool = from_func(add, tool_vars={"A": "1", "B": "2"})
    assert from_func(tool, tool_vars={"B": "3"}) is tool
    assert from_func(None, tool) is tool
    assert (tool.default_tool_vars, tool.overridden_tool_vars, tool.tool_vars) == (
        {"A": "1", "B": "2"},
        {"B": "3"},
        {"A": "1", "B": "3"},
    )


def test_a_model_cannot_fill_in_kwargs():
    """What is in `**kwargs` are credentials and settings: a model that could add to them would choose those."""
    tool = from_func(add)
    for body in ({"a": 1, "TOKEN": "mine"}, {"a": 1, "kwargs": {"TOKEN": "mine"}}):
        with pytest.raises(ToolError, match="takes no argument"):
            tool.invoke(body=body)


def test_arguments_are_what_the_annotations_say():
    """Defect 8: models came as other classes, items of lists unchecked; Literal and datetime were refused."""
    seen: list[Any] = []

    def order(
        address: Address, more: list[Address], kind: Literal["a", "b"], at: datetime, name: str | None = None
    ) -> str:
        seen.extend((address, more, kind, at, name))
        return ""

    body = {
        "address": {"street": "x"},
        "more": [{"street": "y", "number": "2"}],
        "kind": "a",
        "at": "2026-01-01T00:00:00",
    }
    from_func(order).invoke(body=body)
    assert seen == [Address(street="x"), [Address(street="y", number=2)], "a", datetime(2026, 1, 1), None]
    assert type(seen[0]) is Address
    for wrong in ({"more": [{"number": 1}]}, {"kind": "c"}, {"extra": 1}):
        with pytest.raises(ToolError) as caught:
            from_func(order).invoke(body={**body, **wrong})
        assert caught.value.code == "invalid_arguments"


async def test_async_functions_run_however_they_are_called():
    """Defect 7: `.invoke()` gave the text of a coroutine, and a function of a dock failed always."""
    tool, docked = function_tool(shout), from_dock([shout])[0]
    assert (tool.func, tool.afunc) == (shout, shout)
    assert [tool.invoke(body={"text": "a"}), docked.invoke(body={"text": "b"})] == ["A", "B"]
    assert [await tool.ainvoke(body={"text": "a"}), await docked.ainvoke(body={"text": "b"})] == ["A", "B"]
    assert await asyncio.to_thread(tool.invoke, body={"text": "c"}) == "C"
    assert from_func(None, shout).invoke(body={"text": "d"}) == "D"


def test_arguments_stay_in_their_structure_where_that_is_asked_for():
    def whole(**kwargs: Any) -> Any:
        return kwargs

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool = from_func(whole, json_schema=schema, keep_structured_arguments=True, tool_vars={"A": "1"})
    text = tool.invoke(body={"a": 1}, envs={"T": "t0ken"}, thread_id="t", profile="p")
    assert text == '{"body":{"a":1},"thread_id":"t","profile":"p","envs":{"T":"t0ken","A":"1"}}'


def test_functions_of_a_dock_bring_their_model_their_authorization_and_their_variables():
    class Query(BaseModel):
        text: str

    def search(text: str, **kwargs: Any) -> Any:
        return [text, kwargs]

    search.__model__ = Query  # type: ignore[attr-defined]
    search.__auth__ = {"auth_provider": "github", "scopes": ["repo"]}  # type: ignore[attr-defined]
    search.__vars__ = {"A": "1"}  # type: ignore[attr-defined]
    [tool] = from_dock([search], tool_vars={"A": "0", "B": "2"})
    assert tool.auth == ToolAuth(auth_provider=AuthProvider.GITHUB, scopes=["repo"])
    assert tool.argument_json_schema == Query.model_json_schema()
    assert tool.invoke(body={"text": "x"}) == '["x",{"A":"1","B":"2"}]'
    with pytest.raises(ValueError, match="Dock element should be a list of functions, but found 1"):
        from_dock([1])  # type: ignore[list-item]


async def test_a_subclass_may_call_the_function_in_its_own_way():
    class Twice(FunctionTool):
        async def ainvoke(self, **kwargs: Any) -> str:
            return f"{await super().ainvoke(**kwargs)}, twice"

    tool: Tool = Twice.from_func(shout)
    async with Workbench([tool]) as bench:
        assert (await bench.call("shout", {"text": "a"})).text == "A, twice"


def test_variables_of_the_settings_reach_only_the_tools_that_name_them(settings: Any) -> None:
    """Also where a Pocket gives them in a tuple, which goes over the settings."""
    settings('[tool_vars]\nREGION = "eu"\nTOKEN = "another tool\'s"\n')

    def show(**kwargs: Any) -> dict[str, Any]:
        """Show."""
        return {name: value for name, value in kwargs.items() if name.isupper()}

    assert from_func(show).invoke(body={}) == "{}"
    assert from_func(show, tool_vars={"REGION": "us"}).invoke(body={}) == '{"REGION":"eu"}'
    with Pocket([(from_func(show, tool_vars={"REGION": "us"}), {"REGION": "asia"})]) as pocket:
        assert pocket.invoke("show", {}) == '{"REGION":"asia"}'
