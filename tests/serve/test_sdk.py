"""The members of the official SDK that it does not call public: which there are, and what their loss is called."""

import re
from pathlib import Path

import mcp
import pytest

import toolcrib
from toolcrib import Crib, SetupError
from toolcrib.serve import sdk, server

ROOMS = Path(toolcrib.__file__).parent


@pytest.mark.parametrize(("of", "name"), sdk.MEMBERS, ids=lambda part: getattr(part, "__name__", part))
def test_the_sdk_has_each_member_that_a_server_needs(
    of: type[object], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "MEMBERS", ((of, name),))
    sdk.require_members()


def test_a_member_that_went_away_is_named_when_a_server_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "MEMBERS", (*sdk.MEMBERS, (mcp.server.session.ServerSession, "_gone")))
    with pytest.raises(SetupError, match=r"has no 'ServerSession\._gone'"):
        server(Crib())


def test_no_other_file_uses_a_private_member_of_the_sdk() -> None:
    private = re.compile(r"reportPrivateUsage|from mcp[\w.]*\._|import _\w+ .*mcp")
    users = {
        str(file.relative_to(ROOMS))
        for room in ("serve", "tools")
        for file in (ROOMS / room).rglob("*.py")
        if private.search(file.read_text())
    }
    assert users == {"serve/sdk.py"}
