"""A broker that the package does not know: it has a key for Alice, sends Bob to log in, and refuses everybody else."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from toolcrib import Call, Caller, CancellationToken, Context, Crib, Pending, ToolAuth, ToolError, tool
from toolcrib.core import Broker, Credential, Emitted, Requirement, Text

KEYS = {"alice": "alice-key-0123456789", "carol": "carol-key-0123456789"}


class Keys(Broker):
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.hangs = False

    async def authorize(
        self, requirements: Sequence[Requirement], caller: Caller, call: Call, /
    ) -> Sequence[Credential] | Pending:
        self.asked += [(caller.principal, each.provider) for each in requirements if isinstance(each, ToolAuth)]
        if self.hangs:
            await asyncio.Event().wait()
        if caller.principal == "bob":
            return Pending(
                id="pending_bob",
                kind="authorization",
                message="Log in at GitHub.",
                digest="",
                tool=call.tool,
                principal=caller.principal,
                thread=caller.thread,
                expires_at=datetime.now(UTC) + timedelta(minutes=5),
                url="https://github.example/login?state=1",
            )
        if caller.principal not in KEYS:
            raise ToolError("Nobody has keys for you.", "unauthorized")
        return [
            Credential(each.provider, KEYS[caller.principal]) for each in requirements if isinstance(each, ToolAuth)
        ]


@tool(auth=ToolAuth("github"))
async def issues(ctx: Context) -> str:
    return f"with {ctx.credentials['github'].secret}"


@tool(auth=ToolAuth("github"))
async def leak(ctx: Context) -> None:
    raise ValueError(f"GitHub refused {ctx.credentials['github'].secret}")


@tool(auth=ToolAuth("github"))
async def tail(ctx: Context) -> AsyncIterator[str]:
    secret = ctx.credentials["github"].secret
    for piece in (f"begin {secret[:7]}", f"{secret[7:]} middle", secret[:5], "end", "last"):
        yield piece


@tool
async def echo(text: str) -> str:
    return text


async def test_a_credential_pending_with_a_url_and_unauthorized() -> None:
    broker = Keys()
    async with Crib([issues], broker=broker) as crib:
        alice, bob, eve = (crib.workbench(Caller(name)) for name in ("alice", "bob", "eve"))
        result = await alice.call("issues")
        assert (result.status, result.text) == ("success", "with [secret]")
        waiting = await bob.call("issues")
        assert waiting.pending is not None
        assert waiting.pending.url == "https://github.example/login?state=1"
        assert "Log in at GitHub. (https://github.example/login?state=1)" in waiting.text
        refused = await eve.call("issues")
        assert refused.error is not None
        assert (refused.error.code, refused.text) == ("unauthorized", "Nobody has keys for you.")
    assert broker.asked == [("alice", "github"), ("bob", "github"), ("eve", "github")]


async def test_what_it_gives_is_redacted_for_that_caller_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with Crib([issues, leak, tail, echo], broker=Keys(), show_errors=True) as crib:
            alice, carol = crib.workbench(Caller("alice")), crib.workbench(Caller("carol"))
            assert (await alice.call("leak")).text.endswith("GitHub refused [secret]")
            streamed = [event async for event in carol.stream("tail")]
            texts = [part.text for event in streamed if isinstance(event, Emitted) for part in event.content
                     if isinstance(part, Text)]  # fmt: skip
            assert KEYS["carol"] not in "".join(texts)
            assert "".join(texts) == "begin [secret] middlecarolend"
            # Each knows their own: what is text to one is a secret to the other.
            assert (await carol.call("echo", {"text": KEYS["alice"]})).text == KEYS["alice"]
            assert (await alice.call("echo", {"text": KEYS["alice"]})).text == "[secret]"
            assert (await crib.workbench(Caller("alice")).call("echo", {"text": KEYS["alice"]})).text == "[secret]"
    assert KEYS["alice"] not in caplog.text


async def test_a_broker_that_hangs_is_within_the_deadline_and_can_be_cancelled() -> None:
    broker = Keys()
    broker.hangs = True
    async with Crib([issues], broker=broker) as crib, asyncio.timeout(30):
        bench = crib.workbench(Caller("alice"))
        result = await bench.call(Call("issues", timeout_s=0.05))
        assert result.error is not None
        assert result.error.code == "timeout"
        token = CancellationToken()
        asyncio.get_running_loop().call_later(0.05, token.cancel)
        result = await bench.call(Call("issues", cancellation=token))
        assert result.error is not None
        assert result.error.code == "cancelled"
