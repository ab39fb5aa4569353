"""`toolcrib keys`, and a server that lets in who has one."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

from .conftest import Run

KEY = re.compile(r"toolcrib_(?P<id>[a-z0-9]{12})_[A-Za-z0-9]{43}\n")


def test_a_key_is_shown_once_and_listed_and_revoked_by_its_id(toolcrib: Run, folder: Path) -> None:
    options = ("--store", str(folder / "keys.db"))
    made = toolcrib("keys", "add", "alice", "--group", "staff", "--group", "admins", "--days", "7", *options)
    found = KEY.fullmatch(made.stdout)
    assert (made.returncode, found is not None) == (0, True)
    assert found is not None
    assert made.stderr == f"The key {found['id']} of 'key:alice'. It is not shown again.\n"
    other = json.loads(toolcrib("keys", "add", "bob", "--json", *options).stdout)
    assert KEY.fullmatch(other["key"] + "\n")
    assert (other["principal"], other["groups"], other["expires_at"]) == ("key:bob", [], None)
    listed = toolcrib("keys", "list", *options)
    rows = [line.split("\t") for line in listed.stdout.splitlines()]
    assert [row[:3] for row in rows] == [[found["id"], "key:alice", "admins staff"], [other["id"], "key:bob", ""]]
    made_at, expires_at = (datetime.strptime(text, "%Y-%m-%d %H:%M:%S") for text in rows[0][3:5])
    assert timedelta(0) <= timedelta(days=7) - (expires_at - made_at) < timedelta(minutes=1)  # it is made a bit later
    assert (rows[0][5], rows[1][4:]) == ("", ["", ""])
    assert found[0].strip().rpartition("_")[2] not in listed.stdout + listed.stderr
    assert toolcrib("keys", "revoke", found["id"], *options).stderr == f"Revoked: {found['id']}.\n"
    assert [one["id"] for one in json.loads(toolcrib("keys", "list", "--json", *options).stdout)] == [other["id"]]
    again = toolcrib("keys", "revoke", found["id"], *options)
    assert (again.returncode, again.stderr) == (
        1,
        f"Error: There is no key '{found['id']}'. See: toolcrib keys list\n",
    )
    wrong_lines = ["add a_b --days 0", "add a --days 36501", "add", "revoke", "add a --group="]
    for wrong in (["add", "a b"], *map(str.split, wrong_lines)):
        done = toolcrib("keys", *wrong, *options)
        assert (done.returncode in (1, 2), done.stdout) == (True, ""), wrong
