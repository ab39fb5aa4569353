"""The broker over time: its clock, refreshes that outlast a call, and what is redacted of what it has given."""

import asyncio
from datetime import timedelta

from toolcrib import Call, Caller, Context, Crib, ToolAuth, tool
from toolcrib.auth import Grant
from toolcrib.core import Broker, Credential

from .conftest import ALICE, ALICES, IDP, NOON, TOKEN, Server, Setup, as_json

ROTATING = f'{IDP}refresh = "rotated"\ndevice_url = "SERVER/device"\n'
ANSWER = as_json({**TOKEN, "expires_in": 3600, "refresh_token": "the-second-refresh"})
ENDING = Grant("the-first-token", "the-first-refresh", ["read"], NOON)


async def test_what_a_provider_gives_expires_by_the_brokers_clock(setup: Setup, server: Server) -> None:
    server.answers["/token"] = ANSWER
    async with setup.crib(ROTATING) as crib:
        await setup.broker.save(ALICES, ENDING)
        for hours in (1, 2):
            assert (await crib.workbench(ALICE).call("use")).text == "idp read"
            stored = await setup.broker.vault.get(ALICES)
            assert stored.grant.expires_at == NOON + timedelta(hours=hours)
            setup.now = stored.grant.expires_at
    flow = setup.broker.flow(setup.broker.needed(ToolAuth("idp"), "use"))
    code = {"device_code": "device-code", "user_code": "USER-CODE", "verification_uri": server.url, "expires_in": 60}
    server.answers["/device"] = as_json(code)
    assert (await flow.start_device(())).expires_at == setup.now + timedelta(seconds=60)


async def test_a_crib_that_stops_waits_for_a_refresh_under_way_so_that_its_token_is_stored(
    setup: Setup, server: Server
) -> None:
    server.answers["/token"] = ANSWER
    async with setup.crib(ROTATING) as crib:
        await setup.broker.save(ALICES, ENDING)
        server.open.clear()
        task = asyncio.create_task(crib.workbench(ALICE).call(Call("use", timeout_s=0.2)))
        await asyncio.to_thread(server.arrived.wait, 30)
        assert (await task).error.code == "timeout"
        stopping = asyncio.create_task(crib.stop())
        asyncio.get_running_loop().call_later(0.2, server.open.set)
        await stopping
        stored = await setup.broker.vault.get(ALICES)
        assert stored.grant.refresh_token == "the-second-refresh"


class Rotating(Broker):
    """Gives another token to each call, and the same key."""

    def __init__(self) -> None:
        self.count = 0

    async def authorize(self, requirements: object, caller: Caller, call: Call, /) -> list[Credential]:
        self.count += 1
        return [Credential("idp", f"token-number-{self.count:04}"), Credential("shop", "the-same-key")]


async def test_every_secret_that_a_caller_was_given_stays_redacted_for_them() -> None:
    @tool(auth=[ToolAuth("idp"), ToolAuth("shop")])
    async def use(ctx: Context) -> str:
        return " ".join(each.secret for each in ctx.credentials.values())

    @tool
    async def echo(text: str) -> str:
        return text

    broker = Rotating()
    async with Crib([use, echo], broker=broker, secrets=["token-number-0001"]) as crib:
        bench = crib.workbench(ALICE)
        for _ in range(250):
            assert (await bench.call("use")).text == "[secret] [secret]"
        tokens = [f"token-number-{number:04}" for number in range(1, 251)]
        for each in (bench, crib.workbench(ALICE), crib.workbench(Caller(ALICE.principal, "another", "t2"))):
            shown = (await each.call("echo", {"text": f"{' '.join(tokens)} the-same-key"})).text
            assert shown == " ".join(["[secret]"] * 251)
        del bench, each  # also where no workbench of theirs is left
        assert (await crib.workbench(ALICE).call("echo", {"text": tokens[5]})).text == "[secret]"
        assert (await crib.workbench(Caller("bob")).call("echo", {"text": tokens[5]})).text == tokens[5]
