"""Tools as classes: `run_json`, state, events."""

import functools
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import BaseTool, BaseToolWithState, FunctionTool, Tool
from probing import add, probe
from pydantic import BaseModel, Field, field_validator


class AddArgs(BaseModel):
    a: int
    b: int = Field(2, description="The second")

    @field_validator("a")
    @classmethod
    def not_thirteen(cls, value: int) -> int:
        if value == 13:
            raise ValueError("never thirteen")
        return value


class Sum(BaseModel):
    total: int


class Add(BaseTool[AddArgs, Sum]):
    def __init__(self) -> None:
        super().__init__(AddArgs, Sum, "add", "Add up.")

    async def run(self, args: AddArgs, cancellation_token: CancellationToken) -> Sum:
        return Sum(total=args.a + args.b)


class CountState(BaseModel):
    count: int = 0


class Count(BaseToolWithState[AddArgs, Sum, CountState]):
    def __init__(self, name: str = "count") -> None:
        super().__init__(AddArgs, Sum, CountState, name, "Count.")
        self.count = 0

    async def run(self, args: AddArgs, cancellation_token: CancellationToken) -> Sum:
        self.count += args.a
        return Sum(total=self.count)

    def save_state(self) -> CountState:
        return CountState(count=self.count)

    def load_state(self, state: CountState) -> None:
        self.count = state.count


def given(a: int, b: list[int] = [1]) -> Any:
    return [a, b]


async def given_async(a: int, b: list[int] | None = None) -> Any:
    return [a, b]


TOOLS: dict[str, Any] = {
    "a class": Add(),
    "a function": FunctionTool(given, "d"),
    "a partial": FunctionTool(functools.partial(given, b=[5]), "d", name="p"),
}


def _json(tool: Any, args: Any) -> Any:
    async def run() -> Any:
        value = await tool.run_json(args, CancellationToken())
        return value.model_dump() if isinstance(value, BaseModel) else value

    return run


for _name, _tool in TOOLS.items():
    for _what, _args in {
        "right": {"a": 1},
        "coerced": {"a": "1"},
        "missing": {},
        "wrong": {"a": "x"},
        "one too many": {"a": 1, "z": 3},
        "refused by a validator": {"a": 13},
    }.items():
        add(f"run_json of {_name}: {_what}", _json(_tool, _args))


@probe
async def run_of_a_model() -> Any:
    return (await Add().run(AddArgs(a=3), CancellationToken())).model_dump()


@probe
async def run_of_a_functions_model() -> Any:
    tool = FunctionTool(given, "d")
    return await tool.run(tool.args_type()(a=3), CancellationToken())


add("a class's types", lambda: [kind.__name__ for kind in (Add().args_type(), Add().return_type())])
add("a class's schema", lambda: Add().schema)
add("a class's value as text", lambda: Add().return_value_as_string(Sum(total=3)))
add("a class is a Tool", lambda: [isinstance(each, Tool) for each in (Add(), FunctionTool(given, "d"), 3)])
add("a class cannot be dumped", lambda: Add().dump_component().model_dump())
add("BaseTool is abstract", lambda: BaseTool(AddArgs, Sum, "n", "d"))
add("BaseToolWithState is abstract", lambda: BaseToolWithState(AddArgs, Sum, CountState, "n", "d"))
add("state_type of a class with state", lambda: repr(Count().state_type()))


@probe
async def state_of_a_tool() -> Any:
    tool = Count()
    await tool.run_json({"a": 3}, CancellationToken())
    saved = await tool.save_state_json()
    other = Count()
    await other.load_state_json(saved)
    return [saved, other.count]


@probe
async def state_that_does_not_fit() -> Any:
    await Count().load_state_json({"count": "many"})


@probe
async def state_of_a_tool_without_any() -> Any:
    tool = Add()
    await tool.load_state_json({"anything": 1})
    return await tool.save_state_json()


@probe
async def a_wrong_type_of_result_is_the_users_responsibility() -> Any:
    def wrong() -> int:
        return "text"  # type: ignore[return-value]

    return await FunctionTool(wrong, "d").run_json({}, CancellationToken())
