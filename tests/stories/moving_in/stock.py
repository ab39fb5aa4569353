"""AutoGen's tools at the top of a file, in a workbench, and as a configuration that was written by AutoGen."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool, StaticWorkbench


async def get_stock_price(ticker: str, date: Annotated[str, "Date in YYYY/MM/DD"]) -> dict[str, float]:
    return {ticker: 12.5}


stock_price_tool = FunctionTool(get_stock_price, description="Fetch the stock price for a given ticker.")


async def main() -> None:
    workbench = StaticWorkbench([stock_price_tool])
    result = await workbench.call_tool("get_stock_price", {"ticker": "AAPL", "date": "2021/01/01"}, CancellationToken())
    print(result.to_text())
    print((await workbench.call_tool("get_stock_price", {"ticker": "AAPL"})).to_text())
    foreign = StaticWorkbench.load_component(json.loads(Path("workbench.json").read_text()))
    print(
        [schema["name"] for schema in await foreign.list_tools()], (await foreign.call_tool("add", {"a": 1})).to_text()
    )


if __name__ == "__main__":
    asyncio.run(main())
