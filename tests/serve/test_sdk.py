"""What is used of the official SDK: only what it calls public, and not its server."""

import re
from pathlib import Path

import toolcrib

ROOMS = Path(toolcrib.__file__).parent


def test_no_file_uses_a_private_member_of_the_sdk_or_its_server() -> None:
    private = re.compile(r"reportPrivateUsage|from mcp[\w.]*\._|import _\w+ .*mcp")
    servers = re.compile(r"from mcp\.server(?!\.(?:request_state|subscriptions) )|import mcp\.server")
    users = {
        (str(file.relative_to(ROOMS)), of)
        for room in ("serve", "tools")
        for file in (ROOMS / room).rglob("*.py")
        for of, pattern in (("private", private), ("server", servers))
        if pattern.search(file.read_text())
    }
    assert users == set()
