"""hyperpocket's documents on Tool (000, 001), item by item. Their class and steps are in tests/seeds/hyperpocket."""

import abc
import inspect
import runpy
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from toolcrib.dialects.hyperpocket import Pocket, PocketAuth
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.tool import Tool, ToolAuth, ToolRequest
from toolcrib.dialects.hyperpocket.tool.function import FunctionTool
from toolcrib.dialects.hyperpocket.tool_like import ToolLike

from .own_handler import OwnContext, OwnHandler, add, grant

pytestmark = pytest.mark.usefixtures("settings")

SEEDS = Path(__file__).parents[2] / "seeds" / "hyperpocket"


@pytest.fixture
def names() -> dict[str, Any]:
    return runpy.run_path(str(SEEDS / "how_to_implement.py"))


def test_tool_has_the_fields_of_the_document_with_types_defaults_and_descriptions() -> None:
    documented: type[BaseModel] = runpy.run_path(str(SEEDS / "tool.py"))["Tool"]
    assert issubclass(Tool, BaseModel) and isinstance(Tool, abc.ABCMeta)
    fields = {name: field for name, field in Tool.model_fields.items() if name != "use_profile"}
    assert list(fields) == list(documented.model_fields)
    for name, field in documented.model_fields.items():
        ours = fields[name]
        assert (ours.description, ours.is_required()) == (field.description, field.is_required())
        if not field.is_required():
            made = [each.get_default(call_default_factory=True) for each in (ours, field)]
            assert made[0] == made[1]
    # Without parameters, `dict` and `Callable` are `dict[str, Any]` and `Callable[..., Any]`.
    properties = [kind.model_json_schema(mode="validation") for kind in (_shown(Tool), _shown(documented))]
    assert properties[0]["properties"] == properties[1]["properties"]


def _shown(kind: type[BaseModel]) -> type[BaseModel]:
    """The fields of *kind* that JSON Schema can express."""
    from pydantic import create_model

    left_out = ("postprocessings", "use_profile")
    fields: Any = {name: (field.annotation, field) for name, field in kind.model_fields.items() if name not in left_out}
    return create_model("Shown", **fields)


def test_tool_auth_says_provider_handler_and_scopes_and_none_of_them_is_no_authentication() -> None:
    auth = ToolAuth(auth_provider=AuthProvider.GITHUB, auth_handler="github-oauth2", scopes=["repo"])
    assert (auth.auth_provider, auth.auth_handler, auth.scopes) == (AuthProvider.GITHUB, "github-oauth2", ["repo"])
    assert ToolAuth().model_dump() == {"scopes": None, "auth_provider": None, "auth_handler": None}

    class Refusing(PocketAuth):
        async def invoke(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("no authentication is required")

    free = FunctionTool.from_func(lambda: "free", name="free", auth=ToolAuth())
    assert Pocket([free], auth=Refusing()).invoke("free", {}) == "free"


def test_schema_model_moves_the_schema_under_body_beside_profile_and_thread_id() -> None:
    assert "use_profile" in inspect.signature(Tool.schema_model).parameters
    model = add.schema_model()
    assert model is not None
    assert set(model.model_fields) == {"thread_id", "profile", "body"}
    call = model.model_validate({"thread_id": "t1", "profile": "work", "body": {"a": 1, "b": 2}})
    assert call.model_dump() == {"thread_id": "t1", "profile": "work", "body": {"a": 1, "b": 2}}


def test_a_tool_request_is_the_interface_that_a_tool_is_initiated_from(names: dict[str, Any]) -> None:
    assert inspect.isabstract(ToolRequest)
    pocket = names["RepeatPocket"]([names["RepeatRequest"](2) | str.upper])
    assert pocket.invoke("repeat_2", {"word": "bolt"}) == "BOLT BOLT"


def test_a_tool_is_made_by_the_steps_of_the_document(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(SEEDS / "how_to_implement.py"), run_name="__main__")
    assert capsys.readouterr().out == "bolt bolt\n"
    tool = names["RepeatTool"].from_request(names["RepeatRequest"](3))
    assert isinstance(tool, Tool)
    assert Pocket(tools=[tool]).invoke("repeat_3", {"word": "nut"}) == "nut nut nut"


def test_a_tool_like_of_a_function_tool_is_a_callable() -> None:
    kinds = get_args(ToolLike)
    assert {Tool, str, ToolRequest} <= set(kinds)

    def plain() -> str:
        return "plain"

    assert isinstance(Pocket([plain]).tools["plain"], FunctionTool)


def test_initialization_is_by_the_value_of_the_tool_like_in_load_tool() -> None:
    loaded: list[Any] = []

    class Own(Pocket):
        def _load_tool(self, tool_like: Any) -> Tool:
            loaded.append(tool_like)
            return super()._load_tool(add if tool_like == "add" else tool_like)

    assert Own(["add"]).invoke("add", {"a": 1, "b": 2}) == "3"
    assert loaded == ["add"]


def test_the_flow_goes_from_pocket_by_pocket_auth_to_the_tool_with_the_information(names: dict[str, Any]) -> None:
    steps: list[str] = []

    class Seen(PocketAuth):
        async def invoke(self, *args: Any, **kwargs: Any) -> Any:
            steps.append("PocketAuth.invoke")
            return await super().invoke(*args, **kwargs)

    request = names["RepeatRequest"](2, auth=ToolAuth(auth_provider=AuthProvider.GITHUB, scopes=["repo"]))
    pocket = names["RepeatPocket"](tools=[request, add], auth=Seen(handlers=[OwnHandler]))
    assert (pocket.invoke("add", {"a": 1, "b": 2}), steps) == ("3", [])
    grant(pocket.invoke("repeat_2", {"word": "bolt"}))
    assert pocket.invoke("repeat_2", {"word": "bolt"}) == "bolt bolt OWN_TOKEN"
    assert steps == ["PocketAuth.invoke", "PocketAuth.invoke"]


async def test_pocket_auth_invoke_gives_the_context_of_a_tool_or_of_what_it_needs() -> None:
    auth = PocketAuth(handlers=[OwnHandler])
    needed = ToolAuth(auth_provider=AuthProvider.GITHUB, scopes=["repo"])
    tool = FunctionTool.from_func(lambda: "", name="post", auth=needed)
    text = await auth.invoke(tool, "t1", wait=False)
    assert isinstance(text, str)
    grant(text)
    context = await auth.invoke(needed, thread_id="t1", profile="default")
    assert isinstance(context, OwnContext)
    assert context == await auth.invoke(tool, "t1")
