"""Pocket: how tools get into it, how they are called, and what a call gives while a grant is missing."""

import asyncio
from typing import Any

import pytest

from toolcrib import Deny, SetupError
from toolcrib.dialects.hyperpocket import Pocket, PocketAuth
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.tool import Tool, ToolRequest, from_func, function_tool
from toolcrib.record import CallLog

from .own_handler import OwnContext, OwnHandler, add, grant, pocket, seen, who

pytestmark = pytest.mark.usefixtures("settings")


@function_tool
def fail() -> str:
    raise OSError("no disk")


# Calls


def test_the_grant_of_one_thread_or_profile_is_no_other_ones():
    made = pocket()
    grant(made.invoke("who", {}, thread_id="t1", profile="work"), "work")
    made.invoke("who", {}, thread_id="t1", profile="work")
    assert made.invoke_with_state("who", {}, thread_id="t1")[1]
    assert made.invoke_with_state("who", {}, thread_id="t2", profile="work")[1]
    grant(made.invoke("who", {}, thread_id="t2", profile="work"), "other")
    made.invoke("who", {}, thread_id="t2", profile="work")
    assert [each["OWN_TOKEN"] for each in seen] == ["token-for-work", "token-for-other"]


async def test_every_form_of_a_call_works_also_inside_a_running_loop():
    """Defect 7: the sync forms raised RuntimeError there."""
    made, body = pocket(), {"a": 1, "b": 2}
    assert made.invoke("add", body) == "3"
    assert made.invoke_with_state("add", body) == ("3", False)
    assert await made.ainvoke("add", body) == "3"
    assert await made.ainvoke_with_state("add", body) == ("3", False)
    assert await made.acall("add", body) == ("3", False)
    assert await asyncio.to_thread(made.invoke, "add", body) == "3"


async def test_what_else_a_program_gives_by_name_reaches_the_handler_and_the_tool_and_is_no_models():
    """A program for hyperpocket names every argument and adds its own. Second case: `envs` and `tool_call`."""
    asked: list[Any] = []

    class Telling(OwnHandler):
        def prepare(self, *args: Any, **kwargs: Any) -> str:
            asked.append(kwargs.pop("tenant", None))
            return super().prepare(*args, **kwargs)

        async def authenticate(self, *args: Any, **kwargs: Any) -> OwnContext:
            asked.append(kwargs.pop("tenant", None))
            return await super().authenticate(*args, **kwargs)

    class Facts(Tool):
        async def ainvoke(self, body: Any, envs: Any, thread_id: str, profile: str, tenant: str = "") -> Any:
            return [body, envs, thread_id, profile, tenant]

    seen.clear()
    made = Pocket(auth=PocketAuth([Telling]), tools=None)
    tools = made.load_tools(who), made.load_tools([Facts(name="facts", description="")])
    assert [tool.name for loaded in tools for tool in loaded] == ["who", "facts"]
    called = {"thread_id": "t", "profile": "p", "tenant": "acme"}
    text, paused = await made.ainvoke_with_state(tool_name="who", body={"tenant": "evil"}, **called)
    assert not paused, text  # a model's `tenant` is an argument that the tool does not take
    text, paused = await made.ainvoke_with_state(tool_name="who", body={}, **called)
    assert paused
    grant(text)
    assert await made.ainvoke(tool_name="who", body={}, **called) == "t/p"
    assert (asked, seen[0]["tenant"], seen[0]["thread_id"]) == (["acme"] * 2, "acme", "t")
    assert (await made.acall(tool_name="facts", body={}, **called))[0] == [{}, {}, "t", "p", "acme"]
    envs = await made.authenticate(tool_name="who", thread_id="t", profile="p", tenant="acme")
    assert await made.prepare_auth(tool_name="who", thread_id="t", profile="p", tenant="acme") is None
    assert await made.tool_call(tool_name="who", body={}, envs=envs, thread_id="u", profile="q") == "u/q"
    assert seen[-1]["OWN_TOKEN"] == "token-for-code"
    assert await made.tool_call("facts", {"x": 1}, envs={"KEY": "value"}) == [
        {"x": 1},
        {"KEY": "value"},
        "default",
        "default",
        "",
    ]


