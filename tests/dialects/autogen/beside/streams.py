"""Tools and workbenches that stream."""

from collections.abc import AsyncGenerator
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import (
    BaseStreamTool,
    FunctionTool,
    StaticStreamWorkbench,
    StreamTool,
    ToolOverride,
    ToolResult,
)
from autogen_core.tools._workbench import StreamWorkbench
from probing import add, probe
from pydantic import BaseModel
from workbenches import one


class Upto(BaseModel):
    n: int
    fail_at: int | None = None


class Step(BaseModel):
    step: int


class Done(BaseModel):
    total: int


class Steps(BaseStreamTool[Upto, Step, Done]):
    def __init__(self, ends: bool = True, name: str = "steps") -> None:
        super().__init__(Upto, Done, name, "Step by step.")
        self.ends = ends

    async def run(self, args: Upto, cancellation_token: CancellationToken) -> Done:
        return Done(total=args.n)

    async def run_stream(self, args: Upto, cancellation_token: CancellationToken) -> AsyncGenerator[Step | Done, None]:
        for step in range(args.n):
            if step == args.fail_at:
                raise RuntimeError(f"stumbled at {step}")
            yield Step(step=step)
        if self.ends:
            yield Done(total=args.n)


class Words(BaseStreamTool[Upto, Any, Any]):
    def __init__(self) -> None:
        super().__init__(Upto, str, "words", "Words.")  # type: ignore[arg-type]

    async def run(self, args: Upto, cancellation_token: CancellationToken) -> Any:
        return "run"

    async def run_stream(self, args: Upto, cancellation_token: CancellationToken) -> AsyncGenerator[Any, None]:
        for number in range(args.n):
            yield f"word {number}"


def shown(item: Any) -> Any:
    return [type(item).__name__, item.model_dump() if isinstance(item, BaseModel) else item]


def _tool_stream(tool: Any, args: Any) -> Any:
    async def run() -> Any:
        return [shown(item) async for item in tool.run_json_stream(args, CancellationToken())]

    return run


for _name, (_tool, _args) in {
    "all of it": (Steps(), {"n": 3}),
    "nothing but the end": (Steps(), {"n": 0}),
    "wrong arguments": (Steps(), {"n": "x"}),
    "a wrong end": (Steps(ends=False), {"n": 2}),
    "no end": (Steps(ends=False), {"n": 0}),
    "an error on the way": (Steps(), {"n": 3, "fail_at": 1}),
    "text": (Words(), {"n": 2}),
}.items():
    add(f"stream of a tool: {_name}", _tool_stream(_tool, _args))


def _bench_stream(name: str, args: Any, **options: Any) -> Any:
    async def run() -> Any:
        made = StaticStreamWorkbench(
            [Steps(), Steps(ends=False, name="endless"), Words(), FunctionTool(one, "d")], **options
        )
        return [shown(item) async for item in made.call_tool_stream(name, args)]

    return run


for _name, (_tool_name, _args) in {
    "all of it": ("steps", {"n": 3}),
    "nothing but the end": ("steps", {"n": 0}),
    "wrong arguments": ("steps", {"n": "x"}),
    "no arguments": ("steps", None),
    "an error on the way": ("steps", {"n": 3, "fail_at": 2}),
    "an error at once": ("steps", {"n": 3, "fail_at": 0}),
    "a wrong end": ("endless", {"n": 2}),
    "no end": ("endless", {"n": 0}),
    "text": ("words", {"n": 3}),
    "a tool that does not stream": ("one", {"a": 1}),
    "an error of one that does not stream": ("one", {}),
    "an unknown tool": ("other", {}),
}.items():
    add(f"stream of a workbench: {_name}", _bench_stream(_tool_name, _args))
_OVERRIDES = {"steps": ToolOverride(name="stairs"), "one": ToolOverride(name="uno")}
for _name in ("stairs", "steps", "uno"):
    add(
        f"stream of a workbench by an override: {_name}",
        _bench_stream(
            _name,
            {"n": 1, "a": 1} if _name == "x" else {"n": 1} if _name != "uno" else {"a": 1},
            tool_overrides=_OVERRIDES,
        ),
    )


@probe
async def a_streaming_tool_in_a_plain_call() -> Any:
    return (await StaticStreamWorkbench([Steps()]).call_tool("steps", {"n": 3})).model_dump()


@probe
async def a_stream_with_a_token_that_is_cancelled_already() -> Any:
    token = CancellationToken()
    token.cancel()
    made = StaticStreamWorkbench([Steps()])
    return [shown(item) async for item in made.call_tool_stream("steps", {"n": 1}, token)]


@probe
async def a_stream_that_is_left() -> Any:
    async for item in StaticStreamWorkbench([Steps()]).call_tool_stream("steps", {"n": 3}):
        return shown(item)
    return None


add("a streaming tool's schema", lambda: Steps().schema)
add("what streams", lambda: [isinstance(Steps(), StreamTool), isinstance(FunctionTool(one, "d"), StreamTool)])
add("a workbench that streams", lambda: issubclass(StaticStreamWorkbench, StreamWorkbench))
add("a streamed tool's value as text", lambda: Steps().return_value_as_string(Done(total=1)))
add("BaseStreamTool is abstract", lambda: BaseStreamTool(Upto, Done, "n", "d"))


async def _drain() -> None:
    async for item in Steps().run_json_stream({"n": 1}, CancellationToken()):
        assert not isinstance(item, ToolResult)
