"""`toolcrib grants`, `pending approve --until`: what would be allowed is shown before it is. And `--arguments`."""

import json
from datetime import UTC, datetime, timedelta

from .conftest import Run

TOOLS = '''from toolcrib import tool


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sun in {city}"
'''
SETTINGS = """
[[source]]
from = "tools.py"

[store]
url = "store.db"

[[rule]]
name = "weather"
tools = "weather"
do = "ask"
"""


def test_a_grant_is_shown_given_listed_and_revoked(toolcrib: Run) -> None:
    def status(city: str) -> str:
        return str(json.loads(toolcrib("call", "weather", f"city={city}", "--json").stdout)["status"])

    assert status("Oslo") == "pending"
    (pending,) = json.loads(toolcrib("pending", "list", "--json").stdout)
    approve = ("pending", "approve", pending["id"], "--by", "bob", "--until", "2999-01-01T00:00")
    late = toolcrib(*approve)
    assert "at most 30 days ahead" in late.stderr
    conversation = toolcrib(*approve[:-1], "conversation")
    assert "no conversation" in conversation.stderr
    until = ("--until", "conversation")
    for wrong in (("--until", "soon"), ("--where", "{}"), ("--tools", "w*"), (*until, "--where", "{"), until[:1]):
        assert toolcrib(*approve[:5], *wrong).returncode == 2
    assert json.loads(toolcrib("grants", "list", "--json").stdout) == []
    assert status("Oslo") == "pending"
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    approve = (*approve[:-1], until, "--where", '{"/city": "Oslo*"}', "--tools", "w*", "--tools", "tides")
    shown = toolcrib(*approve)
    assert shown.returncode == 2
    assert "may call 'weather' where /city is like \"Oslo*\"" in shown.stderr
    assert toolcrib(*approve, "--yes").returncode == 0
    assert [status(city) for city in ("Oslo", "Oslo S", "Bergen")] == ["success", "success", "pending"]
    (grant,) = json.loads(toolcrib("grants", "list", "--json").stdout)
    assert (grant["given_by"], grant["where"]) == ("bob", {"/city": "Oslo*"})
    assert toolcrib("grants", "revoke", grant["id"]).stderr.startswith("Revoked: ")
    assert "There is no grant" in toolcrib("grants", "revoke", grant["id"]).stderr
    assert status("Oslo S") == "pending"


def test_a_call_is_approved_with_other_arguments(toolcrib: Run) -> None:
    toolcrib("call", "weather", "city=Oslo")
    (pending,) = json.loads(toolcrib("pending", "list", "--json").stdout)
    approve = ("pending", "approve", pending["id"], "--by", "bob", "--arguments")
    assert "takes no argument 'town'" in toolcrib(*approve, '{"town": "Bergen"}').stderr
    for wrong in ("[]", "{", '{"city": "Bergen", "city": "Oslo"}'):
        assert "takes a JSON object" in toolcrib(*approve, wrong).stderr
    assert toolcrib(*approve, '{"city": "Bergen"}').returncode == 0
    assert toolcrib(*approve, '{"city": "Bod\u00f8"}').returncode == 1, "answered before"
    told = toolcrib("call", "weather", "city=Oslo").stdout
    assert told.splitlines()[0] == "sun in Bergen"
    assert "'bob' has changed the arguments" in told
