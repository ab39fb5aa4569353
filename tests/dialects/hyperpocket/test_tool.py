"""Tools of one's own classes: fields, schema, variables, postprocessings; ToolAuth and ToolRequest."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from toolcrib import DefinitionError, Workbench
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.tool import Tool, ToolAuth, ToolRequest, from_func
from toolcrib.dialects.hyperpocket.tool.dock import Dock
from toolcrib.dialects.hyperpocket.tool.function import FunctionTool
from toolcrib.dialects.hyperpocket.util.flatten_json_schema import flatten_json_schema

SCHEMA = {"type": "object", "title": "Words", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Echo(Tool):
    def invoke(self, **kwargs: Any) -> Any:
        return kwargs


class AsyncEcho(Tool):
    async def ainvoke(self, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return kwargs


def echo(kind: type[Tool] = Echo, **fields: Any) -> Tool:
    return kind(name="echo", description="Says it again.", argument_json_schema=SCHEMA, **fields)


async def test_a_subclass_defines_invoke_or_ainvoke_and_both_work():
    for kind in (Echo, AsyncEcho):
        assert echo(kind).invoke(body={"text": "a"}) == {"body": {"text": "a"}}
        assert await echo(kind).ainvoke(body={"text": "a"}, profile="p") == {"body": {"text": "a"}, "profile": "p"}


def test_a_subclass_without_either_is_refused():
    class Idle(Tool):
        pass

    for kind in (Idle, Tool):
        with pytest.raises(TypeError, match=f"{kind.__name__} defines neither 'invoke' nor 'ainvoke'"):
            kind(name="idle", description="")


def test_schema_model_wraps_the_schema_with_the_thread_and_the_profile():
    model = echo().schema_model()
    assert model is not None and issubclass(model, BaseModel)
    schema = model.model_json_schema()
    assert (schema["title"], list(schema["properties"]), schema["required"]) == (
        "echo",
        ["thread_id", "profile", "body"],
        ["body"],
    )
    assert [schema["properties"][name]["default"] for name in ("thread_id", "profile")] == ["default", "default"]
    body = flatten_json_schema(schema)["properties"]["body"]
    for of in (body, schema["properties"]["body"]):
        assert (of["title"], of["description"]) == ("echo", "The argument of the tool.")
    assert body["properties"] == {"text": {"type": "string"}}
    call = model(body={"text": "a"})
    assert call.model_dump() == {"thread_id": "default", "profile": "default", "body": {"text": "a"}}


def test_schema_model_without_the_profile_is_the_schema_alone():
    model = echo().schema_model(use_profile=False)
    assert model is not None
    assert (model.__name__, model(text="a").model_dump()) == ("echo", {"text": "a"})
    assert Echo(name="echo", description="").schema_model() is None
    assert SCHEMA == {
        "type": "object",
        "title": "Words",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }


def test_the_description_can_tell_of_the_thread_and_the_profile():
    assert echo().get_description() == "Says it again."
    extended = echo().get_description(use_profile=True)
    assert "<tool-description>\nSays it again.\n</tool-description>" in extended
    assert all(f"'{name}'" in extended for name in ("thread_id", "profile", "body"))


def test_tool_variables_are_defaults_and_what_overrides_them():
    tool = echo(default_tool_vars={"A": "1", "B": "2"})
    assert tool.override_tool_variables({"B": "3"}) is tool
    assert (tool.override_tool_variables({"C": "4"}).tool_vars, tool.default_tool_vars) == (
        {"A": "1", "B": "3", "C": "4"},
        {"A": "1", "B": "2"},
    )


async def test_postprocessings_follow_one_another_and_may_be_async():
    def upper(result: Any) -> str:
        return result["body"]["text"].upper()

    async def twice(result: str) -> str:
        return result * 2

    given = [upper]
    tool = echo(postprocessings=given)
    assert (tool | twice) is tool
    assert tool.with_postprocessing(len) is tool
    assert tool.with_postprocessings([str]) is tool
    assert (tool.postprocessings, given) == ([upper, twice, len, str], [upper])
    async with Workbench([tool]) as bench:
        assert (await bench.call("echo", {"text": "abc"})).value == "6"


async def test_a_postprocessing_of_a_function_gets_the_text_of_its_result():
    def count() -> dict[str, int]:
        return {"n": 1}

    async with Workbench([from_func(count) | (lambda text: [text])]) as bench:
        assert (await bench.call("count")).value == ['{"n":1}']


async def test_a_failed_postprocessing_is_an_error():
    """Defect 5: it was the text of a result like any other."""

    def fail(result: Any) -> Any:
        raise ValueError("not this")

    async with Workbench([echo() | fail], show_errors=True) as bench:
        result = await bench.call("echo", {"text": "a"})
    assert result.error is not None and result.error.code == "failed"
    assert "ValueError" in result.text and "not this" in result.text


async def test_a_tool_in_a_workbench_gets_checked_arguments_and_the_callers_thread_and_profile():
    async with Workbench([echo(), AsyncEcho(name="other", description="", argument_json_schema=None)]) as bench:
        result = await bench.call("echo", '{"text": "a"}')
        assert result.value == {"body": {"text": "a"}, "thread_id": "default", "profile": "default", "envs": {}}
        assert (await bench.call("echo", {"txt": "a"})).error.code == "invalid_arguments"
        assert (await bench.call("other", {"any": 1})).value["body"] == {"any": 1}


def test_a_tool_of_the_name_or_schema_that_cannot_work_is_refused():
    with pytest.raises(DefinitionError, match="cannot be the name of a tool"):
        Echo(name="two words", description="").__toolcrib__()
    with pytest.raises(DefinitionError, match="parameters= has type 'nothing'"):
        Echo(name="echo", description="", argument_json_schema={"type": "nothing"}).__toolcrib__()


def test_scopes_are_refused_where_there_are_none():
    for wrong in (
        {"auth_provider": AuthProvider.SLACK, "auth_handler": "slack-token"},
        {"auth_provider": AuthProvider.CALENDLY},
        {},
    ):
        with pytest.raises(DefinitionError, match="has scopes"):
            ToolAuth(scopes=["read"], **wrong)
    assert ToolAuth(scopes=[], auth_provider=AuthProvider.CALENDLY).scopes == []
    assert ToolAuth(scopes=["read"], auth_provider=AuthProvider.SLACK, auth_handler="of-my-own").scopes == ["read"]


def test_a_request_collects_what_its_tool_will_have():
    class Request(ToolRequest):
        def __str__(self) -> str:
            return "request"

    with pytest.raises(TypeError, match="abstract"):
        ToolRequest()  # type: ignore[abstract]
    first, second = Request(), Request()
    assert (first | str) is first
    assert first.with_postprocessings([len]) is first
    assert first.override_tool_variables({"A": "1"}) is first
    assert (first.postprocessings, first.overridden_tool_vars) == ([str, len], {"A": "1"})
    assert (second.postprocessings, second.overridden_tool_vars, str(second)) == (None, {}, "request")


def test_a_dock_is_called_for_its_tools():
    class Words(Dock[str]):
        def dock(self, tool_like: str, *args: Any, **kwargs: Any) -> FunctionTool:
            def say() -> str:
                return tool_like

            return from_func(say, name=tool_like)

    assert Words()("hello").invoke(body={}) == "hello"
    with pytest.raises(TypeError, match="abstract"):
        Dock()  # type: ignore[abstract]
