"""The example of FunctionTool in AutoGen's "autogen_core.tools" (002), with the import root changed."""

# The text is the document's, so it is not formatted.
# ruff: noqa: I001, UP035
# fmt: off

import random
from toolcrib.dialects.autogen import CancellationToken
from toolcrib.dialects.autogen.tools import FunctionTool
from typing_extensions import Annotated
import asyncio

async def get_stock_price(ticker: str, date: Annotated[str, "Date in YYYY/MM/DD"]) -> float:
    # Simulates a stock price retrieval by returning a random float within a specified range.
    return random.uniform(10, 200)

async def example():
    # Initialize a FunctionTool instance for retrieving stock prices.
    stock_price_tool = FunctionTool(get_stock_price, description="Fetch the stock price for a given ticker.")

    # Execute the tool with cancellation support.
    cancellation_token = CancellationToken()
    result = await stock_price_tool.run_json({"ticker": "AAPL", "date": "2021/01/01"}, cancellation_token)

    # Output the result as a formatted string.
    print(stock_price_tool.return_value_as_string(result))

asyncio.run(example())
