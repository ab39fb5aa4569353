"""Workbenches of fixed tools: every call returns a ToolResult."""

import asyncio
import base64
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pytest
from PIL import Image as pillow
from pydantic import BaseModel

import toolcrib
from toolcrib import ToolError, Workbench
from toolcrib.dialects.autogen import CancellationToken, Image
from toolcrib.dialects.autogen.tools import (
    BaseTool,
    FunctionTool,
    ImageResultContent,
    StaticWorkbench,
    TextResultContent,
    ToolOverride,
    ToolResult,
)

from .counter import Counter, Nothing, text


def add(a: int, b: int = 2) -> int:
    return a + b


async def greet(name: str) -> str:
    return f"Hello {name}"


def bench(*functions: Any, **options: Any) -> StaticWorkbench:
    tools = [each if isinstance(each, BaseTool) else FunctionTool(each, f"Do {each.__name__}.") for each in functions]
    return StaticWorkbench(tools, **options)


PIXEL = pillow.new("RGB", (1, 1), (255, 0, 0))


def png(picture: Any = None) -> bytes:
    file = BytesIO()
    (picture or PIXEL).save(file, format="PNG")
    return file.getvalue()


# Results


def test_a_result_is_text_with_images_in_base64_or_replaced():
    result = ToolResult(
        name="x", result=[TextResultContent(content="see"), ImageResultContent(content=Image(PIXEL))], is_error=False
    )
    assert result.to_text() == f"see\n[Image: {Image(PIXEL).to_base64()}]"
    assert result.to_text(replace_image="(image)") == "see\n(image)"


