"""Whose credentials a call gets: the host's choice, or among what the host listed; never another's."""

from typing import Any

import pytest

from toolcrib import Caller, Crib
from toolcrib.dialects.hyperpocket.tool import from_func

from .own_handler import add, grant, pocket, seen, who

pytestmark = pytest.mark.usefixtures("settings")


def mine(thread_id: str = "default", profile: str = "default") -> list[str]:
    return [thread_id, profile]


def test_where_the_model_names_them_only_those_that_the_host_listed_are_taken():
    made = pocket(use_profile=True, threads=["default", "t1"], profiles=["default", "work"])
    assert made.invoke("add", {"a": 1, "b": 2}, "t1", "work") == "3"
    assert made.invoke("add", {"a": 1, "b": 2}) == "3"
    assert made.invoke_with_state("who", {}, "t2") == (
        "Tool 'who' does not take this 'thread_id'. It takes: 'default', 't1'.",
        False,
    )
    assert made.invoke("add", {"a": 1, "b": 2}, profile="home") == (
        "Tool 'add' does not take this 'profile'. It takes: 'default', 'work'."
    )
    assert seen == []
    plain = pocket(use_profile=True)
    assert plain.invoke("add", {"a": 1, "b": 2}, "t1").startswith("Tool 'add' does not take this 'thread_id'")


def test_a_tool_may_offer_them_by_itself():
    own = from_func(mine)
    assert own.use_profile is False
    own.use_profile = True
    made = pocket(own)
    assert made.invoke("mine", {}, "t1").startswith("Tool 'mine' does not take this 'thread_id'")
    assert made.invoke("add", {"a": 1, "b": 2}, "t1") == "3"


def test_a_thread_in_the_arguments_of_a_function_is_one_that_the_host_listed():
    made = pocket(mine, threads=["default", "t1"], profiles=["work"])
    assert made.invoke("mine", {"thread_id": "t1", "profile": "work"}, "t2") == '["t1","work"]'
    assert made.invoke("mine", {"thread_id": "t2"}, "t2") == '["t2","default"]'
    assert made.invoke("mine", {"thread_id": "t3"}, "t2") == (
        "Tool 'mine' does not take this 'thread_id'. It takes: 'default', 't1', 't2'."
    )
    assert made.invoke("__delete_session", {"auth_provider_name": "GITHUB", "profile": "home"}, "t2").startswith(
        "Tool '__delete_session' does not take this 'profile'"
    )


# Other doors


async def test_callers_of_another_door_have_grants_of_their_own():
    made = pocket()
    grant(await made.ainvoke("who", {}), "local")
    await made.ainvoke("who", {})
    async with Crib([made]) as crib:
        alice, bob, local = (crib.workbench(Caller(name)) for name in ("alice", "bob", "local"))
        assert (await local.call("who")).text == "default/default"
        pending = (await alice.call("who")).pending
        assert pending is not None and pending.url is not None
        grant(f"User needs to authenticate using the following URL: {pending.url}", "alice")
        assert (await alice.call("who")).text == "alice/default/default"
        assert (await bob.call("who")).pending is not None
        # Neither the name of a thread nor that of a principal leads to another's.
        assert (await crib.workbench(Caller("alice/default")).call("who")).pending is not None
        assert (await crib.workbench(Caller("alice", thread="other")).call("who")).pending is not None
    assert [each["OWN_TOKEN"] for each in seen] == ["token-for-local", "token-for-local", "token-for-alice"]


async def test_through_another_door_a_model_chooses_only_what_is_listed():
    made = pocket(mine, use_profile=True, threads=["t1"], profiles=["work"])
    async with Crib([made]) as crib:
        alice, local = crib.workbench(Caller("alice")), crib.workbench()
        schema = next(spec for spec in alice.specs() if spec.name == "mine").input_schema
        assert list(schema["properties"]) == ["thread_id", "profile", "body"]
        assert schema["properties"]["thread_id"]["enum"] == ["default", "t1"]
        assert "<tool-description>" in next(spec for spec in alice.specs() if spec.name == "mine").description
        assert (await alice.call("mine", {"body": {}})).value == ["alice/default", "default"]
        chosen = {"thread_id": "t1", "profile": "work", "body": {}}
        assert (await alice.call("mine", chosen)).value == ["alice/t1", "work"]
        assert (await local.call("mine", chosen)).value == ["t1", "work"]
        for wrong in ({"thread_id": "t2"}, {"profile": "home"}):
            result = await alice.call("mine", {**wrong, "body": {}})
            assert result.error is not None and result.error.code == "invalid_arguments"
        # Nor by the arguments of the function: a listed thread is one of the program's, and not of alice.
        result = await alice.call("mine", {"body": {"thread_id": "t1"}})
        assert result.error is not None and result.error.code == "invalid_arguments"
        assert (await local.call("mine", {"body": {"thread_id": "t1"}})).value == ["t1", "default"]


async def test_tools_alone_are_authorized_by_the_workbench_they_are_in(settings: Any):
    """A Tool outside a Pocket requires what any tool of Toolcrib does, and finds it under hyperpocket's names."""
    from toolcrib.auth import CredentialBroker, Grant, Owner

    settings("")
    broker = CredentialBroker()
    async with Crib([who, add], broker=broker) as crib:
        bench = crib.workbench(Caller("alice", "work", "t1"))
        assert (await bench.call("who")).error.code == "unauthorized"
        await broker.save(Owner("alice", "work", "github", "oauth2"), Grant("a-github-token", scopes=("repo",)))
        seen.clear()
        assert (await bench.call("who")).text == "t1/work"
        assert seen == [{"GITHUB_TOKEN": "a-github-token", "thread_id": "t1", "profile": "work"}]


@pytest.mark.parametrize("option", ["threads", "profiles"])
def test_one_name_in_the_place_of_a_list_of_names_is_refused_with_the_way_out(option: str) -> None:
    with pytest.raises(ValueError, match=rf'{option} is a list of names, as in {option}=\["default", "work"\]'):
        pocket(**{option: "work"})