async def test_acall_gives_what_a_class_returned_and_the_text_of_a_function():
    class Facts(Tool):
        def invoke(self, **kwargs: Any) -> Any:
            return {"n": None}

    def facts() -> dict[str, None]:
        return {"n": None}

    made = pocket(Facts(name="own", description=""), facts, from_func(facts, name="last") | (lambda text: [text]))
    assert [await made.acall(name, {}) for name in ("own", "facts", "last")] == [
        ({"n": None}, False),
        ('{"n":null}', False),
        (['{"n":null}'], False),
    ]
    assert [await made.ainvoke(name, {}) for name in ("own", "facts")] == ['{"n":null}'] * 2


async def test_the_workbench_of_a_thread_says_whether_a_call_has_failed():
    made = pocket(fail)
    async with made.workbench("t1", "work") as bench:
        failed, pending, ready = (
            await bench.call("fail"),
            await bench.call("who"),
            await bench.call("add", {"a": 1, "b": 2}),
        )
    assert failed.error is not None
    assert (failed.error.code, pending.status, ready.status) == ("failed", "pending", "success")
    assert pending.pending is not None and pending.pending.kind == "authorization"
    assert pending.pending.url is not None and pending.pending.url.startswith("https://login.example/?state=")
    assert pending.text.startswith("Tool 'who' has not run: it waits for authorization: User needs to authenticate")


def test_an_override_of_pocket_auth_is_felt_sync_or_async():
    class Own(PocketAuth):
        async def invoke(self, tool_or_auth: Any, thread_id: str = "", profile: str = "", wait: bool = True) -> Any:
            asked.append((tool_or_auth, thread_id, profile, wait))
            return OwnContext(access_token="of-my-own", description="", expires_at=None)

    class Sync(PocketAuth):
        def invoke(self, *args: Any, **kwargs: Any) -> Any:
            return "Ask at the desk."

    asked: list[Any] = []
    seen.clear()
    assert Pocket([who], auth=Own()).invoke("who", {}, "t1", "work") == "t1/work"
    assert (asked, seen[0]["OWN_TOKEN"]) == ([(who, "t1", "work", False)], "of-my-own")
    assert Pocket([who], auth=Sync()).invoke_with_state("who", {}) == ("Ask at the desk.", True)


def test_a_secret_of_a_grant_or_a_given_one_is_redacted_in_what_the_tool_says():
    @function_tool(auth_provider=AuthProvider.GITHUB, scopes=["repo"])
    def leak(**kwargs: Any) -> str:
        return f"with {kwargs['OWN_TOKEN']}"

    made = pocket(leak)
    assert made.invoke("leak", {}, envs={"OWN_TOKEN": "a-token-of-alice"}) == "with [secret]"
    grant(made.invoke("leak", {}))
    assert asyncio.run(made.acall("leak", {})) == ("with [secret]", False)


def test_a_pocket_takes_the_options_of_a_crib_but_no_other_broker():
    log = CallLog()
    made = pocket(recorder=log, policy=lambda spec, arguments, caller: Deny("not today"))
    assert made.invoke("add", {"a": 1, "b": 2}).endswith("not today")
    assert [record.tool for record in log] == ["add"]
    with pytest.raises(SetupError, match="authorized by its PocketAuth"):
        pocket(broker=None)


# Tools


class Request(ToolRequest):
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


def load(request: Any) -> Tool:
    def show(**kwargs: Any) -> str:
        return kwargs.get("A", "")

    return from_func(show, name=str(request), tool_vars={"A": "default"})


class Loading(Pocket):
    loaders = {Request: load}


def test_tools_are_tools_functions_and_what_a_loader_of_a_subclass_takes():
    class More(Loading):
        loaders = {str: load}

    def plain() -> str:
        return "plain"

    request = (Request("asked") | str.upper).override_tool_variables({"A": "given"})
    made = More([add, plain, request, "text", ("both", {"A": "given"}), (plain_two, {})])
    names = ["add", "plain", "asked", "text", "both", "plain_two"]
    assert [name for name in made.tools if name in names] == names
    assert [made.invoke(name, {}) for name in names[1:]] == ["plain", "GIVEN", "default", "given", "two"]


def plain_two() -> str:
    return "two"


