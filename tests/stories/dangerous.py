"""Dangerous tools ask first: two people share a crib whose rules let nothing destructive run unasked."""

import asyncio
import tomllib

from toolcrib import Approve, Caller, Crib, Deny, Result, tool
from toolcrib.core import AnswerError
from toolcrib.record import CallLog
from toolcrib.workbench import rules_from_data

RULES = """
[[rule]]
hint = "destructive"
do = "ask"
others_only = true
message = "May this table be dropped for good?"
"""

TABLES = {"orders": 40, "customers": 60}


@tool(read_only=True)
async def count(table: str) -> int:
    """How many rows a table has."""
    return TABLES[table]


@tool(destructive=True)
async def drop(table: str, *, keep_backup: bool = True) -> str:
    """Drop a table."""
    print(f"-- {table} is dropped")
    rows = TABLES.pop(table)
    return f"{rows} rows dropped, {'with' if keep_backup else 'without'} a backup"


def say(who: str, result: Result[object]) -> None:
    """What the model of *who* is told, in one line."""
    print(f"{who}: {result.status}: {result.text.splitlines()[0]}")


async def main() -> None:
    log = CallLog()
    rules = rules_from_data(tomllib.loads(RULES)["rule"])
    async with Crib([count, drop], policy=rules, recorder=log) as crib:
        alice = crib.workbench(Caller("alice"))
        bob = crib.workbench(Caller("bob"))

        say("alice", await alice.call("count", '{"table": "orders"}'))
        asked = await alice.call("drop", '{"table": "orders"}')
        say("alice", asked)
        assert asked.pending is not None
        print("shown:", asked.pending.tool, asked.pending.arguments, "for", asked.pending.principal)

        # Asking twice is one question, however the arguments are written.
        again = await alice.call("drop", '{"Table": "orders"}')
        assert again.pending is not None
        print("the same question:", again.pending.id == asked.pending.id, len(await crib.pendings()))

        try:
            await alice.answer(asked.pending.id, Approve(), by="alice")
        except AnswerError as error:
            print("refused:", error.reason)
        say("alice", await alice.call("drop", '{"table": "orders"}'))

        await crib.answer(asked.pending.id, Approve(), by="bob")
        # What Bob has approved is Alice's call with these arguments: not his own, and no other.
        say("bob", await bob.call("drop", '{"table": "orders"}'))
        other = await alice.call("drop", '{"table": "orders", "keep_backup": false}')
        say("alice", other)
        assert other.pending is not None
        print("another question:", other.pending.id != asked.pending.id)

        # One approval, two calls at once: one of them runs.
        for result in sorted(await alice.call_many([("drop", '{"table": "orders"}')] * 2), key=lambda r: r.status):
            say("alice", result)

        try:
            await crib.answer(asked.pending.id, Approve(), by="bob")
        except AnswerError as error:
            print("refused:", error.reason)
        await crib.answer(other.pending.id, Deny("keep the backup"), by="bob")
        say("alice", await alice.call("drop", '{"table": "orders", "keep_backup": false}'))
        print("left:", *TABLES)

    for entry in log:
        if entry.answered_by is not None:
            ended = entry.code or "success"
            print("record:", entry.caller.principal, entry.tool, ended, entry.rule, entry.decision, entry.answered_by)


asyncio.run(main())
