"""Views of sources: fewer tools, other names; the work is the same, and what is said uses the name that was seen."""

from pathlib import Path
from typing import Any

import pytest

from toolcrib import Registry, SetupError, Tool, Workbench, tool
from toolcrib.core import DefinitionError, LoadError, NameConflictError, UnknownToolError
from toolcrib.tools import load
from toolcrib.workbench import View, filtered, joined, prefixed, renamed


@tool(read_only=True, tags=["read"])
async def get_user(id: int) -> str:
    """Get a user."""
    return f"user {id}"


@tool(read_only=False, tags=["write"])
def set_user(id: int, name: str) -> dict[str, Any]:
    """Change a user."""
    return {"id": id, "name": name}


@tool(parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}, tags=["read", "slow"])
async def find_user(q: str) -> list[int]:
    """Find users."""
    return ["no list of numbers"]  # type: ignore[list-item]


USERS = [get_user, set_user, find_user]


def names(source: Any) -> list[str]:
    return [spec.name for spec in Workbench([source]).specs()]


def test_a_filter_takes_by_name_tag_and_hint() -> None:
    assert names(filtered(USERS)) == ["get_user", "set_user", "find_user"]
    assert names(filtered(USERS, "get_*")) == ["get_user"]
    assert names(filtered(USERS, "get_*", "find_user")) == ["get_user", "find_user"]
    assert names(filtered(USERS, "?et_*")) == ["get_user", "set_user"]
    assert names(filtered(USERS, without="*et_*")) == ["find_user"]
    assert names(filtered(USERS, "*_user", without=["get_*", "find_user"])) == ["set_user"]
    assert names(filtered(USERS, tags=["slow", "write"])) == ["set_user", "find_user"]
    assert names(filtered(USERS, "find*", tags="read")) == ["find_user"]
    assert names(filtered(USERS, hint="read_only")) == ["get_user"]
    assert names(filtered(USERS, "delete_*")) == []


@pytest.mark.parametrize("without", ["get_users", "Get_user", ["set_user", "get-user"]])
def test_a_name_that_is_left_out_has_to_be_there_and_a_pattern_may_match_nothing(without: Any) -> None:
    with pytest.raises(UnknownToolError, match=r"There is no tool '[Gg]et.user.*'. Did you mean 'get_user'?"):
        Workbench([filtered(USERS, without=without)])
    assert names(filtered(USERS, without=["delete_*", "get_user"])) == ["set_user", "find_user"]


async def test_a_renamed_tool_does_the_same_work_and_speaks_of_itself_by_its_new_name() -> None:
    view = renamed(USERS, {"get_user": ("fetch", "Fetch somebody."), "find_user": "look_up"})
    async with Workbench([view]) as bench:
        specs = {spec.name: spec for spec in bench.specs()}
        assert list(specs) == ["fetch", "set_user", "look_up"]
        assert (specs["fetch"].description, specs["look_up"].description) == ("Fetch somebody.", "Find users.")
        assert specs["fetch"].input_schema == Tool(get_user).spec.input_schema
        assert (specs["fetch"].hints.read_only, specs["look_up"].tags) == (True, {"read", "slow"})
        texts = [
            (await bench.call(name, arguments)).text
            for name, arguments in (
                ("fetch", {"id": 7}),
                ("fetch", {"id": "seven"}),
                ("look_up", {"p": "x"}),
                ("look_up", {"q": "x"}),
                ("get_user", {"id": 7}),
            )
        ]
    assert texts[0] == "user 7"
    assert texts[1].startswith("Tool 'fetch': ")
    assert texts[2].startswith("Tool 'look_up' takes no argument 'p'.")
    assert texts[3].startswith("Tool 'look_up' ")
    assert texts[4].startswith("There is no tool 'get_user'.")
    assert "get_user" not in "".join(texts[:4])
    assert "find_user" not in "".join(texts[:4])
    assert (await Workbench([view]).call(get_user, 7)).value == "user 7", "a function is known by what it is"
    assert Tool(get_user).spec.name == "get_user"


