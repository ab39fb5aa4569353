"""Runs of an agent that wait and go on, until it is killed: `runs_worker.py STORE KEY EFFECTS FROM COUNT`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from toolcrib import Call, Caller, Context, Crib, tool
from toolcrib.agent import Agent, Model, Request
from toolcrib.formats import Reply, Results, User
from toolcrib.store import Store
from toolcrib.workbench import Rule, Rules

STORE, KEY, EFFECTS, FROM, COUNT = sys.argv[1:]


def effect(text: str) -> str:
    """Append one line, that a kill does not lose."""
    file = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{text}\n".encode())
    os.fsync(file)
    os.close(file)
    return text


@tool(task=True, idempotent=True)
async def dig(number: int, context: Context) -> str:
    """Dig, in two steps."""
    await context.step("one", effect, f"dig {number}")
    await context.sleep(0.05)
    return f"dug {number}"


@tool
async def pay(number: int) -> str:
    """Pay, which is not idempotent."""
    effect(f"pay {number}")
    await asyncio.sleep(0.02)
    return f"paid {number}"


class Clerk(Model):
    """A model that digs and pays, pays once more, and is done."""

    name = "clerk"

    async def reply(self, request: Request, /) -> Reply:
        prompt = next(turn for turn in request.turns if isinstance(turn, User))
        number = int(prompt.content[0].text)
        calls = [
            [Call("dig", {"number": number}, "call_0"), Call("pay", {"number": number}, "call_1")],
            [Call("pay", {"number": number + 1000}, "call_0")],
        ]
        done = sum(isinstance(turn, Results) for turn in request.turns)
        await asyncio.sleep(0.01)
        return Reply(calls=tuple(calls[done]), stop="calls") if done < 2 else Reply(f"done {number}")

    def stream(self, request: Request, /) -> Any:
        raise NotImplementedError


async def main() -> None:
    policy = Rules([Rule(tools="pay", do="ask")])
    async with Crib([dig, pay], store=Store(STORE, key=Path(KEY)), policy=policy) as crib:
        crib.store.ledger._lease_s = 1.0  # of what was killed, too: it ends soon
        async with Agent(Clerk(), crib.workbench(Caller("ann")), name="clerk") as agent:
            print(crib.store.ledger._heartbeat().owner, flush=True)
            for number in range(int(FROM), int(FROM) + int(COUNT)):
                outcome = await agent.run(str(number))
                print(number, outcome.task, flush=True)
            await asyncio.sleep(600)


asyncio.run(main())