def test_a_request_without_a_loader_is_refused_with_the_way_out():
    for wrong, name in ((Request("asked"), "Request"), ("https://tools.example/x", "str"), (("x", {"A": "1"}), "str")):
        with pytest.raises(ValueError, match=rf"class MyPocket\(Pocket\): loaders = {{{name}: load}}"):
            Pocket([wrong])
    with pytest.raises(ValueError, match="Invalid tool type: <class 'int'>"):
        Pocket([1])  # type: ignore[list-item]


def test_tools_come_and_go():
    made = pocket()
    assert (made.remove_tool("add"), made.remove_tool("add")) == (True, False)
    assert made.invoke("add", {"a": 1, "b": 2}).startswith("There is no tool 'add'")
    made.load_tools([add])
    assert made.invoke("add", {"a": 1, "b": 2}) == "3"
    with pytest.raises(RuntimeError, match="Duplicate tool name: add"):
        made.load_tools([from_func(lambda: "", name="add")])
    with pytest.raises(RuntimeError, match="Duplicate tool name: add"):
        Pocket([add, from_func(lambda: "", name="add")])


# Authentication before a call


@function_tool(auth_provider=AuthProvider.GITHUB, scopes=["gist"])
def gist(**kwargs: Any) -> str:
    return "gist"


async def test_everything_is_granted_before_the_first_call():
    made = pocket(gist)
    assert {name: [tool.name for tool in tools] for name, tools in made.grouping_tool_by_auth_provider().items()} == {
        "GITHUB": ["who", "gist"]
    }
    asked = await made.initialize_tool_auth("t1", "work")
    assert list(asked) == ["GITHUB"] and asked["GITHUB"].endswith("&scopes=gist+repo")
    waiting = asyncio.create_task(made.wait_tool_auth("t1", "work"))
    grant(asked["GITHUB"])
    assert await waiting is True
    assert await made.initialize_tool_auth("t1", "work") == {}
    assert [await made.ainvoke(name, {}, "t1", "work") for name in ("who", "gist")] == ["t1/work", "gist"]
    assert await made.authenticate("who", "t1", "work") == {"OWN_TOKEN": "token-for-code"}
    assert await Pocket([add]).initialize_tool_auth() == {}


async def test_prepare_auth_asks_for_one_provider_and_refuses_several():
    """Defect 5: that the handlers differed was the text of a result."""
    other = function_tool(auth_provider=AuthProvider.GITHUB, auth_handler="github-token")(lambda: "")
    other.name = "other"
    elsewhere = function_tool(auth_provider=AuthProvider.SLACK)(lambda: "")
    elsewhere.name = "elsewhere"
    made = pocket(gist, other, elsewhere)
    assert await made.prepare_auth("add") is None
    assert await made.prepare_auth(["add"]) is None
    assert await made.authenticate("add") == {}
    assert (await made.prepare_auth(["who", "gist", "add"]) or "").endswith("&scopes=gist+repo")
    with pytest.raises(ValueError, match="All tools should have the same auth_handler"):
        await made.prepare_auth(["who", "other"])
    with pytest.raises(ValueError, match="All tools should have the same auth_provider"):
        await made.prepare_auth(["who", "elsewhere"])


# The built-in tools


def test_the_built_in_tools_list_and_delete_the_sessions_of_the_calling_thread():
    """Defect 4: they acted on the thread "default", whoever called."""
    made = pocket()
    for thread in ("t1", "t2"):
        grant(made.invoke("who", {}, thread))
        made.invoke("who", {}, thread)
    state = '[{"provider":"GITHUB","state":"skip_auth","scopes":["repo"]}]'
    show, delete = "__get_current_thread_session_state", "__delete_session"
    assert [made.invoke(show, {}, thread) for thread in ("t1", "t2", "default")] == [state, state, "[]"]
    assert [made.invoke(delete, {"auth_provider_name": "GITHUB"}, "t1") for _ in range(2)] == ["true", "false"]
    assert [made.invoke(show, {}, thread) for thread in ("t1", "t2")] == ["[]", state]
    assert made.invoke(show, {"thread_id": "default"}, "t2") == state
    assert (
        made.invoke(delete, {"auth_provider_name": "GITHUB", "thread_id": "t2", "profile": "default"}, "t2") == "true"
    )


def test_a_pocket_is_stopped_at_the_end_of_with():
    with pocket() as made:
        assert made.invoke("add", {"a": 1, "b": 2}) == "3"
    with pytest.raises(SetupError, match="stopped"):
        made.invoke("add", {"a": 1, "b": 2})
