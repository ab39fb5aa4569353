"""`toolcrib threads`: what threads remember is forgotten, of all, of one caller, or of one thread."""

from .conftest import Run

TOOLS = """
from toolcrib import tool


@tool
async def fetch() -> str:
    return "a page"


@tool
async def send() -> str:
    return "sent"
"""

SETTINGS = """
[[source]]
from = "tools.py:fetch"
labels = ["untrusted"]

[[source]]
from = "tools.py:send"

[[rule]]
tools = "send"
seen = "untrusted"
do = "deny"

[policy]
mark_untrusted = true

[store]
url = "store.db"
"""


def may_send(toolcrib: Run, *principals: str) -> list[bool]:
    return [toolcrib("call", "send", "--principal", name).returncode == 0 for name in principals]


def test_threads_are_cleared(toolcrib: Run) -> None:
    names = ("ada", "bob", "cid")
    for name in names:
        page = toolcrib("call", "fetch", "--principal", name).stdout
        assert page.startswith("[Data from an untrusted source up to ")
        assert "a page" in page
    assert may_send(toolcrib, "ada") == [False]
    assert toolcrib("threads", "clear", "ada", "another thread").stderr == "Forgotten: 0 facts.\n"
    assert toolcrib("threads", "clear", "ada", "default").stderr == "Forgotten: 1 fact.\n"
    assert may_send(toolcrib, *names) == [True, False, False]
    assert toolcrib("threads", "clear", "bob").stderr == "Forgotten: 1 fact.\n"
    assert may_send(toolcrib, "bob", "cid") == [True, False]
    assert toolcrib("threads", "clear").stderr == "Forgotten: 1 fact.\n"
    assert may_send(toolcrib, "cid") == [True]