def test_views_can_be_viewed_again_and_joined() -> None:
    other = Tool(get_user, description="Get one of the other users.")
    both = joined(prefixed(filtered(USERS, "get_*"), "a_"), prefixed([other], "b_"))
    assert names(both) == ["a_get_user", "b_get_user"]
    assert names(renamed(both, {"b_get_user": "get"})) == ["a_get_user", "get"]
    assert names(joined()) == []
    assert names(prefixed(Registry([get_user]), "x-")) == ["x-get_user"]
    assert [made.spec.name for made in load(both).tools] == ["a_get_user", "b_get_user"]
    assert isinstance(both, View)
    assert repr(both) == "<View joined(prefixed(filtered(list), 'a_'), prefixed(list, 'b_'))>"


def test_a_view_takes_what_a_workbench_takes_and_passes_its_problems_on(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("from toolcrib import tool\n@tool\ndef one() -> int:\n    return 1\n")
    (tmp_path / "broken.py").write_text("def two(:\n")
    bench = Workbench([prefixed(filtered(str(tmp_path), "o*"), "my_")])
    assert [spec.name for spec in bench.specs()] == ["my_one"]
    assert [problem.place for problem in bench.problems] == [f"{tmp_path / 'broken.py'}:1"]
    assert names(prefixed(tmp_path / "good.py", "my_")) == ["my_one"]
    with pytest.raises(LoadError, match="not a source of tools"):
        Workbench([filtered("no such thing")])


@pytest.mark.parametrize(
    ("view", "kind", "reason"),
    [
        (
            renamed(USERS, {"get_usr": "x"}),
            UnknownToolError,
            "There is no tool 'get_usr'. Did you mean 'get_user'? The tools are: get_user, set_user, find_user.",
        ),
        (filtered(USERS, "get_usr", "*"), UnknownToolError, "There is no tool 'get_usr'. Did you mean 'get_user'?"),
        (
            renamed(USERS, {"get_user": "set_user"}),
            NameConflictError,
            "A view would have two tools named 'set_user'. Give one of them another name with renamed(), or one of the "
            "sources a prefix with prefixed().",
        ),
        (
            renamed(USERS, {"get_user": "x", "set_user": "x"}),
            NameConflictError,
            "A view would have two tools named 'x'",
        ),
        (
            renamed(USERS, {"get_user": "x-y", "set_user": "x_y"}),
            NameConflictError,
            "A view would have a tool named 'x_y', and another 'x-y', which differs only in - and _.",
        ),
        (joined(get_user, USERS), NameConflictError, "A view would have two tools named 'get_user'"),
        (prefixed(USERS, "a b"), DefinitionError, "'a bget_user' cannot be the name of a tool"),
        (prefixed(USERS, "x" * 60), DefinitionError, f"'{'x' * 60}get_user' cannot be the name of a tool"),
        (renamed(USERS, {"get_user": ""}), DefinitionError, "'' cannot be the name of a tool"),
        (filtered(3), LoadError, "A value of type int is not a source of tools."),
    ],
)
def test_what_a_view_cannot_show_is_refused_and_named(view: View, kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind) as caught:
        Workbench([view])
    assert str(caught.value).startswith(reason)


def test_bad_data_is_refused_when_the_view_is_made() -> None:
    for wrong in ({"a": 3}, {"a": ("b", "c", "d")}, {"a": ()}, {"a": (1, "x")}, {1: "b"}, {"a": ("b", None)}):
        with pytest.raises(SetupError, match=r"is renamed to a name, or to \(name, description\)"):
            renamed(USERS, wrong)
    for wrong_names in ("get_user", ["get_user"], None, 3):
        with pytest.raises(SetupError, match="renamed takes a mapping"):
            renamed(USERS, wrong_names)  # type: ignore[arg-type]
    for prefix in ("", None, 3):
        with pytest.raises(SetupError, match="A prefix is a text"):
            prefixed(USERS, prefix)  # type: ignore[arg-type]
    for pattern in ("", 3, None, ["x"]):
        with pytest.raises(SetupError, match="a filter is a pattern of names"):
            filtered(USERS, pattern)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match="without is a pattern of names"):
        filtered(USERS, without=[3])  # type: ignore[list-item]
    for tags in ([3], 3):
        with pytest.raises(SetupError, match="tags are texts"):
            filtered(USERS, tags=tags)  # type: ignore[arg-type]
    with pytest.raises(SetupError) as caught:
        filtered(USERS, hint="readonly")
    assert str(caught.value) == (
        "There is no hint 'readonly'. Did you mean 'read_only'? "
        "There are: read_only, destructive, idempotent, open_world, long_running."
    )
