"""An agent loop of one's own: the OpenAI SDK talks to the model, and a workbench has the tools."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, cast

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from toolcrib import Call, Depends, Workbench, tool


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
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Bolts left? And the bill for both?"}]
    async with AsyncOpenAI() as client, Workbench([in_stock, total]) as bench:
        while True:
            answer = await client.chat.completions.create(
                model="any",
                messages=messages,
                tools=[
                    {
                        "type": "function",
                        "function": {"name": s.name, "description": s.description, "parameters": dict(s.input_schema)},
                    }
                    for s in bench.specs()
                ],
            )
            said = answer.choices[0].message
            messages.append(cast(ChatCompletionMessageParam, said.to_dict()))
            asked = [call for call in said.tool_calls or [] if call.type == "function"]
            if not asked:
                break
            results = await bench.call_many(Call(c.function.name, c.function.arguments, c.id) for c in asked)
            for result in results:
                messages.append({"role": "tool", "tool_call_id": result.call_id, "content": result.text})
                print(result.status, result.text, *result.repairs)
        print(said.content)

        typed = await bench.call(total, [1, 2])
        print(typed.unwrap() + 1)


asyncio.run(main())
