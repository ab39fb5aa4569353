"""An agent loop of one's own: the OpenAI SDK talks to the model, and a workbench has the tools."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from openai import AsyncOpenAI

from toolcrib import Depends, Workbench, formats, tool


class Pool:
    """Connections to the stock room's database."""

    async def count(self, part: str) -> int:
        return {"bolt": 40, "nut": 60}[part]


async def get_pool() -> AsyncIterator[Pool]:
    print("pool opened")
    yield Pool()
    print("pool closed")


@tool
async def in_stock(part: str, pool: Annotated[Pool, Depends(get_pool)]) -> int:
    """How many of a part are in stock."""
    return await pool.count(part)


@tool
def total(prices: list[int]) -> int:
    """Add prices up."""
    return sum(prices)


async def main() -> None:
    messages: list[Any] = [{"role": "user", "content": "Bolts left? And the bill for both?"}]
    async with AsyncOpenAI() as client, Workbench([in_stock, total]) as bench:
        specs = bench.specs()
        tools = formats.openai.tools(specs)
        while True:
            answer = await client.chat.completions.create(model="any", messages=messages, tools=tools)
            reply = formats.openai.reply(answer, specs)
            messages.append(reply.native)
            if not reply.calls:
                break
            results = await bench.call_many(reply.calls)
            messages += formats.openai.messages(results)
            for result in results:
                print(result.status, result.text, *result.repairs)
        print(reply.text)

        typed = await bench.call(total, [1, 2])
        print(typed.unwrap() + 1)


asyncio.run(main())
