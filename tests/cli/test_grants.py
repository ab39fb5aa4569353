"""`toolcrib grants`, and `pending approve --until`: what would be allowed is shown before it is."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

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


def test_a_grant_is_shown_given_listed_and_revoked(toolcrib: Run, folder: Path) -> None:
    (folder / "tools.py").write_text(TOOLS)
    (folder / "toolcrib.toml").write_text(SETTINGS)

    def status(city: str) -> str:
        return str(json.loads(toolcrib("call", "weather", f"city={city}", "--json").stdout)["status"])

    assert status("Oslo") == "pending"
    (pending,) = json.loads(toolcrib("pending", "list", "--json").stdout)
    approve = ("pending", "approve", pending["id"], "--by", "bob", "--until", "2999-01-01T00:00")
    late = toolcrib(*approve)
    assert "at most 30 days ahead" in late.stderr
    conversation = toolcrib(*approve[:-1], "conversation")
    assert "no conversation" in conversation.stderr
    for wrong in (("--until", "soon"), ("--where", "{}"), ("--until", "conversation", "--where", "{")):
        assert toolcrib(*approve[:5], *wrong).returncode == 2
    assert json.loads(toolcrib("grants", "list", "--json").stdout) == {"grants": [], "next": None}
    assert status("Oslo") == "pending"
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    approve = (*approve[:-1], until, "--where", '{"/city": "Oslo*"}')
    shown = toolcrib(*approve)
    assert shown.returncode == 2
    assert "may call 'weather' where /city is like \"Oslo*\"" in shown.stderr
    assert toolcrib(*approve, "--yes").returncode == 0
    assert [status(city) for city in ("Oslo", "Oslo S", "Bergen")] == ["success", "success", "pending"]
    (grant,) = json.loads(toolcrib("grants", "list", "--json").stdout)["grants"]
    assert (grant["given_by"], grant["where"]) == ("bob", {"/city": "Oslo*"})
    assert toolcrib("grants", "revoke", grant["id"]).stderr.startswith("Revoked: ")
    assert "There is no grant" in toolcrib("grants", "revoke", grant["id"]).stderr
    assert status("Oslo S") == "pending"
