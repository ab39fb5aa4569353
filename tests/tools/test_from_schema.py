"""Tools of given parts: of a spec and a callable, and of a spec and work that takes the Context of its call."""

import os.path
import re
from dataclasses import replace
from typing import Any

import pytest

from toolcrib import Context, ToolSpec, Workbench, formats
from toolcrib.core import DefinitionError
from toolcrib.tools import from_schema, from_work, reference, referent
from toolcrib.workbench import prefixed

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
    assert ref is not None
    assert referent(ref) is os.path.join
    assert referent("os.path:nothing") is None
    assert referent("no_such_module:name") is None
