"""Ann asks for a refund, Bob approves it, and it runs once."""

import asyncio

from toolcrib import Approve, Caller, Crib


async def main() -> None:
    async with Crib.from_config() as crib:
        ann = crib.workbench(Caller("ann"))
        bob = Caller("bob", groups=frozenset({"leads"}))
        refund = {"order_id": 1, "amount": 5}
        print("ann finds", (await ann.call("find_orders", {"city": "Oslo"})).text)
        waiting = await ann.call("refund", refund)
        assert waiting.pending is not None
        print("ann:", waiting.pending.message)
        await crib.answer(waiting.pending.id, Approve(), by=bob)
        print("approved by bob:", (await ann.call("refund", refund)).text)
        print("once more:", (await ann.call("refund", refund)).status)


asyncio.run(main())