# Calls


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("add", {"a": 1}, text("add", "3")),
        ("add", {"a": "1", "b": "4"}, text("add", "5")),
        ("greet", {"name": "Zoë"}, text("greet", "Hello Zoë")),
        ("counter", None, text("counter", '{"count": 1}')),
        ("nope", {}, text("nope", "Tool nope not found.", is_error=True)),
        ("add", {}, text("add", "Tool 'add': 'a' is missing. Expected integer.", is_error=True)),
        (
            "add",
            {"a": 1, "c": 2},
            text("add", "Tool 'add' takes no argument 'c'. It takes: a, b.", is_error=True),
        ),
    ],
)
async def test_a_call_always_returns_a_result(name: str, arguments: Mapping[str, Any] | None, result: ToolResult):
    assert await bench(add, greet, Counter()).call_tool(name, arguments) == result


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such city"), "no such city"),
        (KeyError("city"), "'city'"),
        (TimeoutError(), "TimeoutError"),
        (ToolError("not now", "unavailable"), "not now"),
        (ExceptionGroup("g", [ValueError("one"), ExceptionGroup("h", [OSError("two")])]), "one\ntwo"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_errors_of_tools_are_the_text_of_the_exception(error: Exception, message: str, is_async: bool):
    def fail() -> str:
        raise error

    async def fail_async() -> str:
        raise error

    tools = bench(FunctionTool(fail_async if is_async else fail, "Fail.", name="fail"))
    assert await tools.call_tool("fail") == text("fail", message, is_error=True)


async def test_a_tool_may_give_images():
    def look(where: str) -> Any:
        images = {"core": png(), "broken": b"no image", "huge": png(pillow.new("1", (8000, 8000)))}
        return Image(PIXEL) if where == "ours" else toolcrib.Image(images[where])

    def list_them() -> Any:
        return ["two", Image(PIXEL), toolcrib.Image(png())]

    tools = bench(look, list_them)
    for where in ("ours", "core"):
        (part,) = (await tools.call_tool("look", {"where": where})).result
        assert isinstance(part, ImageResultContent)
        assert part.content.image.getpixel((0, 0)) == (255, 0, 0)
    assert (await tools.call_tool("look", {"where": "broken"})).to_text() == "[image: image/png, 8 bytes]"
    assert (await tools.call_tool("look", {"where": "huge"})).to_text().startswith("[image: image/png, ")
    assert (await tools.call_tool("list_them")).to_text(replace_image="(image)") == "two\n(image)\n(image)"
    native = await Workbench([FunctionTool(look, "Look.")]).call("look", {"where": "ours"})
    assert base64.b64decode(Image(PIXEL).to_base64()) == native.content[0].data  # type: ignore[union-attr]


async def test_a_tool_of_another_class_is_called_through_the_protocol():
    class Foreign:
        name, description = "foreign", "From elsewhere."
        schema = {"name": "foreign", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}

        async def run_json(self, args: Mapping[str, Any], cancellation_token: CancellationToken) -> Any:
            return dict(args)

        def return_value_as_string(self, value: Any) -> str:
            return f"<{value}>"

    tools = StaticWorkbench([Foreign()])  # type: ignore[list-item]
    assert await tools.call_tool("foreign", {"a": 1}) == text("foreign", "<{'a': 1}>")
    (native,) = tools.__toolcrib__()
    assert (await Workbench([native]).call("foreign", '{"a": "1"}')).value == {"a": 1}


async def test_secrets_are_redacted_in_results_and_errors():
    async def leak() -> None:
        raise ValueError("hunter22 is wrong")

    tools = bench(greet, leak, secrets=["hunter22"])
    assert await tools.call_tool("greet", {"name": "hunter22"}) == text("greet", "Hello [secret]")
    assert await tools.call_tool("leak") == text("leak", "[secret] is wrong", is_error=True)


async def test_a_call_that_takes_too_long_ends_in_time():
    async def wait() -> None:
        await asyncio.Event().wait()

    result = await bench(wait, timeout_s=0.2).call_tool("wait")
    assert result == text(
        "wait",
        "Tool 'wait' did not answer in time. Whether it took effect is unknown: find out before you ask for less.",
        is_error=True,
    )


# Cancelling


async def hang(cancellation_token: CancellationToken) -> None:
    await cancellation_token.link_future(asyncio.ensure_future(asyncio.Event().wait()))


class Hang(BaseTool[Nothing, BaseModel]):
    def __init__(self) -> None:
        super().__init__(Nothing, BaseModel, "hang", "Hang.")
        self.begun = asyncio.Event()

    async def run(self, args: Nothing, cancellation_token: CancellationToken) -> Any:
        self.begun.set()
        await asyncio.Event().wait()


async def test_a_cancelled_token_is_an_error_result():
    token = CancellationToken()
    token.cancel()
    result = await bench(greet).call_tool("greet", {"name": "you"}, token)
    assert result == text("greet", "Tool 'greet' was cancelled.", is_error=True)
    for tool in (FunctionTool(hang, "Hang."), Hang()):
        token = CancellationToken()
        asyncio.get_running_loop().call_soon(token.cancel)
        result = await bench(tool).call_tool("hang", {}, token)
        assert result == text("hang", "Tool 'hang' was cancelled.", is_error=True)


async def test_a_cancelled_task_raises_and_the_tools_token_is_cancelled():
    tokens: list[CancellationToken] = []

    class Keeps(Hang):
        async def run(self, args: Nothing, cancellation_token: CancellationToken) -> Any:
            tokens.append(cancellation_token)
            return await super().run(args, cancellation_token)

    tool = Keeps()
    task = asyncio.create_task(bench(tool).call_tool("hang"))
    await tool.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tokens[0].is_cancelled()


# Names


async def test_overrides_rename_and_describe_and_both_names_can_be_called():
    tools = bench(
        add, greet, tool_overrides={"add": ToolOverride(name="plus"), "greet": ToolOverride(description="Say.")}
    )
    assert [(each["name"], each["description"]) for each in await tools.list_tools()] == [
        ("plus", "Do add."),
        ("greet", "Say."),
    ]
    assert await tools.call_tool("plus", {"a": 1}) == text("plus", "3")
    assert await tools.call_tool("add", {"a": 1}) == text("add", "3")
    assert (await tools.call_tool("plus", {})).to_text() == "Tool 'plus': 'a' is missing. Expected integer."


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"add": ToolOverride(name="greet")}, "Tool override name 'greet' conflicts with existing tool name."),
        (
            {"add": ToolOverride(name="x"), "greet": ToolOverride(name="x")},
            "Tool override name 'x' is used by multiple tools: 'add' and 'greet'.",
        ),
        ({"addd": ToolOverride(name="x")}, "override for the tool 'addd', and no such tool. The tools are: add, greet"),
    ],
)
def test_overrides_that_are_not_clear_are_refused(overrides: dict[str, ToolOverride], message: str):
    with pytest.raises(ValueError, match=message):
        bench(add, greet, tool_overrides=overrides)


async def test_names_that_models_could_not_call_work_as_in_autogen():
    names = ["my tool", "my.tool", "a-b", "a_b", "x" * 70, "x" * 71]
    tools = bench(*(FunctionTool(add, "Add.", name=name) for name in names))
    for name in names:
        assert await tools.call_tool(name, {"a": 1}) == text(name, "3")
