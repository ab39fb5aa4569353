"""Tools of one's own classes: fields, schema, variables, postprocessings; ToolAuth and ToolRequest."""

import asyncio
from typing import Any

import pytest

from toolcrib import Workbench
from toolcrib.core import DefinitionError
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.tool import Tool, ToolAuth

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
